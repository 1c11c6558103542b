"""The chance that a search has found a config within 1 % of the fastest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.search import chance_within_1pct
from triton_ops.space import Config
from triton_ops.values import Measurement, Status, Trial


def trials(times):
    return [
        Trial(Config(n=at), Status.RUNTIME, error="failed")
        if ms is None
        else Trial(Config(n=at), Status.OK, Measurement((ms,), "host"))
        for at, ms in enumerate(times)
    ]


def chance(times, configs=500, **more):
    return chance_within_1pct(trials(times), configs, **{"modelled": False, **more})


LEVEL = [2.0] * 40


def test_a_space_that_was_tried_whole_is_nearly_certain():
    assert chance(LEVEL, configs=40) == 0.997
    assert chance([1.0, 2.0], configs=2) == 0.997


@pytest.mark.parametrize("times", [[], [1.0] * 23, [None] * 40])
def test_too_few_trials_promise_nothing(times):
    assert chance(times) is None


def test_noise_that_hides_one_percent_promises_nothing():
    assert chance(LEVEL, noise=0.01) is not None
    assert chance(LEVEL, noise=0.011) is None


def test_more_trials_more_near_ones_and_fewer_left_raise_the_chance():
    assert chance(LEVEL + [3.0] * 40) > chance(LEVEL)
    assert chance([1.9, *[2.5] * 39]) < chance([1.9, *[2.0] * 39])
    assert chance(LEVEL, configs=100) > chance(LEVEL)


def test_a_lead_of_the_fastest_raises_the_chance():
    assert chance([1.0, *[1.9] * 39]) > chance([1.0, *[1.2] * 39])


def test_a_model_raises_the_chance_whatever_is_left():
    assert chance(LEVEL, modelled=True) > chance(LEVEL)
    assert chance(LEVEL, modelled=True, configs=10**9) == chance(LEVEL, modelled=True)


@given(st.lists(st.none() | st.floats(1e-6, 1e6), max_size=60), st.integers(1, 10**12), st.booleans())
def test_a_chance_is_between_nothing_and_nearly_certain(times, configs, modelled):
    found = chance(times, configs=configs, modelled=modelled)
    assert found is None or 0 <= found <= 0.997
