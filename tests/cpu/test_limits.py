"""The time limit of a test: longer on a busy machine, and an end for whatever hangs."""

import subprocess
import sys

import pytest

from tests.limits import MOST, SharedLimit, crowding


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
