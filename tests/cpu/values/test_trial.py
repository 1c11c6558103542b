"""The nouns: what may be built, what is derived from what, and what is refused."""

import dataclasses
import math
import pickle
import statistics
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import measurements, problems, trials
from triton_ops.space import Config
from triton_ops.values import KernelMetrics, Measurement, Problem, Status, TensorSpec, Trial, TuningResult, Work

CONFIG = Config(BLOCK=64)


def timed(*samples_ms):
    return Measurement(samples_ms, "host")


# Problems


@given(problems())
def test_problems_have_a_fingerprint_whatever_their_arguments(problem):
    again = pickle.loads(pickle.dumps(problem))
    assert again.fingerprint == problem.fingerprint
    assert len(problem.fingerprint) == 32
    assert set(problem.specs) <= {name for name, _ in problem.arguments}


@given(problems(), problems())
def test_different_problems_have_different_fingerprints(a, b):
    assume(a != b)
    assert a.fingerprint != b.fingerprint


def test_what_changes_a_problems_fingerprint():
    spec = TensorSpec((4, 8), "fp32")
    made = [
        ("matmul", spec),
        ("other", spec),
        ("matmul", TensorSpec((8, 4), "fp32")),
        ("matmul", TensorSpec((4, 8), "fp16")),
        ("matmul", TensorSpec((4, 8), "fp32", (1, 4))),
        ("matmul", TensorSpec((4, 8), "fp32", aligned=False)),
        ("matmul", 1),
        ("matmul", 1.0),
        ("matmul", True),
        ("matmul", None),
        ("matmul", "inf"),
        ("matmul", math.inf),
        ("matmul", -math.inf),
        ("matmul", math.nan),
    ]
    result = {Problem(kernel, (("x", given),)).fingerprint for kernel, given in made}
    assert len(result) == len(made)


def test_label_and_fill_are_no_part_of_a_problem():
    a = Problem("k", (("x", TensorSpec((4,), "fp32", fill="zeros")),), "small")
    b = Problem("k", (("x", TensorSpec((4,), "fp32")),), "")
    assert a == b
    assert a.fingerprint == b.fingerprint
    assert (str(a), str(b)) == ("k small", "k")


def test_arguments_by_name():
    problem = Problem("k", (("x", TensorSpec((4,), "fp32")), ("eps", 1e-6)))
    assert problem["eps"] == 1e-6
    assert list(problem.specs) == ["x"]
    with pytest.raises(KeyError):
        problem["y"]


# Measurements


@pytest.mark.parametrize("samples", [(), (math.nan,), (math.inf, 1.0), (1.0, -0.1)])
def test_a_measurement_without_honest_numbers_is_refused(samples):
    with pytest.raises(ValueError, match="finite samples"):
        Measurement(samples, "host")


@given(measurements())
def test_statistics_of_a_measurement(measurement):
    samples = measurement.samples_ms
    assert measurement.median_ms == statistics.median(samples)
    result = [min(samples), measurement.p20_ms, measurement.median_ms, measurement.p80_ms]
    for low, high in pairwise([*result, max(samples)]):
        assert low <= high * (1 + 1e-12)  # interpolation rounds
    assert measurement.spread >= -1e-12


def test_statistics_by_hand():
    measurement = timed(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert (measurement.p20_ms, measurement.median_ms, measurement.p80_ms) == (2.0, 3.5, 5.0)
    assert measurement.spread == pytest.approx(3 / 3.5)
    assert (timed(7.0).p20_ms, timed(7.0).spread, timed(0.0).spread) == (7.0, 0.0, 0.0)


# Trials


@given(trials())
def test_a_trial_is_measured_exactly_when_it_is_ok(trial):
    assert trial.ok == (trial.status is Status.OK) == (trial.measurement is not None)
    assert pickle.loads(pickle.dumps(trial)) == trial
    if trial.ok:
        assert trial.best_measurement == (trial.final or trial.measurement)
        assert trial.median_ms == trial.best_measurement.median_ms
    else:
        with pytest.raises(ValueError, match=f"was not measured: {trial.status}"):
            _ = trial.median_ms


@pytest.mark.parametrize("status", Status)
def test_trials_that_contradict_themselves_are_refused(status):
    wrong = None if status is Status.OK else timed(1.0)
    with pytest.raises(ValueError, match="measured exactly when it is ok"):
        Trial(CONFIG, status, wrong)


@given(st.lists(trials(), max_size=12))
def test_totals_add_up(found):
    counted = Trial.totals(found)
    assert sum(counted.values()) == len(found)
    assert all(counted.values())
    assert list(counted) == [status.value for status in Status if status.value in counted]


def test_statuses_read_as_their_words():
    assert [str(status) for status in Status] == [status.value for status in Status]
    assert Status("wrong") is Status.WRONG


def test_nouns_are_frozen():
    for noun, name in [(timed(1.0), "mode"), (Problem("k"), "kernel"), (Work(), "flops")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(noun, name, "x")


# Work, metrics, results


def test_work_per_time():
    work = Work(flops=2 * 4096**3, bytes=3 * 2 * 4096**2)
    assert work.tflops(0.2) == pytest.approx(687.19, abs=0.01)
    assert work.gbps(0.2) == pytest.approx(503.3, abs=0.1)


def test_metrics_read_as_documented():
    metrics = KernelMetrics(0.45, 156.2, 890.5, 43.7)
    message = "Latency: 0.450 ms, Throughput: 156.20 TFLOPS, Bandwidth: 890.5 GB/s (43.7%)"
    assert str(metrics) == message
    result = TuningResult({"BLOCK_SIZE": 128, "num_warps": 4}, metrics)
    assert str(result) == f"Best config: {{BLOCK_SIZE=128, num_warps=4}}\n{message}"


def test_a_printed_result_says_all_that_is_known_and_nothing_that_is_not():
    assert str(KernelMetrics(0.45)) == "Latency: 0.450 ms"
    assert str(KernelMetrics(0.45, bandwidth_gbps=9.5)) == "Latency: 0.450 ms, Bandwidth: 9.5 GB/s"
    other = Config(n=2)
    default = Trial(other, Status.OK, timed(2.0))
    failed = [Trial(Config(n=n), Status.WRONG, error="2.0 instead of 1.0") for n in range(3, 8)]
    result = TuningResult(
        dict(CONFIG), KernelMetrics(1.0), trials=(Trial(CONFIG, Status.OK, timed(1.0)), default, *failed),
        default=default, ties=(CONFIG, Config(n=9)), noise=0.01, raced_gain=2.0, gain_interval=(1.9, 2.1),
        confidence="the CPU was busy", verified="the reference", mode="host", totals={"ok": 2, "wrong": 5},
        notes=("12 trials were taken over from an earlier run",),
    )  # fmt: skip
    config = ", ".join(f"{name}={value}" for name, value in CONFIG.items())
    assert str(result).splitlines() == [
        f"Best config: {{{config}}}",
        "Latency: 1.000 ms",
        "Gain: 2.00x (1.90 to 2.10) as fast as the default",
        "Ties: 1 more within noise (1.00%)",
        "Trials: 7: 2 ok, 5 wrong",
        *[f"Failed: (n={n}) wrong: 2.0 instead of 1.0" for n in (3, 4, 5)],
        "Failed: 2 more, in `failures`",
        "Confidence: the CPU was busy",
        "Verified: results compared with the reference",
        "Note: 12 trials were taken over from an earlier run",
    ]
    known = dataclasses.replace(
        result, best_config=dict(other), trials=(), from_cache=True, recalled_failures=(failed[0],)
    )
    assert "Gain: none, the default won" in str(known)
    assert "from the cache, not measured again" in str(known)
    assert "Failed: (n=3) wrong" in str(known)


def test_gain_is_the_defaults_time_over_the_winners():
    default = Trial(CONFIG, Status.OK, timed(2.0), final=timed(3.0))
    failed = Trial(CONFIG, Status.COMPILE, error="no")
    metrics = KernelMetrics(2.0)
    assert TuningResult({}, metrics, default=default).gain == 1.5
    assert TuningResult({}, metrics, default=failed).gain is None
    assert TuningResult({}, metrics).gain is None
    assert TuningResult({}, KernelMetrics(0.0), default=default).gain is None


def test_times_of_the_last_comparison_are_compared_in_the_rounds_that_both_have():
    def raced(*rounds_ms):
        return Trial(CONFIG, Status.OK, timed(1.0), final=Measurement(rounds_ms, "host", len(rounds_ms)), relative=9.0)

    slow_machine_first = raced(10.0, 10.0, 1.0, 1.0, 1.0)
    dropped_early = raced(7.0, 7.1)
    assert dropped_early.over(slow_machine_first) == pytest.approx(0.705, abs=1e-4)
    assert slow_machine_first.over(dropped_early) == pytest.approx(1 / 0.705, abs=1e-3)
    assert slow_machine_first.over(None) is None
    assert slow_machine_first.over(Trial(CONFIG, Status.WRONG, final=timed(1.0), error="off by 1")) is None


def test_failures_are_the_trials_that_are_not_ok():
    ok, failed = Trial(CONFIG, Status.OK, timed(1.0)), Trial(CONFIG, Status.WRONG, error="off by 1")
    assert TuningResult({}, KernelMetrics(1.0), trials=(ok, failed)).failures == [failed]


def test_quantiles_of_equal_samples_are_in_order():
    same = 104858.39903919982  # whose interpolated quantile is larger by a rounding error
    result = Measurement((same, same), "host")
    assert result.p20_ms <= result.median_ms <= result.p80_ms


def test_every_status_says_what_it_means_to_those_who_ask():
    assert [status.facts.dropped_by for status in Status if not status.facts.dropped_by] == [""]
    assert sorted(Status.drops()) == sorted(status.facts.dropped_by for status in Status if status is not Status.OK)
    assert len({status.facts.listed for status in Status}) == len(Status)
    assert all(status.facts.launchable + status.facts.refused < 2 for status in Status)
    assert {status for status in Status if status.facts.dangerous} == {Status.TIMEOUT, Status.CRASH}


@pytest.mark.parametrize(
    ("word", "status"),
    [("correct", "ok"), ("compile", "compile"), ("constraints", "constraint"), ("correctness", "wrong"),
     ("runtime", "runtime"), ("timeout", "timeout"), ("out of luck", "out of luck")],
)  # fmt: skip
def test_words_of_t4_are_statuses(word, status):
    assert Status.of_t4(word) == status


def test_a_notebook_shows_the_summary_of_a_result():
    shown, result = [], TuningResult({"rows": 64}, KernelMetrics(0.5))
    result._repr_pretty_(SimpleNamespace(text=shown.append), False)
    assert shown == [str(result)]


def test_the_text_of_a_trial_holds_no_samples():
    trial = Trial(CONFIG, Status.OK, timed(*[0.12345] * 500), final=timed(*[0.2] * 500))
    assert "Measurement(0.1235 ms, 500 samples, host, 1 rounds)" in repr(trial)
    assert len(repr(trial)) < 500


def test_trials_are_shown_as_a_table_with_the_fastest_first():
    fast, slow, failed = Config({"rows": 64}), Config({"rows": 8}), Config({"rows": 1})
    trials = (
        Trial(failed, Status.RUNTIME, error="ValueError"), Trial(slow, Status.OK, timed(*[2.0] * 9)),
        Trial(fast, Status.OK, timed(*[0.5] * 9)),
    )  # fmt: skip
    result = TuningResult({"rows": 64}, KernelMetrics(0.5), trials=trials)
    assert result.trials == trials
    assert repr(result.trials).splitlines() == [
        "median ms  spread  status   config", "      0.5    0.0%  ok       rows=64",
        "        2    0.0%  ok       rows=8", "        -       -  runtime  rows=1",
    ]  # fmt: skip
    page = result._repr_html_()
    assert page.startswith("<pre>Best config: {rows=64}\n")
    assert page.index("rows=8") < page.index("<tr><td>-</td><td>-</td><td>runtime</td><td>rows=1</td></tr></table>")
    assert "<table>" not in replace(result, trials=())._repr_html_()
