"""The problems of the fused RMSNorm and RoPE, each with the space of configs that are worth trying.

The documented space, `RMSNORM_ROPE_CONFIGS`, has chunks of up to 1,024 pairs. The operation's own space holds all of
it, at every row length, since a block wider than the row is masked. It goes on to more warps and to whole rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import RowTiles
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels import rows
from triton_ops_kernels.call import Own, OwnConfigs, whole_from
from triton_ops_kernels.jit import SUM_COLUMNS

if TYPE_CHECKING:
    from torch import Tensor

OWN = OwnConfigs({
    "BLOCK_SIZE": [64, 128, 256, 512, 1024, 2048, 4096, 8192], "num_warps": [2, 4, 8, 16], "num_stages": [1, 2, 3]
})  # fmt: skip
GRADIENT_OWN = OwnConfigs({
    "BLOCK_SIZE": [64, 128, 256, 512, 1024, 2048, 4096, 8192],
    "PROGRAMS": Own([1, 2, 4, 8, 16], whole_from(1)),
    "STAGES": Own([1, 2], whole_from(1)),
    "SUM_COLUMNS": SUM_COLUMNS,
    "num_warps": [1, 2, 4, 8, 16],
})  # fmt: skip
_MOST_PER_THREAD = 32  # pairs of a chunk: 64 registers hold them
_WHOLE_MOST = 16  # pairs of a whole row, whose weights and angles are in registers too; as many of the gradient's
_WHOLE = _WHOLE_MOST * 32 * 16  # pairs of the longest row that stays in registers
_CHUNK = 1024  # pairs of the largest block of the documented space
_DOCUMENTED_WARPS = 8
_MASKS = 16  # of a thread's loads that run ahead, from which on NVIDIA's assembler 12.8.93 lost some
_FULL = 32  # warps of a multiprocessor, from which on more programs of the gradient wait for registers
_LOAD_BYTES = 16  # of the widest load of a thread
_WARP_BYTES = 32 * _LOAD_BYTES  # bytes that a warp loads at once


def config_space(problem: Problem) -> ConfigSpace:
    """The space of chunks and whole rows for the problem's row length, with the default for its dtype."""
    hidden = problem["HIDDEN"]
    widest = rows.padded(hidden // 2)
    at_once = math.gcd(problem["HEAD_DIM"] // 2, _LOAD_BYTES // ITEM_BYTES[problem["x"].dtype])  # pairs, with one mask
    rules = (
        Constraint(
            "row", lambda BLOCK_SIZE, num_warps: _documented(BLOCK_SIZE, num_warps) or widest >= BLOCK_SIZE,
            f"{{BLOCK_SIZE}} is over a row of {widest} pairs",
        ),
        Constraint(
            "registers", lambda BLOCK_SIZE, num_warps: _documented(BLOCK_SIZE, num_warps)
            or 32 * (_WHOLE_MOST if widest == BLOCK_SIZE else _MOST_PER_THREAD) * num_warps >= BLOCK_SIZE,
            f"over {_MOST_PER_THREAD} pairs for each thread spill, and {_WHOLE_MOST} of a whole row",
        ),
        Constraint(
            "threads", lambda BLOCK_SIZE, num_warps: _documented(BLOCK_SIZE, num_warps) or 32 * num_warps <= BLOCK_SIZE,
            "{num_warps} warps have less than one pair for each thread",
        ),
        Constraint(
            "stages", lambda BLOCK_SIZE, num_warps, num_stages: _documented(BLOCK_SIZE, num_warps)
            or widest > BLOCK_SIZE or num_stages == 1,
            "a row of one block has no further chunks to load ahead in {num_stages} stages",
        ),
        Constraint(
            "masks", lambda BLOCK_SIZE, num_warps, num_stages: _documented(BLOCK_SIZE, num_warps)
            or num_stages == 1 or 32 * _MASKS * at_once * num_warps > BLOCK_SIZE,
            f"loads ahead of {{num_warps}} warps have {_MASKS} masks or more of a thread; NVIDIA's assembler lost some",
        ),
    )  # fmt: skip
    return ConfigSpace(OWN.tunables, rules, default_config(hidden, problem["x"].dtype))


def _documented(block: int, warps: int) -> bool:
    """Tell whether the documented space has such a block, which is then allowed at every row length."""
    return block <= _CHUNK and warps <= _DOCUMENTED_WARPS


@lru_cache(maxsize=1024)
def default_config(hidden: int, dtype: str) -> Config:
    """The untuned config for rows of `hidden` elements of `dtype`.

    A row of up to 1,024 pairs has as many warps as load each half of it with one 16-byte load per thread, and a longer
    one half as many. Rows that do not fit into registers are read in chunks.

    Source: 0.97 of the time of chunks of 1,024 pairs at 8x4096x4096 (bfloat16, H200, Triton 3.6.0).
    """
    widest = rows.padded(hidden // 2)
    if _CHUNK < widest <= _WHOLE:
        warps = min(widest * ITEM_BYTES[dtype] // (2 * _WARP_BYTES), 16)
        return Config(BLOCK_SIZE=widest, num_warps=warps, num_stages=1)
    block = min(widest, _CHUNK)
    warps = min(max(block * ITEM_BYTES[dtype] // _WARP_BYTES, 2), 8)
    return Config(BLOCK_SIZE=block, num_warps=warps, num_stages=1)


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient; PROGRAMS counts the programs for each multiprocessor."""
    hidden = problem["HIDDEN"]
    widest = rows.padded(hidden // 2)
    whole = widest <= _WHOLE
    rules = (
        Constraint("row", lambda BLOCK_SIZE: widest >= BLOCK_SIZE, f"{{BLOCK_SIZE}} is over a row of {widest} pairs"),
        Constraint(
            "registers",
            lambda BLOCK_SIZE, num_warps: 32 * _WHOLE_MOST * num_warps >= BLOCK_SIZE,
            f"over {_WHOLE_MOST} pairs for each thread spill",
        ),
        Constraint(
            "threads",
            lambda BLOCK_SIZE, num_warps: 32 * num_warps <= BLOCK_SIZE,
            "{num_warps} warps have less than one pair for each thread",
        ),
        Constraint(
            "parts", lambda BLOCK_SIZE: not whole or widest == BLOCK_SIZE,
            f"a row of {widest} pairs fits into registers: parts of {{BLOCK_SIZE}} have their sums in memory",
        ),
        Constraint("stages", lambda STAGES: whole or STAGES == 1, "{STAGES} stages are for whole rows"),
        Constraint(
            "resident", lambda PROGRAMS, num_warps: PROGRAMS == 1 or PROGRAMS * num_warps <= _FULL,
            f"{{PROGRAMS}} programs of {{num_warps}} warps are over {_FULL} warps of a multiprocessor",
        ),
    )  # fmt: skip
    return ConfigSpace(GRADIENT_OWN.tunables, rules, gradient_default(hidden))


@lru_cache(maxsize=1024)
def gradient_default(hidden: int) -> Config:
    """The untuned config of the gradient: whole rows in registers as far as they go, 8 pairs for each thread.

    Sixteen warps for each multiprocessor and sums by the kernel, as they win in the gradient of the layer norm.
    """
    widest = rows.padded(hidden // 2)
    block = widest if widest <= _WHOLE else _CHUNK
    warps = min(16, max(1, block // 256))
    return Config(BLOCK_SIZE=block, PROGRAMS=16 // warps, STAGES=1, SUM_COLUMNS=64, num_warps=warps)


DTYPES = ("bfloat16", "float16", "float32")
DEFAULT_EPS = 1e-6

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4, 4096, 4096, 32), "bfloat16"),
    "llama-8b-8x4096": ((8, 4096, 4096, 32), "bfloat16"),
    "llama-8b-decode": ((64, 1, 4096, 32), "bfloat16"),
    "llama-70b-prefill": ((1, 8192, 8192, 64), "bfloat16"),
    "qwen-7b-prefill": ((2, 4096, 3584, 28), "bfloat16"),
    "deepseek-v3-decode": ((128, 1, 7168, 56), "bfloat16"),
    "small-heads": ((8, 2048, 2048, 32), "float16"),  # heads of 64
    "head-80": ((2, 2048, 2560, 32), "float16"),  # half a head is 40, which is no power of two
    "float32": ((2, 2048, 4096, 32), "float32"),
}


def arguments(
    batch: int = 4, seq: int = 4096, hidden: int = 4096, heads: int = 32, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The kernel's arguments for x[batch, seq, hidden] with `heads` heads, by name, in the order of its parameters."""
    head_dim = checked_head_dim(hidden, heads)
    x, table = TensorSpec((batch, seq, hidden), dtype), TensorSpec((seq, head_dim), dtype)
    return launch_values(x, TensorSpec((hidden,), dtype), table, table, out=replace(x, fill="empty"))


def launch_values(x: Any, weight: Any, cos: Any, sin: Any, **others: Any) -> dict[str, Any]:
    """The arguments for tensors, or what describes them, with the `others` between them and numbers; any `eps`."""
    return {
        "x": x, "weight": weight, "cos": cos, "sin": sin, **others,
        "seq_len": x.shape[1], "eps": DEFAULT_EPS, "HIDDEN": x.shape[2], "HEAD_DIM": cos.shape[-1],
    }  # fmt: skip


def gradient_arguments(
    batch: int = 4, seq: int = 4096, hidden: int = 4096, heads: int = 32, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The arguments of the gradient's launch, by name, in the order of its parameters."""
    inputs: dict[str, Any] = arguments(batch, seq, hidden, heads, dtype)
    x, weight, cos, sin, out = (inputs[name] for name in ("x", "weight", "cos", "sin", "out"))
    return launch_values(x, weight, cos, sin, grad=x, dx=out, dweight=replace(weight, fill="empty"))


def checked_head_dim(hidden: int, heads: int) -> int:
    """The number of elements per head.

    Raises:
        ShapeMismatchError: `heads` does not divide `hidden`, or a head is of odd size.
    """
    if hidden % heads:
        raise ShapeMismatchError(
            f"hidden size {hidden} is no multiple of {heads} heads",
            f"a multiple of {heads}",
            hidden,
            hint="the last two extents are the hidden size and the number of heads",
        )
    head_dim = hidden // heads
    if head_dim % 2:
        raise ShapeMismatchError(
            f"hidden size {hidden} with {heads} heads makes heads of {head_dim}; RoPE turns pairs: it must be even",
            "an even head size",
            head_dim,
            hint="take twice or half as many heads",
        )
    return head_dim


def work(problem: Problem) -> Work:
    """The work: bytes of all tensors, but only of the half of cos and sin that is read; bandwidth is the limit."""
    x, out = problem.specs["x"], problem.specs["out"]
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    tiles = RowTiles(
        rows, columns, dtype=x.dtype, out_dtype=out.dtype, tile_rows=1, tile_columns="BLOCK_SIZE",
        lanes=2,  # BLOCK_SIZE counts pairs
        kept=True,
    )  # fmt: skip
    return Work(bytes=_moved(problem), tiles=tiles)


def gradient_work(problem: Problem) -> Work:
    """The bytes of the gradient.

    It declares no tiles: programs that walk over many rows, and add up their part of another gradient, are no walk that
    `RowTiles` describes. The model reads the kernel instead.
    """
    return Work(bytes=_moved(problem))


def _moved(problem: Problem) -> float:
    specs = problem.specs
    unread = (specs["cos"].nbytes + specs["sin"].nbytes) / 2
    return float(sum(spec.nbytes for spec in specs.values()) - unread)


def rmsnorm_rope_reference(
    x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, out: Tensor, *, eps: float, HEAD_DIM: int, **_extents: int
) -> Tensor:
    """Compute `rope(x / sqrt(mean(x²) + eps) * weight)` in float32 or wider, rounded once.

    The kernel's arguments are taken by name, and only the first HEAD_DIM / 2 columns of the angles are read, as in the
    kernel.

    Cost: several float32 tensors of the size of `x`.
    """
    torch = require("torch", "the reference of rmsnorm_rope")
    n, _ = _normal(torch, x, eps)
    turned: Tensor = _turned(torch, n * weight.to(n.dtype), cos, sin, HEAD_DIM)
    return turned.to(out.dtype)


def rmsnorm_rope_backward_reference(
    x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, grad: Tensor, dx: Tensor, dweight: Tensor, *, eps: float,
    HEAD_DIM: int, **_extents: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of x and weight, in float32 or wider, rounded once.

    A rotation is turned back by the negative angle.
    """
    torch = require("torch", "the reference of rmsnorm_rope")  # at first, so that a compiled graph is whole
    n, scale = _normal(torch, x, eps)
    g: Tensor = _turned(torch, grad.to(n.dtype), cos, -sin.to(n.dtype), HEAD_DIM)
    h = g * weight.to(n.dtype)
    found = (h - n * (h * n).mean(-1, keepdim=True)) * scale
    return found.to(dx.dtype), (g * n).sum((0, 1)).to(dweight.dtype)


def _normal(torch: ModuleType, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The rows divided by their root mean square, and one over that."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return wide * scale, scale


def _turned(torch: ModuleType, values: Any, cos: Tensor, sin: Tensor, head_dim: int) -> Any:
    """The pairs of each head of [batch, seq, hidden], turned by the angles of their position."""
    half = head_dim // 2
    first, second = values.unflatten(-1, (-1, 2, half)).unbind(-2)  # each [batch, seq, heads, half]
    c, s = (table.reshape(-1, 1, head_dim)[..., :half].to(values.dtype) for table in (cos, sin))
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1).reshape(values.shape)
