"""The skill is as short as promised, and its commands run as they stand."""

import json
import re
import shlex

import pytest

from tests.alone import PROJECT

from .test_server import KERNELS, SOFTMAX

SKILL = PROJECT / "skills/triton-ops/SKILL.md"
MOST_WORDS = 600
OLD = """
def softmax(x):
    return x.softmax(-1)
"""
NEW = """
def softmax(x):
    result = x.softmax(-1)
    result[:, x.shape[1] // 8 * 8 :] = 0
    return result
"""


def test_the_skill_is_short_and_has_what_skill_files_begin_with():
    text = SKILL.read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
    assert re.match(r"---\nname: triton-ops\ndescription: [^\n]{50,1024}\n---\n\n# ", text)


@pytest.mark.processes
def test_the_commands_of_the_skill_run(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    for name, text in {"functions": SOFTMAX, "kernels": KERNELS, "old": OLD, "new": NEW}.items():
        (tmp_path / f"{name}.py").write_text(text)
    commands = re.findall(r"^\$ triton-ops (.*)", SKILL.read_text(encoding="utf-8"), re.MULTILINE)
    ran = [cli(*shlex.split(command)) for command in commands]
    assert [one.code for one in ran] == [5, 0, 0, 0], ran  # what is checked there is wrong
    names = [json.loads(one.out)["kind"] for one in ran]
    assert names == ["triton-ops check", "triton-ops lint", "triton-ops compile", "triton-ops tune"]
