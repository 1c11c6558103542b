"""The tour, and whole jobs without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from triton_ops.cli import tour
from triton_ops.cli.tour import _FILES as FILES
from triton_ops.cli.tour import _STEPS as STEPS

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).parents[3]
NO_TORCH = "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
DEMO = "import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
TOUR = "from triton_ops.cli.app import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def without_torch(tmp_path):
    """Runs code in a process in which neither torch nor Triton can be imported."""

    def run(code, *arguments):
        return subprocess.run(
            [sys.executable, "-c", NO_TORCH + code, *arguments],
            cwd=tmp_path, text=True, capture_output=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT / 'examples'}", "TMPDIR": str(tmp_path),
                 "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip

    return run


@pytest.mark.processes
def test_the_tour_needs_no_torch_and_says_what_it_leaves_out(without_torch, tmp_path):
    done = without_torch(TOUR, "tour")
    assert done.returncode == 0, done.stderr
    folder = Path(re.match(r"\$ cd (.*)\n", done.stdout)[1])
    assert folder.parent == tmp_path
    assert "6 trials: 6 ok" in done.stdout
    assert "measured now" in done.stdout
    assert "from the cache, not measured again" in done.stdout
    assert len(re.findall(r"left out: triton\S* is needed for", done.stderr)) == 3
    for text, words in STEPS:
        assert f"{text}\n$ triton-ops {words}\n" in done.stdout, "a step that is left out says what it would show"
    assert f"open {(folder / 'report.html').as_uri()} in a browser" in done.stdout
    assert "squares:squares" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.processes
def test_the_example_of_the_main_job_needs_no_torch(without_torch, tmp_path):
    done = without_torch(DEMO, str(PROJECT / "examples" / "demo.py"))
    assert done.returncode == 0, done.stderr
    assert "Trials: 6: 6 ok" in done.stdout
    assert "Verified: results compared with the reference" in done.stdout
    assert "from its record in" in done.stdout
    assert "$ triton-ops cache show" in done.stdout
    assert f"file://{tmp_path}/build/demo/report.html" in done.stdout


@pytest.mark.triton
def test_the_steps_on_a_kernel_find_its_bug_rank_it_and_compile_it_for_another_gpu(
    cli, shared_fork_server, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doubled.py").write_text(FILES["doubled.py"], encoding="utf-8")
    linted, ranked, compiled = (cli(*words.split(), columns=60) for _, words in STEPS[2:5])
    assert max(map(len, linted.out.splitlines())) <= 60, "no word of a finding is cut in a narrow window"
    assert (linted.code, ranked.code, compiled.code) == (5, 0, 0)
    assert "1 finding in 1 kernel, 0 undecided" in linted.out
    assert "missing-mask in double" in linted.out
    assert ranked.out.count("num_warps=") == 8
    assert "8 configs: 8 ok" in compiled.out


@pytest.mark.processes
def test_what_fails_ends_the_tour_with_its_code(cli, monkeypatch):
    monkeypatch.setattr(tour, "_STEPS", (("Fail:", "lint nothing.py"), ("Never:", "cache path")))
    ran = cli("tour")
    assert ran.code == 2
    assert "nothing.py" in ran.err
    assert "Never" not in ran.out


def test_a_whole_job_needs_no_torch(without_torch):
    done = without_torch(DEMO, str(PROJECT / "tests/bare.py"))
    assert done.returncode == 0, done.stderr
    (said,) = re.findall("torch is needed for .*?,", done.stdout + done.stderr)
    assert said == "torch is needed for numbers of bfloat16,"
