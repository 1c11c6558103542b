"""What the benchmark of classes under two versions of Triton pins, tunes within, and says of bits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("triton_ops_kernels", reason="half of its kernels are shipped ones")

import torch
from benchmarks.correctness import same_bits_versions
from benchmarks.correctness.same_bits_tuned import TUNED, losses, made
from benchmarks.referee.honest_on_gpu.cross_entropy import _losses_kernel

from tests.planned_gpu import Planned
from triton_ops import Config
from triton_ops.device import DeviceSpec
from triton_ops.dispatch import use_lockfile
from triton_ops.evaluation import Stations
from triton_ops.request import request
from triton_ops.timing import HostTimer

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

FIRST = Config(BLOCK=1024, num_warps=4, num_stages=1)
SAME, OTHER = Config(FIRST, num_stages=3), Config(FIRST, BLOCK=512)
CASE = replace(
    TUNED["losses"],
    operation=made(_losses_kernel, lambda at: at["out"].shape, ("out",), [FIRST, SAME, OTHER], losses),
)


@pytest.fixture
def planned(monkeypatch):
    """A GPU that is not here, on which smaller blocks are faster."""
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    monkeypatch.setattr(Stations, "begin", lambda *_, **__: Planned)
    yield
    use_lockfile(None)


@pytest.mark.usefixtures("planned")
def test_the_class_of_a_free_winner_is_locked_and_tuned_within():
    row = same_bits_versions.locked(CASE, 20)
    assert row["tune"]["config"] == dict(OTHER)
    entry, tune = same_bits_versions.within(CASE, row["lockfile"], 20)
    assert (entry.config, entry.bits, entry.same_bits) == (OTHER, row["tune"]["class"], True)
    assert (tune["config"], tune["class"], tune["tried"]) == (dict(OTHER), entry.bits, 1)


def compared_on_the_cpu():
    """The bits of three configs beside those of the first, and beside those of other inputs, by the interpreter."""
    case = replace(CASE, shape=(8, 3000))
    arguments = case.operation.materialise(case.problem, "cpu")
    before = same_bits_versions.digests(case.operation.kernel.compile(FIRST, arguments), arguments, 5)
    configs = {"winner": SAME, "pinned": FIRST, "default": OTHER}
    told = same_bits_versions.compared(case, configs, arguments, 5, before, HostTimer())
    strange = {**before, "given": before["given"] + 1}
    return before, told, same_bits_versions.compared(case, configs, arguments, 5, strange, HostTimer())


def test_bits_are_compared_with_digests_of_the_first_run(interpreted):
    before, told, strange = interpreted(compared_on_the_cpu)
    assert len(set(before["digests"])) == 5
    assert told["equal_bits"]["winner"] == told["equal_bits"]["pinned"] == 5
    assert told["equal_bits"]["default"] < 5
    assert told["configs_run"]["winner"] == dict(SAME)
    assert strange == {"error": "the inputs are others than in the first run"}


def test_a_digest_tells_one_bit_and_which_tensor_has_it():
    one = torch.arange(100, dtype=torch.uint8)
    other = one.clone()
    other[7] ^= 128
    found = [same_bits_versions.digest(parts).item() for parts in ([one, other], [one, one], [other, one])]
    assert len(set(found)) == 3


def test_names_are_compared_without_a_gpu_and_kernels_that_are_there_stay(tmp_path):
    words = ["--without-gpu", "--jobs", "1", "--commit", "c", "--kernels", "fp8_quantize"]
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert same_bits_versions.main(["--out", str(first), *words]) == 0
    for commit in ("d", "e"):
        more = ["--out", str(second), "--pinned", str(first), "--resume"]
        assert same_bits_versions.main([*more, *words, "--commit", commit]) == 0
    found = json.loads(second.read_text("utf-8"))
    assert found["pinned"]["versions"] == found["versions"]
    alike = {"configs": 20, "told": 20, "same_names": 20}
    assert found["kernels"] == {"fp8_quantize": {"commit": "d", "pinned_commit": "c", **alike}}
    assert found["summary"]["same_names"] == 20


def test_what_all_kernels_say_together():
    row = {"configs": 3, "told": 3, "same_names": 2, "inputs": 5, "carried": True,
           "ms": {"pinned": 2.0, "winner": 1.0}, "equal_bits": {"winner": 5, "pinned": 5, "default": 0},
           "configs_run": {"winner": 1, "pinned": 2}}  # fmt: skip
    rows = {"a": row, "b": {**row, "carried": False}, "c": {"configs": 3, "told": 0, "same_names": 0, "error": "none"}}
    assert same_bits_versions.summary_of(rows) == {
        "kernels": 3, "measured": 2, "carried": 1, "equal_in_every_bit": {"winner": 1, "default": 0},
        "other_winners": 1, "speed": pytest.approx(2), "configs": 9, "told": 6, "same_names": 4,
    }  # fmt: skip
