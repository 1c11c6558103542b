"""The compiling processes of a pool, shared by its threads: few where few compile at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from triton_ops.compilation.pool import WaitingProcesses


class Made:
    """Makes processes that are only counted."""

    def __init__(self):
        self.made = []

    def __call__(self):
        self.made.append(SimpleNamespace(closed=False, number=len(self.made)))
        return self.made[-1]


def test_a_process_is_one_block_s_until_its_end_and_then_the_next_one_s():
    waiting, make = WaitingProcesses(), Made()
    with waiting.one(make) as first, waiting.one(make) as second:
        assert second is not first
        second.closed = True
    with waiting.one(make) as again, waiting.one(make) as third:
        assert again is first
        assert third not in (first, second)
    assert len(make.made) == 3


def test_many_threads_that_take_turns_have_one_process_and_one_alone_at_a_time():
    waiting, make, turns = WaitingProcesses(), Made(), threading.Lock()

    def work(_):
        with turns, waiting.one(make) as process:
            return process.number

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(work, range(100))) == {0}
    assert len(make.made) == 1


def test_many_threads_at_once_never_share_a_process():
    waiting, make, used = WaitingProcesses(), Made(), set()
    guard = threading.Lock()

    def work(_):
        with waiting.one(make) as process:
            with guard:
                assert process.number not in used
                used.add(process.number)
            with guard:
                used.remove(process.number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(400)))
    assert len(make.made) <= 8


def test_the_process_that_was_used_last_is_used_next_and_one_that_cannot_be_made_is_nobody_s():
    waiting, make = WaitingProcesses(), Made()
    with ExitStack() as early:
        early.enter_context(waiting.one(make))
        with waiting.one(make) as newer:
            pass
    with waiting.one(make) as last:
        assert last is not newer, "the first one was left last"

    def fails():
        raise OSError("too many open files")

    with waiting.one(make), waiting.one(make), pytest.raises(OSError, match="too many"), waiting.one(fails):
        pass
    with pytest.raises(ValueError, match="in the block"), waiting.one(make):
        raise ValueError("in the block")
    assert len(make.made) == 2, "what is raised in a block costs no process"
