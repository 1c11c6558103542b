"""A fork server and its processes: each answers alone, how it ended is told, and nothing outlives its server."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.limits import eventually
from triton_ops.base import OwnFile, Process
from triton_ops.processes import ForkServer
from triton_ops.processes.fork_server import SharedForkServers, _last_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
LONG_S = 600.0


@pytest.fixture
def server():
    result = ForkServer("tests.evaluating_server", changes={"CHANGED": "1"})
    yield result
    result.close()


def opened():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.processes
def test_each_process_answers_for_itself_and_tells_how_it_ended(server):
    one, other = server.fork(), server.fork()
    pids = [process.ask("os.getpid()", LONG_S) for process in (one, other)]
    assert pids == [one.pid, other.pid]
    assert len({*pids, server._process.pid}) == 3
    assert [process.ask("os.environ.setdefault('OWN', str(os.getpid()))", LONG_S) for process in (one, other)] == [
        str(pid) for pid in pids
    ]
    assert one.ask("os.environ['CHANGED']", LONG_S) == "1"
    assert one.ask("os.getsid(0) == os.getpgrp() == os.getpid()", LONG_S)
    assert one.wait(0.0) is None
    assert not one.ended_from_outside
    with pytest.raises((EOFError, OSError)):
        one.ask("sys.stderr.write('last words\\n') and sys.stderr.flush() or os._exit(3)", LONG_S)
    assert one.last_words() == "ended with exit code 3: last words"
    assert other.ask("7", LONG_S) == 7
    assert not one.ended_from_outside
    for process in (one, other):
        process.close()
    eventually(lambda: all(Process(pid).ended for pid in pids))
    assert server.alive


@pytest.mark.parametrize(("output", "line"), [
    (b"", ""), (b"\n \n", ""), (b"first\n the last \n\n", "the last"), (b"x" * 399 + b"\n" + b"last", "last"),
    (b"first\n" + b"y" * 600, "y" * 400),
])  # fmt: skip
def test_the_last_line_of_a_process_is_told_up_to_its_last_400_bytes(output, line, tmp_path):
    (tmp_path / "errors").write_bytes(output)
    with OwnFile(os.open(tmp_path / "errors", os.O_RDWR)) as errors:
        assert _last_line(errors) == line
    assert _last_line(errors) == "", "it is closed"


@pytest.mark.processes
@pytest.mark.parametrize(("number", "words", "outside"), [
    (signal.SIGSEGV, "ended by SIGSEGV", False), (signal.SIGTERM, "ended by SIGTERM", True),
    (signal.SIGKILL, "ended by SIGKILL, as the system does when memory runs out", True),
])  # fmt: skip
def test_a_signal_that_ends_a_process_is_named_and_whether_it_came_from_outside(number, words, outside, server):
    process = server.fork()
    process.ask("1", LONG_S)
    with pytest.raises((EOFError, OSError)):
        process.ask(f"os.kill(os.getpid(), {int(number)}) or signal.pause()", LONG_S)
    assert process.last_words() == words
    assert process.ended_from_outside is outside
    process.close()


@pytest.mark.processes
def test_a_process_that_does_not_answer_in_time_is_killed_by_its_user_and_is_no_crash(server):
    process = server.fork()
    process.ask("1", LONG_S)
    with pytest.raises(TimeoutError):
        process.ask("signal.pause()", 0.1)
    process.signal(signal.SIGSTOP)
    process.kill()
    assert process.wait(0.0) == -signal.SIGKILL
    process.signal(signal.SIGKILL)  # its number may be another's: nobody is signalled
    process.close()
    with closing(server.fork()) as other:
        assert other.ask("2", LONG_S) == 2


@pytest.mark.processes
def test_what_a_process_has_started_ends_with_it_and_all_ends_with_the_server(server):
    process, other = server.fork(), server.fork()
    text = "os.posix_spawn('/bin/sleep', ['sleep', '600'], os.environ)"
    started, further = process.ask(text, LONG_S), other.ask(text, LONG_S)
    process.close()
    eventually(lambda: Process(started).ended)
    assert not Process(further).ended
    server.kill()
    eventually(lambda: Process(further).ended and Process(other.pid).ended)
    assert not server.alive
    assert not server.ended_from_outside, "it was ended here"
    assert other.wait(0.0) is None
    assert other.ended_from_outside, "its server is gone, which is no crash of its own"
    assert other.last_words() == "is gone"
    with pytest.raises(EOFError, match="the process that forks others is gone"):
        server.fork()
    other.close()


@pytest.mark.processes
def test_a_server_that_a_signal_ends_tells_so(server):
    with closing(server.fork()) as process:
        process.ask("1", LONG_S)
        os.kill(server._process.pid, signal.SIGTERM)
        eventually(lambda: not server.alive)
        assert server.ended_from_outside


@pytest.mark.processes
def test_a_server_and_its_processes_leave_no_file_open_and_no_folder(server):
    before = opened()
    process = server.fork()
    folder = Path(process.ask("tempfile.mkdtemp()", LONG_S))
    assert folder.parent == server._temporary.path
    process.close()
    assert opened() == before
    server.close()
    eventually(lambda: not folder.exists())
    assert opened() == before - 2, "its socket and its errors"


@pytest.mark.processes
def test_what_forked_processes_leave_is_reaped_by_the_server(server):
    def children():
        pids = [int(place.name) for place in Path("/proc").glob("[0-9]*")]
        return {pid for pid in pids if parent(pid) == server._process.pid}

    def parent(pid):
        try:
            return Process(pid).parent
        except OSError:
            return None

    for _ in range(2):
        with closing(server.fork()) as process:
            process.ask("1", LONG_S)
    eventually(lambda: not any(Process(pid).ended for pid in children()))
    assert server.alive


# Servers that several users share


class Server:
    """Stands for a fork server."""

    def __init__(self):
        self.alive, self.closed, self.kills, self.equipment = True, 0, 0, None

    def close(self):
        self.closed += 1
        self.alive = False

    def kill(self):
        self.kills += 1
        self.alive = False


@pytest.fixture
def servers():
    shared = SharedForkServers()
    yield shared
    shared.drop_idle()


def test_users_that_need_the_same_share_a_server_which_the_last_leaves_idle(servers):
    one = servers.borrow({"triton"}, Server)
    assert one.equipment == {"triton"}
    assert servers.borrow({"triton"}, Server) is servers.borrow(set(), Server) is one
    other = servers.borrow({"torch"}, Server)
    assert other is not one
    for _ in range(2):
        servers.give_back(one)
        assert not servers.holds(one)
    servers.give_back(one)
    assert servers.holds(one)
    assert not one.closed
    servers.give_back(one)  # once too often
    assert servers.holds(one)
    assert servers.borrow({"triton"}, Server) is one
    assert not servers.holds(one)


def test_a_server_that_has_ended_is_not_shared_and_is_closed_by_its_last_user(servers):
    one = servers.borrow(set(), Server)
    one.alive = False
    assert servers.borrow(set(), Server) is not one
    servers.give_back(one)
    assert (one.closed, servers.holds(one)) == (1, False)


def test_a_server_is_not_shared_with_a_user_of_another_environment(servers, monkeypatch):
    one = servers.borrow(set(), Server)
    monkeypatch.setenv("OTHER", "1")
    assert servers.borrow(set(), Server) is not one


def test_only_a_server_of_one_user_is_killed(servers):
    one = servers.borrow(set(), Server)
    servers.borrow(set(), Server)
    servers.kill_unshared(one)
    assert one.kills == 0
    servers.give_back(one)
    servers.kill_unshared(one)
    assert one.kills == 1
