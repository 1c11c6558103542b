"""Calls that are known are found by what of their arguments counts, and asked again when what they rest on changes."""

from __future__ import annotations

import threading

import pytest

from triton_ops.request import KnownCall, KnownCalls


def placed(*args, more=(), **kwargs):
    return KnownCalls().place(args, kwargs, *more)


def test_a_place_tells_classes_names_and_what_else_decides():
    alike = placed(1, name="x")
    assert placed(1, name="x") == alike
    for other in (placed(1.0, name="x"), placed(True, name="x"), placed(1, other="x"), placed(1, "x"), placed(1)):
        assert other != alike
    assert placed(1, more=("one",)) not in (placed(1), placed(1, more=("two",)))


def test_what_cannot_be_hashed_is_told_by_its_description():
    assert placed([1, 2]) == placed([1, 2])
    assert placed([1, 2]) != placed([1, 3])
    assert placed((1, [2])) != placed((1, [3]))


def test_a_memory_of_plain_calls_tells_no_objects_from_others():
    plain = KnownCalls(plain=True)
    assert plain.place((1, 2.0, "x", None), {"flag": True}) is not None
    for strange in ([1], (1,), object(), {"x": 1}):
        assert plain.place((strange,), {}) is None
    plain.keep(None, "no place")
    assert not plain


def test_a_call_is_decided_again_when_what_was_asked_for_has_another_answer():
    answers, decided, counted = ["one"], [], []

    def decide(args, kwargs):
        place, answer = calls.place(args, kwargs), answers[-1]
        decided.append(answer)
        entry = KnownCall(lambda x: (x, answer), lambda: counted.append(x), lambda: answers[-1], answer)
        calls.keep(place, entry)
        return entry

    calls, x = KnownCalls(decide), 5
    assert [calls.call(x), calls.call(x)] == [(5, "one")] * 2
    answers.append("two")
    assert [calls.call(x), calls.call(x)] == [(5, "two")] * 2
    assert (decided, len(counted)) == (["one", "two"], 4)


def test_a_call_that_raises_is_not_counted():
    counted = []

    def fail():
        raise ValueError("it fails")

    calls = KnownCalls(lambda args, kwargs: KnownCall(fail, lambda: counted.append(1)))
    with pytest.raises(ValueError, match="it fails"):
        calls.call()
    assert counted == []


def test_one_thread_decides_and_the_others_wait_for_it():
    calls, decided, going = KnownCalls(), [], threading.Barrier(4)

    def make():
        decided.append(1)
        return KnownCall(len, len)

    def ask():
        going.wait()
        calls.of("place", make)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decided == [1]
