"""Rules of devices, computed by hand: blocks on a multiprocessor, roofs, plausible rates, indices, load of the CPUs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.device import Calibration, DeviceSpec, Machine, Roofline, probing
from triton_ops.device.limits import UnitLimits
from triton_ops.device.machine import Ceiling, _mixture, _plausible_rate, _rate
from triton_ops.device.probing import CpuLoad, _indices
from triton_ops.device.vendors import CLOCK_REASONS, Reading
from triton_ops.exceptions import SettingsError

HOPPER = UnitLimits()
H200 = DeviceSpec.named("NVIDIA H200")


@given(st.integers(1, 255), st.integers(0, 228 << 10), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_blocks_fit_as_registers_shared_memory_warps_and_places_allow(registers, shared_bytes, warps):
    held = HOPPER.residents(registers, shared_bytes, warps)
    per_warp = -(-registers * 32 // 256) * 256
    granules = -(-(shared_bytes + 1024) // 128)
    assert held.by == {
        "registers": (65_536 // 4 // per_warp) * 4 // warps, "shared memory": (228 << 10) // (granules * 128),
        "warps": 64 // warps, "blocks": 32,
    }  # fmt: skip
    assert held.blocks == min(held.by.values())
    assert (held.warps, held.occupancy) == (held.blocks * warps, held.blocks * warps / 64)
    assert {held.by[name] for name in held.limited_by} == {held.blocks}


@given(st.integers(32, 255), st.integers(0, 100 << 10), st.sampled_from([1, 4, 8, 16]))
def test_a_limit_of_registers_beside_a_number_is_the_next_that_lets_more_or_fewer_blocks_fit(registers, shared, warps):
    def blocks(count):
        return HOPPER.residents(count, shared, warps).blocks

    limits = [count for count in range(32, 256, 8) if blocks(count) > blocks(count + 8)]
    more = [count for count in limits if count >= registers + 8][:1]
    fewer = [count for count in limits if count < registers and blocks(count) > blocks(registers)][-1:]
    assert HOPPER.register_limits(registers, shared, warps) == (*more, *fewer)


def test_a_block_of_one_warp_has_its_own_limit_where_there_is_one():
    limits = UnitLimits(lone_blocks=16)
    assert (limits.residents(16, 0, 1).by["blocks"], limits.residents(16, 0, 2).by["blocks"]) == (16, 32)
    assert HOPPER.residents(16, 0, 1).by["blocks"] == 32


@given(st.floats(1e9, 1e15), st.floats(1e6, 1e12), st.floats(1e-3, 1e3))
def test_a_roof_is_the_longer_of_the_times_of_memory_and_of_the_units(flops, bytes_, ms):
    roof = Roofline.of(H200, flops={"float16": flops}, bytes_=bytes_, products=True)
    peak, bandwidth = H200.tflops["float16"], H200.bandwidth_gbps
    times = {"float16": flops / (peak * 1e9), "memory": bytes_ / (bandwidth * 1e6)}
    assert roof.least_ms == pytest.approx(max(times.values()))
    assert roof.limit.name == max(times, key=times.__getitem__)
    assert roof.intensity == pytest.approx(flops / bytes_)
    assert roof.ridge == pytest.approx(peak * 1e3 / bandwidth)
    placed = roof.placed(ms)
    assert (placed.tflops, placed.gbps) == (pytest.approx(flops / ms / 1e9), pytest.approx(bytes_ / ms / 1e6))
    assert placed.of_limit == pytest.approx(max(times.values()) / ms)
    assert placed.of_units == pytest.approx(times["float16"] / ms)
    assert placed.of_memory == pytest.approx(times["memory"] / ms)
    assert placed.of_measured is None


def test_a_measured_rate_stands_beside_the_peak():
    calibration = Calibration("NVIDIA H200", dram_gbps=4000.0, mma_tflops={"float16": 800.0})
    roof = Roofline.of(replace(H200, calibration=calibration), flops={"float16": 8e12}, bytes_=4e9, products=True)
    assert roof.placed(20.0).of_measured == pytest.approx(0.5)
    assert "(800 measured)" in roof.rows["roof"]
    assert "(4,000 measured)" in roof.rows["roof"]


def test_without_work_there_is_no_roof():
    roof = Roofline.of(H200, flops=0.0, bytes_=0.0)
    assert (roof.limit, roof.least_ms, roof.intensity, roof.placed(1.0)) == (None, None, None, None)


def test_operations_of_several_dtypes_take_the_sum_of_their_times():
    fast, slow = Ceiling("float16", 100.0, 80.0), Ceiling("float32", 50.0, None)
    assert _mixture([]) is None
    assert _mixture([(fast, 7.0)]) is fast
    both = _mixture([(fast, 100.0), (slow, 100.0)])
    assert (both.name, both.peak, both.measured) == ("float16 and float32", pytest.approx(200 / 3), None)
    measured = _mixture([(fast, 160.0), (Ceiling("float32", 50.0, 40.0), 40.0)])
    assert measured.measured == pytest.approx(200 / 3)


@pytest.mark.parametrize(("rate", "expected"), [(None, 10.0), (9.0, 9.0), (0.001, 10.0), (1e6, 10.0), (10.0, 10.0)])
def test_a_rate_that_is_far_from_the_expected_one_is_not_used(rate, expected):
    assert _plausible_rate(rate, 10.0) == expected


def test_a_calibration_changes_the_rates_of_a_machine_that_are_plausible():
    expected = Machine.of(H200)
    mean = {"l2_gbps": 0.9 * expected.l2_gbps, "launch_us": 1.1 * expected.launch_us}
    machine = Machine.of(replace(H200, calibration=Calibration("NVIDIA H200", dram_gbps=1e9, **mean)))
    assert (machine.l2_gbps, machine.launch_us) == (mean["l2_gbps"], mean["launch_us"])
    assert machine.dram_gbps == expected.dram_gbps
    found = Calibration("NVIDIA H200", dram_gbps=1.05 * H200.bandwidth_gbps)
    fastest = Machine.of(replace(H200, calibration=found))
    assert fastest.dram_gbps == H200.bandwidth_gbps, "no copy is faster than the datasheet"
    assert expected.l2_gbps >= H200.bandwidth_gbps


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "12.3 TFLOP/s"), (0.0, "12.3 TFLOP/s (0% of the peak)"), (0.5, "12.3 TFLOP/s (50% of the peak)")],
)
def test_a_rate_is_said_with_its_share_where_that_is_known(share, text):
    assert _rate(12.3, "TFLOP/s", share) == text


@pytest.mark.parametrize(("choice", "indices"), [("0,2", [0, 2]), (" 1 ", [1]), ([3, "1"], [3, 1]), (range(2), [0, 1])])
def test_gpus_are_named_by_their_indices(choice, indices):
    assert _indices(choice) == indices


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("0,0", "names GPU 0 twice"), ([9, 1, 9, 1, 5, 5], "names GPU 1 twice"), ("", "names no GPU"),
        ([], "names no GPU"), ("0,", "an empty word is no index"), ("a", "a is no index"),
        ([True], "True is no index"), ("-1", "-1 is no index"),
        (3, "gpus is 3"), ({"0": 1}, "gpus is"), (b"0", "gpus is"),
    ],
)  # fmt: skip
def test_other_choices_of_gpus_are_refused(choice, message):
    with pytest.raises(SettingsError, match=message):
        _indices(choice)


@pytest.mark.parametrize(
    ("after", "others"),
    [
        ((60.0, 200.0, 10.0), 0.4), ((60.0, 200.0, 60.0), 0.0), ((10.0, 100.0, 0.0), None), ((110.0, 200.0, 0.0), 1.0),
        ((10.0, 200.0, 5.0), 0.0), (None, None),
    ],
)  # fmt: skip
def test_other_programs_have_the_cpu_time_that_is_not_this_ones(monkeypatch, after, others):
    monkeypatch.setattr(probing, "_cpu_seconds", lambda: (10.0, 100.0, 0.0))
    load = CpuLoad()
    monkeypatch.setattr(probing, "_cpu_seconds", lambda: after)
    assert load.others == (None if others is None else pytest.approx(others))
    cpu = DeviceSpec("cpu", "EPYC", "x86_64", 2)
    assert bool(load.notes(cpu)) == (others is not None and others >= 0.2)
    assert load.notes(H200) == ()


def test_reasons_of_readings_come_in_their_order_and_a_vendors_own_words_last():
    known = [word for word in CLOCK_REASONS if word != "idle"]
    readings = [Reading(reasons=("zeta", known[2], "idle")), Reading(reasons=(known[0], "alpha", "beta", "gamma"))]
    assert Reading.regimes(readings) == (known[0], known[2], "alpha", "beta", "gamma", "zeta")
    assert Reading.regimes([]) == ()


def test_the_time_of_cpus_is_that_of_the_kernels_table(monkeypatch):
    class Table:
        def __init__(self, path):
            assert path == "/proc/stat"

        def read_text(self, encoding):
            return "cpu  100 20 30 4000 50 6 7 8 900 900\ncpu0 1 2 3\n"

    monkeypatch.undo()
    monkeypatch.setattr(probing, "Path", Table)
    monkeypatch.setattr(probing.os, "sysconf", lambda name: 100)
    busy_s, whole_s, own_s = probing._cpu_seconds()
    assert (busy_s, whole_s) == (pytest.approx(1.71), pytest.approx(42.21))
    assert math.isfinite(own_s)
