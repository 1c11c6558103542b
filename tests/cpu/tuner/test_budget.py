"""A budget of seconds is that of the whole run: what the search leaves, and what the last comparison does with it."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.clocks import Clock
from tests.cpu.evaluation.test_doubt import DEFAULT, RIVAL, Noisy
from triton_ops import Config, tune
from triton_ops.evaluation import FinalRequest
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.request import Budget, Effort
from triton_ops.request.effort import PRESETS
from triton_ops.tuner import Silent
from triton_ops.tuner.budget import RunningBudget
from triton_ops.tuner.remarks import cut_note
from triton_ops.values import Measurement, Status, Trial


def running(seconds, reserve_s=0.0, trials=None):
    clock = Clock()
    return clock, RunningBudget(Budget(trials, seconds), clock.seconds, reserve_s=reserve_s)


def test_the_search_leaves_time_for_the_last_comparison():
    clock, budget = running(10.0, reserve_s=2.5)
    clock.pass_by(7_400_000_000)
    assert budget.spent(3) is None
    clock.pass_by(200_000_000)
    assert budget.spent(3) == "seconds"
    assert budget.left_s == pytest.approx(2.4)


@pytest.mark.parametrize("reserve_s", [1.0, 30.0])
def test_a_small_budget_is_mostly_for_the_search(reserve_s):
    clock, budget = running(2.0, reserve_s)
    clock.pass_by(1_290_000_000 if reserve_s > 1 else 1_000_000_000 * 1.29)
    assert budget.spent(1) is None
    clock.pass_by(20_000_000)
    assert budget.spent(1) == "seconds"


def test_a_search_ends_before_a_trial_that_would_not_fit():
    clock, budget = running(10.0)
    clock.pass_by(8_000_000_000)
    assert budget.spent(1) is None
    budget.note(2.5)
    assert budget.spent(1) == "seconds"
    budget.note(0.5)
    assert budget.spent(1) is None


def test_a_budget_that_the_start_has_used_up_still_has_four_short_trials_and_a_comparison():
    clock, budget = running(5.0, reserve_s=2.5)
    clock.pass_by(6_000_000_000)
    budget.note(0.1, compile_s=0.5)
    assert budget.late_start_s == pytest.approx(5.9)
    assert [budget.spent(trials) for trials in (1, 2, 3, 4)] == [None, None, None, "seconds"]
    assert budget.left_s == 0.0
    assert budget.comparison_s == pytest.approx(1.0)
    budget.note(0.1, compile_s=1.2)
    assert budget.spent(2) == "seconds"  # the next one may take as long to compile


def test_a_budget_that_the_search_has_used_up_has_no_time_of_its_own_for_the_comparison():
    clock, budget = running(5.0)
    clock.pass_by(2_000_000_000)
    budget.note(1.0)
    clock.pass_by(5_000_000_000)
    budget.note(4.5)
    assert budget.spent(2) == "seconds"
    assert (budget.late_start_s, budget.comparison_s) == (None, 0.0)


def test_a_run_that_began_earlier_has_less_left():
    clock = Clock()
    clock.pass_by(5_000_000_000)
    budget = RunningBudget(Budget(None, 4.0), clock.seconds, start=2.0)
    assert budget.left_s == pytest.approx(1.0)
    assert RunningBudget(Budget(), clock.seconds).left_s is None


def compared(times_ms, seconds, effort="full", seed=1, **asked):
    device = Noisy(times_ms, 0.01, seed)
    trials = tuple(Trial(c, Status.OK, Measurement((ms,), "host"), relative=ms) for c, ms in times_ms.items())
    start = device.now.now
    final = FinalRequest(trials=trials, default=DEFAULT, seconds=seconds, **asked)
    result = compare_finalists(device, final, Effort.named(effort), clock=device.now.seconds)
    return result, (device.now.now - start) / 1e9


@pytest.mark.parametrize("seconds", [0.1, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("slowest_ms", [0.5, 5.0, 40.0])
def test_the_last_comparison_ends_in_time(seconds, slowest_ms):
    rng = random.Random(3)
    times = {Config(k=k): slowest_ms * rng.uniform(0.9, 1.0) for k in range(30)}
    result, took_s = compared(times, seconds)
    assert took_s <= 1.1 * seconds + 8 * slowest_ms / 1e3  # calls that calibrate, and a round that has begun
    assert result.winner is not None


def test_fewer_finalists_race_where_time_is_short_and_the_default_is_one_of_them():
    times = {Config(k=k): 20.0 + 0.01 * k for k in range(20)}
    many, few = (len(compared(times, seconds)[0].dropped_at) for seconds in (60.0, 2.0))
    assert many == 20
    assert 2 <= few < 20
    assert DEFAULT in dict(compared(times, 2.0)[0].dropped_at)


def test_the_default_wins_where_there_is_no_time_to_compare_anything():
    result, took_s = compared({DEFAULT: 500.0, RIVAL: 100.0}, 0.3)
    assert result.winner.config == DEFAULT
    assert result.ties == (DEFAULT,)
    assert result.confidence == "the budget left no time to compare the fastest with the default"
    assert took_s == 0.0


def test_the_default_and_the_fastest_race_for_a_few_rounds_all_the_same_where_a_tune_goes_on():
    times = {DEFAULT: 500.0, RIVAL: 10.0, Config(k=2): 200.0}
    result = [compared(times, 0.3, seed=seed, anyway=True) for seed in range(20)]
    assert all({config for config, _ in each.dropped_at} == {DEFAULT, RIVAL} for each, _ in result)
    assert all(took_s < 6.0 for _, took_s in result)
    assert sum(each.winner.config == RIVAL for each, _ in result) > 10  # a call of three takes three times as long here
    assert all(each.confidence != "ok" for each, _ in result if each.winner.config == DEFAULT)


def test_slow_configs_are_compared_where_only_the_race_of_the_effort_is_short():
    assert PRESETS["quick"].race.seconds < 2.0
    outcomes = [compared({DEFAULT: 500.0, RIVAL: 100.0}, 60.0, "quick", seed=seed) for seed in range(6)]
    assert all(result.compared and took_s < 20.0 for result, took_s in outcomes)
    assert (RIVAL,) in [result.ties for result, _ in outcomes if result.winner.config == RIVAL]


def test_every_effort_reserves_what_its_race_may_take():
    for effort in PRESETS.values():
        assert effort.final_s > effort.race.seconds


def test_a_result_says_what_the_budget_cut(tmp_path):
    def spin(*, n):
        return sum(range(3000 + 0 * n))

    result = tune(
        spin, space={"n": list(range(2000))}, budget_s=0.5, effort="full", search="random", cache_dir=tmp_path,
        listener=Silent(),
    )  # fmt: skip
    assert result.stopped == "seconds"
    (note,) = [note for note in result.notes if "budget" in note]
    assert note.startswith("the budget of 0.5 s ")  # how it goes on depends on when the first trial began


@pytest.mark.parametrize(
    ("start_s", "said"),
    [
        (0.5, "ended the search after 30 trials and left 2.5 s to compare"),
        (7.5, "left no time to search: the first trial began after 7.5 s; "
        "30 trials and a comparison of 2.5 s were made all the same; give more seconds (budget_s)"),
    ],
)  # fmt: skip
def test_a_note_tells_a_search_that_was_cut_off_from_one_that_began_too_late(start_s, said):
    clock, budget = running(10.0, reserve_s=2.5)
    clock.pass_by(start_s * 1e9)
    budget.note(0.0)
    loop = SimpleNamespace(stopped="seconds", budget=budget, trials=dict.fromkeys(range(30)))
    assert cut_note(loop, 2.5) == [f"the budget of 10 s {said}"]


@pytest.mark.parametrize(
    ("configs", "race_s", "doubt_s"), [(2, 0.13, 0.13), (4, 0.18, 0.18), (8, 0.28, 0.28), (9, 1.0, 1.5)]
)
def test_a_launch_that_waits_has_few_configs_compared_for_a_shorter_time(configs, race_s, doubt_s):
    result = PRESETS["quick"].for_a_launch(configs)
    assert (result.race.seconds, result.doubt_s) == (pytest.approx(race_s), pytest.approx(doubt_s))
    assert (result.name, result.race.checkpoints) == ("quick", PRESETS["quick"].race.checkpoints)
    assert (result.screen.least, result.finalists) == ((1, 2) if configs < 9 else (3, 4))


def test_a_budget_that_is_used_up_before_the_first_trial_is_told_in_a_warning_and_a_note(tmp_path, caplog):
    result = tune(
        lambda *, n: n, space={"n": [1, 2, 3]}, device="cpu", budget_s=1e-6, cache_dir=tmp_path, listener=Silent()
    )
    (note,) = [note for note in result.notes if "budget" in note]
    assert note.startswith("the budget of 1e-06 s left no time to search: the first trial began after ")
    assert note in caplog.text
    assert len(result.trials) == 1
