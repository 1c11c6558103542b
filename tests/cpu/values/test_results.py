"""Times of trials that are compared, what statuses mean, and results that a caller may change."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.device import DeviceSpec, Machine
from triton_ops.space import Config
from triton_ops.values import Compiled, KernelMetrics, Measurement, Resources, Status, Trial, TuningResult

times = st.floats(0.01, 100)
CONFIG = Config(n=1)


def trial(ms=1.0, relative=None, final=None, mode="host", config=CONFIG):
    last = None if final is None else Measurement(tuple(final), "host", len(final))
    return Trial(config, Status.OK, Measurement((ms,), mode), relative=relative, final=last)


@given(times, times, times, times, st.lists(st.tuples(times, times), min_size=1, max_size=7))
def test_a_trial_is_over_another_by_rounds_else_relative_to_the_baseline_else_by_screenings(one, other, a, b, rounds):
    final = [list(each) for each in zip(*rounds, strict=True)]
    ratios = sorted(math.log(x / y) for x, y in rounds)
    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
    assert trial(one, a, final[0]).over(trial(other, b, final[1])) == pytest.approx(math.exp(middle))
    assert trial(one, a, final[0]).over(trial(other, b)) == pytest.approx(a / b)
    assert trial(one, a).over(trial(other)) == trial(one).over(trial(other, b)) == pytest.approx(one / other)
    assert trial(one).over(trial(other)) == pytest.approx(one / other)


def test_times_that_were_not_taken_alike_are_not_compared():
    failed = Trial(CONFIG, Status.RUNTIME, error="no")
    assert trial().over(trial(mode="event-cold")) is None
    assert trial().over(None) is None
    assert trial().over(failed) is None
    assert failed.over(trial()) is None
    assert trial().over(trial(0.0)) is None
    assert trial(1.0, 0.0).over(trial(1.0, 0.0)) is None


def test_a_trial_is_ranked_by_its_share_of_the_baseline_and_reported_by_its_last_times():
    assert trial(2.0).rank == 2.0
    assert trial(2.0, final=[3.0]).rank == 3.0
    assert trial(2.0, 0.5, [3.0]).rank == 0.5
    assert trial(2.0, 0.5, [3.0]).median_ms == 3.0
    with pytest.raises(ValueError, match=r"config \(n=1\) was not measured: runtime: no"):
        _ = Trial(CONFIG, Status.RUNTIME, error="no").rank


@given(st.lists(times, min_size=1, max_size=12), st.integers(1, 12))
def test_rounds_have_equally_many_samples_in_the_order_taken(samples, rounds):
    if rounds > len(samples):
        with pytest.raises(ValueError, match=f"cannot be of {rounds} rounds"):
            Measurement(tuple(samples), "host", rounds)
        return
    parts = Measurement(tuple(samples), "host", rounds).by_round
    assert (len(parts), len({*map(len, parts)})) == (rounds, 1)
    assert [each for part in parts for each in part] == samples[: rounds * len(parts[0])]
    assert len(samples) - rounds < rounds * len(parts[0]) <= len(samples)


@pytest.mark.parametrize("rounds", [0, -1, 4])
def test_a_number_of_rounds_that_samples_cannot_have_is_refused(rounds):
    with pytest.raises(ValueError, match="rounds"):
        Measurement((1.0, 2.0, 3.0), "host", rounds)


def test_one_config_alone_is_one_that_ran_where_others_failed_when_they_were_to_run():
    lost = {status for status in Status if Trial.one_alone({"ok": 1, status.value: 2})}
    assert lost == {Status.RUNTIME, Status.TIMEOUT, Status.CRASH}
    assert not Trial.one_alone({"ok": 2, "crash": 1})
    assert not Trial.one_alone({"crash": 1})
    assert not Trial.one_alone({"ok": 1, "crash": 0})


def test_a_deferred_config_has_not_failed():
    failed = {status for status in Status if status is not Status.OK and Trial(CONFIG, status).failed}
    assert failed == {*Status} - {Status.OK, Status.DEFERRED}
    assert not trial().failed


H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "resident"),
    [(32, 0, 4, 16), (128, 0, 4, 4), (255, 0, 8, 1), (32, 100_000, 4, 2), (32, None, 4, 16), (32, 0, None, 16)],
)
def test_the_blocks_that_a_multiprocessor_holds_follow_from_registers_and_shared_memory(
    registers, shared_bytes, warps, resident
):
    config = Config(n=1) if warps is None else Config(num_warps=warps)
    compiled = Compiled(config, Status.OK, "", Resources(registers, 0, shared_bytes)).with_residents(H200)
    assert compiled.resident == resident


@pytest.mark.parametrize(
    ("config", "resources", "machine"),
    [
        (Config(num_warps=4), None, H200), (Config(num_warps=4), Resources(None, 0, 0), H200),
        (Config(num_warps=4), Resources(32, 0, 0), None), (Config(num_warps="all"), Resources(32, 0, 0), H200),
        (Config(num_warps=0), Resources(32, 0, 0), H200),
    ],
)  # fmt: skip
def test_residents_that_are_not_known_are_not_said(config, resources, machine):
    compiled = Compiled(config, Status.OK, "", resources)
    assert compiled.with_residents(machine) == compiled


def result(**more):
    return TuningResult({"n": 1}, KernelMetrics(2.0), [({"n": 1}, KernelMetrics(2.0))], "64", **more)


def test_a_result_is_the_callers_own():
    config, listed = {"n": 1}, {"n": 2}
    one = TuningResult(config, KernelMetrics(2.0), [(listed, KernelMetrics(2.0))], totals={"ok": 1})
    other = replace(one)
    one.best_config["n"] = one.all_results[0][0]["n"] = 7
    one.all_results.clear()
    assert (config, listed) == ({"n": 1}, {"n": 2})
    assert (other.best_config, other.all_results[0][0]) == ({"n": 1}, {"n": 2})
    with pytest.raises(TypeError):
        one.totals["ok"] = 2


def test_the_gain_is_that_of_the_race_else_of_medians_else_unknown():
    default = trial(3.0, config=Config(n=2))
    assert result(default=default, raced_gain=1.25).gain == 1.25
    assert result(default=default).gain == 1.5
    assert result().gain is None
    assert result(default=Trial(CONFIG, Status.CRASH)).gain is None
    assert replace(result(default=default), metrics=KernelMetrics(0.0)).gain is None


def test_a_result_can_be_json():
    failed = Trial(Config(n=3), Status.CRASH, error="it died")
    document = result(default=trial(3.0), trials=(trial(), failed), ties=(CONFIG,), notes=("a",)).as_json
    assert json.loads(json.dumps({**document, "guard": {}, "totals": {}}))["ties"] == [{"n": 1}]
    assert (document["default"], document["default_ms"], document["gain"]) == ({"n": 1}, 3.0, 1.5)
    assert document["failures"] == [{"config": {"n": 3}, "status": "crash", "error": "it died"}]
    assert (result().as_json["default"], result().as_json["default_ms"]) == (None, None)
    assert result(default=failed).as_json["default_ms"] is None


def test_an_interrupted_step_ends_what_it_is_a_step_of():
    assert (whole := result(stopped="complete")).uninterrupted() is whole
    with pytest.raises(KeyboardInterrupt):
        result(stopped="interrupted").uninterrupted()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"default": trial()}, "Gain: none, the default won"),
        ({"default": trial(), "unproven": "noise"}, "Gain: none, the default is kept"),
        ({"default": trial(config=Config(n=2)), "raced_gain": 1.5}, "as fast as the default"),
        ({"ties": (CONFIG, Config(n=2)), "noise": 0.01}, "Ties: 1 more within noise (1.00%)"),
        ({"totals": {"ok": 3, "crash": 1}}, "Trials: 4: 3 ok, 1 crash"),
        ({"totals": {"ok": 3}, "from_cache": True}, "Trials: 3: 3 ok; from the cache, not measured again"),
        ({"unproven": "noise", "mode": "host"}, "Unproven: noise"),
        ({"mode": "host"}, "Confidence: ok"),
        ({"verified": "the default"}, "Verified: results compared with the default"),
    ],
)
def test_a_printed_result_has_a_line_for_what_is_known(more, line):
    assert line in str(result(**more))
    assert line not in str(result())


@pytest.mark.parametrize(("count", "shown", "more"), [(0, 0, ""), (3, 3, ""), (4, 3, "Failed: 1 more, in `failures`")])
def test_three_failures_are_shown(count, shown, more):
    failures = tuple(Trial(Config(n=n), Status.CRASH, error=f"error {n}") for n in range(count))
    text = str(result(trials=(trial(), *failures)))
    assert text.count("crash: error") == shown
    assert ("more, in" in text, more in text) == (bool(more), True)
