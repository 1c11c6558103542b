"""Calls that are known are found by what of their arguments counts, and asked again when what they rest on changes."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

from triton_ops.request import KnownCall, KnownCalls, known_calls


def placed(*args, more=(), **kwargs):
    return KnownCalls().place(args, kwargs, *more)


def test_a_place_tells_classes_names_and_what_else_decides():
    alike = placed(1, name="x")
    assert placed(1, name="x") == alike
    for other in (placed(1.0, name="x"), placed(True, name="x"), placed(1, other="x"), placed(1, "x"), placed(1)):
        assert other != alike
    assert placed(1, more=("one",)) not in (placed(1), placed(1, more=("two",)))
    assert placed(0.0) == placed(0.0) != placed(-0.0)


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

    def decide(args, kwargs, place):
        assert place == calls.place(args, kwargs)
        answer = answers[-1]
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

    calls = KnownCalls(lambda args, kwargs, place: KnownCall(fail, lambda: counted.append(1)))
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


class Holds:
    """What is known of a call, as long as it holds."""

    def __init__(self, holds=True):
        self.holds = holds


def test_what_holds_is_made_once_and_what_holds_no_more_is_made_anew():
    calls, made = KnownCalls(), []

    def make():
        made.append(Holds())
        return made[-1]

    assert calls.of("place", make) is calls.of("place", make)
    made[0].holds = False
    assert calls.of("place", make) is made[1]
    assert len(made) == 2
    assert not calls._locks, "nobody waits any more"


def test_what_is_not_kept_is_made_at_every_call_and_a_call_without_a_place_is_none_of_those_known():
    calls, made = KnownCalls(), []
    for place, kept in (("place", lambda _: False), (None, lambda _: True)):
        for _ in range(2):
            calls.of(place, lambda: made.append(1) or Holds(), kept)
    assert (len(made), len(calls)) == (4, 0)


def test_an_error_leaves_no_lock_behind():
    calls = KnownCalls()
    with pytest.raises(ZeroDivisionError):
        calls.of("place", lambda: 1 // 0)
    assert not calls._locks
    assert calls.of("place", Holds).holds


def test_a_memory_that_is_full_begins_anew(monkeypatch):
    monkeypatch.setattr(known_calls, "_MOST", 3)
    calls = KnownCalls()
    for place in range(3):
        calls.keep(place, "value")
    assert len(calls) == 3
    calls.keep(3, "value")
    assert [*calls] == [3]


def test_patterns_are_written_once_and_begin_anew_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(known_calls, "_MOST_PATTERNS", 2)
    calls = KnownCalls()
    one = calls._pattern((1,), {})
    assert calls._pattern((2,), {}) is one
    calls._pattern((1, 2), {})
    assert calls._pattern((3,), {}) is one, "two are not too many"
    calls._pattern((1, 2, 3), {})
    assert calls._pattern((3,), {}) is not one


def test_calls_of_several_patterns_in_turn_are_told_apart_by_their_classes_alone(monkeypatch):
    torch = pytest.importorskip("torch")

    def decide(args, kwargs, place):
        entry = KnownCall(lambda *values: len(values))
        calls.keep(place, entry)
        return entry

    calls, x = KnownCalls(decide, in_order=True), torch.zeros(2)
    patterns = [((x, None), {}), ((x, x), {}), ((x, 1), {}), ((x, 1.0), {}), ((x,), {"rows": x})]
    first = [calls.call(*args, **kwargs) for args, kwargs in patterns]
    decided = len(calls)
    monkeypatch.setattr(known_calls, "_kind", lambda _value: pytest.fail("a known call looks at what its values are"))
    for args, kwargs in [*patterns, *patterns]:
        assert calls.call(*args, **kwargs) == 2
    assert (first, len(calls)) == ([2, 2, 2, 2, 2], decided)


def test_a_few_patterns_are_asked_in_turn_and_the_last_of_many_first():
    calls = places(KnownCalls())
    patterns = [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    for args in patterns:
        assert calls.call(*args) == calls.place(args, {})
    first = calls._pattern((1,), {})
    assert calls.call is first.call
    assert [each.call for each in calls._in_turn] == [calls._pattern(args, {}).call for args in patterns]
    asked = mock.patch.object(calls, "_pattern", side_effect=AssertionError("it is looked up"))
    with asked:
        assert [calls.call(*args) for args in patterns] == [*calls]
    calls.call(1, 2, 3, 4, 5)
    assert calls.call is calls._pattern((1, 2, 3, 4, 5), {}).call
    assert all(len(each.after) == 1 for each in (first, *calls._in_turn))
    for args in (*patterns, *patterns):
        assert calls.call(*args) == calls.place(args, {})


def test_a_forked_child_knows_nothing():
    calls = KnownCalls()
    calls.keep("place", "value")
    with calls._locks["other"]:
        calls.begin_anew()
        assert not calls
        assert calls.of("other", Holds).holds


def test_of_a_tensor_counts_what_a_compiler_sees_and_not_what_it_holds():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 4)
    alike = placed(x)
    assert placed(torch.ones(4, 4)) == alike
    others = [x.half(), x[:2], x.t()[:, :3], torch.zeros(17)[1:].view(4, 4), torch.nn.Parameter(x)]
    assert all(placed(other) != alike for other in others)
    assert placed(x, x) != alike


def test_modes_count_beside_tensors_where_they_are_asked_for():
    torch = pytest.importorskip("torch")
    x, recorded = torch.zeros(4), torch.zeros(4, requires_grad=True)
    both, none, gradients = (KnownCalls(modes=modes) for modes in (("autocast", "gradients"), (), ("gradients",)))

    def places(calls, *args):
        plain = calls.place(args, {})
        with torch.no_grad():
            silent = calls.place(args, {})
        with torch.autocast("cpu"):
            cast = calls.place(args, {})
        return plain == silent, plain == cast

    assert places(none, recorded) == (True, True)
    assert places(both, x) == (True, False)
    assert places(both, recorded) == (False, False)
    assert places(gradients, recorded) == (False, True)
    assert places(both, 3) == (True, True), "without a tensor they say nothing"


def test_a_call_runs_with_the_arguments_as_they_came():
    calls = KnownCalls(lambda args, kwargs, place: entry(args, kwargs))

    def entry(args, kwargs):
        known = KnownCall(lambda *args, **kwargs: (args, kwargs))
        calls.keep(calls.place(args, kwargs), known)
        return known

    for _ in range(2):
        assert calls.call(1, [2], name="x") == ((1, [2]), {"name": "x"})
        assert calls.call() == ((), {})
        assert calls.call(b=1, a=2) == ((), {"b": 1, "a": 2})


def places(calls):
    """Have a call return its place, once that is known."""

    def decide(_args, _kwargs, place):
        entry = KnownCall(lambda *_args, **_kwargs: place)
        calls.keep(place, entry)
        return entry

    calls._decide = decide
    return calls


def like_none_before(torch):
    """Pairs of calls that differ in one thing that counts."""
    x, half = torch.zeros(8, 16), torch.zeros(8, 16).half()
    memory, negated = torch.zeros(200), torch.zeros(8, 16, dtype=torch.complex64).conj().imag
    dense, config = torch.empty_strided(negated.shape, negated.stride()), {"BLOCK": 16}
    empty = torch.zeros(8, 16)
    empty.untyped_storage().resize_(0)
    yield (x, 1), (torch.zeros(16, 8), 1)
    yield (x, 1), (torch.zeros(16, 8).t(), 1)
    yield (x, 1), (half, 1)
    yield (x, 1), (torch.nn.Parameter(x, requires_grad=False), 1)
    yield (x, 1), (torch.zeros(8, 16).requires_grad_(), 1)
    yield (memory[:128].view(8, 16), 1), (memory[1:129].view(8, 16), 1)
    yield (x, 1), (empty, 1)
    yield (x, 1), (x, True)
    yield (x, 0.0), (x, -0.0)
    yield (x, torch.float16), (x, torch.float32)
    yield (x, config), (x, {"BLOCK": 32})
    yield (x, x), (x, torch.zeros(8, 16).half())
    yield (dense, 1), (negated[1:], 1)


def test_a_call_that_torch_tells_is_one_of_the_same_place():
    torch = pytest.importorskip("torch")
    for one, other in like_none_before(torch):
        calls = places(KnownCalls(modes=["autocast", "gradients"]))
        for args in (one, one, one, other, other, one, other, one):
            assert calls.call(*args) == calls.place(args, {})
        assert len(calls) == 2


def test_what_a_config_holds_is_asked_at_each_call_that_torch_tells():
    torch = pytest.importorskip("torch")
    calls, x, config = places(KnownCalls()), torch.zeros(4), {"BLOCK": 16}
    for value in (16, 16, 32, 32, 16, 64):
        config["BLOCK"] = value
        assert calls.call(x, config=config) == calls.place((x,), {"config": config})


def test_modes_count_where_torch_tells():
    torch = pytest.importorskip("torch")
    calls, x = places(KnownCalls(modes=["autocast", "gradients"])), torch.zeros(4).requires_grad_()
    for around in (torch.enable_grad(), torch.no_grad(), torch.autocast("cpu"), torch.inference_mode()) * 3:
        with around:
            assert calls.call(x) == calls.place((x,), {})


def test_torch_is_not_asked_of_a_tensor_that_comes_twice():
    torch = pytest.importorskip("torch")
    calls, x, y = places(KnownCalls()), torch.zeros(4), torch.zeros(4)
    for args in ((x, x), (x, x), (x, y), (x, y), (x, x)):
        assert calls.call(*args) == calls.place(args, {})
    ((check, *_),) = calls._recent[0]
    assert (check(x, y), check(y, x), check(x, x)) == (True, True, False)


def test_of_calls_of_new_sizes_torch_tells_what_is_no_size():
    torch = pytest.importorskip("torch")
    calls = KnownCalls(lambda args, kwargs, place: KnownCall(lambda *_: "decided"))

    def run(x, flag):
        return known_calls.MISS if x.shape[0] == 5 else (tuple(x.shape), flag)

    for each, flag in ((torch.zeros(4, 4), True), (torch.zeros(4, 4).half(), True)):
        calls.general[calls.family(calls.place((each, flag), {}), (each, flag))] = (run,)
    for shape in ((4, 4), (2, 8), (3, 6), (8, 2)):
        for dtype in (torch.float32, torch.float16):
            for flag in (True, True, False):
                expected = (shape, True) if flag else "decided"
                assert calls.call(torch.zeros(shape, dtype=dtype), flag) == expected
        for other in (
            torch.zeros(5, 4),
            torch.zeros(64, 64),
            torch.zeros(4, 4).double(),
            torch.zeros(17)[1:].view(4, 4),
        ):
            assert calls.call(other, True) == "decided"
    assert any(lengths for _, _, lengths, _ in calls._recent[0])
    calls.general.clear()
    calls.clear()
    assert calls.call(torch.zeros(4, 4), True) == "decided"


def test_torch_tells_of_no_call_that_was_forgotten_or_is_known_otherwise():
    torch = pytest.importorskip("torch")
    calls, x = places(KnownCalls()), torch.zeros(4)
    place = calls.call(x)
    for change, expected in (
        (lambda: calls.keep(place, KnownCall(lambda _: "other")), "other"),
        (lambda: calls.pop(place), place),
        (lambda: (calls.clear(), calls.keep(place, KnownCall(lambda _: "anew"))), "anew"),
    ):
        calls.call(x), calls.call(x)
        assert calls._recent
        change()
        assert [calls.call(x), calls.call(x)] == [expected, expected]


def test_a_call_that_is_forgotten_as_torch_is_told_of_it_is_told_by_nobody():
    torch = pytest.importorskip("torch")
    calls, x = places(KnownCalls()), torch.zeros(4)
    place = calls.call(x)
    known = KnownCall(lambda _: calls.pop(place, None) and None)
    calls.keep(place, known)
    calls.call(x)
    assert not calls._recent


def test_of_more_calls_than_torch_is_asked_of_few_take_the_place_of_others(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(known_calls, "_MOST_RECENT", 2)
    calls, tensors = places(KnownCalls()), [torch.zeros(count) for count in range(1, 6)]
    for _ in range(9):
        for x in tensors:
            assert calls.call(x) == calls.place((x,), {})
            assert len(calls._recent.get(0, ())) <= 2
    before = calls._recent[0]
    for x in tensors * 9:
        calls.call(x)
    assert calls._recent[0] != before
