"""How well work that was read ranks spaces that were recorded on an H200, without Triton and without a GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.model.inferred_quality import expected, readings_of, summary
from benchmarks.model.model_quality import figures, read, time_ms

from triton_ops.base import Sealed
from triton_ops.device import DeviceSpec, Machine
from triton_ops_lab.recording import read_recording, readings_from, write_recording

RECORDINGS = Path(__file__).parents[3] / "benchmarks" / "recordings"
LEAST = {  # Spearman's correlation, and the share of the optimum that the first five reach
    "attention_causal_d128": (0.92, 0.95),
    "column_sum_atomic": (0.85, 0.97),
    "flash_causal_d128": (0.90, 0.95),
    "fresh/channel_statistics": (0.85, 0.95),
    "fresh/rmsnorm_backward": (0.65, 0.95),
    "flash_d64": (0.92, 0.95),
    "gated_mlp": (0.90, 0.95),
    "layer_norm": (0.85, 0.95),
    "layer_norm_backward": (0.90, 0.95),
    "layer_norm_gradient": (0.85, 0.95),
    "matmul_bf16": (0.95, 0.95),
    "matmul_fp8": (0.95, 0.95),
    "persistent_matmul": (0.92, 0.95),
    "rmsnorm_narrow": (0.88, 0.95),
    "softmax_wide": (0.92, 0.95),
    "split_k_atomic": (0.92, 0.95),
    "split_k_two_launches": (0.84, 0.95),
}


@pytest.mark.parametrize("name", LEAST)
def test_work_that_was_read_ranks_a_recorded_space(name):
    recording = read(RECORDINGS / f"{name}.json.gz")
    ran = [row for row in recording["rows"] if row["status"] == "ok"]
    model = readings_from(recording["inferred"]).model(Machine.of(DeviceSpec.named(recording["gpu"])))
    result = figures(model.score([row["config"] for row in ran]), [time_ms(row) for row in ran])
    correlation, of_five = LEAST[name]
    assert result["spearman"] >= correlation
    assert result["best_of_5"] >= of_five
    assert 0.7 < result["level"] < 1.4


def test_what_runs_beside_an_authors_default_is_told():
    recording = read(RECORDINGS / "flash_d64.json.gz")
    ran = {tuple(row["config"].items()): time_ms(row) for row in recording["rows"] if row["status"] == "ok"}
    default_ms = ran[tuple((name, values[0]) for name, values in recording["space"].items())]
    row = expected(recording, readings_from(recording["inferred"]))
    assert row["default"] == pytest.approx(min(ran.values()) / default_ms, abs=1e-4)
    assert row["spoke"]
    assert row["speed"] == pytest.approx(row["fraction"] / row["default"], abs=1e-3)
    figures = {"one": {"inferred": {"best_of_1": 0.9}}, "two": {}}
    told = summary(figures, {"one": row, "two": {}})
    assert (told["spaces"], told["read"], told["spoke"]) == (2, 1, 1)
    assert (told["worst_first"], told["lowest_speed"], told["wrong_beside"]) == (0.9, row["speed"], 0)


def test_a_recording_that_was_read_and_written_again_has_the_checksum_of_its_content(tmp_path):
    path = tmp_path / "again.json.gz"
    whole = json.loads(gzip.decompress((RECORDINGS / "split_k_atomic.json.gz").read_bytes()))
    assert whole["checksum"]
    write_recording(path, {**whole, "note": "read again"})
    result = Sealed.opened(json.loads(gzip.decompress(path.read_bytes())))
    assert result == {**{name: value for name, value in whole.items() if name != "checksum"}, "note": "read again"}
    assert read_recording(path).trials


def test_recordings_have_the_checksum_of_their_content():
    for path in RECORDINGS.rglob("*.json.gz"):
        content = json.loads(gzip.decompress(path.read_bytes()))
        if "checksum" in content:
            assert Sealed.opened(content)["rows"], path.name


def test_what_a_kernel_does_is_read_again_from_the_ttir_that_its_recording_keeps():
    recording = read(RECORDINGS / "fresh" / "rmsnorm_backward.json.gz")
    again, before = readings_of(recording), readings_from(recording["inferred"])
    assert not again.silent
    assert again.works.keys() == before.works.keys()
    for key, work in again.works.items():
        (launch,), (earlier,) = work.launches, before.works[key].launches
        assert launch.moved_bytes("load") == earlier.moved_bytes("load")
    kept = readings_of({**recording, "lowered": None})
    assert kept.works.keys() == before.works.keys()
    assert readings_of({**recording, "lowered": None, "inferred": None}) is None


def test_a_recording_tells_whether_products_are_serialised(tmp_path):
    head = {"family": "matmul_bf16", "shape": [8], "gpu": "NVIDIA H200", "space": {"BM": [64, 128, 256]}}
    known = {64: {}, 128: {"serialised": True}, 256: {"serialised": False}}
    rows = [{"config": {"BM": size}, "status": "ok", "ms": [[1.0, 1.0, 1.0]], **more} for size, more in known.items()]
    path = tmp_path / "recording.json"
    path.write_text(json.dumps({**head, "rows": rows}))
    result = {trial.config["BM"]: trial.resources.serialised for trial in read_recording(path).trials.values()}
    assert result == {64: None, 128: True, 256: False}


def test_spills_of_recordings_that_do_not_name_python_are_words(tmp_path):
    head = {"family": "norm_bf16", "shape": [8], "gpu": "NVIDIA H200", "space": {"BLOCK": [64]}}
    row = {"config": {"BLOCK": 64}, "status": "ok", "regs": 255, "spills": 10, "shared": 0, "ms": [[1.0, 1.0, 1.0]]}
    result = []
    for name, more in (("first", {}), ("later", {"python": "3.12.3"})):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**head, **more, "rows": [row]}))
        (trial,) = read_recording(path).trials.values()
        result.append(trial.resources.spill_bytes)
    assert result == [40, 10]
