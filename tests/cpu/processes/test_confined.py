"""What is told where the system cannot confine a process; what a confined one reaches, tests of trials ask."""

import subprocess
import sys

import pytest

PROGRAM = """
from triton_ops.processes import confine, confined

confined._MACHINES, confined._CREATE = {}, 1000  # no such machine, and a system call that no kernel has
print(*confine(["."]), sep=", ")
"""


@pytest.mark.processes
def test_a_system_without_filters_and_landlock_tells_what_it_leaves_open():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "sockets, and priorities and clocks of others, the memory of others, changes of files, signals to others"
    ]
