"""Where no further file, process or thread can be had: typed errors, and nothing is left behind."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.torchless import leaves_processes
from triton_ops import TuneProblem, tune, tune_many
from triton_ops.backend import CompilerNeeds
from triton_ops.compilation.pool import compiler_server
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.evaluation.idle_worker import new as new_worker
from triton_ops.exceptions import DeviceError
from triton_ops.processes import IdleProcesses, Threads, worker_process
from triton_ops.processes.child import members


@contextmanager
def spare_descriptors(count):
    """Only so many descriptors can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filling: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in filling[len(filling) - count :]:
            os.close(descriptor)
        del filling[len(filling) - count :]
        yield
    finally:
        for descriptor in filling:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def nothing_left(monkeypatch, tmp_path):
    """Gives what was opened and made since: descriptors, processes and temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mark = os.urandom(8).hex()
    monkeypatch.setenv("OF_THIS_TEST", mark)
    before = {int(each.name) for each in Path("/proc/self/fd").iterdir()}

    def left():
        opened = {int(each.name) for each in Path("/proc/self/fd").iterdir()} - before
        return [each for each in opened if is_open(each)], members(mark), list(tmp_path.iterdir())

    return left


def is_open(descriptor):
    """Whether a descriptor is open, other than that by which descriptors are listed."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("count", range(1, 13))
def test_a_worker_that_finds_too_few_descriptors_is_a_device_error_and_leaves_nothing(count, nothing_left):
    with spare_descriptors(count):
        told = started_and_ended()
    assert told.startswith("no process can be started: Too many open files") or (count > 6 and not told)
    assert nothing_left() == ([], set(), [])


def started_and_ended():
    """The error of a worker's start, in words; empty if it started."""
    try:
        new_worker(Needs((), "")).kill()
    except DeviceError as error:
        return error.message
    return ""


@pytest.mark.parametrize("count", [1, 4])
def test_a_fork_server_that_finds_too_few_descriptors_leaves_nothing(count, nothing_left):
    with spare_descriptors(count), pytest.raises(OSError, match="Too many open files"):
        compiler_server(CompilerNeeds())
    assert nothing_left() == ([], set(), [])


def test_an_isolated_tune_with_too_few_descriptors_is_a_device_error():
    with spare_descriptors(5), pytest.raises(DeviceError, match="run it inline"):
        tune(leaves_processes, space={"how": ["none"]}, device="cpu", isolate=True)


def cannot_start(self):
    raise RuntimeError("can't start new thread")


def test_a_worker_whose_listener_cannot_start_is_a_device_error_and_leaves_nothing(monkeypatch, nothing_left):
    with monkeypatch.context() as patch:
        patch.setattr(worker_process.threading.Thread, "start", cannot_start)
        with pytest.raises(DeviceError, match="can't start new thread"):
            new_worker(Needs((), ""))
    assert nothing_left() == ([], set(), [])


def test_a_process_that_no_thread_would_end_is_not_left_idle(monkeypatch):
    ended = []
    idle = IdleProcesses(ended.append, 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        idle.put("process", "has", "where")
    assert ended == ["process"]
    assert idle.take("has") is None


def plain(*, n):
    return n


def test_many_tunes_and_a_pool_of_compilers_without_a_thread_are_device_errors(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with pytest.raises(DeviceError, match="no thread can be started: can't start new thread"):
        tune_many([TuneProblem(target=plain, space={"n": [1, 2]}, device="cpu")])
    with Threads(1) as threads, pytest.raises(DeviceError, match="no thread can be started"):
        threads.submit(plain)


def test_a_pool_that_is_shut_down_says_so():
    threads = Threads(1)
    threads.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.submit(plain)
