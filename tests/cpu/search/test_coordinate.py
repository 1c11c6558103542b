"""Coordinate descent: the order of its moves, its radius, its directions, and what it finds on known surfaces."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import Config, ConfigSpace, CoordinateDescent, Measurement, Status, Trial, tune
from triton_ops.exceptions import SettingsError

VALUES = (1, 2, 4, 8, 16, 32)
START = {"A": 4, "B": 4}


def trial(config, ms):
    return Trial(config, Status.OK, Measurement((ms, ms, ms), "recorded"))


def walked(searcher, ms_of, count):
    """The configs that a searcher asks for, one at a time, when it is told their times."""
    result = []
    for _ in range(count):
        asked = searcher.ask(1)
        if not asked:
            break
        result += asked
        searcher.tell([trial(asked[0], ms_of(asked[0]))])
    return result


def space_from(default, values=VALUES):
    return ConfigSpace(dict.fromkeys(default, values), default=Config(default))


def steps(config):
    return {name: VALUES.index(value) for name, value in config.items()}


def bowl(config):
    """Convex, with its least value at A=16, B=2."""
    at = steps(config)
    return 1.0 + (at["A"] - 4) ** 2 + (at["B"] - 1) ** 2


def valley(config):
    """A narrow diagonal valley: from A=B no single step is better, until both are moved."""
    at = steps(config)
    return 1.0 + (5 - at["A"]) * 0.1 + 5.0 * abs(at["A"] - at["B"])


def test_it_begins_at_the_default_and_moves_one_tunable_after_the_other():
    searcher = CoordinateDescent(space_from(START))
    result = walked(searcher, bowl, 6)
    assert result[0] == Config(START)
    assert result[1] == Config(A=8, B=4)  # better: go on with B
    assert result[2:4] == [Config(A=8, B=8), Config(A=8, B=2)]  # worse, then better: go on with A
    assert result[4] == Config(A=16, B=2)


def test_a_convex_surface_is_descended_to_its_least_value():
    result = walked(CoordinateDescent(space_from(START)), bowl, 12)
    assert min(map(bowl, result)) == 1.0


@given(st.lists(st.floats(0.1, 10.0), min_size=36, max_size=36))
def test_it_never_ends_worse_than_its_start_and_sees_every_neighbour_of_its_best(times):
    space = space_from(START)
    ms = dict(zip(space, times, strict=True))
    result = walked(CoordinateDescent(space), ms.__getitem__, 36)
    assert set(result) == set(space)
    first = min(range(len(result)), key=lambda at: (ms[result[at]], at))
    assert ms[result[first]] <= ms[Config(START)]


def test_a_larger_radius_steps_over_a_hill():
    hill = {1: 5.0, 2: 5.0, 4: 1.0, 8: 3.0, 16: 0.5, 32: 5.0}
    one = ConfigSpace({"A": VALUES}, default=Config(A=4))
    near = walked(CoordinateDescent(one), lambda config: hill[config["A"]], 3)
    far = walked(CoordinateDescent(one, radius=2), lambda config: hill[config["A"]], 4)
    assert [config["A"] for config in near] == [4, 8, 2]
    assert [config["A"] for config in far] == [4, 8, 2, 16]


def test_all_directions_follow_a_diagonal_valley():
    default = {"A": 1, "B": 1}
    single = walked(CoordinateDescent(space_from(default)), valley, 8)
    diagonal = walked(CoordinateDescent(space_from(default), all_directions=True), valley, 8)
    assert Config(A=4, B=4) in diagonal
    assert Config(A=2, B=2) in diagonal[:4]
    assert diagonal.index(Config(A=2, B=2)) < (single.index(Config(A=2, B=2)) if Config(A=2, B=2) in single else 9)


def test_values_without_an_order_are_all_neighbours():
    space = ConfigSpace({"KIND": ["a", "b", "c"], "FAST": [False, True]}, default=Config(KIND="a", FAST=False))
    result = walked(CoordinateDescent(space), lambda config: 1.0 + (config["KIND"] != "a") + config["FAST"], 4)
    assert result[1:] == [Config(KIND="b", FAST=False), Config(KIND="c", FAST=False), Config(KIND="a", FAST=True)]


@pytest.mark.parametrize("radius", [0, -1, 1.5, True, "2"])
def test_a_radius_that_is_none_is_refused(radius):
    with pytest.raises(SettingsError, match="must be a whole number of 1 or more"):
        CoordinateDescent(space_from(START), radius=radius)


def test_its_options_are_given_to_tune_as_a_partial(steady_clock, tmp_path):
    del steady_clock
    search = functools.partial(CoordinateDescent, radius=2, all_directions=True)
    result = tune(lambda BLOCK: BLOCK, space={"BLOCK": [1, 2, 4]}, search=search, cache_dir=tmp_path)
    assert len(result.trials) == 3
