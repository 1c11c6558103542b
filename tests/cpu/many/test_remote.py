"""Executors in processes of their own: what goes there and comes back, and what becomes of a process that ends."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import queue
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fleet import Benches
from tests.limits import ENOUGH_S
from triton_ops import backend, evaluation
from triton_ops.backend import Packed
from triton_ops.compilation import CompilePool, SharedCpus
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.many import Job, RunOptions, executor_process, run_jobs, session
from triton_ops.many.executor import (
    Call,
    ChildExecutor,
    ExecutorLostError,
    LentCpus,
    LocalExecutor,
    RemoteExecutor,
    _tuned,
)
from triton_ops.processes import WorkerLostError
from triton_ops.request import Effort, TuneOptions
from triton_ops.tuner import Silent

QUICK = Effort.named("quick")


@dataclass(frozen=True)
class Outcome:
    """A result as far as a run looks at it."""

    place: str
    value: int = 0
    gain: float = 1.25
    from_cache: bool = False
    stopped: str = "complete"
    unproven: str = ""


class MemoryLink:
    """Both sides in this process: what is told and heard is pickled."""

    def __init__(self):
        self.calls, self.gone = queue.SimpleQueue(), threading.Event()
        level = logging.getLogger("triton_ops").getEffectiveLevel()
        self.child = ChildExecutor(lambda call: self.calls.put(pickle.dumps(call)), "cuda:7", 3, level, shares=True)

    def tell(self, message):
        if self.gone.is_set():
            raise WorkerLostError("its process was killed", "")
        self.child.take(pickle.loads(pickle.dumps(message)))

    def hear(self, seconds):
        if self.gone.is_set():
            raise WorkerLostError("its process was killed", "")
        try:
            return pickle.loads(self.calls.get(timeout=min(seconds, 0.01)))
        except queue.Empty:
            return None

    def kill(self):
        self.gone.set()
        self.child.take(Call("end", ()))  # a thread cannot be killed, and a job would go on until the session ends


@pytest.fixture
def link(package_log):
    return MemoryLink()


def job(name, tune):
    return Job(name=name, label=name, kernel=name, problem=0, tune=tune)


def executor_over(link, listener=Silent, **more):
    return RemoteExecutor(link, lambda _: listener(), QUICK, **more)


TRIAL = SimpleNamespace(ok=True, median_ms=60_000.0)


def measured(place):
    place.gate.wait()
    place.listener.tried(TRIAL, "its progress")
    return Outcome(place.device)


def fails(place):
    class OwnError(Exception):
        def __init__(self, one, two):
            super().__init__(one + two)

    raise OwnError("it ", "fails")


def waits(place):
    place.gate.wait()
    threading.Event().wait(0.05)
    place.gate.hold(60.0)
    while True:
        place.gate.check()


class SilentLink:
    """A process of which something is heard once, and then nothing."""

    def __init__(self, *calls):
        self.calls, self.silent_s, self.killed = list(calls), 0.0, threading.Event()
        self.tell, self.asked = lambda _: None, threading.Event()

    def hear(self, seconds):
        self.asked.wait()
        if self.calls:
            return self.calls.pop()
        self.silent_s += seconds
        return None

    def kill(self):
        self.killed.set()


@pytest.mark.parametrize("calls", [(), (Call("follow", ("a", "tried", TRIAL, "its progress")),)])
def test_a_silent_process_is_ended_after_the_longest_step_that_its_launches_make_possible(calls):
    link = SilentLink(*calls)
    executor = executor_over(link)
    future = executor.measure(job("a", measured), None)
    link.asked.set()
    with pytest.raises(ExecutorLostError, match="nothing was heard of it"):
        future.result(60)
    step_s = 120 + QUICK.patience.setup_s + QUICK.patience.trial_s + QUICK.race.seconds
    assert step_s + len(calls) * 64 * 60 < link.silent_s <= step_s + len(calls) * 64 * 60 + 10
    assert link.killed.is_set()


def test_a_job_is_prepared_and_measured_there_and_its_trials_are_heard_here(link):
    trials, ready = [], queue.SimpleQueue()
    listener = SimpleNamespace(tried=lambda *event: trials.append(event))
    executor = executor_over(link, lambda: listener)
    executor.ready = lambda *said: ready.put(said)
    jobs = [job("a", measured), job("b", threading.Lock())]
    executor.prepare(jobs)
    assert {ready.get(timeout=ENOUGH_S) for _ in jobs} == {("a", True), ("b", True)}
    assert executor.measure(jobs[0], 5.0).result(60) == Outcome("cuda:7")
    assert trials == [(TRIAL, "its progress")]
    assert isinstance(executor.measure(jobs[1], None).exception(60), KernelTypeError), "it cannot be sent"
    executor.close()


def test_an_error_that_cannot_be_sent_comes_back_with_its_text(link):
    executor = executor_over(link)
    error = executor.measure(job("a", fails), None).exception(60)
    assert (type(error), str(error)) == (TritonKernelError, "OwnError: it fails")
    executor.close()


def test_ctrl_c_ends_what_is_measured_there(link):
    executor = executor_over(link)
    future = executor.measure(job("a", waits), None)
    executor.end()
    assert isinstance(future.exception(60), KeyboardInterrupt)
    executor.close()
    assert link.gone.is_set()


class Pool:
    """A pool of a problem that is measured."""

    first, closed, turns = True, False, 0

    @staticmethod
    def hurried():
        return False


def test_cpus_that_one_process_leaves_idle_are_lent_to_those_that_leave_none():
    class Other:
        lent = 0

        def lend(self, cpus):
            self.lent = cpus

    lent, (busy, idle, further, renewed) = LentCpus(4), (Other() for _ in range(4))
    lent.note("a", idle, 4)
    lent.note("b", busy, 0)
    assert (busy.lent, idle.lent) == (4, 0)
    lent.note("c", further, 0)
    assert (busy.lent, idle.lent, further.lent) == (2, 0, 2)
    lent.note("b", busy, None)
    assert further.lent == 8, "what is gone leaves all of its CPUs"
    lent.note("a", idle, 0)
    assert (idle.lent, further.lent) == (2, 2)
    lent.note("b", renewed, 0)
    lent.note("b", busy, None)
    assert (idle.lent, further.lent, renewed.lent) == (0, 0, 0)
    lent.note("b", renewed, None)  # by its end, as the first
    lent.note("d", Other(), None)  # it has never begun
    assert (idle.lent, further.lent) == (4, 4)


def test_a_process_that_shares_its_cpus_says_how_many_are_idle_and_takes_those_that_are_lent(link):
    noted = queue.SimpleQueue()
    executor = executor_over(link, note=lambda *said: noted.put(said))
    assert noted.get(timeout=ENOUGH_S) == (executor, 3), "all are idle before anything is compiled"
    cpus, pool = link.child._executor._shared_cpus, Pool()
    with cpus.turn(pool) as begins:
        assert begins
    assert [noted.get(timeout=ENOUGH_S) for _ in range(2)] == [(executor, 2), (executor, 3)]
    executor.lend(3)
    with ExitStack() as stack:
        assert all(stack.enter_context(cpus.turn(pool)) for _ in range(6)), "three are its own"
    assert [noted.get(timeout=ENOUGH_S)[1] for _ in range(6)] == [2, 1, 0, 1, 2, 3]
    executor.close()
    assert noted.get(timeout=ENOUGH_S) == (executor, None)


def test_a_process_of_which_nothing_is_heard_is_ended_and_its_job_is_lost(link):
    executor = executor_over(link, renew=lambda: "another one")
    error = executor.measure(job("a", waits), None).exception(60)
    assert isinstance(error, ExecutorLostError)
    assert "nothing was heard of it" in str(error)
    assert error.renew() == "another one"
    assert link.gone.is_set()
    with pytest.raises(ExecutorLostError):
        executor.measure(job("b", measured), None)
    executor.close()


class QuietLink:
    """A link to a process that takes a job and then says nothing."""

    def __init__(self):
        self.measures, self.gone, self.silent_s = threading.Event(), threading.Event(), 0.0

    def tell(self, message):
        if message.method == "measure":
            self.measures.set()

    def hear(self, seconds):
        assert self.measures.wait(ENOUGH_S)
        if self.gone.is_set():
            raise WorkerLostError("its process was killed", "")
        self.silent_s += seconds

    def kill(self):
        self.gone.set()


def test_a_process_may_be_silent_for_as_long_as_the_error_says():
    link, whole_looks = QuietLink(), replace(QUICK, race=replace(QUICK.race, seconds=5.0))
    executor = RemoteExecutor(link, lambda _: Silent(), whole_looks)
    error = executor.measure(job("a", waits), None).exception(60)
    assert link.gone.is_set()
    assert link.silent_s > float(re.search(r"nothing was heard of it for (\d+) s", str(error))[1])
    executor.close()


RING = {
    "__init__": "import time\ntime.sleep(0.1)\nfrom ring.one import one",
    "one": "def one(place): return 1\nfrom ring.two import two",
    "two": "from ring.one import one\ndef two(place): return 2",
}


def test_jobs_whose_modules_import_each_other_are_loaded_one_after_the_other(tmp_path, monkeypatch):
    (tmp_path / "ring").mkdir()
    for name, text in RING.items():
        (tmp_path / "ring" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    contents = [Packed.of(getattr(importlib.import_module(f"ring.{name}"), name)).content for name in ("one", "two")]
    for name in ("ring", "ring.one", "ring.two"):
        monkeypatch.delitem(sys.modules, name)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda content: _tuned(content, None), contents)) == [1, 2]
    for name in ("ring", "ring.one", "ring.two"):
        sys.modules.pop(name, None)


@dataclass(frozen=True)
class Squares:
    """A tune of which the first in another process ends that, if there is a file for it to note that in."""

    number: int
    ends: Path | None = None
    home: int = field(default_factory=os.getpid)

    def __call__(self, place):
        place.gate.wait()
        if self.ends is not None and os.getpid() != self.home and not self.ends.exists():
            self.ends.touch()
            os._exit(3)
        return Outcome("", self.number**2)


def run_on(executors_of, ends=None):
    jobs = [
        replace(job(f"p{at}", Squares(at, ends if at == 1 else None)), devices=frozenset("a") if at < 2 else None)
        for at in range(4)
    ]
    result = run_jobs(jobs, RunOptions(each=TuneOptions(), cluster=Benches(executors_of)), told=lambda _: None)
    return [each.result for each in result.outcomes]


@pytest.mark.processes
def test_a_process_that_dies_is_started_again_and_two_devices_find_what_one_finds(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    one = run_on(lambda cpus, listener_of: {"a": LocalExecutor(cpus, "cpu", listener_of)})
    two = run_on(
        lambda cpus, listener_of: {
            "a": RemoteExecutor.of_device("cpu", 1, listener_of, QUICK, False, LentCpus(1)),
            "b": LocalExecutor(cpus, "cpu", listener_of),
        },
        tmp_path / "ended",
    )  # fmt: skip
    assert two == one == [Outcome("", at**2) for at in range(4)]
    assert "a is lost, and what it measured goes on elsewhere: its process exited with code 3" in caplog.text


class Parent:
    """A parent that sends its child how to begin, and then closes the pipe."""

    def __init__(self, *start, allocator=None):
        self._start = [(SimpleNamespace(take=lambda: None), allocator, *start)]

    def receive(self):
        return self._start.pop()

    def messages(self):
        return iter(self._start)

    def send(self, call):
        """The calls of an executor without jobs are of no interest."""


@pytest.mark.parametrize(
    ("isolated", "device", "started"),
    [(True, "cuda:1", ["worker cuda:1", "server cuda:1"]), (False, "cuda:1", ["server cuda:1"]), (True, "cpu", [])],
)
def test_a_process_of_a_gpu_begins_with_its_worker_and_its_compilers_server(
    monkeypatch, isolated, device, started, package_log
):
    begun = queue.SimpleQueue()
    monkeypatch.setattr(executor_process, "Child", lambda: Parent(isolated, device, 1, logging.WARNING))
    monkeypatch.setattr(evaluation, "start_one_early", lambda place: begun.put(f"worker {place}"))
    monkeypatch.setattr(CompilePool, "start_server", lambda _, place: begun.put(f"server {place}"))
    executor_process.main()
    assert [begun.get(timeout=ENOUGH_S) for _ in started] == started
    assert begun.empty()


@pytest.mark.parametrize("allocator", [None, b"the user's"])
def test_a_process_launches_with_the_allocator_that_is_set_here(monkeypatch, allocator, package_log):
    taken = []
    parent = Parent(False, "cpu", 1, logging.WARNING, allocator=allocator)
    monkeypatch.setattr(executor_process, "Child", lambda: parent)
    monkeypatch.setattr(backend.ScratchAllocator, "take", taken.append)
    executor_process.main()
    assert taken == ([] if allocator is None else [allocator])


@pytest.mark.parametrize(("workers", "isolated"), [(("", ""), False), (("", "cuda:0"), True)])
def test_processes_of_gpus_begin_with_workers_only_for_problems_that_are_tried_in_one(monkeypatch, workers, isolated):
    starts = []
    monkeypatch.setattr(CompilePool, "usual_workers", lambda: 7)
    monkeypatch.setattr(RemoteExecutor, "of_device", lambda *arguments: starts.append(arguments) or "started")
    jobs = [replace(job(f"p{at}", waits), worker=worker) for at, worker in enumerate(workers)]
    options = RunOptions(each=TuneOptions(effort="quick"), devices=("cuda:0", "cuda:1"))
    assert session._executors(jobs, options, SharedCpus(2), SimpleNamespace(listener=Silent)) == {
        "cuda:0": "started", "cuda:1": "started",
    }  # fmt: skip
    assert [(device, cpus, effort, early) for device, cpus, _, effort, early, _ in starts] == [
        ("cuda:0", 3, QUICK, isolated), ("cuda:1", 3, QUICK, isolated),
    ]  # fmt: skip
    assert starts[0][-1] is starts[1][-1], "they lend each other their CPUs"


def test_each_process_of_a_gpu_has_a_cpu_at_least(monkeypatch):
    monkeypatch.setattr(RemoteExecutor, "of_device", lambda _, cpus, *others: cpus)
    monkeypatch.setattr(CompilePool, "usual_workers", lambda: 1)
    options = RunOptions(each=TuneOptions(), devices=("cuda:0", "cuda:1"))
    assert session._executors([], options, SharedCpus(2), SimpleNamespace(listener=Silent)) == {
        "cuda:0": 1, "cuda:1": 1,
    }  # fmt: skip


@pytest.mark.processes
def test_a_worker_begins_before_all_that_its_process_imports_to_search():
    program = """
import sys
from triton_ops.many import executor_process
executor_process.evaluation.start_one_early
own = [name for name in sys.modules if name.count(".") == 2 and name.startswith("triton_ops.")]
print(*own, "torch" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *modules, torch = ran.stdout.split()
    assert {name.split(".")[1] for name in modules} == {"base", "evaluation", "many", "processes"}
    assert torch == "False"
