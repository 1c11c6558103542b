"""Ready-made choosers on a GPU: all implementations that apply agree, and a choice is made and captured."""

from __future__ import annotations

import os

import pytest
import torch

from triton_ops import choose, chooser, serve
from triton_ops.backend import Arguments
from triton_ops.dispatch.implementation import IMPLEMENTATION
from triton_ops_kernels import choosers as ready

pytestmark = pytest.mark.gpu


def drawn(*shape, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(len(shape))
    return torch.randn(*shape, generator=generator, device="cuda").to(dtype)


def bytes_of(*shape):
    return drawn(*shape, dtype=torch.float8_e4m3fn)


def calls():
    one = torch.ones(1, device="cuda")
    return {
        "matmul": (drawn(16, 8192), drawn(8192, 256)),
        "linear": (drawn(3, 64, 512), drawn(256, 512), drawn(256), "relu"),
        "bmm": (drawn(4, 64, 128), drawn(4, 128, 64)),
        "scaled_mm": (bytes_of(64, 256), bytes_of(128, 256).t(), one, one / 2),
        "conv2d": (drawn(2, 64, 28, 28), drawn(64, 64, 1, 1), drawn(64)),
        "softmax": (drawn(128, 1000),),
        "sdpa": (drawn(2, 8, 256, 64), drawn(2, 8, 256, 64), drawn(2, 8, 256, 64), True),
    }


@pytest.mark.parametrize("name", ready.names())
def test_all_that_apply_compute_the_same(name):
    made, args = chooser(name), calls()[name]
    space = made._kernel.known(Arguments(args), False, None)
    results = {str(config[IMPLEMENTATION]): made._kernel.call(config)(*args) for config in space.listed}
    assert "triton" in results or name in ("bmm", "conv2d"), space.refusals
    expected = results["aten"].float()
    for label, result in results.items():
        off = (result.float() - expected).norm() / expected.norm()
        assert off < 0.01, f"{label} is off by {off:.3f}"
        assert result.dtype == results["aten"].dtype


def test_a_product_is_chosen_with_its_tiles_and_captured(tmp_path):
    made = chooser("matmul")
    args = (drawn(64, 1024), drawn(1024, 512))
    outcome = made.tune(args, budget_s=30, cache_dir=tmp_path)
    trials = {trial.config[IMPLEMENTATION]: trial for trial in outcome.trials}
    assert str(trials["triton"].status) == "ok", trials["triton"].error
    assert dict(trials["triton"].config["tiles"])["BM"]
    assert made(*args).shape == (64, 512)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = made(*args)
    graph.replay()
    torch.testing.assert_close(result, args[0] @ args[1], rtol=0.02, atol=1.0)


def test_a_crash_ends_only_itself(tmp_path):
    made = choose({"right": torch.mm, "crashes": lambda a, b: os.abort()}, name="crashing", parameters=("a", "b"))
    result = made.tune((drawn(64, 64), drawn(64, 64)), budget_s=60, cache_dir=tmp_path)
    assert result.best_config == {IMPLEMENTATION: "right"}
    assert [str(trial.status) for trial in result.trials if trial.config[IMPLEMENTATION] == "crashes"] == ["crash"]


def test_a_chooser_serves_products_of_modules():
    seen = []

    def counted(a, b):
        seen.append(a.shape)
        return torch.mm(a, b)

    made = choose({"counted": counted, "other": lambda a, b: torch.mm(a, b)}, name="served", parameters=("a", "b"))
    layer = torch.nn.Linear(64, 32, bias=False, device="cuda")
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    expected = layer(x)
    with serve(made, "aten::mm", "CUDA"):
        result = layer(x)
        result.sum().backward()
    torch.testing.assert_close(result, expected)
    assert len(seen) == 3
    assert x.grad is not None
