"""`compare` judges results before times: pairs of which one is wrong, and pairs of which both are right."""

from __future__ import annotations

import itertools
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from triton_ops import Choice, ConfigSpace, FunctionKernel, Operation, TensorSpec, compare
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError

X = torch.rand(96, 96, generator=torch.Generator().manual_seed(0))
ROUNDS = 6


def product(x):
    return x @ x


def off_by_one_row(x):
    return (x @ x).roll(1, 0)


def with_nan(x):
    y = x @ x
    y[3, 5] = torch.nan
    return y


def in_one_element(x):
    y = x @ x
    y[40, 7] *= 1.001
    return y


def mutates(x):
    y = x @ x
    x[0, 0] += 1
    return y


def remembers():
    first = []
    return lambda x: (first or (first.append(x @ x), first)[1])[0]


def fails_later(after):
    calls = itertools.count()
    return lambda x: (x @ x) if next(calls) < after else torch.zeros_like(x)


def writes(x, out):
    out.copy_(x @ x)


def both_ways(x, out):
    out.copy_(x)
    return x @ x


WRONG = {
    "zeros": (product, torch.zeros_like, "100.00% of the elements are off"),
    "transposed": (product, lambda x: (x @ x).T, "of the elements are off"),
    "off by one row": (product, off_by_one_row, "of the elements are off"),
    "NaN": (product, with_nan, "nan instead of"),
    "one element": (product, in_one_element, "the worst at (40, 7)"),
    "another dtype": (product, lambda x: (x @ x).double(), "dtype float64 instead of float32"),
    "another shape": (product, lambda x: (x @ x)[None], "shape (1, 96, 96) instead of (96, 96)"),
    "a missing result": (lambda x: (x @ x, x + 1), product, "returns 1 results instead of 2"),
    "no result": (product, lambda x: None, "a NoneType instead of a tensor"),
    "a changed input": (product, mutates, "it changes x, which a does not do"),
    "a result of before": (product, remembers(), "it gives the same results as before, which a does not do"),
    "a second call": (product, fails_later(1), "called again, "),
    "a late call": (product, fails_later(25), "after the timed calls, "),
    "numbers": (len, lambda x: len(x) + 1, "97 instead of 96"),
    "an array": (lambda x: x.numpy() + 1, lambda x: x.numpy(), "of the elements are off"),
    "of a mapping": (lambda x: {"y": x, "z": x}, lambda x: {"y": x}, "the keys y instead of y, z"),
}


OF_ITSELF = {"a result of before", "a second call", "a late call"}  # which need nobody else to be wrong


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_result_is_the_verdict(kind, steady_clock):
    right, wrong, how = WRONG[kind]
    result = compare(right, wrong, args=(X,), rounds=ROUNDS, reference=right)
    assert result.verdict == "wrong"
    assert list(result.wrong) == ["b"]
    assert how in result.wrong["b"]
    assert f"b gives a wrong result: {result.wrong['b']}" in str(result)
    assert result.percent != result.percent
    assert (result.rounds, result.mode, result.a, result.guard) == (0, "", None, None)


@pytest.mark.parametrize("kind", [kind for kind in WRONG if kind not in OF_ITSELF])
def test_without_a_reference_two_that_differ_are_both_named(kind, steady_clock):
    right, wrong, how = WRONG[kind]
    result = compare(right, wrong, args=(X,), names=("new", "old"), rounds=ROUNDS)
    assert (result.verdict, result.a, result.disputed) == ("wrong", None, True)
    assert list(result.wrong) == ["new", "old"]
    assert how.replace("which a", "which new") in result.wrong["old"]
    assert str(result).startswith("new and old differ, and without a reference nothing says which is wrong; old beside")
    other = compare(wrong, right, args=(X,), names=("new", "old"), rounds=ROUNDS)
    assert (list(other.wrong), other.disputed) == (["new", "old"], True)


@pytest.mark.parametrize("wrong", [remembers(), fails_later(1), fails_later(25)])
def test_what_differs_from_itself_is_wrong_without_a_reference(wrong, steady_clock):
    result = compare(product, wrong, args=(X,), rounds=ROUNDS)
    assert (result.verdict, list(result.wrong), result.disputed) == ("wrong", ["b"], False)


WRONG_WRITES = {
    "not written": (writes, lambda x, out: None, "it does not change out, as a does"),
    "nothing but poison": (writes, lambda x, out: out.copy_(x), "of the elements are off"),
    "beside the result": (both_ways, lambda x, out: (out.zero_(), x @ x)[1], "in out, which it changes, "),
    "another one": (writes, lambda x, out: x.copy_(x @ x), "it changes x, which a does not do"),
}


@pytest.mark.parametrize("kind", WRONG_WRITES)
def test_what_is_written_is_judged(kind, steady_clock):
    right, wrong, how = WRONG_WRITES[kind]
    result = compare(right, wrong, args=(X, torch.ones_like(X)), rounds=ROUNDS)
    assert (result.verdict, list(result.wrong), result.disputed) == ("wrong", ["a", "b"], True), result
    assert how in result.wrong["b"]


@dataclass
class Pair:
    mean: torch.Tensor
    names: list


def seeded(x):
    return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(3))


def in_pieces(x):
    return torch.cat([part @ x for part in x.split(7)])


NAN = X.clone()
NAN[2, 2] = torch.nan
RIGHT = {
    "another order of adding up": (lambda x: x.sum(1), lambda x: x.flip(1).cumsum(1)[:, -1], X),
    "pieces": (product, in_pieces, X),
    "rounding to float16": (lambda x: x.softmax(-1), lambda x: x.float().softmax(-1).half(), X.half()),
    "rounding to bfloat16": (product, lambda x: (x.float() @ x.float()).bfloat16(), X.bfloat16()),
    "zeros of both signs": (lambda x: x * 0.0, lambda x: x * -0.0, X),
    "equal operations": (lambda x: (x + 1) * 2, lambda x: x * 2 + 2, X),
    "whole numbers": (lambda x: x.argsort(), lambda x: x.sort().indices, X),
    "truths": (lambda x: x > 0.5, lambda x: ~(x <= 0.5), X),
    "nested": (
        lambda x: [{"y": (x, 1)}, Pair(x.mean(0), ["a"])],
        lambda x: [{"y": (x.clone(), 1)}, Pair(x.sum(0) / 96, ["a"])],
        X,
    ),
    "NaN where it is right": (lambda x: x.sqrt(), lambda x: x.pow(0.5), NAN),
    "a text": (lambda x: str(tuple(x.shape)), lambda x: f"({len(x)}, {len(x)})", X),
    "a number": (lambda x: x.sum().item(), lambda x: x.sum(0).sum().item(), X),
    "seeded": (seeded, lambda x: seeded(x).clone(), X),
    "views": (lambda x: x.T, lambda x: x.T.contiguous(), X),
    "arrays": (lambda x: x.numpy() @ x.numpy(), lambda x: np.einsum("ij,jk->ik", x.numpy(), x.numpy()), X),
    "sparse": (lambda x: x.to_sparse(), lambda x: (x * 1).to_sparse(), X),
    "in place": (lambda x: x.add_(1), lambda x: x.copy_(1 + x), X),
    "nothing but a write": (lambda x: x.__setitem__(0, 2.0), lambda x: (x[0].fill_(2.0), None)[1], X),
    "nothing that floats decide": (lambda x: x.sign(), lambda x: (x > 0).float(), X),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_results_are_told_from_wrong_ones(kind, steady_clock):
    one, other, x = RIGHT[kind]
    for a, b in ((one, other), (other, one)):
        result = compare(a, b, args=(x,), rounds=ROUNDS)
        assert (dict(result.wrong), result.rounds) == ({}, ROUNDS), result
        assert result.verified.startswith("a"), result
        assert "compared" not in str(result)


def test_a_reference_judges_both(steady_clock):
    result = compare(torch.zeros_like, torch.ones_like, args=(X,), names=("new", "old"), reference=product)
    assert list(result.wrong) == ["new", "old"]
    assert str(result).startswith("new gives a wrong result: 100.00%")
    assert result.verified == "the reference in float64"
    right = compare(product, in_pieces, args=(X,), rounds=ROUNDS, reference=lambda x: x.double() @ x.double())
    assert right.wrong == {"a": "dtype float32 instead of float64", "b": "dtype float32 instead of float64"}


def test_a_comparison_without_a_check_says_so(steady_clock):
    result = compare(product, torch.zeros_like, args=(X,), rounds=ROUNDS, check=False)
    assert (dict(result.wrong), result.rounds) == ({}, ROUNDS)
    assert result.verified == "nothing: no check was asked for"
    assert str(result).endswith("\nNote: results were not compared: no check was asked for")


@pytest.mark.parametrize(
    ("call", "remark"),
    [
        (lambda: None, "nothing in the results can be compared"),
        (lambda: object(), "a result of type object cannot be compared"),
    ],
)
def test_results_that_hold_nothing_to_compare_are_told(call, remark, steady_clock):
    result = compare(call, call, rounds=ROUNDS)
    assert result.verified == f"nothing: {remark}"
    assert str(result).endswith(f"\nNote: results were not compared: {remark}")


def test_what_gives_another_result_each_time_judges_nobody():
    with pytest.raises(TargetError, match=r"the results of new cannot judge others: .* gives another result each time"):
        compare(torch.rand_like, product, args=(X,), names=("new", "old"))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"check": 1}, SettingsError, "check is 1; it must be True or False"),
        ({"check": False, "reference": len}, SettingsError, "a reference was given, and results are not to be checked"),
        ({"reference": 3}, KernelTypeError, "reference is 3, which is not callable"),
    ],
)
def test_settings_of_the_check_that_do_not_fit_are_refused_before_any_call(wrong, error, message):
    calls = []
    with pytest.raises(error, match=message):
        compare(calls.append, calls.append, args=(1,), **wrong)
    assert calls == []


def operation(name, function, reference=None, **more):
    return Operation(
        name, FunctionKernel(function), ConfigSpace({"times": Choice([1, 2])}),
        lambda n=48: {"x": TensorSpec((n, n), "float32")}, device="cpu", reference=reference, **more,
    )  # fmt: skip


def times_product(x, *, times):
    return x @ x


def of_zeros(x, *, times):
    return x * 0


def test_operations_are_judged_by_their_references(steady_clock):
    good, bad = operation("good", times_product, product), operation("bad", of_zeros, product)
    config = {"times": 1}
    for given in ({}, {"args": (X,)}):
        assert compare((good, config), (bad, config), rounds=ROUNDS, **given).wrong.keys() == {"b"}
        assert compare((bad, config), (good, config), rounds=ROUNDS, **given).wrong.keys() == {"a"}
        assert compare((bad, config), (bad, config), rounds=ROUNDS, **given).wrong.keys() == {"a", "b"}
        right = compare((good, config), (good, {"times": 2}), rounds=ROUNDS, **given)
        assert (right.verdict != "wrong", right.verified) == (True, "the reference in float64")
    alone = operation("alone", times_product)
    assert compare((alone, config), (bad, config), rounds=ROUNDS).wrong.keys() == {"b"}
    other = operation("other", of_zeros)
    assert compare((alone, config), (other, config), args=(X,), rounds=ROUNDS).disputed
    assert compare((alone, config), (alone, {"times": 2}), rounds=ROUNDS).verified == "a in float64"


def test_an_operation_with_other_inputs_is_judged_by_its_own_reference(steady_clock):
    other = Operation(
        "other", FunctionKernel(of_zeros), ConfigSpace({"times": Choice([1])}),
        lambda n=32: {"x": TensorSpec((n, n), "float32")}, device="cpu",
    )  # fmt: skip
    good, config = operation("good", times_product, product), {"times": 1}
    result = compare((good, config), (other, config), rounds=ROUNDS)
    assert result.verified == "the reference in float64; nothing: b has other inputs than a"
    assert "Note: results were not compared: nothing: b has other inputs than a" in str(result)


def test_the_rule_of_an_operation_judges(steady_clock):
    def near(x, *, times):
        return (x @ x) * 1.01

    exact, config = operation("exact", near, product), {"times": 1}
    assert compare((exact, config), (exact, config), rounds=ROUNDS).verdict == "wrong"
    for rule in ({"tolerance": 0.05}, {"check": lambda result, expected: result.shape == expected.shape}):
        loose = operation("loose", near, product, **rule)
        assert compare((loose, config), (loose, config), rounds=ROUNDS).verdict != "wrong"


def test_outputs_that_a_kernel_declares_are_judged(steady_clock):
    def into(x, out, *, times):
        out.copy_(x @ x)

    def nowhere(x, out, *, times):
        pass

    writing, forgetting = (FunctionKernel(function, outputs=("out",)) for function in (into, nowhere))
    args, config = (X, torch.zeros_like(X)), {"times": 1}
    stale = compare((writing, config), (forgetting, config), args=(X, X @ X), rounds=ROUNDS)
    assert "nan instead of" in stale.wrong["b"]
    beside = compare((writing, config), lambda x, out: x @ x, args=args, rounds=ROUNDS)
    assert (dict(beside.wrong), beside.verified) == ({}, "a in float64")
    assert compare((writing, config), lambda x, out: torch.mm(x, x, out=out), args=args, rounds=ROUNDS).wrong == {}


def test_arrays_and_lists_are_judged(steady_clock):
    array = np.random.default_rng(0).random(500)
    assert compare(np.sort, lambda x: np.array(sorted(x)), args=(array,), rounds=ROUNDS).wrong == {}
    assert compare(np.cumsum, lambda x: x * 0, args=(array,), rounds=ROUNDS).disputed
    names = ["b", "a"]
    assert compare(lambda x: x.sort(), lambda x: x.reverse(), args=(names,), rounds=ROUNDS).wrong == {}
    assert compare(lambda x: x.sort(), lambda x: None, args=(names,), rounds=ROUNDS).disputed


@pytest.mark.parametrize("late", [0, 1, 30])
def test_a_call_that_lasts_too_long_is_ended(late, monkeypatch):
    monkeypatch.setattr("triton_ops.benchmark.comparing._LEAST_LIMIT_S", 0.2)
    calls = itertools.count()

    def sleeps():
        if next(calls) >= late:
            try:
                time.sleep(100)
            except Exception:  # noqa: BLE001 - a contestant may catch what it likes
                time.sleep(100)

    with pytest.raises(TargetError, match=r"b was ended: a call of it takes more than 0\.2 s"):
        compare(lambda: None, sleeps, seconds=0.1)


def test_somebody_elses_alarm_goes_on(monkeypatch):
    fired = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(time.monotonic()))
    left = signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        compare(len, len, args=([],), rounds=ROUNDS)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)
    assert fired == []
