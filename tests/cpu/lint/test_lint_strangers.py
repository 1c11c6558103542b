"""The lint on files of strangers: what their code can reach, and that nothing of it runs where nothing is to run."""

import platform
import sys

import pytest

from tests.cpu.lint.test_lint import FILES, FOLDER, planted
from triton_ops.exceptions import TargetError
from triton_ops_lint.apart import STEPS
from triton_ops_lint.engine import RULES, lint
from triton_ops_lint.island import Island

pytestmark = pytest.mark.triton
HEAD = "import os, socket, subprocess\nimport triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def copied(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    {body}
    tl.store(y + at, tl.load(x + at, mask=at < n) * {value}, mask=at <= n)
"""
ASKS = """
def write(name, ask):
    try:
        open(f"{folder}/{{name}}", "w").write(str(ask()))
    except OSError as error:
        open(f"{folder}/{{name}}", "w").write(type(error).__name__)
    return 1

V = tl.constexpr(
    write("names", lambda: sorted(os.environ)) + write("memory", lambda: open("/proc/self/environ").read())
    + write("child", lambda: subprocess.check_output(["env"])) + write("internet", socket.socket)
    + write("local", lambda: socket.socket(socket.AF_UNIX))
)
"""
FILTERED = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


@pytest.mark.processes
def test_code_of_a_file_sees_no_variables_of_the_user_and_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "abcdef")
    (folder := tmp_path / "answers").mkdir()
    (tmp_path / "asks.py").write_text(HEAD + ASKS.format(folder=folder) + KERNEL.format(body="", value="V"))
    assert [one.rule for one in lint(tmp_path / "asks.py", rules=["wrong-mask"]).findings] == ["wrong-mask"]
    answers = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(answers) == 5
    assert not [name for name, text in answers.items() if "A_SECRET" in text or "abcdef" in text]
    assert "PATH" in answers["names"]
    if FILTERED:
        assert (answers["internet"], answers["local"]) == ("PermissionError", "PermissionError")


RUNS = {
    "constant": "VALUE = tl.constexpr(1 + 0 * os.system('touch {flag}'))\n",
    "open": "VALUE = tl.constexpr(len([open('{flag}', 'w')]))\n",
    "attribute": "VALUE = tl.constexpr(().__class__.__base__.__subclasses__()[0])\n",
    "function": "def value():\n    open('{flag}', 'w')\n    return 1\nVALUE = tl.constexpr(value())\n",
    "class": "class VALUE:\n    open('{flag}', 'w')\n",
    "neighbour": "from neighbour import VALUE\n",
    "all of a neighbour": "from neighbour import *\n",
    "module in a list": "VALUE = tl.constexpr([triton][0].knobs.os.system('touch {flag}'))\n",
    "Triton's own": "VALUE = tl.constexpr(triton.knobs.os.system('touch {flag}'))\n",
    "import from it": "from triton.knobs import os as system\nVALUE = tl.constexpr(system.system('touch {flag}'))\n",
    "class of Triton": "from triton.runtime.cache import FileCacheManager\nVALUE = FileCacheManager('{flag}')\n",
    "decorator": "def mine(f):\n    open('{flag}', 'w')\n    return f\nVALUE = mine(1)\n",
    "if": "if os.system('touch {flag}') == 0:\n    VALUE = tl.constexpr(1)\n",
}
BODIES = {
    "module": "os.system('touch {flag}')",
    "Triton": "triton.knobs.os.system('touch {flag}')",
    "built in": "open('{flag}', 'w')",
    "builtins": "__builtins__['open']('{flag}', 'w')",
    "shadow": "print.os.system('touch {flag}')",
}


@pytest.mark.processes
@pytest.mark.parametrize("alone", [True, False])
def test_nothing_of_a_file_is_run_where_only_reading_is_asked(tmp_path, alone):
    (folder := tmp_path / "files").mkdir()
    (folder / "neighbour.py").write_text(f"open('{tmp_path}/neighbour', 'w')\nimport os\nVALUE = os.getpid()\n")
    cases = {f"head {name}": (head, "", "VALUE") for name, head in RUNS.items()}
    cases |= {
        f"body {name}": ("import triton.knobs as print, triton as other\n", body, "1") for name, body in BODIES.items()
    }
    for number, (name, (head, body, value)) in enumerate(cases.items()):
        flag = tmp_path / name.replace(" ", "-").replace("'", "")
        more = "\n@other.jit\ndef also(x, B: tl.constexpr):\n    tl.store(x, 1.0)\n" if body else ""
        text = HEAD + head.format(flag=flag) + KERNEL.format(body=body.format(flag=flag), value=value) + more
        (folder / f"file{number}.py").write_text(text)
        if alone and number % 4 == 0:
            lint(folder / f"file{number}.py", rules=["wrong-mask"], no_run=True)
    report = lint(folder, rules=["wrong-mask"], no_run=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files"]
    assert len({one.file for one in report.undecided if one.kernel == "copied"}) == len(cases)


@pytest.mark.processes
def test_what_a_file_writes_out_is_read_without_running_it(tmp_path):
    rules = sorted({rule.id for rule in RULES if rule.level in ("source", "ttir")})
    files = [FOLDER / f"{name}.py" for name in FILES[::2]]
    found = {each.stem: lint(each, rules=rules, no_run=True).findings for each in files}
    findings = {(name, one.line, one.rule) for name, several in found.items() for one in several}
    marks = {(each.stem, *one) for each in files for one in planted(each) if one[1] in rules}
    assert len(marks) > 40
    assert findings <= marks
    assert len(findings) >= 0.8 * len(marks)


@pytest.mark.parametrize(
    ("further", "value"),
    [
        ("if len('abc') > 2:\n    W = [4]", [4]),
        ("for b in (4, 8):\n    W.append(b)", [1, 4, 8]),
        ("W.extend((4, 8))", [1, 4, 8]),
        ("W[0] = len('abcd')", [4]),
    ],
)
def test_a_further_statement_gives_a_name_its_value_or_nothing_is_known_of_it(tmp_path, monkeypatch, further, value):
    (tmp_path / "values.py").write_text(f"W = [1]\n{further}\n")
    assert Island(tmp_path / "values.py").value("W") == value
    monkeypatch.setattr(STEPS, "only_reads", True)
    with pytest.raises(LookupError, match="is not run"):
        Island(tmp_path / "values.py").value("W")


def test_a_launch_is_not_asked_for_without_a_run(cli, tmp_path):
    (tmp_path / "one.py").write_text(HEAD + KERNEL.format(body="", value="1"))
    ran = cli("lint", f"{tmp_path}/one.py:copied@launch", "--no-run")
    assert (ran.code, "runs its file" in ran.err) == (2, True)
    assert cli("lint", tmp_path / "one.py", "--no-run", "--run").code == 2
    with pytest.raises(TargetError, match="exclude each other"):
        lint(tmp_path / "one.py", run=True, no_run=True)
