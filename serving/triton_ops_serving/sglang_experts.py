"""SGLang's layer of experts as an operation: its own launcher of its own kernel for both products.

A row of the first product's table sorts the tokens for both. Without a `_down` table it is launched for the second
product too, and the row of one has its BLOCK_SIZE_M in any case; with USE_TMA in the second row the first product
writes its tokens sorted. So both products are one candidate here too, whichever of both tables is tuned. The second
reads a half of what the first has written, in place of the activation, which no row changes; quantised ones have
inputs of their own, and are not tuned around rows with USE_TMA.

Facts used, of SGLang 0.5.23: tokens are sorted as by vLLM, with room for one more expert, and always.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from triton_ops import ConfigSpace, Operation
from triton_ops.device import probe
from triton_ops.values import Problem
from triton_ops_serving import experts, kernels
from triton_ops_serving.model import EngineProblem

_MODULE = "sglang.kernels.ops.moe.fused_moe_triton_kernels"
_CONFIGS = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
_HEIGHT = "BLOCK_SIZE_M"


def _launcher(invoke: Any, rows: Callable[..., tuple[Any, Any]], compute_type: Any, block: list[int] | None) -> Any:
    def layer(
        x: Any, w1: Any, up: Any, inner: Any, w2: Any, out: Any, weights: Any, chosen: Any, tokens: Any, _routing: str,
        x_scale: Any, w1_scale: Any, inner_scale: Any, w2_scale: Any, **config: Any,
    ) -> None:  # fmt: skip
        first, second = map(dict, rows(kernels.row_of(config), x.shape[0]))
        wide, by_tma = first.pop("USE_TMA", False), second.pop("USE_TMA", False)
        height, count, places_of = first[_HEIGHT], chosen.numel(), len(w1) + 1
        row = tokens[experts.HEIGHTS.index(height)]
        places, tiles, begin = experts.parts_of(count, places_of, height)
        order = chosen, row[experts.BEGIN : experts.BEGIN + places], row[begin : begin + tiles], row[:1]
        more = min(count, places_of) * (height - 1) if by_tma else 0
        between = x.new_empty((count + more, w1.shape[1])) if up is None else up.view(count, -1)
        flags = compute_type, block is not None, False, False, False, False, block
        invoke(
            x, w1, None, between, x_scale, w1_scale, None, weights, *order, False, chosen.shape[1], first, *flags,
            c_sorted=by_tma, b_use_tma=wide, filter_expert=False,
        )  # fmt: skip
        invoke(
            between[:, : w2.shape[2]] if inner is None else inner, w2, None, out, inner_scale, w2_scale, None, weights,
            *order, True, 1, second, *flags, a_use_tma=by_tma, b_use_tma=by_tma, filter_expert=False,
            router_topk=chosen.shape[1],
        )  # fmt: skip

    return layer


def chained(
    x: Any, w1: Any, up: Any, inner: Any, w2: Any, out: Any, weights: Any, chosen: Any, **others: Any
) -> tuple[Any, ...]:
    """What both products must give; where the second has no inputs of its own, of what the first must give."""
    if inner is not None:
        return experts.reference(x, w1, up, inner, w2, out, weights, chosen, **others)
    first = experts.by_expert(x, w1, chosen, chosen.shape[1])
    second = experts.by_expert(first[:, : w2.shape[2]], w2, chosen, 1)
    return (second.view(out.shape) * weights.to(second.dtype)[..., None],)


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    count, block, down = problem.facts["E"], problem.facts.get("block_shape"), problem.facts["down"]
    plain = experts.arguments_of(problem, served, partial(experts.sorted_tokens, experts=count + 1, few=False))
    if block and any(row.get("USE_TMA") for row in (*served.rows.values(), *served.other.values())):
        raise kernels.NotTunedError("experts of fp8 with USE_TMA in a row are not tuned here", hint="leave them out")
    module = kernels.imported(_MODULE, "invoke_fused_moe_kernel", "tl")
    configs = kernels.imported(_CONFIGS, "get_default_config")

    def default(tokens: int) -> kernels.Row:
        sizes = tokens, count, problem.facts["N"], problem.extents["K"], problem.extents["top_k"]
        row: kernels.Row = configs.get_default_config(*sizes, problem.facts.get("dtype"), False, block)
        return row

    def both(row: kernels.Row, tokens: int) -> tuple[kernels.Row, kernels.Row]:
        """The rows of both products, of which one is a candidate or the row that serves now."""
        other = served.row(tokens, other=True)
        first, second = (other or default(tokens), row) if down else (row, other or row)
        return first, {**second, _HEIGHT: first[_HEIGHT]}

    def space(instance: Problem) -> ConfigSpace:
        tokens = instance["x"].shape[0]
        row = served.row(tokens)  # without a table both products have the row of the first
        now = both(row, tokens)[down] if row else both(default(tokens), tokens)[0]
        loads = {} if block else _by_tma()
        heights = {_HEIGHT: (now[_HEIGHT],)} if down else {}
        return kernels.space_of({**experts.tiles_of(problem, served, tokens), **loads, **heights}, now)

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        arguments = plain(M)
        return arguments if block else {**arguments, "up": None, "inner": None}

    launch = _launcher(module.invoke_fused_moe_kernel, both, getattr(module.tl, served.dtype), block)
    outputs, label = ("up", "out") if block else ("out",), f"{problem.form}{'-down' * down}"
    kernel = kernels.EngineKernel(launch, outputs=outputs, label=label)
    return Operation(label, kernel, space, arguments, reference=chained, work=experts.work_of)


def _by_tma() -> kernels.Values:
    """Whether tiles are loaded by descriptors, where the device has what loads them."""
    device = probe()
    return {"USE_TMA": (False, True)} if device.kind == "cuda" and int(device.arch.removeprefix("sm_")) >= 90 else {}
