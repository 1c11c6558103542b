"""What is compiled of a problem before its device is free: how much of it is enough."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from triton_ops.space import Config
from triton_ops.tuner.gate import FirstConfigs
from triton_ops.values import Compiled, Status


class Pool:
    """Compiles nothing by itself."""

    def __init__(self, workers):
        self.workers, self.futures = workers, {}

    def submit(self, config, *, anyway=False, spare=False):
        return self.futures.setdefault(config, Future())

    def compiles(self, count, seconds):
        """So many more of the configs are compiled, each in so many seconds."""
        waiting = [(config, future) for config, future in self.futures.items() if not future.done()]
        for config, future in waiting[:count]:
            future.set_result(Compiled(config, Status.OK, compile_s=seconds))


class Searcher:
    """Proposes configs in their order."""

    def __init__(self, size):
        self.left = configs(size)

    def ask(self, count):
        asked, self.left = self.left[:count], self.left[count:]
        return asked


def configs(count):
    return [Config(B=at) for at in range(count)]


def stages(first):
    return first.enough.done(), first.whole.done()


@pytest.mark.parametrize(("workers", "seconds", "enough"), [(16, 0.1, 8), (16, 1.0, 19), (14, 2.5, 33), (1, 60.0, 40)])
def test_more_is_enough_where_the_compilers_make_fewer_a_second(workers, seconds, enough):
    pool = Pool(workers)
    first = FirstConfigs(pool)
    for config in configs(64):
        first.submit(config, spare=True)
    pool.compiles(enough - 1, seconds)
    first.complete(Searcher(0))
    assert stages(first) == (False, False)
    pool.compiles(1, seconds)
    assert stages(first) == (True, False)
    pool.compiles(64, seconds)
    assert stages(first) == (True, True)


def test_a_small_space_is_compiled_as_far_as_it_is_proposed_and_each_config_counts_once():
    pool = Pool(4)
    first = FirstConfigs(pool)
    first.submit(configs(1)[0], anyway=True)
    first.complete(Searcher(5))
    assert len(pool.futures) == 5
    pool.compiles(4, 0.01)
    assert stages(first) == (False, False)
    pool.compiles(1, 0.01)
    assert stages(first) == (True, True)


def test_previews_that_were_wanted_are_enough_to_compile():
    pool = Pool(4)
    first = FirstConfigs(pool)
    for config in configs(40):
        first.submit(config, spare=True)
    first.complete(Searcher(200))
    assert len(pool.futures) == 40


def test_what_cannot_be_compiled_is_waited_for_no_more():
    pool = Pool(4)
    first = FirstConfigs(pool)
    first.complete(Searcher(3))
    one, other, third = pool.futures.values()
    one.cancel()
    other.set_exception(RuntimeError("no process can load the kernel"))
    assert stages(first) == (False, False)
    third.set_result(Compiled(configs(3)[2], Status.CRASH, "it crashed"))
    assert stages(first) == (True, True)


def test_a_problem_of_which_nothing_is_compiled_is_ready():
    first = FirstConfigs(Pool(4))
    first.complete(Searcher(0))
    assert stages(first) == (True, True)
