"""Every feed gives each proposal once, in order where nothing is slow, and what it deferred when it is asked to."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from triton_ops.exceptions import TargetError
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.feeds import CompiledFeed, DirectFeed, Previews
from triton_ops.values import Compiled, Resources, Status

CONFIGS = [Config(n=n) for n in range(6)]
SPILLS = Resources(registers=255, spill_bytes=4000, binary="b")


class Compiler:
    """Stands in for the pool's processes: what becomes of a config is told by the test."""

    workers = 2

    def __init__(self, at_once=True):
        self.at_once, self.asked, self.futures = at_once, [], {}

    def submit(self, config, *, anyway=False, spare=False):
        self.asked.append((config, anyway))
        future = self.futures[config] = Future()
        if self.at_once:
            self.finish(config)
        return future

    def finish(self, config, status=Status.OK, reason="", **more):
        self.futures[config].set_result(Compiled(config, status, reason, **more))


FEEDS = {"direct": DirectFeed, "compiled": lambda: CompiledFeed(Compiler(), 4)}


@pytest.mark.parametrize("name", FEEDS)
def test_each_proposal_comes_once_and_in_order(name):
    feed = FEEDS[name]()
    assert feed.room() > 0
    assert feed.next(False) is None
    feed.add(CONFIGS[:2])
    feed.add(CONFIGS[2:])
    assert feed.held == 6
    assert feed.room() == 0
    assert [feed.next(False).config for _ in CONFIGS] == CONFIGS
    assert feed.next(False) is None
    assert feed.next(True) is None
    assert feed.held == 0
    assert feed.waited_s < 1


@pytest.mark.parametrize("name", FEEDS)
def test_once_a_feed_has_settled_its_proposals_are_ready(name):
    feed = FEEDS[name]()
    feed.add(CONFIGS)
    feed.settle()
    assert feed.ready


def test_a_feed_settles_once_its_previews_and_its_slowest_proposal_are_compiled():
    compiler, waits = Compiler(at_once=False), []

    def wait(futures):
        waits.append(len(futures))
        compiler.finish(compiler.asked[len(waits) - 1][0])

    searcher = make_searcher("ranked", ConfigSpace({"n": range(6)}))
    previews = Previews(searcher, compiler, 2, None)
    previews.update()
    feed = CompiledFeed(compiler, 4, previews, wait)
    feed.add([config for config in CONFIGS if config not in compiler.futures][:2])
    feed.settle()
    assert waits == [4, 3, 2, 1]
    assert feed.room() > 0


def test_a_slow_one_does_not_hold_up_those_after_it():
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:3])
    compiler.finish(CONFIGS[2])
    assert feed.next(False).config == CONFIGS[2]
    compiler.finish(CONFIGS[1])
    compiler.finish(CONFIGS[0])
    assert [feed.next(False).config for _ in range(2)] == CONFIGS[:2]


def test_without_patience_what_is_not_compiled_is_forgotten_unless_it_runs_anyway():
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:1], anyway=True)
    feed.add(CONFIGS[1:4])
    compiler.finish(CONFIGS[2])
    assert feed.next(False, patient=False).config == CONFIGS[2]
    assert feed.held == 1
    compiler.finish(CONFIGS[0])
    assert feed.next(False, patient=False).config == CONFIGS[0]
    assert feed.next(False, patient=False) is None


def test_there_is_room_for_one_more_where_none_is_ready():
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:3])
    assert feed.room() == 1
    compiler.finish(CONFIGS[1])
    assert feed.room() == 0
    feed.add(CONFIGS[3:6])
    assert feed.room() == 0


def test_a_config_that_cannot_run_is_dropped_with_its_numbers():
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:1])
    over = Resources(shared_bytes=300_000)
    reason = "300,000 bytes of shared memory, 232,448 are there"
    compiler.finish(CONFIGS[0], Status.RESOURCES, reason, resources=over, trace="where it was raised")
    dropped = feed.next(False).dropped
    assert dropped.status is Status.RESOURCES
    assert (dropped.error, dropped.trace) == (reason, "where it was raised")
    assert dropped.resources == over


def deferred_ones():
    """A feed that has deferred a config that a rule foresees to spill, and one that does."""
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:3])
    compiler.finish(CONFIGS[0], Status.DEFERRED, "256 accumulator registers")
    compiler.finish(CONFIGS[1], Status.DEFERRED, "spills 4,000 bytes", resources=SPILLS, compile_s=2.0)
    compiler.finish(CONFIGS[2])
    assert feed.next(False).config == CONFIGS[2]
    assert feed.held == 0
    return feed, compiler


def test_deferred_configs_are_dropped_where_others_work():
    feed, _ = deferred_ones()
    trials = [feed.next(False).dropped for _ in range(2)]
    assert [trial.config for trial in trials] == CONFIGS[:2]
    assert {trial.status for trial in trials} == {Status.DEFERRED}
    assert [trial.error for trial in trials] == [
        "others worked: 256 accumulator registers",
        "others worked: spills 4,000 bytes",
    ]
    assert trials[1].resources == SPILLS
    assert feed.next(False) is None


def test_deferred_configs_come_back_where_nothing_else_works():
    feed, compiler = deferred_ones()
    compiler.at_once = True
    result = [feed.next(True) for _ in range(2)]
    assert compiler.asked[-1] == (CONFIGS[0], True), "a rule had kept it from being compiled"
    assert {ready.config for ready in result} == set(CONFIGS[:2])
    assert all(ready.dropped is None for ready in result)
    assert feed.next(True) is None


class Curious:
    """A searcher that wants to see every config, and notes what it is told."""

    def __init__(self):
        self.left, self.told = list(CONFIGS), []

    def wanted_previews(self, count):
        expected, self.left = self.left[:count], self.left[count:]
        return expected

    def take_previews(self, found):
        self.told += [one.config for one in found]


def test_with_previews_nothing_is_asked_for_until_the_searcher_was_told_of_one():
    compiler, searcher = Compiler(at_once=False), Curious()
    feed = CompiledFeed(compiler, 4, Previews(searcher, compiler, 3, None))
    assert feed.room() == 0
    compiler.finish(CONFIGS[1])
    assert feed.room() == 4
    assert searcher.told == [CONFIGS[1]]
    assert compiler.asked == [(config, False) for config in CONFIGS[:3]], "three previews in all"


def test_while_no_proposal_is_ready_there_is_room_for_one_for_each_compiler():
    compiler, searcher = Compiler(at_once=False), Curious()
    compiler.workers = 12
    feed = CompiledFeed(compiler, 18, Previews(searcher, compiler, 1, None))
    feed.room()
    compiler.finish(CONFIGS[0])
    assert feed.room() == 12
    proposals = [Config(n=n) for n in range(10, 18)]
    feed.add(proposals)
    assert feed.room() == 4
    compiler.finish(proposals[0])
    assert feed.room() == 0, "the searcher knows more after the next trial"


def test_the_searcher_is_told_of_every_proposal_that_was_compiled():
    compiler, searcher = Compiler(), Curious()
    feed = CompiledFeed(compiler, 4, Previews(searcher, compiler, 0, None))
    feed.add(CONFIGS[:2])
    assert feed.next(False).config == CONFIGS[0]
    assert searcher.told == CONFIGS[:1]


def test_where_nothing_can_be_compiled_ahead_the_launching_process_does_it(caplog):
    compiler = Compiler(at_once=False)
    feed = CompiledFeed(compiler, 4)
    feed.add(CONFIGS[:1])
    compiler.futures[CONFIGS[0]].set_exception(TargetError("no process can load it"))
    ready = feed.next(False)
    assert (ready.config, ready.compiled, ready.dropped) == (CONFIGS[0], None, None)
    assert "no process can load it" in caplog.text
