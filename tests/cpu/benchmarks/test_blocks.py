"""Whole blocks of models: the results of both sides agree, and a wrong or slow one is told."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.shipped import blocks, blocks_gpu  # noqa: E402

from triton_ops.timing import Interval  # noqa: E402


def shares_that_differ():
    """By block the share of elements that differ with our parts, and the parts that were called."""
    shares, called = {}, set()

    def noting(name, part):
        return lambda *args: (called.add(name), part(*args))[1]

    blocks.PARTS["noted"] = blocks.Parts(**{name: noting(name, part) for name, part in asdict(blocks.OURS).items()})
    with torch.no_grad():
        for name in blocks.TINY:
            block, x = blocks.block_of(name, True, "cpu", torch.float16)
            shares[name], _ = blocks_gpu.difference(block.on("noted")(x), block(x))
    return shares, called


@pytest.mark.processes
def test_blocks_with_our_parts_have_torchs_results(interpreted):
    shares, called = interpreted(shares_that_differ)
    assert shares == dict.fromkeys(blocks.SHAPES, 0.0)
    assert called == set(asdict(blocks.OURS))


@pytest.fixture
def rows_of(monkeypatch):
    """The rows of a tiny block, whose untuned side has torch's parts but for those that are given."""

    def rows(**parts):
        monkeypatch.setitem(blocks.PARTS, "untuned", replace(blocks.PARTS["torch"], **parts))
        block, x = blocks.block_of("llama-prefill", True, "cpu", torch.float32)
        with torch.no_grad():
            return list(blocks_gpu.Cells("llama-prefill", block, x, 6).rows("eager", ["untuned"]))

    monkeypatch.setattr(blocks_gpu, "TURN_S", 1e-4)
    return rows


def test_a_right_side_has_a_speed_with_its_interval(rows_of):
    (row,) = rows_of()
    low, high = row["interval"]
    assert low <= row["speedup"] <= high
    assert row["differs"] == 0


def test_a_wrong_side_is_not_timed(rows_of):
    (row,) = rows_of(attention=lambda q, *_others: torch.zeros_like(q))
    assert row["verdict"].startswith("wrong: ")
    assert "speedup" not in row


def test_a_result_that_is_no_number_is_wrong(rows_of):
    (row,) = rows_of(gated_mlp=lambda x, gate, _up: x.new_full((*x.shape[:-1], len(gate)), float("nan")))
    assert row["verdict"].startswith("wrong: 100.00%")


def test_a_side_that_fails_is_a_row(rows_of):
    def fails(*_args):
        raise RuntimeError("an illegal memory access")

    (row,) = rows_of(attention=fails)
    assert row["verdict"] == "failed: RuntimeError: an illegal memory access"


def test_a_speed_is_slower_only_if_its_whole_interval_is():
    assert blocks_gpu.verdict(Interval(0.98, 0.95, 0.99)) == "slower"
    assert blocks_gpu.verdict(Interval(0.98, 0.95, 1.01)) == "not distinguishable"
    assert blocks_gpu.verdict(Interval(1.04, 1.01, 1.10)) == "faster"


@pytest.mark.parametrize(
    ("verdicts", "speeds", "missed"),
    [
        (("faster", "not distinguishable"), (1.2, 0.99), False),
        (("faster", "slower"), (1.2, 0.97), True),
        (("not distinguishable", "not distinguishable"), (0.99, 0.99), True),
        (("faster", "wrong: all"), (1.2, None), True),
    ],
)
def test_a_slow_cell_a_wrong_one_and_a_mean_below_1_are_misses(verdicts, speeds, missed):
    rows = [
        {"side": "tuned", "mode": "eager", "verdict": verdict, **({} if speed is None else {"speedup": speed})}
        for verdict, speed in zip(verdicts, speeds, strict=True)
    ]
    figures = blocks_gpu.summary(rows, ["tuned"])
    assert figures["tuned / eager"] == figures["tuned / all"]
    assert blocks_gpu.missed(figures) is missed
