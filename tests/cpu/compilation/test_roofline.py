"""Rooflines, pipelines and advice: figures that follow from a device's datasheet and from a config."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triton_ops.device import Calibration, DeviceSpec, Roofline

H200 = DeviceSpec.called("H200")
MATMUL = {"flops": 2.0 * 4096**3, "bytes_": 2.0 * 3 * 4096**2, "dtype": "bfloat16", "products": True}
COPY = {"flops": 0.0, "bytes_": 4.8e9, "dtype": "float32", "products": False}


def test_a_large_product_meets_the_units_and_a_copy_the_memory():
    product, copy = Roofline.of(H200, **MATMUL), Roofline.of(H200, **COPY)
    assert round(product.ridge) == 206
    assert (product.limit.name, copy.limit.name) == ("bfloat16", "memory")
    assert product.least_ms == pytest.approx(0.1389, rel=1e-3)
    assert (copy.least_ms, copy.intensity) == (1.0, None)


def test_rates_stand_beside_their_share_of_the_limit():
    placed = Roofline.of(H200, **MATMUL).placed(0.2778)
    assert placed.tflops == pytest.approx(494.7, rel=1e-3)
    assert placed.of_units == pytest.approx(0.5, rel=1e-3)
    assert (placed.limit, placed.of_limit) == ("bfloat16", pytest.approx(0.5, rel=1e-3))
    assert placed.of_memory == pytest.approx(100_663_296 / 0.2778e6 / 4800, rel=1e-3)
    assert placed.of_measured is None


def test_a_calibration_is_a_second_ceiling():
    reached = Calibration("NVIDIA H200", dram_gbps=4300.0, mma_tflops={"bfloat16": 700.0})
    spec = replace(H200, calibration=reached)
    assert Roofline.of(spec, **COPY).placed(2.0).of_measured == pytest.approx(2400 / 4300)
    assert Roofline.of(spec, **MATMUL).placed(0.2778).of_measured == pytest.approx(494.7 / 700, rel=1e-3)


def test_products_of_float32_run_as_tfloat32_and_other_operations_without_matrix_units():
    assert Roofline.of(H200, **{**MATMUL, "dtype": "float32"}).units.peak == 494.7
    assert Roofline.of(H200, **{**MATMUL, "products": False}).units.peak == 66.9


def test_an_unknown_peak_is_no_limit():
    unknown = DeviceSpec("cuda", "Another", "sm_90", 100)
    roof = Roofline.of(unknown, **MATMUL)
    assert (roof.ridge, roof.limit, roof.least_ms, roof.placed(1.0)) == (None, None, None, None)
    half = Roofline.of(H200, **{**MATMUL, "dtype": "complex64"})
    assert (half.units, half.limit.name, half.ridge, half.unknown) == (None, "memory", None, ("complex64",))
    assert half.rows["no rate"].startswith("none of this device is known for complex64")


@pytest.mark.parametrize("dtype", ["int8", "int4", "uint8", "float8_e5m2", "float8_e4m3fnuz", "float32", "bfloat16"])
def test_every_dtype_of_products_has_a_roof_on_every_device_whose_sheet_has_its_rates(dtype):
    devices = {name: DeviceSpec.called(name) for name in DeviceSpec.names()}
    few = {name for name, spec in devices.items() if "float16" not in spec.tflops}
    assert few == {"GB10", "MI308X", "RTX PRO 6000 Blackwell Workstation Edition"}
    for name in devices.keys() - few:
        spec = devices[name]
        roof = Roofline.of(spec, **{**MATMUL, "dtype": dtype})
        assert roof.unknown == (), name
        assert roof.units.peak >= spec.tflops["float32"], name


def test_products_of_two_dtypes_take_the_time_of_both():
    both = Roofline.of(H200, flops={"int8": 1.5e11, "float16": 1.5e11}, bytes_=1e8)
    assert both.least_ms == pytest.approx(1.5e11 / 1978.9e9 + 1.5e11 / 989.4e9)
    assert (both.limit.name, both.flops) == ("int8 and float16", 3e11)
    assert both.rows["roof"] == "1,978.9 TFLOP/s int8, 989.4 TFLOP/s float16, 4,800 GB/s of memory"
    half_known = Roofline.of(H200, flops={"int8": 1.5e11, "complex64": 1.5e11}, bytes_=1e8)
    assert half_known.least_ms == pytest.approx(1.5e11 / 1978.9e9)
    assert half_known.unknown == ("complex64",)
