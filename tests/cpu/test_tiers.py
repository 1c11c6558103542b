"""The tiers of tests: an unmarked test that starts a Python process, forks or computes for long fails."""

import re
import subprocess
import sys

import pytest

from tests.tiers import starts_python

CASES = """
import multiprocessing
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def shared():
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.processes
def test_marked(shared):
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.extras("sh")
def test_real_part():
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_compiler():
    subprocess.run(["cc", "--version"], check=False)


def test_imports():
    import imported_for_long


def test_python():
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_shell():
    subprocess.run(f"exec {sys.executable} -c ''", shell=True, check=True)


def test_system():
    os.system(f"{sys.executable} -c ''")


def test_fork():
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)


def test_multiprocessing():
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()


def test_swallows_errors():
    try:
        subprocess.run([sys.executable, "-c", ""], check=True)
    except BaseException:
        pass


@pytest.fixture
def starting():
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_fixture(starting):
    pass


@pytest.fixture
def ending():
    yield
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_teardown(ending):
    pass


def test_computes():
    import time

    while time.thread_time() < 2.0:
        pass
"""
LONG = "import time\n\nbegun = time.thread_time()\nwhile time.thread_time() < begun + 0.5:\n    pass\n"
SHORT = "from tests import tiers\n\ntiers.MOST_S = 0.2\n"
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR) .*::test_(\w+)", re.MULTILINE)


@pytest.mark.processes
def test_an_unmarked_test_that_starts_a_process_or_computes_for_long_fails(tmp_path):
    for name, text in {"test_cases": CASES, "imported_for_long": LONG, "conftest": SHORT}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  processes\n  extras\n")
    words = ["-m", "pytest", "-q", "-rA", "-p", "tests.tiers", "--times", "-p", "no:cacheprovider", tmp_path]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    outcomes = {name: outcome for outcome, name in OUTCOME.findall(ran.stdout)}
    assert outcomes == {
        "marked": "PASSED", "real_part": "PASSED", "compiler": "PASSED", "imports": "PASSED", "python": "FAILED",
        "shell": "FAILED", "system": "FAILED", "fork": "FAILED", "multiprocessing": "FAILED",
        "swallows_errors": "FAILED", "fixture": "FAILED", "teardown": "ERROR", "computes": "FAILED",
    }, ran.stdout  # fmt: skip
    assert "it starts os.fork: mark it `processes`" in ran.stdout
    assert "CPU seconds of the reference machine, more than 0.2" in ran.stdout


@pytest.mark.parametrize(
    ("words", "is_python"),
    [
        ([sys.executable, "-c", ""], True),
        ([sys.executable.encode(), b"-c", b""], True),
        (["sh", "-c", f"exec {sys.executable} -m pytest"], True),
        (["env", "A=1", sys.executable], True),
        (["cc", "-I/usr/include/python3.11", "-c", "python3.c"], False),
        (["sh", "-c", "echo python"], True),
        (["no-such-program"], False),
    ],
)
def test_commands_of_python_are_told_from_compilers(words, is_python):
    assert starts_python(words[0], words) is is_python
