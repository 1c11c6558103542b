"""What is told where the system cannot confine a process; what a confined one reaches, tests of trials ask."""

import os
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

WITH_A_PROGRAM = """
import subprocess
from triton_ops.processes import Child

Child.confine([])
subprocess.run(["env"])
"""

WITH_A_FILE = """
import os
from triton_ops.processes import Child

Child.confine([])
for change in (
    lambda: os.chmod("file", 0o777),
    lambda: os.chmod(os.open("file", os.O_RDONLY), 0o777),
    lambda: os.chown("file", 65534, 65534),
    lambda: os.utime("file", (0, 0)),
    lambda: os.setxattr("file", "user.a", b"1"),
):
    try:
        change()
    except OSError:
        pass
"""


def told(program, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return ran.stdout


@pytest.mark.processes
def test_a_system_without_filters_and_landlock_tells_what_it_leaves_open():
    assert told(NO_SYSTEM).splitlines() == [
        "sockets, and priorities and clocks of others, the memory of others, changes of files, signals to others"
    ]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp and Landlock")
def test_threads_that_run_already_open_no_sockets_and_are_told():
    assert told(WITH_A_THREAD).splitlines() == ["what threads do that it has already", "refused", "refused"]


@pytest.mark.processes
def test_a_program_that_is_started_has_the_variables_that_stay_and_no_others():
    lines = told(WITH_A_PROGRAM, A_TEST="1", TMPDIR="/somewhere", LC_OF_A_TEST="é").splitlines()
    assert {"TMPDIR=/somewhere", "LC_OF_A_TEST=é"} <= set(lines)
    assert not any(line.startswith("A_TEST") for line in lines)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp")
def test_modes_owners_times_and_attributes_of_files_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch(mode=0o600)

    def facts():
        status = (tmp_path / "file").stat()
        return status.st_mode, status.st_uid, status.st_mtime_ns, os.listxattr(tmp_path / "file")

    before = facts()
    told(WITH_A_FILE)
    assert facts() == before
