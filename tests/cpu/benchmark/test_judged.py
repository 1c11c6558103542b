"""`TritonAutoTuner` judges what configs return and write, by the first config that runs or by a reference."""

import itertools

import pytest

from triton_ops import KernelTypeError, SettingsError, Status, TritonAutoTuner, TuningFailedError

torch = pytest.importorskip("torch")

X = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))


def tuned(function, values=(1, 2), warmup_runs=2, arguments=(X,), **attributes):
    calls = dict.fromkeys(values, 0)

    def counted(*args, BLOCK):
        calls[BLOCK] += 1
        return function(*args, BLOCK=BLOCK)

    tuner = TritonAutoTuner(counted, {"BLOCK": list(values)}, warmup_runs, 3)
    for name, value in attributes.items():
        setattr(tuner, name, value)
    return tuner.tune(*arguments), calls


def with_nan(x):
    y = x @ x
    y[3, 5] = torch.nan
    return y


def writes(x, out, right):
    out.copy_(x @ x if right else x)


WRONG = {
    "zeros": (torch.zeros_like, "100.00% of the elements are off"),
    "NaN": (with_nan, "nan instead of"),
    "another dtype": (lambda x: (x @ x).double(), "dtype float64 instead of float32"),
    "no result": (lambda x: None, "a NoneType instead of a tensor"),
    "a changed argument": (lambda x: (x @ x, x.add_(1))[0], "it changes argument 0, which (BLOCK=1) does not do"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_config_cannot_win(kind):
    wrong, how = WRONG[kind]
    result, calls = tuned(lambda x, BLOCK: wrong(x) if BLOCK == 2 else x @ x)
    assert result.best_config == {"BLOCK": 1}
    assert [(trial.status, dict(trial.config)) for trial in result.failures] == [(Status.WRONG, {"BLOCK": 2})]
    assert how in result.failures[0].error
    assert result.verified == "config (BLOCK=1), since there is no reference"
    assert calls == {1: 5, 2: 1}  # no call beyond those that were asked for


@pytest.mark.parametrize(("right", "how"), [((True, False), "elements are off"), ((True, None), "does not change")])
def test_what_a_config_writes_is_judged(right, how):
    def function(x, out, BLOCK):
        if right[BLOCK - 1] is not None:
            writes(x, out, right[BLOCK - 1])

    out = torch.ones_like(X)
    result, _ = tuned(function, arguments=(X, out))
    assert result.best_config == {"BLOCK": 1}
    assert how in result.failures[0].error
    assert out.eq(1).all()


def test_a_config_that_goes_wrong_in_its_last_warm_up_call_is_wrong():
    counts = {1: itertools.count(), 2: itertools.count()}
    result, _ = tuned(lambda x, BLOCK: x @ x if BLOCK == 1 or not next(counts[2]) else torch.zeros_like(x))
    assert result.failures[0].error.startswith("called again, 100.00% of the elements")


def test_right_configs_are_all_timed():
    pieces = {1: 64, 2: 7, 3: 16}
    result, calls = tuned(lambda x, BLOCK: torch.cat([part @ x for part in x.split(pieces[BLOCK])]), (1, 2, 3))
    assert (result.failures, set(calls.values())) == ([], {5})


def test_a_call_that_adds_to_its_argument_is_judged_from_the_first_state():
    out = torch.zeros(4)
    result, _ = tuned(lambda out, BLOCK: out.add_(1), arguments=(out,), warmup_runs=4)
    assert result.failures == []
    assert not out.any()


def test_a_reference_judges_the_first_config_too():
    result, _ = tuned(lambda x, BLOCK: x if BLOCK == 1 else x @ x, reference=lambda x: x @ x)
    assert result.best_config == {"BLOCK": 2}
    assert result.verified == "the reference in float64"
    with pytest.raises(TuningFailedError, match="the last one failed with wrong: "):
        tuned(lambda x, BLOCK: x, reference=lambda x: x @ x)


def test_most_configs_against_the_first_one_make_it_doubtful():
    result, _ = tuned(lambda x, BLOCK: x if BLOCK == 1 else x @ x, (1, 2, 3))
    assert result.best_config == {"BLOCK": 1}
    assert result.confidence.startswith("low: 2 of 3 configs agree with one another and differ from (BLOCK=1)")


@pytest.mark.parametrize(
    ("function", "more", "why"),
    [
        (lambda x, BLOCK: torch.rand(3), {}, "config (BLOCK=1) gives another result when it is called again"),
        (lambda x, BLOCK: x * BLOCK, {"warmup_runs": 0}, "results are those of warm-up calls, and none came so far"),
        (lambda x, BLOCK: x * BLOCK, {"check": False}, "no check was asked for"),
        (lambda x, BLOCK: x, {"values": (1,)}, "config (BLOCK=1) alone ran"),
        (lambda x, BLOCK: None, {}, "nothing in the results can be compared"),
    ],
)
def test_what_cannot_be_judged_is_said(function, more, why):
    result, calls = tuned(function, **more)
    assert result.verified == f"nothing: {why}"
    assert result.failures == []
    assert set(calls.values()) == {3 + more.get("warmup_runs", 2)}


def test_results_for_whose_copies_there_is_no_room_fail_no_config(monkeypatch):
    monkeypatch.setattr("triton_ops.device.TorchDevice.free_bytes", 4 * X.nbytes - 1)
    result, _ = tuned(lambda x, BLOCK: x * BLOCK)
    why = "the results cannot be compared: MemoryError: there is no room for copies of them"
    assert (result.failures, result.verified) == ([], f"nothing: {why}")


def test_a_cached_winner_is_judged_by_a_reference():
    tuner = TritonAutoTuner(lambda x, BLOCK: x if BLOCK == 1 else x @ x, {"BLOCK": [1, 2]}, 1, 2)
    label = {"problem_size": 64, "device": "cpu"}
    tuner.cache.set("unknown", 64, "cpu", {"BLOCK": 1})
    assert tuner.tune(X, **label).from_cache
    tuner.reference = lambda x: x @ x
    result = tuner.tune(X, **label)
    assert (result.from_cache, result.best_config) == (False, {"BLOCK": 2})


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"reference": 3}, KernelTypeError),
        ({"check": "yes"}, SettingsError),
        ({"check": False, "reference": abs}, SettingsError),
    ],
)
def test_bad_attributes_are_refused_before_any_call(attributes, error):
    def function(x, BLOCK):
        raise AssertionError("called")

    with pytest.raises(error):
        tuned(function, **attributes)
