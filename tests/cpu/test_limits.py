"""What a test may take: its time limit, longer on a busy machine, and what only marked tests do."""

import re
import subprocess
import sys
import time
from unittest import mock

import pytest

from tests.interpreter import Interpreter
from tests.limits import MOST, SharedLimit, crowding
from tests.tiers import starts_python


class Machine:
    """A clock, and how many programs there are for each CPU."""

    def __init__(self, programs=1.0):
        self.now_s, self.programs = 0.0, programs

    def limit(self, seconds):
        return SharedLimit(seconds, lambda: self.now_s, lambda: self.programs)


def ended_s(machine, limit, seconds):
    """When a test ends that hangs: asked after its seconds, and whenever the limit says."""
    wait_s = seconds
    while wait_s:
        machine.now_s += wait_s
        wait_s = limit.left_s()
    return machine.now_s


@pytest.mark.parametrize(("programs", "ends_s"), [(1.0, 120), (2.0, 240), (1000.0, 120 * MOST)])
def test_a_test_has_its_seconds_for_each_program_that_a_cpu_has(programs, ends_s):
    machine = Machine(programs)
    assert ended_s(machine, machine.limit(120), 120) == pytest.approx(ends_s, rel=0.02)


def test_seconds_of_a_machine_that_was_busy_stay_counted_as_they_were():
    machine = Machine(2.0)
    limit = machine.limit(120)
    machine.now_s = 120.0
    assert limit.left_s() == 120
    machine.now_s, machine.programs = 150.0, 1.0
    assert limit.left_s() == 30


def test_there_is_a_program_for_each_cpu_at_least():
    assert crowding() >= 1


@pytest.mark.processes
def test_a_test_that_hangs_ends_and_is_named(tmp_path):
    (tmp_path / "test_hang.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(600)\n", encoding="utf-8")
    words = ["-m", "pytest", "-q", "-p", "tests.limits", "-p", "no:cacheprovider", "-o", "timeout=0.2"]
    ran = subprocess.run(
        [sys.executable, *words, "--rootdir", tmp_path, tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "test_hang.py::test_hangs" in ran.stdout
    assert "Timeout (>0.2s)" in ran.stdout


# What only tests do that are marked

CASES = """
import multiprocessing
import os
import subprocess
import sys
import time
from unittest import mock

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


@pytest.mark.processes
def test_what_a_test_did_not_wait_for_is_no_answer_to_the_next_one():
    process = Interpreter()
    with mock.patch("tests.interpreter.pickle.load", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        process(time.sleep, 1)
    assert process(abs, -1) == 1
    process.close()
