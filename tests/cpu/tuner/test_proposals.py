"""Proposals of a search that are compiled ahead: how many the compilers could begin, and which one is tried next."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.records import record
from triton_ops.exceptions import TargetError
from triton_ops.space import Config
from triton_ops.tuner.feeds import CompiledFeed
from triton_ops.tuner.gate import not_within_itself
from triton_ops.values import Compiled, Status


class Pool:
    """Compilers that are done with a config when the test says so."""

    def __init__(self, workers=2):
        self.workers, self.futures = workers, {}

    def submit(self, config, *, anyway=False, spare=False):
        return self.futures.setdefault(config, Future())

    def finish(self, config, status=Status.OK):
        self.futures[config].set_result(Compiled(config, status))


CONFIGS = [Config(n=n) for n in range(8)]


@pytest.mark.parametrize(
    ("waiting", "ready", "room"),
    [(0, 0, 8), (3, 0, 5), (7, 0, 1), (8, 0, 0), (3, 1, 5), (4, 1, 4), (5, 1, 0), (8, 8, 0)],
)
def test_compilers_take_what_fills_their_places_and_where_some_is_ready_no_less_than_half_of_them(waiting, ready, room):
    pool = Pool()
    feed = CompiledFeed(pool, 8)
    feed.add(CONFIGS[:waiting])
    for config in CONFIGS[:ready]:
        pool.finish(config)
    assert feed.held == waiting
    assert feed.room() == room


def test_the_proposal_that_is_compiled_first_is_tried_first():
    pool = Pool()
    feed = CompiledFeed(pool, 8)
    feed.add(CONFIGS[:3])
    assert not feed.ready
    pool.finish(CONFIGS[2])
    assert feed.ready
    assert feed.next(run_deferred=False).config == CONFIGS[2]
    pool.finish(CONFIGS[1])
    assert feed.next(run_deferred=False).config == CONFIGS[1]
    assert feed.held == 1


def test_without_patience_what_is_not_ready_is_forgotten_unless_it_must_run():
    feed = CompiledFeed(pool := Pool(), 8)
    feed.add(CONFIGS[:1], anyway=True)
    feed.add(CONFIGS[1:3])
    pool.finish(CONFIGS[2])
    assert feed.next(run_deferred=False, patient=False).config == CONFIGS[2]
    assert feed.held == 1
    pool.finish(CONFIGS[0])
    assert feed.next(run_deferred=False, patient=False).config == CONFIGS[0]
    assert feed.next(run_deferred=False, patient=False) is None


def test_a_tune_that_calls_itself_is_refused_and_one_of_another_problem_or_thread_is_not():
    def one_of(kernel):
        with not_within_itself(record(kernel).key):
            return kernel

    with not_within_itself(record("a").key):
        assert one_of("b") == "b"
        with pytest.raises(TargetError, match="the tune of a 4096 × 64 has called itself"):
            one_of("a")
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(one_of, "a").result() == "a"
    assert one_of("a") == "a"
