"""The compiling processes of a pool, shared by its threads: few where few compile at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from triton_ops.compilation.compiling_process import AtHand


class Made:
    """Makes processes that are only counted."""

    def __init__(self):
        self.made = []

    def __call__(self):
        self.made.append(object())
        return self.made[-1]


def test_a_thread_keeps_its_process_until_it_leaves_it_to_the_next():
    at_hand, make = AtHand(), Made()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first = one.submit(at_hand.process, make).result()
        assert one.submit(at_hand.process, make).result() is first
        second = other.submit(at_hand.process, make).result()
        assert second is not first
        one.submit(at_hand.leave).result()
        other.submit(at_hand.forget).result()  # it has ended
        assert other.submit(at_hand.process, make).result() is first
        assert one.submit(at_hand.process, make).result() not in (first, second)
    assert len(make.made) == 3


def test_many_threads_that_take_turns_have_one_process_and_one_alone_at_a_time():
    at_hand, make, turns = AtHand(), Made(), threading.Lock()

    def work(_):
        with turns:
            used = at_hand.process(make)
            at_hand.leave()
        return used

    with ThreadPoolExecutor(8) as threads:
        used = set(threads.map(work, range(100)))
    assert used == set(make.made)
    assert len(make.made) == 1


def test_the_process_that_was_used_last_is_used_next_and_one_that_cannot_be_made_is_nobodys():
    at_hand, make = AtHand(), Made()
    for _ in range(2):
        at_hand.process(make)
        at_hand.leave()
    assert len(make.made) == 1
    with ThreadPoolExecutor(1) as other:
        other.submit(at_hand.process, make).result()
        newer = at_hand.process(make)
        other.submit(at_hand.leave).result()
        at_hand.leave()
    assert at_hand.process(make) is newer
    at_hand.forget()
    at_hand.process(make)
    at_hand.forget()

    def fails():
        raise OSError("too many open files")

    with pytest.raises(OSError, match="too many"):
        at_hand.process(fails)
    assert at_hand.process(make) is make.made[-1]
    at_hand.leave()
    at_hand.leave()  # there is none to leave
    assert at_hand.process(make) is make.made[-1]
    assert len(make.made) == 3
