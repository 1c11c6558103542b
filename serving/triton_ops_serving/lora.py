"""LoRA's products in vLLM as operations: its own functions, whose look-up answers with the candidate.

Tokens are spread evenly over the adapters of a batch, as runs of neighbours. The first product, `shrink`, goes from a
layer's inputs to the rank of an adapter, `expand` from there to its outputs, which it adds to what they are. A layer
such as q, k and v has an adapter for each of its slices. The references are plain PyTorch.

Facts used, of vLLM 0.33: the results of `shrink` are float32. It has room for one adapter more, that of tokens without
one, and as many programs, and it keeps tables of addresses of weights, which are filled here for each shape too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from triton_ops import ConfigSpace, GemmTiles, Operation, TensorSpec, Work
from triton_ops.base import require
from triton_ops.values import Problem
from triton_ops_serving import kernels
from triton_ops_serving.experts import by_expert
from triton_ops_serving.model import EngineProblem

_MODULES = "vllm.lora.ops.triton_ops"
_SHRINK: kernels.Values = {
    "block_m": (16, 32, 64), "block_n": (16, 32, 64), "block_k": (64, 128, 256), "split_k": (1, 8, 16, 32, 64),
    "num_warps": (2, 4, 8), "num_ctas": (1,), "group_size_m": (8,), "num_stages": (2, 3, 4),
}  # fmt: skip
_EXPAND: kernels.Values = {
    "block_m": (16, 32, 64, 128), "block_n": (32, 64, 128, 256), "block_k": (16, 32, 64), "num_warps": (2, 4, 8),
    "num_ctas": (1,), "num_stages": (1, 2, 3),
}  # fmt: skip
_ADDRESSES: dict[Any, Any] = {}


def adapter_of_tokens(tokens: int, adapters: int) -> Any:
    """The adapter of each token."""
    torch = require("torch", "drawing a batch")
    return (torch.arange(tokens) * adapters // tokens).int()


def _addresses(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The table of weights that vLLM keeps by their addresses alone, which two problems' weights may share."""

    def addresses(weights: Any, *more: Any) -> Any:
        key = name, *more, *((weight.data_ptr(), tuple(weight.shape), weight.device) for weight in weights)
        if key not in _ADDRESSES:
            _ADDRESSES[key] = kernels.answered(own, **{name: {}})(weights, *more)
        return _ADDRESSES[key]

    return addresses


def _is_hopper(module: Any) -> bool:
    return bool(module.current_platform.is_cuda() and module.current_platform.is_device_capability(90))


def _settled(module: Any) -> dict[str, Any]:
    """What the engine asks of its settings and of the device at each launch: in a compile there is no device."""
    early, dual = module.supports_pdl(None), module.envs.VLLM_LORA_ENABLE_DUAL_STREAM
    names = {"supports_pdl": lambda _device: early, "envs": SimpleNamespace(VLLM_LORA_ENABLE_DUAL_STREAM=dual)}
    if hasattr(module, "current_platform"):
        hopper = _is_hopper(module)
        names["current_platform"] = SimpleNamespace(is_cuda=lambda: hopper, is_device_capability=lambda _: hopper)
    return names


def _launcher(module: Any, name: str, ends: tuple[Any, ...]) -> Callable[..., Any]:
    function, letter = inspect.unwrap(getattr(module, f"_lora_{name}")), "a" if name == "shrink" else "b"
    own = f"_get_lora_{letter}_ptr"
    names = {own: _addresses(getattr(module, own), f"_LORA_{letter.upper()}_PTR_DICT"), **_settled(module)}

    def lora(
        x: Any, out: Any, first: Any, second: Any, third: Any, adapter: Any, order: Any, counts: Any, begins: Any,
        ids: Any, **config: int,
    ) -> Any:  # fmt: skip
        launch = kernels.answered(function, get_lora_op_configs=lambda *_, **__: config, **names)
        weights = [each for each in (first, second, third) if each is not None]
        launch(x, weights, out, adapter, order, counts, begins, ids, *ends)
        return out

    return lora


def shrunk(
    x: Any, out: Any, first: Any, second: Any, third: Any, adapter: Any, order: Any, counts: Any, begins: Any, ids: Any,  # noqa: ARG001
) -> Any:  # fmt: skip
    """What vLLM's first product must give, for each slice."""
    torch = require("torch", "the reference of LoRA")
    weights = [each[:, 0].to(out.dtype) for each in (first, second, third) if each is not None]
    return torch.stack([by_expert(x.to(out.dtype), each, adapter, 1) for each in weights])


def expanded(
    x: Any, out: Any, first: Any, second: Any, third: Any, adapter: Any, order: Any, counts: Any, begins: Any, ids: Any,  # noqa: ARG001
) -> Any:  # fmt: skip
    """What the outputs are after vLLM's second product, of each slice beside the one before."""
    torch = require("torch", "the reference of LoRA")
    weights = [each[:, 0] for each in (first, second, third) if each is not None]
    parts = [by_expert(part.to(each.dtype), each, adapter, 1) for part, each in zip(x, weights, strict=True)]
    return out + torch.cat(parts, dim=1)


def work_of(rows: int, columns: int, depth: int, adapters: int, dtype: str, names: tuple[str, str, str]) -> Work:
    """The work of one product: the weights of each adapter are read once, for as many tokens as the others have."""
    used = min(adapters, rows)
    tiles = GemmTiles(
        -(-rows // used), columns, depth, dtype=dtype, out_dtype=dtype, batch=used, tile_rows=names[0],
        tile_columns=names[1], tile_inner=names[2], b_along_inner=True,
    )  # fmt: skip
    return Work(2.0 * rows * columns * depth, 2.0 * (used * columns * depth + rows * (columns + depth)), tiles)


def _widths(problem: EngineProblem) -> list[int]:
    """The outputs of each slice of a layer."""
    slices, widest = problem.facts["num_slices"], problem.facts["hidden_size"]
    rest = problem.extents["columns"] - widest
    return [widest, *([rest // (slices - 1)] * (slices - 1) if slices > 1 else [])]


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    facts, dtype = problem.facts, served.dtype
    name, adapters, rank, wide = facts["op_type"], facts["max_loras"] - 1, facts["rank"], facts["hidden_size"]
    shrinks, slices = name == "shrink", facts["num_slices"]
    module = kernels.imported(f"{_MODULES}.lora_{name}_op", f"_lora_{name}", "get_lora_op_configs")
    batch = kernels.imported(f"{_MODULES}.lora_kernel_metadata", "LoRAKernelMeta").LoRAKernelMeta
    ends = kernels.OnHost((0,)), kernels.OnHost((adapters + 1,))  # whether no token has an adapter, and the programs
    launch = _launcher(module, name, (*ends, *((1.0,) if shrinks else (0, True))))

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        metadata = batch.make(adapters, M, "cpu")
        metadata.prepare_tensors(adapter_of_tokens(M, adapters))
        shapes = [(adapters, 1, rank, wide)] * slices
        if not shrinks:
            shapes = [(adapters, 1, width, rank) for width in _widths(problem)]
        weights = [TensorSpec(shape, dtype) for shape in shapes]
        outer, inner = TensorSpec((M, wide if shrinks else problem.extents["columns"]), dtype), (slices, M, rank)
        tensors = dict(zip(
            ("adapter", "order", "counts", "begins", "ids"), metadata.meta_args(M, specialize_active_lora=False),
            strict=False,
        ))  # fmt: skip
        return {
            "x": outer if shrinks else TensorSpec(inner, "float32"),
            "out": TensorSpec(inner, "float32", fill="empty") if shrinks else outer,
            **dict(zip(("first", "second", "third"), [*weights, None, None], strict=False)),
            **{key: TensorSpec(tuple(each.shape), "int32", fill=each) for key, each in tensors.items()},
        }  # fmt: skip

    def space(instance: Problem) -> ConfigSpace:
        tokens = instance["adapter"].shape[0]
        row = served.row(tokens) or module.get_lora_op_configs(**facts, batch=tokens)
        mine, narrow = -(-tokens // adapters), "block_n" if shrinks else "block_k"  # which tile is along the rank
        values = {**(_SHRINK if shrinks else _EXPAND)}
        for name, extent in (("block_m", mine), (narrow, rank)):
            values[name] = tuple(each for each in values[name] if each < 2 * max(extent, 16))
        if not shrinks and _is_hopper(module):
            values["num_stages"] = (row["num_stages"],)  # the engine launches with 1
        return kernels.space_of(values, row)

    def work(instance: Problem) -> Work:
        tokens = instance.specs["adapter"].shape[0]
        columns, depth = (slices * rank, wide) if shrinks else (problem.extents["columns"], rank)
        return work_of(tokens, columns, depth, adapters, dtype, ("block_m", "block_n", "block_k"))

    kernel = kernels.EngineKernel(launch, outputs=("out",) if shrinks else (), label=f"{problem.form}-{name}")
    reference = shrunk if shrinks else expanded
    return Operation(f"{problem.form}-{name}", kernel, space, arguments, reference=reference, work=work)
