"""Blocks of models on every side, and what is said of their times."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.shipped import blocks, blocks_gpu  # noqa: E402

from triton_ops.timing import Interval  # noqa: E402


def results_that_differ():
    """The sides of tiny blocks whose results differ from torch's, or in which no part of their own has run."""
    differing = []
    with torch.no_grad():
        for name in blocks.TINY:
            block, x = blocks.block_of(name, True, "cpu", torch.float16)
            expected = block(x)
            for side in blocks_gpu.SIDES:
                share, _ = blocks_gpu.difference(block.on(side)(x), expected)
                if share or copy.deepcopy(x).isnan().any():
                    differing.append((name, side, share))
    return differing


def test_every_side_of_every_block_has_the_result_of_torchs(interpreted):
    assert interpreted(results_that_differ) == []
