"""A grouped product by arrays of addresses on a GPU: its default is right and told, and it is tuned here on request."""

from __future__ import annotations

import logging

import pytest

import triton_ops
from triton_ops import TargetError, TritonKernel, tune
from triton_ops.device import gpu_missing

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    import triton

    from tests import by_address
    from triton_ops.backend.private import allocated, holds_addresses

    CONFIGS = [triton.Config({"BLOCK": block, "WIDTH": by_address.SIZE}, num_warps=4) for block in (64, 32, 16)]


def test_addresses_of_live_tensors_are_told_from_indices():
    a = [torch.randn(4096, 16, device="cuda") for _ in range(5)]
    at = by_address.addresses_of(a)
    assert holds_addresses(at)
    assert holds_addresses(at.view(torch.uint64))
    assert holds_addresses(at + 64), "inside of the tensors"
    assert holds_addresses(torch.cat([at, torch.zeros(3, dtype=torch.int64, device="cuda")]))
    assert holds_addresses(at.cpu().pin_memory())
    assert any(at[0].item() in piece for piece in allocated())
    for other in (torch.arange(1000), torch.randint(1 << 33, 1 << 62, (1000,)), torch.zeros(9, dtype=torch.int64)):
        assert not holds_addresses(other.cuda())


def test_nothing_is_read_while_a_graph_is_captured():
    at = by_address.addresses_of([torch.randn(64, device="cuda")])
    graph, out = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda", dtype=torch.int64)
    with torch.cuda.graph(graph):
        assert not holds_addresses(at)
        out.copy_(at)
    graph.replay()
    assert out.item() == at.item()


def test_a_launch_of_a_grouped_product_runs_its_default_and_says_why(tmp_path, caplog):
    a, b, out, given = by_address.groups("cuda")
    kernel = triton_ops.autotune(CONFIGS, ["size"], on_miss="tune", cache_dir=tmp_path)(by_address.products)
    with caplog.at_level(logging.WARNING, "triton_ops"):
        kernel[by_address.grid](**given)
    assert by_address.right(a, b, out)
    decision = kernel.why(**given, grid=by_address.grid)
    assert (decision.found.rung, decision.config.kwargs["BLOCK"]) == ("default", 64)
    assert "the addresses in a_at, b_at, out_at of" in decision.found.why
    assert "the addresses in a_at, b_at, out_at of" in caplog.text
    assert not list(tmp_path.rglob("*.jsonl")), "no config was tried"
    other = by_address.groups("cuda")
    kernel[by_address.grid](**other[3])  # a known call
    assert by_address.right(*other[:3])


def test_a_grouped_product_is_tuned_in_this_process_where_that_is_asked_for(tmp_path):
    a, b, out, given = by_address.groups("cuda")
    kernel = TritonKernel(by_address.products, by_address.grid)
    with pytest.raises(TargetError, match="the addresses in a_at, b_at, out_at of"):
        tune(kernel, kwargs=given, space=CONFIGS, cache_dir=tmp_path)
    result = tune(kernel, kwargs=given, space=CONFIGS, cache_dir=tmp_path, isolate=False)
    assert result.place == "inline, as asked"
    assert all(trial.ok for trial in result.trials)
    assert by_address.right(a, b, out)
    decorated = triton_ops.autotune(CONFIGS, ["size"], on_miss="tune", isolate=False, cache_dir=tmp_path)(
        by_address.products
    )
    decorated[by_address.grid](**given)
    assert decorated.why(**given, grid=by_address.grid).found.rung == "tuned"
    assert by_address.right(a, b, out)
