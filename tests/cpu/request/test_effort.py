"""Efforts: their limits, and what other limits make of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.exceptions import SettingsError
from triton_ops.request import Budget, Effort, Patience

seconds = st.floats(1e-3, 1e6)
SHIPPED = ["expected", "race", "quick", "full", "exhaustive"]


def limited(limit_s, trials=None):
    return Effort(name="mine", budget=Budget(trials, limit_s))


@given(st.none() | seconds, st.none() | seconds)
def test_within_so_many_seconds_the_smaller_of_two_limits_holds(own, other):
    limits = [each for each in (own, other) if each is not None]
    assert limited(own, 7).within(other).budget == Budget(7, min(limits, default=None))


@given(st.none() | st.integers(1, 1000), st.integers(0, 1000))
def test_beyond_earlier_trials_a_limit_counts_the_new_ones_alone(own, earlier):
    assert limited(2.5, own).beyond(earlier).budget == Budget(None if own is None else own + earlier, 2.5)


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf, "3", 1 + 0j, [1]])
@pytest.mark.parametrize("name", ["trials", "seconds"])
def test_a_limit_that_is_no_positive_number_is_refused(name, limit):
    with pytest.raises(SettingsError, match=f"the limit of {name} is"):
        Budget(**{name: limit})


def test_part_of_a_second_is_a_limit_and_part_of_a_trial_is_none():
    assert Budget(seconds=0.5).seconds == 0.5
    with pytest.raises(SettingsError, match="positive whole number"):
        Budget(trials=1.5)


def test_numbers_of_other_libraries_become_those_of_records():
    budget = Budget(trials=np.int64(3), seconds=np.float32(0.5))
    assert [(type(value), value) for value in (budget.trials, budget.seconds)] == [(int, 3), (float, 0.5)]


@pytest.mark.parametrize("name", ["compile_s", "launch_s", "trial_s", "setup_s"])
def test_patience_is_a_positive_number_of_seconds(name):
    assert getattr(Patience(**{name: 1e-6}), name) == 1e-6
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(SettingsError, match=f"{name} is"):
            Patience(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "least"),
    [("near", 0), ("finalists", 1), ("processes", 0), ("previews", 0), ("doubt_s", 0), ("worthwhile", 0),
     ("persistence", 0),
     ("expected_gain", 0)],
)  # fmt: skip
def test_a_part_of_an_effort_has_a_least_value(name, least):
    assert getattr(Effort(name="mine", **{name: least}), name) == least
    for wrong in (least - 1, math.nan, "1", None):
        with pytest.raises(SettingsError, match=rf"{name} of effort mine is .*; it must be .* of {least} or more"):
            Effort(name="mine", **{name: wrong})


@pytest.mark.parametrize("wrong", [{"name": " "}, {"name": "mine", "patience": 3.0}])
def test_an_effort_without_a_name_or_with_another_patience_is_refused(wrong):
    with pytest.raises(SettingsError):
        Effort(**wrong)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_effort_is_named_and_an_effort_is_itself(name):
    effort = Effort.named(name)
    assert effort.name == name
    assert Effort.named(effort) is effort


@pytest.mark.parametrize("wrong", ["slow", 3, Budget()])
def test_what_is_no_effort_is_refused(wrong):
    with pytest.raises(SettingsError, match="effort"):
        Effort.named(wrong)


def test_without_a_name_the_effort_is_that_of_the_environment_or_quick(monkeypatch):
    assert Effort.named().name == "quick"
    monkeypatch.setenv("TRITON_OPS_EFFORT", "full")
    assert Effort.named().name == "full"


def test_a_launch_that_waits_compares_few_configs_for_a_shorter_time():
    quick = Effort.named("quick")
    for configs in range(1, Effort.FEW + 1):
        effort = quick.for_a_launch(configs)
        assert effort.race.seconds == pytest.approx(0.08 + 0.025 * configs)
        assert effort.doubt_s == effort.race.seconds
        assert (effort.screen.least, effort.finalists) == (1, 2)
    assert quick.for_a_launch(Effort.FEW + 1) is quick


def test_a_launch_that_waits_never_takes_longer_than_its_effort():
    race = Effort.named("race")
    short = race.for_a_launch(Effort.FEW)
    assert short.race.seconds == race.race.seconds == 0.25, "it would be 0.28 by the number of configs"
    assert short.doubt_s == 0.25


def test_the_last_comparison_has_its_race_and_the_checks_after_it():
    assert Effort.named("full").final_s == 1.5 * 20.0 + 1.0
