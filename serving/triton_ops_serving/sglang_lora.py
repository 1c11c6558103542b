"""LoRA's products in SGLang as operations: its own functions, whose look-up answers with the candidate.

Tokens and layers are as in `lora`. A row is for a height of a tile, which SGLang takes by the number of tokens.

Facts used, of SGLang 0.5.23, with `--lora-backend csgmv`: tokens are cut into runs of one adapter that are at most as
long as a tile is high. A kernel that was compiled for one row is launched for another one, where both have the same
depth, slices and height: candidates are launched below what keeps it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from triton_ops import ConfigSpace, Operation, TensorSpec, Work
from triton_ops.base import require
from triton_ops.values import Problem
from triton_ops_serving import kernels
from triton_ops_serving.experts import by_expert
from triton_ops_serving.lora import adapter_of_tokens, work_of
from triton_ops_serving.model import EngineProblem

_MODULES = "sglang.kernels.ops.lora.dense"
_SHRINK: kernels.Values = {
    "BLOCK_N": (16, 32, 64), "BLOCK_K": (32, 64, 128, 256), "num_warps": (2, 4, 8), "num_stages": (1, 2, 3, 4),
}  # fmt: skip
_EXPAND: kernels.Values = {
    "BLOCK_N": (16, 32, 64, 128), "BLOCK_K": (16, 32, 64), "num_warps": (2, 4, 8), "num_stages": (1, 2, 3),
    "maxnreg": (None, 128),
}  # fmt: skip
TOKENS = {16: 32, 32: 128, 64: 512, 128: 1024}  # of a batch for which a tile is so high


def _runs(adapter: Any, length: int) -> tuple[Any, Any]:
    """Where runs of one adapter begin and end, none longer than `length`, and the adapter of each."""
    torch = require("torch", "cutting a batch")
    ends, chosen = [0], []
    for index, count in zip(*(each.tolist() for each in adapter.unique(return_counts=True)), strict=True):
        for begin in range(0, count, length):
            ends.append(ends[-1] + min(length, count - begin))
            chosen.append(index)
    return torch.tensor(ends, dtype=torch.int32), torch.tensor(chosen, dtype=torch.int32)


def _launcher(module: Any, name: str, offsets: kernels.OnHost) -> Callable[..., Any]:
    forward, own = getattr(module, f"chunked_sgmv_lora_{name}_forward"), f"_chunked_lora_{name}_kernel"
    kernel = getattr(module, own)
    kernel = kernel.fn if hasattr(kernel, "kernel_cache") else kernel
    slices, widest = offsets.numel() - 1, offsets.numbers[1]

    def lora(
        x: Any, out: Any, weights: Any, begins: Any, adapters: Any, ranks: Any, scales: Any, order: Any, places: Any,
        height: int, **config: Any,
    ) -> Any:  # fmt: skip
        row = kernels.row_of(config)
        launch = kernels.answered(forward, **{f"get_lora_{name}_config": lambda **_: row, own: kernel})
        batch = SimpleNamespace(
            max_len=height, num_segments=len(adapters), use_cuda_graph=False, seg_indptr=begins,
            weight_indices=adapters, lora_ranks=ranks, scalings=scales, permutation=order,
        )  # fmt: skip
        return launch(x, weights, batch, *((slices,) if out is None else (places, widest, out, offsets)))

    return lora


def _reference(bounds: tuple[int, ...]) -> Callable[..., Any]:
    def product(
        x: Any, out: Any, weights: Any, begins: Any, adapters: Any, ranks: Any, scales: Any, order: Any, places: Any,  # noqa: ARG001
        height: int,  # noqa: ARG001
    ) -> Any:  # fmt: skip
        """The product of all slices, beside each other; that of `expand` added to what is there."""
        torch = require("torch", "the reference of LoRA")
        adapter = torch.empty_like(order)
        adapter[order.long()] = adapters.repeat_interleave((begins[1:] - begins[:-1]).long())
        if out is None:
            return by_expert(x, weights, adapter, 1)
        parts = [
            by_expert(part, weights[:, begin:end], adapter, 1)
            for part, begin, end in zip(x.split(weights.shape[2], dim=1), bounds, bounds[1:], strict=False)
        ]
        return out + torch.cat(parts, dim=1) * scales[adapter.long()].to(out.dtype)[:, None]

    return product


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is the height of a tile; its default is the row that the engine takes for it."""
    facts, dtype = problem.facts, served.dtype
    name, wide, rank, slices, adapters = (*(facts[key] for key in ("kernel", "K", "R", "S")), problem.extents["loras"])
    shrinks, widest = name == "shrink", problem.extents["widest"]
    module = kernels.imported(f"{_MODULES}.chunked_sgmv_{name}", f"chunked_sgmv_lora_{name}_forward")
    rest = [(wide - widest) // (slices - 1)] * (slices - 1) if slices > 1 else []
    offsets = kernels.OnHost(tuple(itertools.accumulate((0, widest, *rest))))
    steps = tuple(each for each in _EXPAND["BLOCK_K"] if each < 2 * max(rank, 16))
    values = _SHRINK if shrinks else {**_EXPAND, "BLOCK_K": steps}

    def arguments(height: int = 16) -> dict[str, Any]:
        tokens = TOKENS[height]
        begins, chosen = _runs(adapter_of_tokens(tokens, adapters), height)
        shape = (adapters, slices * rank, wide) if shrinks else (adapters, wide, rank)
        return {
            "x": TensorSpec((tokens, wide if shrinks else slices * rank), dtype),
            "out": None if shrinks else TensorSpec((tokens, wide), dtype), "weights": TensorSpec(shape, dtype),
            "begins": TensorSpec(tuple(begins.shape), "int32", fill=begins),
            "adapters": TensorSpec(tuple(chosen.shape), "int32", fill=chosen),
            "ranks": TensorSpec((adapters,), "int32", fill=[rank] * adapters),
            "scales": TensorSpec((adapters,), "float32", fill="positive"),
            "order": TensorSpec((tokens,), "int32", fill="shuffled"),
            "places": TensorSpec((offsets.numel(),), "int32", fill=offsets.tolist()), "height": height,
        }  # fmt: skip

    def space(instance: Problem) -> ConfigSpace:
        height = instance["height"]
        own = getattr(module, f"get_lora_{name}_config")(wide, rank, slices, height)
        return kernels.space_of(values, served.row(height) or own)

    def work(instance: Problem) -> Work:
        tokens = instance.specs["order"].shape[0]
        columns, depth = (slices * rank, wide) if shrinks else (wide, rank)
        return work_of(tokens, columns, depth, adapters, dtype, (instance["height"], "BLOCK_N", "BLOCK_K"))

    kernel = kernels.EngineKernel(_launcher(module, name, offsets), label=f"{problem.form}-{name}")
    return Operation(
        f"{problem.form}-{name}", kernel, space, arguments, reference=_reference(offsets.numbers), work=work
    )
