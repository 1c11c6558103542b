"""The compiler's figures as columns: known where a config was compiled, expected where it was not."""

import numpy as np
import pytest

from triton_ops.search.encoding import Encoder
from triton_ops.search.sight import COLUMNS, Sight, wasteful
from triton_ops.search.spread import middle
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Compiled, Resources, Status

SPACE = ConfigSpace({"ROWS": [16, 32, 64, 128, 256], "STEP": [32, 64, 128], "stages": [1, 2, 3, 4, 5]})


def made(config, **more):
    """Registers and shared memory as products of the tunables."""
    shared = config["ROWS"] * config["STEP"] * config["stages"]
    registers = min(16 * config["ROWS"] // 16, 255)
    return Compiled(config, Status.OK, "", Resources(registers, 0, shared), resident=max(1, 228_000 // shared), **more)


def sight_of(configs, **more):
    sight, encoder = Sight(), Encoder(SPACE)
    for config in configs:
        sight.take(made(config, **more), encoder.rows([config])[0])
    return sight


def columns(sight, configs):
    return sight.rows(Encoder(SPACE).rows(configs), sight.places(configs))[:, -COLUMNS:]


def test_too_few_say_nothing():
    configs = list(SPACE)
    rows = Encoder(SPACE).rows(configs)
    assert sight_of(configs[:3]).columns == 0
    few = sight_of(configs[:3])
    assert np.array_equal(few.rows(rows, few.places(configs)), rows)


def test_known_figures_stand_as_they_are_and_others_are_expected_from_them():
    configs = list(SPACE)
    true = columns(sight_of(configs), configs)
    seen = sight_of(configs[::3])
    found = columns(seen, configs)
    assert np.allclose(found[::3], true[::3])
    assert np.abs(found - true)[:, [0, 2]].max() < 0.12
    assert true[:, 2].std() > 0.08, "what was to be expected differs"


def test_order_of_registers_and_shared_memory_is_kept():
    small, large = Config(ROWS=16, STEP=32, stages=1), Config(ROWS=256, STEP=128, stages=5)
    (few, _, little, many), (most, _, much, one) = columns(sight_of(SPACE), [small, large])
    assert (few < most, little < much, many > one) == (True, True, True)


def test_twins_are_those_of_the_same_launch():
    one, other, third = list(SPACE)[:3]
    sight = sight_of([one, other], launch="x")
    sight.take(made(third, launch="y"), Encoder(SPACE).rows([third])[0])
    assert sight.twins(one) == [other]
    assert sight.twins(third) == []
    assert sight_of([one, other]).twins(one) == []


@pytest.mark.parametrize(
    ("spilled", "deferred", "last"), [(0, False, False), (64, False, False), (65, False, True), (0, True, True)]
)
def test_what_comes_last(spilled, deferred, last):
    found = Compiled(Config(A=1), Status.OK, "", Resources(255, spilled, 0), deferred=deferred)
    assert wasteful(found) is last


def test_the_middle_goes_to_where_most_are_and_then_to_the_next_crowd():
    rows = np.array([[0.0], [0.1], [0.2], [0.8], [0.9], [1.0], [0.15]])
    first = middle(rows, rows[:0])
    assert rows[first, 0] == 0.2
    assert rows[middle(rows, rows[[1]]), 0] == 0.9
