"""No launch is lost, whatever is decided anew meanwhile in other threads."""

import gc
import os
import threading
import warnings

import pytest

import triton_ops
from triton_ops import operation
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch.decision import LaunchCount
from triton_ops.records import Lockfile


@operation(name="counted", space={"step": [1, 2]}, arguments=lambda n=8: {"n": n}, device="cpu")
def count_me(n, step):
    return step


def launched(name="counted"):
    return sum(row.launches for row in triton_ops.launches() if row.kernel == name)


def test_no_launch_in_flight_is_lost_while_others_begin_and_end_replays():
    before, going = launched(), threading.Event()
    made = [0] * 3

    def launches(own):
        going.wait()
        for _ in range(3_000):
            count_me(n=8)
            made[own] += 1

    threads = [threading.Thread(target=launches, args=(own,)) for own in range(len(made))]
    for thread in threads:
        thread.start()
    going.set()
    while any(thread.is_alive() for thread in threads):
        with triton_ops.replaying(Lockfile()):
            pass
    assert launched() - before == sum(made)


def test_a_launch_that_is_counted_after_its_decision_was_forgotten_is_not_lost():
    before = launched()
    count_me(n=8)
    (count,) = (decision.count for decision in decided() if decision.kernel == "counted")
    up = count.up
    del count
    decisions.forget_decisions()
    gc.collect()
    assert launched() - before == 1
    up()
    assert launched() - before == 2
    del up
    gc.collect()
    assert launched() - before == 2
    count_me(n=8)
    assert launched() - before == 3


def decided():
    from triton_ops.dispatch.operations import _calls

    return _calls.decisions


def test_what_is_forgotten_again_and_again_takes_no_memory():
    for _ in range(50):
        count_me(n=8)
        decisions.forget_decisions()
    gc.collect()
    decisions.launches()
    assert len(decisions._counts._ended) == 0
    assert sum(row.kernel == "counted" for row in decisions._counts._rows.values()) <= 2


@pytest.mark.processes
def test_a_forked_child_tells_none_of_its_parents_launches():
    count_me(n=8)
    (count,) = (decision.count for decision in decided() if decision.kernel == "counted")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that other tests have left
        child = os.fork()
    if not child:
        at_first = launched()
        del count
        gc.collect()
        count_me(n=8)
        os.write(writing, f"{at_first} {launched()}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == "0 1"
    os.waitpid(child, 0)
    assert count.value >= 1


def test_a_copy_counts_for_itself():
    import copy

    count = LaunchCount()
    count.up()
    assert (count.value, copy.deepcopy(count).value, copy.copy(count).value) == (1, 0, 0)
