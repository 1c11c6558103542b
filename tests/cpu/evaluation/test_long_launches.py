"""The last comparison of launches that take tenths of a second and more, on a clock that only launches move."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clocks import Field
from tests.cpu.evaluation.test_doubt import DEFAULT, RIVAL, Noisy
from triton_ops import Budget, Config, Effort, FunctionKernel, tune
from triton_ops.evaluation import FinalRequest, Outcome
from triton_ops.evaluation.finals import _fitting, compare_finalists
from triton_ops.evaluation.outcome import Resolution, _confidence
from triton_ops.request import TuneOptions
from triton_ops.timing import Interval, Rounds, ScreenPolicy, Standing
from triton_ops.timing.race_statistics import few_tell, is_plain
from triton_ops.tuner import Silent
from triton_ops.tuner.budget import RunningBudget, rounds_s
from triton_ops.tuner.remarks import tell_of_long_rounds
from triton_ops.values import Measurement, Status, Trial


def returned(*, n):
    return n - n


PAIRS_S = [(0.4, 0.2), (0.8, 0.4), (0.4, 0.3), (1.0, 0.1), (2.0, 1.0), (2.5, 0.1), (60.0, 20.0)]


def compared(times_s, noise, seed, seconds=None):
    """The outcome of a last comparison after one look at each, and the seconds that it took."""
    device = Noisy({config: 1e3 * time_s for config, time_s in times_s.items()}, noise, seed, spikes=0.0)
    trials = tuple(
        Trial(config, Status.OK, Measurement((1e3 * time_s,), "host"), relative=time_s)
        for config, time_s in times_s.items()
    )
    final = FinalRequest(trials=trials, default=DEFAULT, seconds=seconds)
    start_s = device.now.seconds()
    outcome = compare_finalists(device, final, Effort.named("quick"), clock=device.now.seconds)
    return outcome, device.now.seconds() - start_s


@pytest.mark.parametrize("pair_s", PAIRS_S)
def test_the_faster_of_two_long_launches_wins(pair_s):
    for seed in range(12):
        outcome, _ = compared(dict(zip((DEFAULT, RIVAL), pair_s, strict=True)), 0.05, seed)
        assert (outcome.winner.config, outcome.confidence, outcome.told) == (RIVAL, "ok", True)
        assert outcome.gain.low > 1.0


@pytest.mark.parametrize("pair_s", PAIRS_S[:6])
def test_two_steady_rounds_of_twice_the_speed_are_enough_where_there_is_no_time_for_more(pair_s):
    outcome, took_s = compared({DEFAULT: pair_s[0], RIVAL: pair_s[0] / 2.2}, 0.01, 1, seconds=6.0 * pair_s[0])
    assert (outcome.winner.config, outcome.winner.final.rounds) == (RIVAL, 2)
    assert took_s <= 6.0 * pair_s[0]


@settings(deadline=None)
@given(
    seed=st.integers(0, 1 << 20), noise=st.sampled_from([0.01, 0.1, 0.3]), slow_s=st.sampled_from([0.1, 0.4, 2, 15]),
    ratio=st.sampled_from([0.5, 1.0, 1.02, 1.2, 2.0, 10.0]), seconds=st.sampled_from([1.0, 5.0, 20.0, None]),
)  # fmt: skip
def test_noise_never_hides_an_interval_that_excludes_zero(seed, noise, slow_s, ratio, seconds):
    outcome, _ = compared({DEFAULT: slow_s, RIVAL: slow_s / ratio}, noise, seed, seconds)
    if limits := re.search(r"noise hides .*: ([+-][\d.]+) to ([+-][\d.]+) %", outcome.confidence):
        low, high = map(float, limits.groups())
        assert low <= 0.0 <= high
    assert outcome.winner.config == DEFAULT or outcome.gain.low > 1.0


def test_equal_long_launches_end_as_a_tie_after_sixteen_rounds_and_the_default_stays():
    for seed in range(20):
        outcome, _ = compared({DEFAULT: 1.0, RIVAL: 1.0, Config(k=2): 1.0}, 0.1, seed)
        assert outcome.winner.config == DEFAULT
        assert outcome.winner.final.rounds == 16
        assert outcome.told


def test_a_comparison_of_long_launches_keeps_to_its_seconds():
    for seconds in (3.0, 10.0, 20.0):
        assert compared({DEFAULT: 1.0, RIVAL: 0.98}, 0.1, 1, seconds)[1] <= seconds + 1.0


@pytest.mark.usefixtures("steady_clock")
def test_what_was_not_told_is_no_record_and_the_next_tune_goes_on(tmp_path, monkeypatch):
    kernel = FunctionKernel(returned, label="quick")
    monkeypatch.setattr(Outcome, "told", property(lambda _: False))
    untold = tune(kernel, space={"n": [1, 2]}, device="cpu", cache_dir=tmp_path, listener=Silent())
    assert any(note.startswith("nothing is remembered") for note in untold.notes)
    monkeypatch.undo()
    again = tune(kernel, space={"n": [1, 2]}, device="cpu", cache_dir=tmp_path, listener=Silent())
    assert not again.from_cache
    assert "2 trials were taken over from an earlier run" in again.notes
    assert tune(kernel, space={"n": [1, 2]}, device="cpu", cache_dir=tmp_path).from_cache


@pytest.mark.parametrize(("seconds", "told"), [(8.0, False), (60.0, True)])
def test_fewer_than_six_rounds_that_decide_nothing_tell_nothing(seconds, told):
    outcome, _ = compared({DEFAULT: 1.0, RIVAL: 0.9}, 0.3, 3, seconds)
    assert outcome.winner.config == DEFAULT
    assert outcome.told is told


def test_only_a_budget_that_somebody_gave_ends_the_last_comparison():
    assert not TuneOptions().settled().budget.firm
    assert not TuneOptions(trials=3).settled().budget.firm
    assert TuneOptions(budget_s=9.0).settled().budget == Budget(None, 9.0)
    assert Effort.named("quick").within(5.0).budget.firm
    assert not Effort.named("full").beyond(7).budget.firm
    assert RunningBudget(Effort.named("quick").budget).comparison_s is None
    assert RunningBudget(Budget(seconds=9.0), lambda: 0.0).comparison_s == 9.0


def test_a_search_leaves_time_for_rounds_of_long_launches():
    now_s = [0.0]
    budget = RunningBudget(Budget(seconds=100.0), lambda: now_s[0], reserve_s=2.5)
    now_s[0] = 80.0
    budget.note(1.0)
    assert budget.spent(9) is None
    budget.reserve_s = 30.0
    assert budget.spent(9) == "seconds"


@pytest.mark.parametrize(
    ("times_ms", "seconds"), [((), 0.0), ((400.0,), 4.8), ((400.0, 250.0), 7.8), ((2400.0, 300.0), 18.0)]
)
def test_a_default_that_is_slower_by_far_needs_half_of_the_rounds(times_ms, seconds):
    assert rounds_s(times_ms) == pytest.approx(seconds)


@pytest.mark.parametrize(("default_ms", "racing"), [(500.0, 2), (2400.0, 3)])
def test_a_default_that_is_dropped_after_four_rounds_leaves_time_for_more_finalists(default_ms, racing):
    times_ms = {DEFAULT: default_ms, RIVAL: 300.0, Config(k=2): 310.0}
    trials = [Trial(config, Status.OK, Measurement((ms,), "host"), relative=ms) for config, ms in times_ms.items()]
    seconds = 4.5 * default_ms / 1e3 + 8 * 0.61 + 0.5 * default_ms / 1e3 + 0.001
    assert len(_fitting(trials, Effort.named("quick").race, seconds, {DEFAULT}, 2, seconds)) == racing


@pytest.mark.parametrize(("ms", "samples"), [(1.0, 3), (200.0, 2), (400.0, 1), (5000.0, 1)])
def test_a_screening_of_long_launches_takes_a_second_or_one_pair(ms, samples):
    field = Field(0, ms=[ms, ms])
    own, beside = (arm.sampler for arm in field.arms)
    assert len(Rounds(timer=field.timer).screen(own, ScreenPolicy(), beside=beside)[0]) == samples


@pytest.mark.parametrize(
    ("row", "default", "plain", "tells"),
    [
        ([1.0, 1.1], [2.5, 2.4], True, True),
        ([1.0, 1.0], [1.9, 2.5], False, False),  # one of them less than twice
        ([1.0, 1.5], [9.0, 9.0], False, False),  # not steady
        ([1.0, 1.5, 1.0], [9.0, 9.0, 9.0], False, True),
        ([1.0], [9.0], False, False),
        ([1.0] * 6, [1.1, 1.12, 1.1, 1.09, 1.1, 1.1], False, True),
        ([1.0] * 6, [1.1, 1.3, 0.9, 1.2, 1.0, 1.1], False, False),
    ],
)
def test_few_rounds_are_enough_where_they_show_it(row, default, plain, tells):
    assert (is_plain(row, default), few_tell(row, default)) == (plain, tells)


def test_the_interval_of_few_rounds_is_that_of_their_mean():
    gain = Interval.of_few([2.0, 4.0], [1.0, 1.0], 1.0)
    assert gain.centre == pytest.approx(1.5 * math.log(2))
    assert gain.margin == pytest.approx(7 * math.log(2) / 2)
    assert Interval.of_few([2.0], [1.0], 1.0).margin == math.inf


@pytest.mark.parametrize(("default_ms", "seconds", "words"), [
    (1900.0, None, "2 to 16 rounds of 2.4 s, until they can tell"),
    (1900.0, 30.0, "2 to 16 rounds of 2.4 s, in the 30 s that are left"),
    (19.0, None, ""),
])  # fmt: skip
def test_what_a_comparison_of_long_launches_waits_for_is_told(default_ms, seconds, words, caplog):
    pair = [
        Trial(config, Status.OK, Measurement((ms,), "host"), relative=ms)
        for config, ms in ((DEFAULT, default_ms), (RIVAL, default_ms / 4))
    ]
    tell_of_long_rounds(pair, seconds)
    assert words in caplog.text
    assert bool(caplog.text) is bool(words)


@pytest.mark.parametrize(("low", "words"), [
    (-0.01, "noise hides whether"), (0.001, "may gain less than counts"), (0.004, "may be noise"),
])  # fmt: skip
def test_a_default_that_is_kept_says_no_more_of_a_gain_than_its_interval(low, words):
    default, other = Config(block=8), Config(block=512)
    standing = Standing(rows_ms={default: [1.0] * 4, other: [0.97] * 4}, default=default,
                        preference={default: (0,), other: (1,)})  # fmt: skip
    doubt = Resolution(other, faster=False, over=Interval(0.04, low, 0.09))
    assert words in _confidence(standing, default, doubt)
