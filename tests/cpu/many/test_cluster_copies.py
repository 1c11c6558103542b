"""What changes in one cache folder is applied to another, piece by piece."""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict
from concurrent import futures
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.limits import ENOUGH_S
from triton_ops import TuneProblem, operation
from triton_ops.base import folders as folders_of_base
from triton_ops.many import RunOptions, ray_engine, run_jobs
from triton_ops.many.executor import Call
from triton_ops.many.ray_engine import (
    ActorLink,
    Measurer,
    Piece,
    RayEngine,
    WatchedFolder,
    apply,
    files_of_problem,
)
from triton_ops.many.session import jobs_of
from triton_ops.processes import WorkerLostError
from triton_ops.request import TuneOptions


@pytest.fixture(autouse=True)
def no_actor_before(monkeypatch):
    """This process has been no actor's before the test, and is none after it."""
    monkeypatch.setattr(folders_of_base, "_no_syncs", False)
    ray_engine._own_folder.cache_clear()
    yield
    ray_engine._own_folder.cache_clear()


NAME = "a" * 32
RECORD, LOG = f"{NAME}.record.json", f"runs/{NAME}/one.jsonl"


@pytest.fixture
def folders(tmp_path):
    """A folder with a record, a run log and a file of the user's, and an empty one."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "runs" / NAME).mkdir(parents=True)
    there.mkdir()
    (here / RECORD).write_bytes(b"{}")
    (here / LOG).write_bytes(b"1\n")
    (here / "mine.txt").write_bytes(b"mine")
    return here, there


def test_a_run_log_is_sent_by_its_new_lines_and_any_other_file_as_a_whole(folders):
    here, there = folders
    watched = WatchedFolder(here)
    apply(there, watched.changes())
    assert watched.changes() == []
    (here / LOG).write_bytes(b"1\n22\n")
    (here / RECORD).write_bytes(b"{ }")
    pieces = watched.changes()
    assert pieces == [Piece(RECORD, 0, b"{ }"), Piece(LOG, 2, b"22\n")]
    apply(there, pieces)
    assert files_of_problem(there, NAME) == [Piece(RECORD, 0, b"{ }"), Piece(LOG, 0, b"1\n22\n")]
    assert not (there / "mine.txt").exists()


def test_a_piece_whose_file_ends_elsewhere_leaves_the_file_as_the_sender_has_it(folders):
    _, there = folders
    apply(there, [Piece(LOG, 0, b"1\n22\n333\n")])
    apply(there, [Piece(LOG, 2, b"44\n")])
    assert (there / LOG).read_bytes() == b"1\n44\n"


def test_what_a_measurer_sends_is_done_by_the_driver_before_it_goes_on():
    measurer, steps = Measurer(), []

    def trial():
        measurer._send(Call("follow", ("a", "tried")))
        steps.append("goes on")

    thread = threading.Thread(target=trial)
    thread.start()
    call, pieces = measurer.hear()
    assert (call.method, list(pieces)) == ("follow", [])
    steps.append("done")
    threading.Thread(target=measurer.hear, daemon=True).start()  # asks for the next one
    thread.join(ENOUGH_S)
    assert steps == ["done", "goes on"]


def test_what_is_no_regular_file_holds_nobody_up(folders):
    here, _ = folders
    (here / RECORD).unlink()
    os.mkfifo(here / RECORD)
    with pytest.raises(OSError, match="FIFO"):
        WatchedFolder(here).changes()
    assert [piece.path for piece in files_of_problem(here, NAME)] == [LOG]


@pytest.mark.parametrize("path", ["../out.record.json", "mine.txt", f"runs/../{RECORD}", f"/{RECORD}"])
def test_a_piece_of_another_file_is_refused(folders, path):
    with pytest.raises(ValueError, match="is no file of records"):
        apply(folders[1], [Piece(path, 0, b"")])


class StoppedRay:
    """A cluster whose actor has been stopped: its calls are never answered, and Ray says nothing of it."""

    class exceptions:  # noqa: N801 - as Ray has it
        class RayError(Exception):
            pass

    def __init__(self):
        self.killed, self.answers = [], []
        self.hear = self  # an actor, its method and the call of it in one

    def options(self, **_):
        return self

    def remote(self):
        return "call"

    def wait(self, calls, timeout):
        return (calls, []) if self.answers else ([], calls)

    def get(self, call):
        return self.answers.pop()

    def kill(self, actor):
        self.killed.append(actor)


def test_an_actor_that_is_stopped_is_lost_after_its_silence_and_one_that_goes_on_is_not(folders):
    ray = StoppedRay()
    link = ActorLink(ray, ray, folders[1])
    for _ in range(3):  # nothing to tell for longer than an actor may be silent
        for _ in range(int(ray_engine._STOPPED_S / 5)):
            assert link.hear(5.0) is None
        ray.answers = [(None, ())]
        assert link.hear(5.0) is None
    for _ in range(int(ray_engine._STOPPED_S / 5)):
        assert link.hear(5.0) is None
    with pytest.raises(WorkerLostError, match="its process has not gone on for 120 s"):
        link.hear(5.0)
    assert ray.killed == [ray]


def test_a_measurer_without_anything_to_tell_says_that_it_goes_on(monkeypatch):
    monkeypatch.setattr(ray_engine, "_BEAT_S", 0.001)
    measurer = Measurer()
    assert measurer.hear() == (None, ())
    threading.Thread(target=measurer._send, args=(Call("follow", ("a", "tried")),), daemon=True).start()
    while (heard := measurer.hear())[0] is None:
        pass
    assert heard[0].method == "follow"
    assert measurer.hear() == (None, ())


class ThreadsOfRay:
    """A cluster whose actors are threads of this process."""

    exceptions, over = StoppedRay.exceptions, False

    def is_initialized(self):
        return False

    def init(self, **_):
        pass

    shutdown = init

    def remote(self, **_):
        return lambda kind: ThreadActor.of(kind)

    def get(self, calls, timeout=None):
        return [call.result(timeout) for call in calls] if isinstance(calls, list) else calls.result(timeout)

    def wait(self, calls, timeout):
        if self.over:
            raise self.exceptions.RayError("the actor was killed")
        return list(futures.wait(calls, timeout).done), []

    def kill(self, actor):
        self.over = True


class ThreadActor:
    """An object whose methods are called in a thread of each group."""

    @classmethod
    def of(cls, kind):
        return SimpleNamespace(remote=lambda *arguments: cls(kind(*arguments)))

    def __init__(self, value):
        self._value, self._threads = value, defaultdict(lambda: futures.ThreadPoolExecutor(1))

    def __getattr__(self, name):
        def call(group, *arguments):
            return self._threads[group].submit(getattr(self._value, name), *arguments)

        return SimpleNamespace(
            remote=partial(call, ""),
            options=lambda concurrency_group: SimpleNamespace(remote=partial(call, concurrency_group)),
        )


@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n}, device="cpu")
def add_up(n, step):
    return sum(range(0, n, step)) + sum(range(1, n, step)) * (step - 1)


def test_what_an_actor_finds_is_in_the_folder_of_the_run_and_its_own_folder_waits_for_no_disk(
    tmp_path, monkeypatch, steady_clock, package_log
):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()))
    monkeypatch.setattr(ray_engine, "require", lambda *_: ThreadsOfRay())
    monkeypatch.setattr(ray_engine, "_BEAT_S", 0.1)
    options = RunOptions(each=TuneOptions(cache_dir=tmp_path), cluster=RayEngine(simulated=1))
    run = run_jobs(jobs_of([TuneProblem(target=add_up, shape=(64,))], options), options, told=lambda _: None)
    assert run.totals == {"tuned": 1}, run.failures
    assert run.outcomes[0].device == f"{socket.gethostname()}:0"
    assert len(list(tmp_path.glob("*.record.json"))) == len(list(tmp_path.glob("runs/*/*.jsonl"))) == 1
    assert [path for path in synced if path.is_relative_to(ray_engine._own_folder().folder)] == []
