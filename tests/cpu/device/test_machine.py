"""The model's figures of each device of the table: their sources agree, and better figures never slow a config down."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import AttentionTiles, GemmTiles, RowTiles, Work
from triton_ops.cost_model import Model
from triton_ops.cost_model.mma import operand_bytes
from triton_ops.device import DeviceSpec, Machine
from triton_ops.device.specs import datasheets
from triton_ops.exceptions import DeviceError

TABLE = {name: DeviceSpec.called(name) for name in datasheets()}
KNOWN = {name: spec for name, spec in TABLE.items() if Machine.of(spec) is not None}
MODELLED = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
SIDE = 8192
GEMM = GemmTiles(
    SIDE, SIDE, SIDE, dtype="bfloat16", out_dtype="bfloat16", tile_rows="BM", tile_columns="BN", tile_inner="BK"
)  # fmt: skip
ATTENTION = AttentionTiles(32, 4096, 4096, 128, dtype="bfloat16", tile_queries="BM", tile_keys="BN")
ROWS = RowTiles(8192, 4096, dtype="bfloat16", out_dtype="bfloat16", tile_rows="BM", tile_columns="BN")
CONFIGS = st.fixed_dictionaries(
    {
        "BM": st.sampled_from([1, 16, 64, 128, 256]),
        "BN": st.sampled_from([16, 64, 128, 256, 1024]),
        "BK": st.sampled_from([32, 64, 128]),
        "num_warps": st.sampled_from([1, 4, 8]),
        "num_stages": st.integers(1, 4),
    }
)


BETTER = {
    "memory": lambda spec: replace(spec, bandwidth_gbps=2 * spec.bandwidth_gbps),
    "L2": lambda spec: replace(spec, l2_bytes=2 * spec.l2_bytes),
    "products": lambda spec: replace(
        spec, tflops={name: rate * (1 if name == "float32" else 2) for name, rate in spec.tflops.items()}
    ),
    "all": lambda spec: replace(
        spec, bandwidth_gbps=2 * spec.bandwidth_gbps, tflops={name: 2 * rate for name, rate in spec.tflops.items()}
    ),
}


def expected_ms(tiles, spec, config):
    return Model(Work(tiles=tiles), Machine.of(spec)).expected_ms(config)


@pytest.mark.parametrize("name", TABLE)
def test_each_device_of_the_table_has_a_machine_or_a_reason(name):
    spec = TABLE[name]
    assert (name in KNOWN) == (spec.arch in MODELLED and "float16" in spec.tflops)
    if spec.arch in MODELLED and name not in KNOWN:
        with pytest.raises(DeviceError, match=f"the rates of {spec.name}, which has no datasheet here that tells"):
            Machine.known(spec)
        return
    if name not in KNOWN:
        with pytest.raises(DeviceError, match=f"does not know the architecture {spec.arch} of {spec.name}: its terms"):
            Machine.known(spec)
        return
    machine = Machine.known(spec)
    for dtype in machine.mma_flops_per_cycle:
        if dtype in spec.tflops and dtype != "float32" and "PCIe" not in name:
            assert machine.mma_tflops(dtype) == pytest.approx(spec.tflops[dtype], rel=0.09)  # Hopper's clock is higher
    assert 1.4 <= machine.clock_ghz <= 2.7
    assert machine.l2_gbps >= spec.bandwidth_gbps == machine.peak_dram_gbps
    assert bool(machine.unseen) == (name not in ("H100", "H200"))


def test_an_architecture_without_a_row_and_a_device_without_rates_have_other_reasons():
    assert Machine.why_unknown(replace(TABLE["H200"], arch="sm_130")).endswith("no row in the table of architectures")
    lacking = replace(TABLE["RTX 4090"], tflops={})
    assert Machine.of(lacking) is Machine.of(replace(lacking, bandwidth_gbps=None)) is None
    assert "does not know the rates of NVIDIA GeForce RTX 4090" in Machine.why_unknown(lacking)


@pytest.mark.parametrize("better", BETTER)
@given(st.sampled_from(sorted(KNOWN)), st.sampled_from([GEMM, ATTENTION, ROWS]), CONFIGS)
def test_better_figures_never_slow_a_config_down(better, name, tiles, config):
    spec = KNOWN[name]
    assert expected_ms(tiles, BETTER[better](spec), config) <= expected_ms(tiles, spec, config) * (1 + 1e-9)


def test_devices_are_ordered_by_their_datasheets_where_these_are_far_apart():
    config = {"BM": 128, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 3}
    product = {name: expected_ms(GEMM, spec, config) for name, spec in KNOWN.items()}
    rows = {name: expected_ms(ROWS, spec, {**config, "BM": 1, "BN": 4096}) for name, spec in KNOWN.items()}
    for one, spec in KNOWN.items():
        for other, slower in KNOWN.items():
            if spec.tflops["bfloat16"] > 2 * slower.tflops["bfloat16"]:
                assert product[one] < product[other], (one, other)
            if spec.bandwidth_gbps > 2 * slower.bandwidth_gbps:
                assert rows[one] < rows[other], (one, other)


def test_an_instruction_of_a_b200_reads_its_columns_for_twice_the_rows():
    h200, b200 = Machine.of(TABLE["H200"]), Machine.of(TABLE["B200"])
    assert operand_bytes(h200, 128, 256, 1, 4) == 2 * (64 + 256)
    assert operand_bytes(b200, 128, 256, 1, 4) == 128 + 256
    assert operand_bytes(b200, 64, 256, 1, 4) == operand_bytes(h200, 64, 256, 1, 4)
