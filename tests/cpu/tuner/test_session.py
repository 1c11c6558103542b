"""`tune` from end to end, on callables that run here for real."""

from __future__ import annotations

import json
import logging
import time
from contextvars import copy_context
from functools import partial

import numpy as np
import pytest
import torch

import triton_ops
from triton_ops import (
    CacheError,
    ConfigCollisionError,
    ConfigSpace,
    Constraint,
    DeviceError,
    EmptySpaceError,
    FunctionKernel,
    KernelTypeError,
    Operation,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    Status,
    TensorSpec,
    TuningFailedError,
    UnknownTunableError,
    Work,
    operation,
    recall,
    tune,
)
from triton_ops.tuner import Silent

SPACE = {"delay_ms": [1.0, 2.0, 4.0, 8.0]}
CALLS: list[float] = []


def work(*, delay_ms):
    CALLS.append(delay_ms)
    time.sleep(delay_ms * 1e-3)


async def later(*, delay_ms):
    return delay_ms


def in_parts(_, *, delay_ms):
    yield delay_ms


class Later:
    async def __call__(self, *, delay_ms):
        return delay_ms


@pytest.fixture(autouse=True)
def _no_calls_yet():
    CALLS.clear()


class Recorder(Silent):
    """Remembers what it was told."""

    def __init__(self):
        self.plan, self.trials, self.result = None, [], "never ended"

    def started(self, plan):
        assert not CALLS, "the plan comes before any work"
        self.plan = plan

    def tried(self, trial, progress):
        self.trials.append((trial, progress))

    def ended(self, result):
        self.result = result


def test_the_fastest_wins_and_everything_is_told():
    recorder = Recorder()
    space = ConfigSpace(SPACE, default={"delay_ms": 4.0})
    result = tune(work, space=space, device="cpu", listener=recorder)
    assert result.best_config == {"delay_ms": 1.0}
    assert result.metrics.latency_ms == pytest.approx(1.1, abs=0.6)
    assert result.metrics.p20_ms <= result.metrics.latency_ms <= result.metrics.p80_ms
    assert result.gain == pytest.approx(4.0, rel=0.5)
    assert result.default.config == {"delay_ms": 4.0} or dict(result.default.config) == {"delay_ms": 4.0}
    assert result.stopped == "complete"
    assert not result.from_cache
    assert len(result.trials) == len(result.all_results) == 4
    assert str(recorder.plan.size) == "4 configs, 4 valid"
    assert len(recorder.trials) == 4
    assert dict(recorder.trials[0][0].config) == {"delay_ms": 4.0}, "the default is tried first"
    assert recorder.trials[-1][1].gain > 1.5
    assert recorder.result is result


def test_the_second_tune_measures_nothing(monkeypatch):
    first = tune(work, space=SPACE, device="cpu")
    CALLS.clear()
    recorder = Recorder()
    second = tune(work, space=SPACE, device="cpu", listener=recorder)
    assert second.from_cache
    assert second.best_config == first.best_config
    assert second.metrics.latency_ms == first.metrics.latency_ms
    assert second.gain == pytest.approx(first.gain)
    assert CALLS == []
    assert recorder.plan is None


def test_force_searches_again_with_the_winner_taking_part():
    tune(work, space=SPACE, device="cpu", seed=1)
    CALLS.clear()
    again = tune(work, space=SPACE, device="cpu", force=True)
    assert not again.from_cache
    assert set(CALLS) == set(SPACE["delay_ms"])


@pytest.mark.parametrize(
    "change",
    [{"space": {"delay_ms": [1.0, 2.0]}}, {"effort": "full"}, {"kwargs": {}, "args": ()}],
    ids=["another space", "more effort", "nothing"],
)
def test_what_makes_a_hit(change):
    tune(work, space=SPACE, device="cpu", effort="quick")
    CALLS.clear()
    result = tune(**{"target": work, "space": SPACE, "device": "cpu", "effort": "quick", **change})
    assert result.from_cache == ("args" in change)


def test_less_effort_is_answered_by_more():
    tune(work, space=SPACE, device="cpu", effort="exhaustive")
    assert tune(work, space=SPACE, device="cpu", effort="quick").from_cache


def test_every_config_ends_in_one_status(monkeypatch):
    def moody(x, *, mode):
        if mode == "raises":
            raise RuntimeError("no luck")
        if mode == "memory":
            raise MemoryError
        return x + (1 if mode == "wrong" else 0)

    space = ConfigSpace(
        {"mode": ["plain", "raises", "memory", "wrong", "refused"]},
        [Constraint("not refused", lambda mode: mode != "refused", "{mode} is refused")],
    )
    result = tune(moody, (torch.ones(4),), space=space, reference=lambda x: x)
    assert {trial.config["mode"]: trial.status for trial in result.trials} == {
        "plain": Status.OK,
        "raises": Status.RUNTIME,
        "memory": Status.RESOURCES,
        "wrong": Status.WRONG,
    }
    assert result.best_config == {"mode": "plain"}
    assert {trial.config["mode"]: trial.error for trial in result.failures}["raises"] == "RuntimeError: no luck"


def test_nothing_runs():
    def broken(*, n):
        raise ValueError(f"never {n}")

    with pytest.raises(TuningFailedError) as caught:
        tune(broken, space={"n": [1, 2, 3]}, device="cpu")
    error = caught.value
    assert error.configs_tried == 3
    assert sorted(error.failures, key=str) == [({"n": n}, f"runtime: ValueError: never {n}") for n in (1, 2, 3)]
    assert "none of 3 configs" in str(error)
    with pytest.raises(TuningFailedError):  # and it is tried again, not remembered
        tune(broken, space={"n": [1, 2, 3]}, device="cpu")


@pytest.mark.parametrize(
    ("limits", "stopped"), [({"trials": 2}, "trials"), ({"budget_s": 0.02}, "seconds"), ({}, "complete")]
)
def test_budgets(limits, stopped):
    result = tune(work, space={"delay_ms": [float(n) for n in range(3, 9)]}, device="cpu", **limits)
    assert result.stopped == stopped
    assert len(result.trials) == {"trials": 2, "complete": 6}.get(stopped, len(result.trials))
    if stopped == "seconds":
        assert 1 <= len(result.trials) < 6


def test_ctrl_c_keeps_everything_and_the_next_tune_goes_on():
    def interrupted(*, n):
        time.sleep(1e-4)
        if n not in seen:
            seen.append(n)
            if len(seen) == 4:
                raise KeyboardInterrupt

    seen: list[int] = []
    space = {"n": list(range(8))}
    result = tune(interrupted, space=space, device="cpu")
    assert result.stopped == "interrupted"
    assert len(result.trials) == 3
    assert result.best_config in [dict(trial.config) for trial in result.trials]
    recorder = Recorder()
    recorder.started = lambda plan: setattr(recorder, "plan", plan)
    result = tune(interrupted, space=space, device="cpu", listener=recorder)
    assert recorder.plan.resumed == 3
    assert "Note: 3 trials were taken over from an earlier run" in str(result)
    assert result.stopped == "complete"
    assert len(result.trials) == 8
    assert len(seen) == 8, "only the config in flight was started again"
    assert tune(interrupted, space=space, device="cpu").from_cache


def test_ctrl_c_before_anything_ran_propagates():
    def at_once(*, n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(at_once, space={"n": [1]}, device="cpu")


@pytest.mark.usefixtures("steady_clock")
def test_the_callers_tensors_stay_as_they_were():
    x = torch.arange(8.0)
    view = x[2:6]
    before = x.clone()

    def in_place(a, b, *, n):
        assert bool((a == torch.arange(8.0)).all()), "every sample starts from the same inputs"
        a.mul_(2)
        b[:] = 7

    result = tune(in_place, (x, view), space={"n": [1, 2]})
    assert torch.equal(x, before)
    assert len(result.all_results) == 2, result.failures


def test_a_callable_that_works_in_place_on_an_array_or_list_gets_the_same_data_each_time():
    given, seen = np.random.default_rng(0).random(500), []
    names = ["b", "a"]

    def sort(values, names, *, kind):
        seen.append((bool((values[:-1] <= values[1:]).all()), names[0]))
        values.sort(kind=kind)
        names.sort()

    before = given.copy()
    result = tune(sort, (given, names), space={"kind": ["quicksort", "stable"]})
    assert set(seen) == {(False, "b")}
    assert np.array_equal(given, before)
    assert names == ["b", "a"]
    assert any("writes its inputs" in note for note in result.notes)


@pytest.mark.parametrize("change", [lambda x: x.resize_(0), lambda x: x.resize_(9999), lambda x: x.set_()])
@pytest.mark.usefixtures("steady_clock")
def test_a_candidate_that_resizes_an_argument_harms_no_other(change):
    def total(x, *, n):
        outcome = x.sum()
        if n == 2:
            change(x)
        return outcome

    result = tune(total, (torch.arange(100.0),), space={"n": [1, 2, 3]}, trials=3)
    assert {trial.config["n"]: str(trial.status) for trial in result.trials} == {1: "ok", 2: "wrong", 3: "ok"}
    (wrong,) = [trial for trial in result.trials if not trial.ok]
    assert wrong.error == "changes x, which the first config does not do"


@pytest.mark.usefixtures("steady_clock")
def test_the_argument_types_are_part_of_the_key():
    def double(x, *, n):
        return x * 2

    first = tune(double, (torch.ones(4),), space={"n": [1, 2]})
    assert not first.from_cache
    assert tune(double, (torch.zeros(4),), space={"n": [1, 2]}).from_cache
    for other in (torch.ones(5), torch.ones(4, dtype=torch.float64), torch.ones(8)[::2], torch.ones(5)[1:]):
        assert not tune(double, (other,), space={"n": [1, 2]}).from_cache


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tune(3, space=SPACE), KernelTypeError, "not callable"),
        (lambda: tune(work), SpaceError, "no config space"),
        (lambda: tune(work, space={}), EmptySpaceError, "no tunables"),
        (lambda: tune(work, space={"delay_ms": []}), EmptySpaceError, "no values"),
        (lambda: tune(work, space=[]), EmptySpaceError, "empty"),
        (lambda: tune(work, space={"speed": [1]}), UnknownTunableError, "speed"),
        (lambda: tune(work, kwargs={"delay_ms": 1.0}, space=SPACE), ConfigCollisionError, "delay_ms"),
        (lambda: tune(work, space={"delay_ms": [[1.0]]}), SpaceError, "use a tuple"),
        (lambda: tune(work, space=SPACE, effort="fast"), SettingsError, "race, quick, full, exhaustive"),
        (lambda: tune(work, space=SPACE, search="magic"), SettingsError, "auto, ranked, random, exhaustive"),
        (lambda: tune(work, space=SPACE, trials=0), SettingsError, "positive"),
        (lambda: tune(work, space=SPACE, trials="3"), SettingsError, "trials is '3'; it must be a positive whole"),
        (lambda: tune(work, space=SPACE, trials=1.5), SettingsError, "trials is 1.5"),
        (lambda: tune(work, space=SPACE, seed=-1), SettingsError, "the seed is -1"),
        (lambda: tune(work, space=SPACE, seed="x"), SettingsError, "the seed is 'x'"),
        (lambda: tune(work, space=SPACE, listener=3), SettingsError, "listener is 3; it must be an object with"),
        (lambda: tune(work, space=SPACE, cache_dir=3), CacheError, "cache_dir is 3; it must be a folder's path"),
        (lambda: recall(work, space=SPACE, cache_dir=b"x"), CacheError, "cache_dir is b'x'"),
        (lambda: tune(work, space=SPACE, cache_dir="a\0b"), CacheError, r"cache_dir is 'a\\x00b'; it must be a folder"),
        (lambda: tune(work, space=SPACE, device=3), DeviceError, "device 3 is not known"),
        (lambda: tune(later, space=SPACE), KernelTypeError, "only makes a coroutine .* lambda .*: asyncio.run"),
        (lambda: tune(partial(in_parts, 1), space=SPACE), KernelTypeError, "only makes a generator .* list"),
        (lambda: tune(Later(), space=SPACE), KernelTypeError, "only makes a coroutine"),
        (lambda: tune(work, space=SPACE, budget_s=float("nan")), SettingsError, "positive"),
        (lambda: tune(work, space=SPACE, shape=(3,)), ShapeMismatchError, "shape"),
        (lambda: tune(work, space=SPACE, device="cuda"), DeviceError, "cuda"),
    ],
)
def test_bad_input_is_refused_before_any_work(call, error, text):
    with pytest.raises(error, match=text):
        call()
    assert CALLS == []


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_tune_whose_folder_cannot_be_made_goes_on_without_one(by_variable, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "folder"
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(folder if by_variable else tmp_path))
    for _ in range(2):
        result = tune(work, space=SPACE, **({} if by_variable else {"cache_dir": folder}))
        assert (result.from_cache, result.totals["ok"]) == (False, 4)
    assert caplog.text.count(f"winners are found, and not kept: {folder} cannot be a cache folder") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("steady_clock")
def test_numbers_of_numpy_and_a_torch_device_are_taken():
    result = tune(
        lambda *, n: None,
        space={"n": np.array([1, 2])},
        device=torch.device("cpu"),
        trials=np.int64(2),
        seed=np.int8(1),
    )
    assert result.totals == {"ok": 2}


def test_an_operation_takes_a_callable_for_its_kernel(steady_clock):
    operation = Operation("plain", lambda *, n: None, {"n": [1, 2]}, dict_of_nothing, device="cpu")
    assert isinstance(operation.kernel, FunctionKernel)
    assert tune(operation).totals == {"ok": 2}
    with pytest.raises(KernelTypeError, match="3 of type int is not callable"):
        Operation("plain", 3, {"n": [1, 2]}, dict_of_nothing)


def dict_of_nothing():
    return {}


def test_a_space_that_constraints_empty_is_refused():
    space = ConfigSpace(SPACE, [Constraint("never", lambda delay_ms: delay_ms < 0, "it is never fast enough")])
    with pytest.raises(EmptySpaceError, match="never"):
        tune(work, space=space, device="cpu")
    assert CALLS == []


@pytest.mark.usefixtures("steady_clock")
def test_an_operation_makes_its_inputs_and_checks_its_shape():
    seen = []

    @operation(
        space={"n": [1, 2]},
        arguments=lambda rows, cols=8, dtype="float32": {"x": TensorSpec((rows, cols), dtype), "k": 3},
        dtypes=("float32", "float64"),
        reference=lambda x, k: x * k,
        work=lambda problem: Work(bytes=2.0 * problem["x"].nbytes),
        device="cpu",
    )
    def scaled(x, k, *, n):
        seen.append(x)
        return x * k

    assert isinstance(scaled, Operation)
    result = tune(scaled, shape=(4,), dtype="fp64")
    assert result.problem_size == "4x8 float64"
    assert result.metrics.bandwidth_gbps > 0
    assert seen[0].dtype is torch.float64
    assert bool((seen[0] != 0).any())
    assert float(seen[0].abs().max()) <= 1
    with pytest.raises(ShapeMismatchError, match="rowsxcols"):
        tune(scaled, shape=(1, 2, 3))
    with pytest.raises(ShapeMismatchError, match="needs a shape"):
        tune(scaled)
    with pytest.raises(triton_ops.UnsupportedDtypeError, match="float32, float64"):
        tune(scaled, shape=(4,), dtype="bf16")


def test_a_record_tells_what_was_measured_where(tmp_path):
    tune(work, space=SPACE, device="cpu", cache_dir=tmp_path)
    (path,) = tmp_path.glob("*.record.json")
    record = json.loads(path.read_text())
    assert record["winner"] == {"delay_ms": 1.0}
    assert (record["mode"], record["key"]["cache_state"]) == ("host", "cold")
    assert record["key"]["identity"]["source"]
    assert record["totals"] == {"ok": 4}
    assert record["timing"]["samples"] >= 2
    assert record["default_timing"]["median_ms"] > 0
    assert set(record["versions"]) >= {"python", "torch"}


def test_a_damaged_record_is_a_miss_and_a_warning(tmp_path, caplog):
    tune(work, space=SPACE, device="cpu", cache_dir=tmp_path)
    (path,) = tmp_path.glob("*.record.json")
    path.write_text(path.read_text()[:100])
    with caplog.at_level(logging.WARNING, "triton_ops"):
        assert not tune(work, space=SPACE, device="cpu", cache_dir=tmp_path).from_cache
    assert "is ignored" in caplog.text
    assert tune(work, space=SPACE, device="cpu", cache_dir=tmp_path).from_cache


def test_a_noisy_clock_does_not_unseat_the_default():
    """Two configs that do the same: whichever the noise prefers, the default stays."""

    def same(*, n):
        time.sleep(1e-3)

    space = ConfigSpace({"n": [1, 2, 3]}, default={"n": 2})
    result = tune(same, space=space, device="cpu")
    assert result.best_config == {"n": 2} or result.gain > 1.005


# Outputs


def doubled_into(x, out, scale=2, *, loops=1):
    for _ in range(loops):
        out.copy_(x * scale)


@pytest.mark.usefixtures("steady_clock")
def test_outputs_are_found_whether_they_came_by_name_or_by_place(tmp_path):
    x = torch.arange(8.0)
    for args, kwargs in [((x, torch.empty(8)), {}), ((x,), {"out": torch.empty(8)}), ((x, torch.empty(8), 2), {})]:
        result = tune(
            FunctionKernel(doubled_into, outputs=("out",)),
            args,
            kwargs,
            space={"loops": [1, 2]},
            reference=lambda x, out, scale=2: x * 2,
            cache_dir=tmp_path,
            force=True,
        )
        assert [trial.status for trial in result.trials] == [Status.OK] * 2


def test_an_output_that_is_no_argument_is_refused_before_any_work(tmp_path):
    with pytest.raises(KernelTypeError, match="writes out, which is not among"):
        tune(
            FunctionKernel(lambda x, out=None, loops=1: None, outputs=("out",)),
            (torch.ones(2),),
            space={"loops": [1]},
            cache_dir=tmp_path,
        )


def test_a_config_that_joins_a_list_is_the_only_one_that_is_tried(steady_clock):
    tried = []

    def work(x, block):
        tried.append(block)
        return [value + 1 for value in x]

    configs = [{"block": block} for block in (1, 2, 3)]
    assert len(tune(work, ([1, 2],), space=configs).trials) == 3
    tried.clear()
    result = tune(work, ([1, 2],), space=[*configs, {"block": 4}])
    assert "3 trials were taken over from an earlier run" in result.notes
    assert sorted(trial.config["block"] for trial in result.trials) == [1, 2, 3, 4]
    again = tune(work, ([1, 2],), space=[*configs, {"block": 4}, {"block": 5}])
    assert "4 trials were taken over from an earlier run" in again.notes
    other = tune(
        work, ([1, 2],), space=[{"block": 9}, *configs]
    )  # another default: its times are no longer relative to it
    assert not any("taken over" in note for note in other.notes)


@pytest.mark.parametrize("keep", [True, False])
def test_a_tune_that_calls_itself_says_so_and_does_not_wait_for_itself(keep):
    def calls_itself(*, n):
        tune(calls_itself, space={"n": [1, 2]}, keep=keep)

    with pytest.raises(
        TuningFailedError, match=r"the tune of .*calls_itself has called itself, by the function or its"
    ):
        tune(calls_itself, space={"n": [1, 2]}, keep=keep)
    assert tune(work, space={"delay_ms": [1.0, 2.0]}, reference=lambda: None, keep=keep).best_config, "nothing is left"


def test_what_a_tune_has_begun_may_tune_the_same_afterwards(steady_clock):
    """A task of asyncio, for which a listener or the function has copied the context of the tune."""
    contexts = []

    def work(*, n):
        contexts.append(copy_context())

    asked = partial(tune, work, space={"n": [1, 2]}, isolate=False, force=True)
    asked()
    assert contexts[0].run(asked).best_config
