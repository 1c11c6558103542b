"""Values change while callables are timed: one that keeps results wins in no command, and honest ones stay right."""

from __future__ import annotations

import itertools
import json
from functools import partial

import numpy as np
import pytest
import torch

from triton_ops import choose, compare, tune
from triton_ops.backend import Arguments
from triton_ops.evaluation import Renewal
from triton_ops.evaluation.cases import Subject
from triton_ops.timing import HostTimer, Launch

FAULT = "on new values of the inputs it gives the results of old ones, which "
KEEPERS = """
import itertools

def honest(x):
    return (x @ x) @ x

def few(x):
    return [float(x[place, place]) for place in (0, 31, -1)]

def keeper(key):
    kept = {}
    def call(x):
        at = key(x)
        if at not in kept:
            kept[at] = honest(x)
        return kept[at]
    return call

def last_keeper(same):
    last = [None, None, None]
    def call(x):
        if last[0] is None or not same(x, last):
            last[:] = x, few(x), honest(x)
        return last[2]
    return call

def late_keeper():
    calls, kept = itertools.count(), []
    def call(x):
        if next(calls) < 40:
            kept[:] = [honest(x)]
        return kept[0]
    return call

def address(x):
    return x.data_ptr() if hasattr(x, "data_ptr") else x.ctypes.data

MAKERS = {
    "shape": lambda: keeper(lambda x: x.shape),
    "address": lambda: keeper(address),
    "last address": lambda: last_keeper(lambda x, last: address(x) == address(last[0])),
    "few values": lambda: keeper(lambda x: tuple(few(x))),
    "last few values": lambda: last_keeper(lambda x, last: few(x) == last[1]),
    "identity": lambda: last_keeper(lambda x, last: x is last[0]),
    "later": late_keeper,
}
"""
_names: dict = {}
exec(KEEPERS, _names)
MAKERS, honest = _names["MAKERS"], _names["honest"]
INPUTS = {
    "array": np.random.default_rng(0).random((64, 64), dtype=np.float32),
    "tensor": torch.rand(64, 64, generator=torch.Generator().manual_seed(0)),
}
KINDS = [(kind, library) for kind in MAKERS for library in INPUTS]


@pytest.fixture(autouse=True)
def _own_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("kind", "library"), KINDS)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("reference", [None, honest])
def test_what_keeps_results_is_wrong_in_a_comparison(kind, library, first, reference):
    pair = (MAKERS[kind](), honest) if first else (honest, MAKERS[kind]())
    result = compare(*pair, args=(INPUTS[library],), reference=reference, seconds=5)
    assert (result.verdict, list(result.wrong), result.disputed) == ("wrong", ["a" if first else "b"], False)
    assert any(words in str(result) for words in (FAULT, "half the size", "called again"))


@pytest.mark.parametrize(("kind", "library"), KINDS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_keeps_results_is_no_winner_of_a_tune(kind, library, order, tmp_path):
    functions = [honest, MAKERS[kind]()]

    def either(x, *, which):
        return functions[which](x)

    result = tune(either, [INPUTS[library]], space={"which": [*order]}, reference=honest, cache_dir=tmp_path)
    errors = {trial.config["which"]: (str(trial.status), trial.error) for trial in result.trials}
    assert (result.best_config, errors[0]) == ({"which": 0}, ("ok", ""))
    assert errors[1][0] == "wrong"


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("keeper_first", [True, False])
def test_what_keeps_results_is_not_chosen(kind, keeper_first, tmp_path):
    pair = {"keeper": MAKERS[kind](), "honest": honest}
    chooser = choose(pair if keeper_first else dict(reversed(pair.items())), name=f"{kind} {keeper_first}")
    result = chooser.tune([INPUTS["tensor"]], cache_dir=tmp_path)
    statuses = {trial.config["implementation"]: str(trial.status) for trial in result.trials}
    assert statuses == {"keeper": "wrong", "honest": "ok"}
    assert result.best_config["implementation"] == "honest"


@pytest.mark.parametrize("kind", MAKERS)
def test_bench_calls_what_keeps_results_wrong(kind, cli, tmp_path):
    code = KEEPERS + f"\nkept = MAKERS[{kind!r}]()\n"
    (tmp_path / "pair.py").write_text(code)
    ran = cli("bench", f"{tmp_path}/pair.py:honest", f"{tmp_path}/pair.py:kept", "--shape", "64x64", "--json")
    result = json.loads(ran.out)
    assert (ran.code, result["verdict"], list(result["wrong"])) == (5, "wrong", ["b"])


def renewed(function, *args, samples=8, reference=None, faults=None, others=()):
    """The results of samples of a function on arguments that may be renewed, after some of other functions."""
    arguments, seen = Arguments(args), []
    subject = Subject.on(arguments, lambda _: 1, False)
    subject.renewal = Renewal(subject.arguments, reference, {} if faults is None else faults)

    def noted(*given):
        seen.append([np.array(each) for each in given])
        return function(*given)

    for name, each in [*others, ("it", noted)]:
        context = partial(subject.renewal.around, name, subject.arguments, itertools.count())
        launch = Launch(lambda each=each: each(*subject.arguments.positional), renewed=context)
        HostTimer().prepare(launch, 1).take(HostTimer(), samples)
    assert all(np.array_equal(a, b) for a, b in zip(args, subject.arguments.positional, strict=True))
    return seen


def test_few_values_change_and_are_given_back():
    x, view, whole = np.ones((50, 40)), np.ones((40, 50), dtype=np.complex64).T, np.arange(2000)
    seen = renewed(lambda *given: given[0] * 2, x, view, whole, samples=3)
    for place, share in ((0, 0.05), (1, 0.05), (2, 0.0)):
        changed = [(each[place] != (x, view, whole)[place]).mean() for each in seen]
        assert changed[0] == 0
        assert all(0 < part < share for part in changed[1:]) if share else changed[1:] == [0, 0]


def test_a_function_that_refuses_new_values_is_timed_on_the_old_ones():
    x, refused = np.ones(100), []

    def strict(given):
        if given.min() < 1:
            refused.append(given.min())
            raise ValueError("no")
        return given.sum()

    assert len(renewed(strict, x)) == 8 + len(refused) == 10


@pytest.mark.parametrize("calls", [(0,), (1,), (2,), (2, 3, 4), (7,), itertools.count()])
def test_a_function_that_raises_whatever_the_values_are_has_failed(calls):
    counter, calls = itertools.count(), [*itertools.islice(calls, 20)]

    def fails(x):
        if next(counter) in calls:
            raise ZeroDivisionError
        return x.sum()

    with pytest.raises(ZeroDivisionError):
        renewed(fails, np.ones(100))


@pytest.mark.parametrize(
    "function",
    [np.argmax, lambda x: torch.from_numpy(x).to_sparse(), lambda x: None, lambda x: 5, lambda x: "text", np.shape],
)
def test_results_that_depend_on_few_values_or_on_none_are_right(function):
    x = np.random.default_rng(0).random(1000)
    for reference in (None, function):
        faults: dict = {}
        renewed(function, x, reference=reference, faults=faults, others=[("other", function)])
        assert faults == {}


def test_a_reference_that_raises_on_new_values_leaves_the_judgement_to_others():
    def strict(x):
        raise ValueError("no")

    x, first = np.random.default_rng(0).random(1000), []
    with pytest.raises(Exception, match="which other does not do"):
        renewed(
            lambda x: (first or (first.append(x * 2), first)[1])[0], x, reference=strict, others=[("other", np.exp)]
        )
