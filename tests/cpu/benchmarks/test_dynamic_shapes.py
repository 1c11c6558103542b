"""What the benchmark of dynamic shapes concludes from its times."""

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.torch_compile.dynamic_shapes import ASKED, regret, safest, with_ratios

TIMES = {16: {0: 1.0, 1: 1.5, 2: 2.0}, 4096: {0: 9.0, 1: 3.3, 2: 3.0}, 64: {0: 1.0, 1: 1.1, 2: math.inf}}


def test_the_safest_config_loses_the_least_where_it_loses_most():
    assert safest(TIMES) == (1, 1.5)


def test_the_regret_is_that_of_the_configs_that_were_taken():
    assert regret({16: 0, 4096: 1, 64: 0}, TIMES) == {"median": 1.0, "largest": pytest.approx(1.1)}


def test_a_way_that_failed_leaves_the_others_their_ratios():
    result = with_ratios({"one": {"us": dict.fromkeys(ASKED, 3.0)}, "two": {"us": dict.fromkeys(ASKED, 2.0)},
                         "three": {"error": "no"}})  # fmt: skip
    assert set(result["one"]["ratio"].values()) == {1.5}
    assert result["three"] == {"error": "no"}
    assert with_ratios({"three": {"error": "no"}}) == {"three": {"error": "no"}}
