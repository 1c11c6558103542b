"""The order of compilers' work: what was asked for comes first, spare work never takes every process."""

from triton_ops.compilation import Queue
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

A, B, C, D = (Config(n=n) for n in range(4))


def finish(queue, job):
    job.future.set_result(Compiled(job.config, Status.OK))
    queue.done(job)


def test_what_is_asked_for_comes_before_spare_work_whenever_it_came():
    queue = Queue(1)
    for config, spare in ((A, True), (B, False), (C, True), (D, False)):
        queue.add(config, spare)
    assert [queue.take().config for _ in range(3)] == [B, D, A]


def test_spare_work_leaves_one_process_free():
    queue = Queue(1)
    for config in (A, B):
        queue.add(config, True)
    first = queue.take()
    assert queue.take() is None, "one runs, and no more may"
    queue.add(C, False)
    assert queue.take().config == C
    finish(queue, first)
    assert queue.take().config == B


def test_spare_work_that_is_asked_for_comes_in_its_turn_and_once():
    queue = Queue(1)
    early = queue.add(A, True)
    queue.add(B, True)
    assert queue.add(B, False) is not early
    assert queue.add(A, False) is early
    jobs = [queue.take(), queue.take()]
    assert [job.config for job in jobs] == [B, A]
    assert queue.take() is None
    for job in jobs:
        finish(queue, job)
    assert queue.add(A, False) is early
    assert early.result().config == A
    assert queue.take() is None, "it was compiled"


def test_spare_work_that_runs_is_not_begun_again():
    queue = Queue(1)
    future = queue.add(A, True)
    job = queue.take()
    assert queue.add(A, False) is future
    assert queue.take() is None
    finish(queue, job)
    queue.add(B, True)
    assert queue.take().config == B, "the place of the first is free again"


def test_what_was_asked_for_twice_is_compiled_twice():
    queue = Queue(1)
    assert queue.add(A, False) is not queue.add(A, False)
    assert [queue.take().config, queue.take().config] == [A, A]


def test_after_its_end_nothing_is_begun_and_nobody_waits():
    queue = Queue(1)
    now, later = queue.add(A, False), queue.add(B, True)
    queue.close()
    assert now.cancelled()
    assert later.cancelled()
    assert queue.take() is None
    assert queue.add(C, False).cancelled()
