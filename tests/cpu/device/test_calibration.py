"""Calibrations are kept beside the records and used where plausible; the commands `calibrate` and `explain`."""

import json
import os
from dataclasses import replace

import pytest

from triton_ops.cli.microbenchmarks import calibrate
from triton_ops.device import Calibration, DeviceSpec, Machine, gpu_missing
from triton_ops.device.calibration import calibration_path
from triton_ops.exceptions import CacheError, DeviceError

NAME = "NVIDIA H200"
FOUND = Calibration(
    NAME, "580.1", dram_gbps=4200.0, l2_gbps=5600.0, launch_us=2.5, sync_us=9.0, mma_tflops={"bfloat16": 790.0}
)


def test_a_calibration_is_kept_and_found_again(tmp_path):
    path = FOUND.save(tmp_path)
    assert path == calibration_path(tmp_path, NAME)
    assert path.name == "nvidia-h200.json"
    assert Calibration.load(tmp_path, NAME) == FOUND
    assert Calibration.load(tmp_path, "NVIDIA A100") is None


def test_what_a_killed_writer_has_left_beside_a_calibration_goes_when_one_is_kept(tmp_path):
    left = FOUND.save(tmp_path).with_name(".nvidia-h200.json-0123456789abcdef.tmp")
    left.touch()
    os.utime(left, (0, 0))
    assert [path.name for path in FOUND.save(tmp_path).parent.iterdir()] == ["nvidia-h200.json"]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        json.dumps({"kind": "other", "schema_version": 1}),
        json.dumps({"kind": "triton-ops calibration", "schema_version": 2, "device": NAME, "mma_tflops": {}}),
        json.dumps({"kind": "triton-ops calibration", "schema_version": 1, "device": "another", "mma_tflops": {}}),
        json.dumps(
            {
                "kind": "triton-ops calibration",
                "schema_version": 1,
                "device": NAME,
                "dram_gbps": "fast",
                "mma_tflops": {},
            }
        ),
    ],
)
def test_a_file_that_is_no_calibration_is_a_warning_and_stays(tmp_path, caplog, text):
    path = calibration_path(tmp_path, NAME)
    path.parent.mkdir()
    path.write_text(text)
    assert Calibration.load(tmp_path, NAME) is None
    assert str(path) in caplog.text
    assert path.read_text() == text


def test_a_calibration_that_cannot_be_kept_is_an_error(tmp_path):
    (tmp_path / "calibration").write_text("a file")
    with pytest.raises(CacheError):
        FOUND.save(tmp_path)


def test_measured_rates_are_used_where_they_are_plausible():
    spec = DeviceSpec.named(NAME)
    expected, measured = Machine.of(spec), Machine.of(replace(spec, calibration=FOUND))
    assert (measured.dram_gbps, measured.l2_gbps, measured.launch_us) == (4200.0, 5600.0, 2.5)
    assert measured.mma_excess("bfloat16") == pytest.approx(expected.mma_tflops("bfloat16") / 790)
    wrong = Calibration(NAME, dram_gbps=40.0, l2_gbps=1e6, launch_us=900.0, mma_tflops={"bfloat16": 3.0})
    disturbed = Machine.of(replace(spec, calibration=wrong))
    assert disturbed == expected
    assert disturbed.sustained_tflops == {}


def test_the_table_knows_devices_by_name():
    assert DeviceSpec.named("NVIDIA H200").units == 132
    assert DeviceSpec.named("NVIDIA H100 PCIe").units == 114
    amd = DeviceSpec.named("AMD Instinct MI300X")
    assert (amd.kind, amd.arch, amd.units, amd.bandwidth_gbps) == ("hip", "gfx942", 304, 5300.0)
    assert DeviceSpec.named("nothing of the kind") is None


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_calibrate():
    with pytest.raises(DeviceError, match="no GPU to calibrate"):
        calibrate()


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_calibrate_without_a_gpu_fails_and_writes_nothing(cli, tmp_path):
    ran = cli("calibrate", "--cache-dir", str(tmp_path))
    assert ran.code == 3
    assert "no GPU to calibrate" in ran.err
    assert DeviceError.NO_GPU in ran.err
    assert list(tmp_path.iterdir()) == []
