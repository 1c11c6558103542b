"""The compiler's figures as columns: known for compiled configs, estimated for all others."""

import numpy as np
import pytest

from triton_ops.search.surrogate import COLUMNS, CompilerColumns, Encoder, wasteful
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Compiled, Resources, Status

SPACE = ConfigSpace({"ROWS": [16, 32, 64, 128, 256], "STEP": [32, 64, 128], "stages": [1, 2, 3, 4, 5]})


def made(config, **more):
    """Registers and shared memory as products of the tunables."""
    shared = config["ROWS"] * config["STEP"] * config["stages"]
    registers = min(16 * config["ROWS"] // 16, 255)
    return Compiled(config, Status.OK, "", Resources(registers, 0, shared), resident=max(1, 228_000 // shared), **more)


def columns_of(configs, **more):
    columns, encoder = CompilerColumns(), Encoder(SPACE)
    for config in configs:
        columns.take(made(config, **more), encoder.rows([config])[0])
    return columns


def figures(columns, configs):
    return columns.rows(Encoder(SPACE).rows(configs), columns.places(configs))[:, -COLUMNS:]


def test_below_six_compiled_configs_there_are_no_columns():
    configs = list(SPACE)
    rows = Encoder(SPACE).rows(configs)
    assert columns_of(configs[:3]).width == 0
    few = columns_of(configs[:3])
    assert np.array_equal(few.rows(rows, few.places(configs)), rows)


def test_figures_of_compiled_configs_are_kept_and_those_of_others_are_estimated():
    configs = list(SPACE)
    true = figures(columns_of(configs), configs)
    seen = columns_of(configs[::3])
    result = figures(seen, configs)
    assert np.allclose(result[::3], true[::3])
    assert np.abs(result - true)[:, [0, 2]].max() < 0.12
    assert true[:, 2].std() > 0.08, "what was to be expected differs"


def test_estimates_keep_the_order_of_registers_and_shared_memory():
    small, large = Config(ROWS=16, STEP=32, stages=1), Config(ROWS=256, STEP=128, stages=5)
    (few, _, little, many), (most, _, much, one) = figures(columns_of(SPACE), [small, large])
    assert (few < most, little < much, many > one) == (True, True, True)


def test_configs_of_the_same_program_are_found():
    one, other, third = list(SPACE)[:3]
    columns = columns_of([one, other], launch="x")
    columns.take(made(third, launch="y"), Encoder(SPACE).rows([third])[0])
    assert columns.same_program(one) == [other]
    assert columns.same_program(third) == []
    assert columns_of([one, other]).same_program(one) == []


@pytest.mark.parametrize(
    ("spilled", "deferred", "last"), [(0, False, False), (64, False, False), (65, False, True), (0, True, True)]
)
def test_deferred_and_spilling_configs_come_last(spilled, deferred, last):
    result = Compiled(Config(A=1), Status.DEFERRED if deferred else Status.OK, "", Resources(255, spilled, 0))
    assert wasteful(result) is last
