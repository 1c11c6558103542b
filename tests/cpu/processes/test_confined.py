"""What is told where the system cannot confine a process; what a confined one reaches, tests of trials ask."""

import subprocess
import sys

import pytest

NO_SYSTEM = """
from triton_ops.processes import Child, confined

confined._MACHINES, confined._CREATE = {}, 1000  # no such machine, and a system call that no kernel has
print(*Child.confine(["."]), sep=", ")
"""
WITH_A_THREAD = """
import os, queue, socket, sys, threading
from triton_ops.processes import Child

asked, answered = queue.Queue(), queue.Queue()

def tried(act):
    try:
        return act() is None
    except OSError:
        return "refused"

threading.Thread(target=lambda: [answered.put(tried(act)) for act in iter(asked.get, None)]).start()
print(*Child.confine([]))
asked.put(socket.socket)
print(answered.get())
asked.put(None)
print(tried(lambda: os.open(sys.executable, os.O_WRONLY)))
"""


def told(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.processes
def test_a_system_without_filters_and_landlock_tells_what_it_leaves_open():
    assert told(NO_SYSTEM).splitlines() == [
        "sockets, and priorities and clocks of others, the memory of others, changes of files, signals to others"
    ]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp and Landlock")
def test_threads_that_run_already_open_no_sockets_and_are_told():
    assert told(WITH_A_THREAD).splitlines() == ["what threads do that it has already", "refused", "refused"]
