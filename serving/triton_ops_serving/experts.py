"""vLLM's layer of experts as an operation: its own launcher of its own kernel, with routing as data.

vLLM launches both products with one row of a table, so both are one candidate; the activation between them, which no
row changes, is left out, and each product has inputs of its own. Tokens are sorted by experts ahead, for each height
of a tile. The reference is plain PyTorch.

Facts used, of vLLM 0.33: tokens are sorted into `numel + E * (height - 1)` places, at most `numel * height` where there
are fewer than experts; a table's row has no SPLIT_K; with at most a quarter of the experts in use nothing is sorted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triton_ops import ConfigSpace, Operation, TensorSpec, Work
from triton_ops.base import NamedFile, fingerprint, require
from triton_ops.exceptions import SettingsError
from triton_ops.values import Problem
from triton_ops_serving import kernels
from triton_ops_serving.model import EngineProblem

_MODULE = "vllm.model_executor.layers.fused_moe.fused_moe"
HEIGHTS: tuple[int, ...] = kernels.TILES["BLOCK_SIZE_M"]
BEGIN = 16  # of sorted tokens in a row of the table; the number of places in use stands before, all aligned


def routing_named(name: str, experts: int) -> list[float]:
    """How often each expert is chosen, by `uniform`, `zipf:S`, or a file with a list of so many loads."""
    kind, _, exponent = name.partition(":")
    try:
        if name == "uniform" or kind == "zipf":
            power = -float(exponent) if kind == "zipf" else 0.0
            loads = [(rank + 1) ** power for rank in range(experts)]
        else:
            loads = [float(load) for load in json.loads(NamedFile(Path(name)).read())]
        if len(loads) == experts and all(0 <= load < math.inf for load in loads) and any(loads):
            return loads
        why = f"it is no list of {experts} loads"
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        why = str(error)
    raise SettingsError(f"--routing {name}: {why}", hint="uniform, zipf:1.2, or a JSON list of loads")


def chosen_experts(tokens: int, top_k: int, loads: list[float]) -> Any:
    """The experts of each token, [tokens, top_k], drawn without repetition by their loads, alike each time.

    ShapeMismatchError: there is not so much memory.
    """
    torch = require("torch", "drawing a routing")
    room = TensorSpec((4, tokens, len(loads)), "float64", fill="empty").create_tensor()  # the draw, and what follows
    generator = torch.Generator().manual_seed(tokens * 1009 + len(loads))
    noise = torch.rand(room.shape[1:], generator=generator, dtype=torch.float64, out=room[0]).clamp_(1e-12, 1 - 1e-12)
    order = torch.randperm(len(loads), generator=generator)
    # Gumbel noise on logarithms of loads: the largest k are a draw without repetition by the loads.
    scores = torch.tensor(loads, dtype=torch.float64)[order].clamp(min=1e-12).log() - (-noise.log()).log()
    return scores.topk(top_k, dim=1).indices.int()


def parts_of(count: int, experts: int, height: int) -> tuple[int, int, int]:
    """The places of sorted tokens for tiles of a height, the number of tiles, and where these begin in any row."""
    places = [count + experts * (each - 1) for each in (height, HEIGHTS[-1])]
    places = [min(all_of, count * each) if count < experts else all_of
              for all_of, each in zip(places, (height, HEIGHTS[-1]), strict=True)]  # fmt: skip
    return places[0], -(-places[0] // height), -(-(BEGIN + places[1]) // BEGIN) * BEGIN


def sorted_tokens(chosen: Any, experts: int, *, few: bool = True) -> Any:
    """A row for each height of a tile: the places in use, tokens by their experts, and the expert of each tile.

    `few` says whether the engine leaves tokens unsorted where few experts are in use.
    """
    torch = require("torch", "sorting tokens")
    flat = chosen.flatten().long()
    counts, by_expert = flat.bincount(minlength=experts), flat.argsort(stable=True)
    rank = torch.arange(len(flat)) - (counts.cumsum(0) - counts)[flat[by_expert]]
    _, tiles, begin = parts_of(len(flat), experts, HEIGHTS[0])
    table = torch.full((len(HEIGHTS), -(-(begin + tiles) // BEGIN) * BEGIN), len(flat))
    for row, height in zip(table, HEIGHTS, strict=True):
        used = -(-counts // height) * height
        row[BEGIN + (used.cumsum(0) - used)[flat[by_expert]] + rank] = by_expert
        row[begin : begin + int(used.sum()) // height] = torch.arange(experts).repeat_interleave(used // height)
        row[0] = len(flat) * height if few and len(flat) * 4 <= experts else used.sum()
    return table.int()


def _launcher(invoke: Callable[..., Any], compute_type: Any, block: list[int] | None) -> Callable[..., Any]:
    def experts(
        x: Any, w1: Any, up: Any, inner: Any, w2: Any, out: Any, weights: Any, chosen: Any, tokens: Any, _routing: str,
        x_scale: Any, w1_scale: Any, inner_scale: Any, w2_scale: Any, *, BLOCK_SIZE_M: int, **config: int,  # noqa: N803
    ) -> None:  # fmt: skip
        row, config = tokens[HEIGHTS.index(BLOCK_SIZE_M)], {"BLOCK_SIZE_M": BLOCK_SIZE_M, **config}
        places, tiles, begin = parts_of(chosen.numel(), len(w1), BLOCK_SIZE_M)
        ids, groups = row[BEGIN : BEGIN + places], row[begin : begin + tiles]
        if chosen.numel() * 4 <= len(w1):
            ids, groups = None, chosen.view(-1)
        first, second = (x, w1, up, x_scale, w1_scale), (inner, w2, out, inner_scale, w2_scale)
        for operands, weighted, top_k in ((first, False, chosen.shape[1]), (second, True, 1)):
            invoke(
                *operands, weights, ids, groups, row[:1], weighted, top_k, config, compute_type, block is not None,
                False, False, False, False, block,
            )  # fmt: skip

    return experts


def reference(
    x: Any, w1: Any, up: Any, inner: Any, w2: Any, out: Any, weights: Any, chosen: Any, tokens: Any, _routing: str,  # noqa: ARG001
    x_scale: Any, w1_scale: Any, inner_scale: Any, w2_scale: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """What both products must give, each of its own inputs."""
    first = by_expert(kernels.scaled(x, x_scale), kernels.scaled(w1, w1_scale), chosen, chosen.shape[1])
    second = by_expert(kernels.scaled(inner, inner_scale), kernels.scaled(w2, w2_scale), chosen, 1)
    return first.view(up.shape), second.view(out.shape) * weights.to(second.dtype)[..., None]


def by_expert(x: Any, w: Any, chosen: Any, top_k: int) -> Any:
    """The product of a row of `x` for each choice with the weights of its expert; `top_k` choices share a row."""
    flat = chosen.flatten()
    result = x.new_empty((len(flat), w.shape[1]))
    for expert in flat.unique().tolist():
        at = (flat == expert).nonzero().flatten()
        result[at] = x[at // top_k] @ w[expert].T
    return result


def checked_loads(problem: EngineProblem, routing: str) -> list[float]:
    """The loads of a problem's experts; SettingsError where its kernels cannot be tuned here."""
    block, top_k = problem.facts.get("block_shape"), problem.extents["top_k"]
    if top_k > problem.facts["E"]:
        why = f"a token has {top_k} experts, and a rank {problem.facts['E']}: which tokens it gets is not known"
        raise kernels.NotTunedError(why, hint="fewer ranks, or leave out --expert-parallel")
    quantised, depths = problem.facts.get("dtype"), (problem.extents["K"], problem.facts["N"])
    if quantised and (
        quantised != "fp8_w8a8" or not block or any(each % block[1] for each in depths)
        or problem.extents["columns"] % block[0]
    ):  # fmt: skip
        raise kernels.NotTunedError(
            f"experts of {quantised} without whole blocks cannot be tuned here", hint="leave them out"
        )
    return routing_named(routing, problem.facts["E"])


def arguments_of(
    problem: EngineProblem, served: kernels.Served, sort: Callable[[Any], Any]
) -> Callable[..., dict[str, Any]]:
    """The arguments of both products for a number of tokens; `sort` makes the table of tokens of what is chosen."""
    experts, width, block = problem.facts["E"], problem.facts["N"], problem.facts.get("block_shape")
    depth, top_k, columns = (problem.extents[name] for name in ("K", "top_k", "columns"))
    loads, dtype = checked_loads(problem, served.routing), served.dtype
    weight_dtype = "float8_e4m3fn" if block else dtype
    parts_n, parts_k = block or (1, 1)

    def scale(*shape: int) -> TensorSpec | None:
        return TensorSpec(shape, "float32", fill="positive") if block else None

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        count, chosen = M * top_k, chosen_experts(M, top_k, loads)
        order = sort(chosen)
        return {
            "x": TensorSpec((M, depth), weight_dtype), "w1": TensorSpec((experts, columns, depth), weight_dtype),
            "up": TensorSpec((M, top_k, columns), dtype, fill="empty"),
            "inner": TensorSpec((count, width), weight_dtype), "w2": TensorSpec((experts, depth, width), weight_dtype),
            "out": TensorSpec((M, top_k, depth), dtype, fill="empty"),
            "weights": TensorSpec((M, top_k), "float32", fill="positive"),
            "chosen": TensorSpec((M, top_k), "int32", fill=chosen),
            "tokens": TensorSpec(tuple(order.shape), "int32", fill=order), "_routing": fingerprint(str(loads)),
            "x_scale": scale(M, -(-depth // parts_k)),
            "w1_scale": scale(experts, -(-columns // parts_n), -(-depth // parts_k)),
            "inner_scale": scale(count, -(-width // parts_k)),
            "w2_scale": scale(experts, -(-depth // parts_n), -(-width // parts_k)),
        }  # fmt: skip

    return arguments


def tiles_of(problem: EngineProblem, served: kernels.Served, tokens: int) -> kernels.Values:
    """The tiles for the expert that has most of so many tokens."""
    experts, block = problem.facts["E"], problem.facts.get("block_shape")
    chosen = chosen_experts(tokens, problem.extents["top_k"], routing_named(served.routing, experts))
    return kernels.tiles_for(int(chosen.flatten().bincount().max()), width=min(block) if block else 0)


def work_of(problem: Problem) -> Work:
    """The work of both products: as one, over experts in use that have equally many tokens."""
    x, w1, w2, chosen, out = (problem.specs[name] for name in ("x", "w1", "w2", "chosen", "out"))
    (experts, columns, depth), (tokens, top_k) = w1.shape, chosen.shape
    used, width = min(experts, tokens * top_k), w2.shape[2]
    tiles = kernels.product_tiles(-(-tokens * top_k // used), columns + width, depth, x.dtype, out.dtype, batch=used)
    moved = x.nbytes + (w1.nbytes + w2.nbytes) * used // experts + out.nbytes
    return Work(2.0 * tokens * top_k * (columns + width) * depth, float(moved), tiles)


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    experts, block = problem.facts["E"], problem.facts.get("block_shape")
    arguments = arguments_of(problem, served, lambda chosen: sorted_tokens(chosen, experts))
    module = kernels.imported(_MODULE, "invoke_fused_moe_triton_kernel", "get_default_config", "tl")

    def space(instance: Problem) -> ConfigSpace:
        tokens, extents = instance["x"].shape[0], problem.extents
        sizes = tokens, experts, problem.facts["N"], extents["K"], extents["top_k"]
        default = module.get_default_config(*sizes, problem.facts.get("dtype"), block)
        return kernels.space_of(tiles_of(problem, served, tokens), served.row(tokens) or default)

    launch = _launcher(module.invoke_fused_moe_triton_kernel, getattr(module.tl, served.dtype), block)
    kernel = kernels.EngineKernel(launch, outputs=("up", "out"), label=problem.form)
    return Operation(problem.form, kernel, space, arguments, reference=reference, work=work_of)
