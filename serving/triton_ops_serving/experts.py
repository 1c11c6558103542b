"""vLLM's layer of experts as an operation: its own launcher of its own kernel, with routing as data.

vLLM launches both products with one row of a table, so both are one candidate; the activation between them, which no
row changes, is left out, and each product has inputs of its own. Tokens are sorted by experts ahead, for each height
of a tile. The reference is plain PyTorch.

Facts used, of vLLM 0.33: tokens are sorted into `numel + E * (height - 1)` places, at most `numel * height` where there
are fewer than experts; a table's row has no SPLIT_K; with at most a quarter of the experts in use nothing is sorted.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from triton_ops import Config, ConfigSpace, LauncherKernel, Operation, TensorSpec
from triton_ops.base import NamedFile, fingerprint, require
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.ship import OPTIONS
from triton_ops_serving.model import EngineProblem
from triton_ops_serving.tables import FoundTable

MODULE = "vllm.model_executor.layers.fused_moe.fused_moe"
_HEIGHTS = (16, 32, 64, 128, 256)
_VALUES: dict[str, tuple[int, ...]] = {
    "BLOCK_SIZE_M": _HEIGHTS, "BLOCK_SIZE_N": (32, 64, 128, 256), "BLOCK_SIZE_K": (32, 64, 128, 256),
    "GROUP_SIZE_M": (1, 16, 32, 64), "num_warps": (4, 8), "num_stages": (2, 3, 4, 5),
}  # fmt: skip
_BEGIN = 16  # of sorted tokens in a row of the table; the number of places in use stands before, all aligned


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
    """The experts of each token, [tokens, top_k], drawn without repetition by their loads, alike each time."""
    torch = require("torch", "drawing a routing")
    generator = torch.Generator().manual_seed(tokens * 1009 + len(loads))
    noise = torch.rand((tokens, len(loads)), generator=generator, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
    order = torch.randperm(len(loads), generator=generator)
    scores = torch.tensor(loads, dtype=torch.float64)[order].clamp(min=1e-12).log() - (-noise.log()).log()
    return scores.topk(top_k, dim=1).indices.int()


def parts_of(count: int, experts: int, height: int) -> tuple[int, int, int]:
    """The places of sorted tokens for tiles of a height, the number of tiles, and where these begin in any row."""
    places = [count + experts * (each - 1) for each in (height, _HEIGHTS[-1])]
    places = [min(all_of, count * each) if count < experts else all_of
              for all_of, each in zip(places, (height, _HEIGHTS[-1]), strict=True)]  # fmt: skip
    return places[0], -(-places[0] // height), -(-(_BEGIN + places[1]) // _BEGIN) * _BEGIN


def sorted_tokens(chosen: Any, experts: int) -> Any:
    """A row for each height of a tile: the places in use, tokens by their experts, and the expert of each tile."""
    torch = require("torch", "sorting tokens")
    flat = chosen.flatten().long()
    counts, by_expert = flat.bincount(minlength=experts), flat.argsort(stable=True)
    rank = torch.arange(len(flat)) - (counts.cumsum(0) - counts)[flat[by_expert]]
    _, tiles, begin = parts_of(len(flat), experts, _HEIGHTS[0])
    table = torch.full((len(_HEIGHTS), -(-(begin + tiles) // _BEGIN) * _BEGIN), len(flat))
    for row, height in zip(table, _HEIGHTS, strict=True):
        used = -(-counts // height) * height
        row[_BEGIN + (used.cumsum(0) - used)[flat[by_expert]] + rank] = by_expert
        row[begin : begin + int(used.sum()) // height] = torch.arange(experts).repeat_interleave(used // height)
        row[0] = len(flat) * height if len(flat) * 4 <= experts else used.sum()
    return table.int()


def _launcher(invoke: Callable[..., Any], compute_type: Any, block: list[int] | None) -> Callable[..., Any]:
    def experts(
        x: Any, w1: Any, up: Any, inner: Any, w2: Any, out: Any, weights: Any, chosen: Any, tokens: Any, _routing: str,
        x_scale: Any, w1_scale: Any, inner_scale: Any, w2_scale: Any, *, BLOCK_SIZE_M: int, **config: int,  # noqa: N803
    ) -> None:  # fmt: skip
        row, config = tokens[_HEIGHTS.index(BLOCK_SIZE_M)], {"BLOCK_SIZE_M": BLOCK_SIZE_M, **config}
        places, tiles, begin = parts_of(chosen.numel(), len(w1), BLOCK_SIZE_M)
        ids, groups = row[_BEGIN : _BEGIN + places], row[begin : begin + tiles]
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
    """What both products must give, by a loop over the experts in use."""
    x, w1 = _scaled(x, x_scale), _scaled(w1, w1_scale)
    inner, w2 = _scaled(inner, inner_scale), _scaled(w2, w2_scale)
    flat, factors, top_k = chosen.flatten(), weights.flatten().to(x.dtype), chosen.shape[1]
    first, second = x.new_empty((len(flat), w1.shape[1])), x.new_empty((len(flat), w2.shape[1]))
    for expert in flat.unique().tolist():
        at = (flat == expert).nonzero().flatten()
        first[at] = x[at // top_k] @ w1[expert].T
        second[at] = (inner[at] @ w2[expert].T) * factors[at, None]
    return first.view(up.shape), second.view(out.shape)


def _scaled(values: Any, scale: Any) -> Any:
    """Values times the scales of their blocks, in the scales' dtype; as they are where there are none."""
    if scale is None:
        return values
    for axis in (-2, -1):
        times = -(-values.shape[axis] // scale.shape[axis])
        scale = scale.repeat_interleave(times, dim=axis).narrow(axis, 0, values.shape[axis])
    return values.to(scale.dtype) * scale


def engine_module() -> Any:
    """The module of vLLM's experts; TargetError where it cannot be imported."""
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # the engine's own code, which may fail in any way where its parts are missing
        hint = "install vllm: its kernels are imported, and no copy of them is here"
        raise TargetError(f"{MODULE} cannot be imported: {type(error).__name__}: {error}", hint=hint) from error


def operation_of(problem: EngineProblem, module: Any, routing: str, table: FoundTable | None, dtype: str) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    experts, width, block = problem.facts["E"], problem.facts["N"], problem.facts.get("block_shape")
    depth, top_k, columns = (problem.extents[name] for name in ("K", "top_k", "columns"))
    loads = routing_named(routing, experts)
    if top_k > experts:
        why = f"a token has {top_k} experts, and a rank {experts}: which tokens it gets is not known"
        raise SettingsError(why, hint="fewer ranks, or leave out --expert-parallel")
    quantised = problem.facts.get("dtype")
    if quantised and (
        quantised != "fp8_w8a8" or not block or depth % block[1] or width % block[1] or columns % block[0]
    ):
        raise SettingsError(f"experts of {quantised} without whole blocks cannot be tuned here", hint="leave them out")
    held = "float8_e4m3fn" if block else dtype
    parts_n, parts_k = block or (1, 1)

    def scale(*shape: int) -> TensorSpec | None:
        return TensorSpec(shape, "float32", fill="positive") if block else None

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        count, chosen = M * top_k, chosen_experts(M, top_k, loads)
        order = sorted_tokens(chosen, experts)
        return {
            "x": TensorSpec((M, depth), held), "w1": TensorSpec((experts, columns, depth), held),
            "up": TensorSpec((M, top_k, columns), dtype, fill="empty"),
            "inner": TensorSpec((count, width), held), "w2": TensorSpec((experts, depth, width), held),
            "out": TensorSpec((M, top_k, depth), dtype, fill="empty"),
            "weights": TensorSpec((M, top_k), "float32", fill="positive"),
            "chosen": TensorSpec((M, top_k), "int32", fill=chosen),
            "tokens": TensorSpec(tuple(order.shape), "int32", fill=order), "_routing": fingerprint(str(loads)),
            "x_scale": scale(M, -(-depth // parts_k)),
            "w1_scale": scale(experts, -(-columns // parts_n), -(-depth // parts_k)),
            "inner_scale": scale(count, -(-width // parts_k)),
            "w2_scale": scale(experts, -(-depth // parts_n), -(-width // parts_k)),
        }  # fmt: skip

    launch = _launcher(module.invoke_fused_moe_triton_kernel, getattr(module.tl, dtype), block)
    return Operation(
        problem.form,
        LauncherKernel(launch, outputs=("up", "out"), label=problem.form),
        lambda asked: _space(_row_now(problem, module, table, asked["x"].shape[0]), block),
        arguments,
        reference=reference,
    )


def _space(row: Mapping[str, Any], block: list[int] | None) -> ConfigSpace:
    """What is tried beside the row that the engine would take, which is the default."""
    default = {name: row.get(name, OPTIONS.get(name)) for name in _VALUES}
    widest = min(block) if block else max(_VALUES["BLOCK_SIZE_K"])  # the engine launches no wider tile
    values = {**_VALUES, "BLOCK_SIZE_K": tuple(width for width in _VALUES["BLOCK_SIZE_K"] if width <= widest)}
    space: dict[str, Any] = {name: sorted({*some, default[name]}) for name, some in values.items()}
    return ConfigSpace(space, default=Config(default))


def _row_now(problem: EngineProblem, module: Any, table: FoundTable | None, tokens: int) -> Mapping[str, Any]:
    """The row that the engine takes: the nearest one of its table, else its default."""
    if table is not None and table.rows:
        return table.rows[min(table.rows, key=lambda size: abs(size - tokens))]
    facts, extents = problem.facts, problem.extents
    sizes = tokens, facts["E"], facts["N"], extents["K"], extents["top_k"]
    row: Mapping[str, Any] = module.get_default_config(*sizes, facts.get("dtype"), facts.get("block_shape"))
    return row
