"""CPUs that several compile pools share: who goes first, and that pools that are equal have equal shares."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from tests.limits import ENOUGH_S
from triton_ops.compilation import SharedCpus


class Pool:
    """A pool that notes each of its threads that comes to wait."""

    def __init__(self, first=True, hurried=True):
        self.first, self.hurried, self.turns, self.came = first, lambda: hurried, 0, threading.Semaphore(0)
        self._closed, self._seen = False, set()

    @property
    def closed(self):
        thread = threading.current_thread()
        if getattr(thread, "pool", None) is self and thread not in self._seen:
            self._seen.add(thread)
            self.came.release()
        return self._closed

    @closed.setter
    def closed(self, closed):
        self._closed = closed


class Threads:
    """Threads that each hold one turn until they are told to leave it."""

    def __init__(self, cpus):
        self.cpus, self.holding, self.leave, self.refused, self.left = cpus, Counter(), {}, Counter(), 0
        self.changed, self.threads = threading.Condition(), []

    def come(self, pool, count):
        """Have threads of a pool ask for turns, and wait until all have asked."""
        self.leave.setdefault(pool, threading.Semaphore(0))
        for _ in range(count):
            self.threads.append(threading.Thread(target=self._hold, args=(pool,), daemon=True))
            self.threads[-1].pool = pool
            self.threads[-1].start()
        for _ in range(count):
            assert pool.came.acquire(timeout=ENOUGH_S)

    def release(self, pool):
        """Let one thread of a pool leave its turn, and wait until it has left."""
        before = self.left
        self.leave[pool].release()
        with self.changed:
            assert self.changed.wait_for(lambda: self.left > before, timeout=ENOUGH_S)

    def hold(self, then):
        """Whether the turns are held as said, now or soon."""
        with self.changed:
            return self.changed.wait_for(lambda: +self.holding == Counter(then), timeout=ENOUGH_S)

    def end(self):
        self.cpus.close()
        for leave in self.leave.values():
            leave.release(100)
        for thread in self.threads:
            thread.join(ENOUGH_S)
            assert not thread.is_alive()

    def _hold(self, pool):
        with self.cpus.turn(pool) as begun:
            with self.changed:
                (self.holding if begun else self.refused)[pool] += 1
                self.changed.notify_all()
            if begun:
                self.leave[pool].acquire()
                with self.changed:
                    self.holding[pool] -= 1
                    self.left += 1
                    self.changed.notify_all()


@pytest.fixture
def threads():
    made = Threads(SharedCpus(4, spared=1))
    yield made
    made.end()


def test_cpus_that_others_lend_serve_all_pools_and_what_is_idle_of_the_own_ones_is_told():
    idle = []
    threads = Threads(SharedCpus(2, spared=1, tell_idle=idle.append))
    try:
        first, later = Pool(), Pool(first=False)
        assert idle == [2]
        threads.come(later, 4)
        assert threads.hold({later: 1})
        threads.cpus.lend(2)
        assert threads.hold({later: 3})
        threads.come(first, 2)
        assert threads.hold({later: 3, first: 1})
        threads.cpus.lend(0)
        threads.release(later)
        threads.release(later)
        assert threads.hold({later: 1, first: 1}), "what is lent back is not taken again"
        assert idle[-1] == 0
        threads.release(first)
        threads.release(first)
        threads.release(later)
        threads.release(later)
        assert threads.hold({})
        assert idle[-1] == 2
        threads.come(first, 1)
        assert threads.hold({first: 1})
        assert idle[-1] == 1
    finally:
        threads.end()


def test_a_pool_that_has_all_cpus_gives_half_of_them_to_another_that_is_measured_too(threads):
    one, other = Pool(), Pool()
    threads.come(one, 4)
    assert threads.hold({one: 4})
    threads.come(other, 4)
    threads.come(one, 4)  # as threads that have compiled, and ask for the next turn
    threads.release(one)
    assert threads.hold({one: 3, other: 1})
    threads.release(one)
    assert threads.hold({one: 2, other: 2})
    threads.release(one)
    assert threads.hold({one: 2, other: 2})
    threads.release(other)
    assert threads.hold({one: 2, other: 2})


def test_pools_of_later_problems_wait_for_those_that_are_measured_and_leave_cpus_to_them(threads):
    first, later, last = Pool(), Pool(first=False), Pool(first=False)
    threads.come(later, 4)
    assert threads.hold({later: 3})  # one CPU is spared
    threads.come(first, 2)
    assert threads.hold({later: 3, first: 1})
    threads.come(last, 2)
    threads.release(later)
    assert threads.hold({later: 2, first: 2})
    threads.release(first)
    assert threads.hold({later: 2, first: 1})  # the one that is free is spared
    threads.release(first)
    assert threads.hold({later: 3})  # what has compiled most goes on
    threads.release(later)
    assert threads.hold({later: 2, last: 1})
    threads.come(later, 1)
    later.first = True
    threads.cpus.look()
    assert threads.hold({later: 3, last: 1})


def test_proposals_of_one_problem_go_before_previews_of_another_and_both_before_later_problems(threads):
    previews, proposals, later = Pool(hurried=False), Pool(), Pool(first=False)
    threads.come(previews, 4)
    assert threads.hold({previews: 4})
    threads.come(later, 2)
    threads.come(previews, 4)
    threads.come(proposals, 3)
    for count in range(1, 4):
        threads.release(previews)
        assert threads.hold({previews: 4 - count, proposals: count})
    threads.release(previews)
    assert threads.hold({previews: 1, proposals: 3})
    threads.release(proposals)
    assert threads.hold({previews: 2, proposals: 2})


def test_a_pool_that_is_closed_holds_nobody_up(threads):
    one, other = Pool(), Pool()
    threads.come(one, 4)
    assert threads.hold({one: 4})
    threads.come(other, 2)
    threads.come(one, 2)
    other.closed = True
    threads.cpus.look()
    threads.release(one)
    assert threads.hold({one: 4})
    with threads.changed:
        assert threads.changed.wait_for(lambda: threads.refused[other] == 2, timeout=ENOUGH_S)
