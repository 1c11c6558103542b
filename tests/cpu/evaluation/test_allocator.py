"""The allocator that a program gives to Triton is asked in every thread and process that launches for the program."""

from __future__ import annotations

import contextvars
import importlib
import logging
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from triton_ops import TuneProblem, tune_many  # noqa: E402
from triton_ops.backend import ScratchAllocator  # noqa: E402
from triton_ops.evaluation import (  # noqa: E402
    Assignment,
    Stations,
    idle_worker,
)
from triton_ops.evaluation.isolated import Isolated  # noqa: E402
from triton_ops.records import RunLog  # noqa: E402
from triton_ops.request import Effort, TuneOptions  # noqa: E402
from triton_ops.search import make_searcher  # noqa: E402
from triton_ops.space import Config, ConfigSpace  # noqa: E402
from triton_ops.tuner import Silent, TuningLoop  # noqa: E402

pytestmark = pytest.mark.triton


def asked_here():
    """What Triton would ask for memory in this context: the name of a function, or of Triton's class that has none."""
    allocator = importlib.import_module("triton.runtime._allocation")._allocator.get()
    return getattr(allocator, "__name__", type(allocator).__name__)


def notes(*, file, step):
    """Note which allocator a launch finds."""
    with Path(file).open("a") as noted:
        noted.write(f"{asked_here()}\n")


def mine(size, alignment, stream):
    return size, alignment, stream


def with_mine(call, *args, allocator=mine):
    """What a call returns in a context in which the program has set its allocator."""

    def called():
        triton.set_allocator(allocator)
        return call(*args)

    return contextvars.copy_context().run(called)


class Notes:
    """A station that notes which allocator its launches find, and the threads that they run in."""

    def __init__(self):
        self.seen, self.lost = [], None

    def attempt(self, config, best):
        self.seen.append((asked_here(), threading.get_ident()))
        raise LookupError("it is seen")

    def close(self):
        """Nothing is held."""


def test_the_threads_of_many_problems_find_what_the_caller_has_set(tmp_path):
    problem = TuneProblem(target=notes, kwargs={"file": str(tmp_path / "noted")}, space={"step": [1, 2]})
    with_mine(lambda: tune_many([problem], isolate=False, cache_dir=tmp_path / "records", told=lambda _: None))
    assert set((tmp_path / "noted").read_text().split()) == {"mine"}
    assert asked_here() == "NullAllocator"


def test_the_thread_that_tries_configs_while_the_search_thinks_finds_what_the_caller_has_set():
    def tried():
        station, space = Notes(), ConfigSpace({"n": [1, 2]})
        search = TuningLoop(
            space=space, searcher=make_searcher("exhaustive", space, 0), effort=Effort(name="free"), log=RunLog(),
            listener=Silent(),
        )  # fmt: skip
        search.prepare([])
        with pytest.raises(LookupError):
            search.run(station, overlaps=True)
        return station.seen

    (name, thread), *_ = with_mine(tried)
    assert name == "mine"
    assert thread != threading.get_ident()


@pytest.mark.processes
def test_a_worker_has_the_allocator_of_its_task_and_of_no_task_before(tmp_path):
    idle_worker.drop_idle_workers()
    file = tmp_path / "noted"
    problem = TuneProblem(target=notes, kwargs={"file": str(file)}, space={"step": [1, 2]}, device="cpu")
    work = Assignment.of(problem.request(), TuneOptions(effort="quick"), None)

    def tried():
        file.write_text("")
        with (
            Stations(problem=work, options=TuneOptions(isolate=True), reuse=True).early_process() as process,
            closing(Isolated(work, process, reuse=True)) as station,
        ):
            assert station.attempt(Config(step=1), None).ok
            return set(file.read_text().split()), process.pid

    held = threading.Lock()

    def held_here(size, alignment, stream):
        return held, size

    (result, one), (after, two) = with_mine(tried), tried()
    here_only, _ = with_mine(tried, allocator=held_here)
    idle_worker.drop_idle_workers()
    assert (result, after, here_only) == ({"mine"}, {"NullAllocator"}, {"NullAllocator"})
    assert one == two != os.getpid(), "the same process"


def test_an_allocator_that_cannot_be_made_again_leaves_torchs_memory(caplog):
    packed = with_mine(ScratchAllocator.packed)
    assert contextvars.copy_context().run(lambda: ScratchAllocator.take(packed) or asked_here()) == "mine"
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = contextvars.copy_context().run(lambda: ScratchAllocator.take(packed[:-3]) or asked_here())
    assert result == "NullAllocator"
    assert "torch's memory, and not that of the allocator that was set: it cannot be loaded" in caplog.text
