"""The problems of the layer norm, each with the space of configs that are worth trying.

The documents have no space for a layer norm. Its spaces are those of all kernels over rows (`kernels/rows.py`), with
what is kept in L2 and how short rows get their weights, and for the gradient with programs that walk over rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from triton_ops.base import require
from triton_ops.cost_model import RowTiles
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import Problem, TensorSpec, Work
from triton_ops_kernels import rows
from triton_ops_kernels.call import Own, OwnConfigs, whole_from
from triton_ops_kernels.jit import SUM_COLUMNS

if TYPE_CHECKING:
    from torch import Tensor

OWN = OwnConfigs({
    **rows.TUNABLES,
    "ROWS": [1, 2, 4, 8, 16, 32],
    "EVICT": Own(["none", "loads", "all"], optional=True),
    "SPREAD": Own([False, True], optional=True),
})  # fmt: skip
"""A config that leaves out what it may evicts nothing, and does not spread the weights."""
GRADIENT_OWN = OwnConfigs({
    "BLOCK_SIZE": [64, 128, 256, 512, 1024, 2048, 4096, 8192],
    "ROWS": [1, 2, 4, 8, 16, 32],
    "PROGRAMS": Own([1, 2, 4, 8, 16, 32], whole_from(1)),
    "STAGES": [1, 2, 3],
    "SUM_COLUMNS": SUM_COLUMNS,
    "num_warps": [1, 2, 4, 8, 16, 32],
})  # fmt: skip
_MOST_PER_THREAD = 32  # elements for each thread of the gradient, which take 7 registers each
_MOST = 8192  # elements of all threads, however many: a multiprocessor has 65,536 registers
_LEAST_PER_THREAD = 4
_FULL = 32  # warps of a multiprocessor, from which on more programs wait for registers
_IDLE = 8  # warps of a multiprocessor, below which it waits for memory most of the time
_MOST_PER_LANE, _CHUNK_ROWS = 16, 4  # of rows in chunks: each element has four sums of its own
_TILE_WARPS, _BY_COLUMNS = 4, 4  # of a program that sums by columns, and the fewest such programs
_FEW_COLUMNS = 4096  # up to which fewer programs than a large GPU has multiprocessors sum 64 columns each


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's row length."""
    columns = problem["COLUMNS"]
    spread = Constraint(
        "spread", lambda SPREAD, ROWS: not SPREAD or ROWS > 1, "a tile of {ROWS} row reads the weights once in any case"
    )
    rules = (*rows.config_space(columns).constraints, rows.long_chunks(columns), spread)
    return ConfigSpace(OWN.tunables, rules, default_config(columns))


@lru_cache(maxsize=1024)
def default_config(columns: int) -> Config:
    """The untuned config for rows of so many columns.

    Nothing is evicted, since the next kernel is likely to read the result. Short rows spread the weights, which takes
    0.98 of the time at 131,072 rows of 128 elements (H200, Triton 3.6.0).
    """
    plain = rows.default_config(columns)
    return Config(plain, EVICT="none", SPREAD=plain["ROWS"] != 1)


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient; PROGRAMS counts the programs for each multiprocessor."""
    columns = problem["COLUMNS"]
    widest = rows.padded(columns)
    whole = widest <= _MOST
    per_thread = _MOST_PER_THREAD if whole else _MOST_PER_LANE
    rules = (
        rows.long_chunks(columns),
        Constraint(
            "row", lambda BLOCK_SIZE: widest == BLOCK_SIZE if whole else widest > BLOCK_SIZE,
            f"{{BLOCK_SIZE}} is over a row of {widest}, or is a part of one that fits into registers",
        ),
        Constraint(
            "chunked", lambda ROWS: whole or ROWS <= _CHUNK_ROWS,
            f"{{ROWS}} rows at once, over {_CHUNK_ROWS}, are for blocks that hold whole rows",
        ),
        Constraint(
            "registers",
            lambda BLOCK_SIZE, ROWS, num_warps: min(32 * per_thread * num_warps, _MOST) >= BLOCK_SIZE * ROWS,
            f"over {per_thread} elements for each thread, or {_MOST} in all, spill",
        ),
        Constraint(
            "threads",
            lambda BLOCK_SIZE, ROWS, num_warps: num_warps == 1
            or 32 * _LEAST_PER_THREAD * num_warps <= BLOCK_SIZE * ROWS,
            f"{{num_warps}} warps have fewer than {_LEAST_PER_THREAD} elements for each thread",
        ),
        Constraint(
            "resident", lambda PROGRAMS, num_warps: not whole or PROGRAMS == 1 or PROGRAMS * num_warps <= _FULL,
            f"{{PROGRAMS}} programs of {{num_warps}} warps are over {_FULL} warps of a multiprocessor",
        ),
        Constraint(
            "idle", lambda PROGRAMS, num_warps: not whole or PROGRAMS * num_warps >= _IDLE,
            f"{{PROGRAMS}} programs of {{num_warps}} warps are under {_IDLE} warps of a multiprocessor",
        ),
        Constraint(
            "columns", lambda PROGRAMS: whole or PROGRAMS >= _BY_COLUMNS,
            f"programs that sum by columns have {_TILE_WARPS} warps each: {{PROGRAMS}} leave a multiprocessor idle",
        ),
    )  # fmt: skip
    return ConfigSpace(GRADIENT_OWN.tunables, rules, gradient_default(columns))


@lru_cache(maxsize=1024)
def gradient_default(columns: int) -> Config:
    """The untuned config of the gradient: whole rows as far as registers go, 16 elements for each thread.

    Sixteen warps for each multiprocessor are the winner at 24,000 rows of 1,280 elements, and eight, each with a row of
    its own and the next one on its way, at 65,536 of 768 (H200, Triton 3.6.0). Longer rows are read twice, whatever L2
    holds, and two at once share the weights.
    """
    widest = rows.padded(columns)
    if widest > _MOST:
        return Config(BLOCK_SIZE=2048, ROWS=2, PROGRAMS=16, STAGES=2, SUM_COLUMNS=64, num_warps=8)
    sums = 16 if columns <= _FEW_COLUMNS else 64
    if widest == 32 * _MOST_PER_THREAD:
        return Config(BLOCK_SIZE=widest, ROWS=1, PROGRAMS=8, STAGES=2, SUM_COLUMNS=sums, num_warps=1)
    count = min(16, max(1, 2048 // widest))
    warps = min(16, max(1, widest * count // (32 * 16)))
    return Config(
        BLOCK_SIZE=widest, ROWS=count, PROGRAMS=16 // warps, STAGES=1, SUM_COLUMNS=sums, num_warps=warps
    )  # fmt: skip


DTYPES = ("bfloat16", "float16", "float32")
LEAST_GAIN = 0.1
DEFAULT_EPS = 1e-5

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "falcon-40b-prefill": ((8192, 8192), "bfloat16"),
    "falcon-40b-decode": ((64, 8192), "bfloat16"),
    "gpt-2-training": ((65536, 768), "bfloat16"),
    "whisper-large": ((24000, 1280), "float16"),  # 16 pieces of 30 s
    "deepseek-indexer": ((131072, 128), "bfloat16"),  # heads of 128
    "wide": ((2048, 65536), "bfloat16"),
    "odd": ((4099, 1025), "float32"),
}


def arguments(rows: int = 8192, columns: int = 8192, dtype: str = "bfloat16") -> dict[str, TensorSpec | int | float]:
    """The kernel's arguments for x[rows, columns] with weight and bias, by name, in the order of its parameters."""
    shape, row = TensorSpec((rows, columns), dtype), TensorSpec((columns,), dtype)
    out = TensorSpec((rows, columns), dtype, fill="empty")
    return {"x": shape, "weight": row, "bias": row, "out": out, "rows": rows, "eps": DEFAULT_EPS, "COLUMNS": columns}


def gradient_arguments(
    rows: int = 8192, columns: int = 8192, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The arguments of the gradient's launch, by name, in the order of its parameters."""
    shape, row = (rows, columns), (columns,)
    return {
        "x": TensorSpec(shape, dtype), "weight": TensorSpec(row, dtype), "grad": TensorSpec(shape, dtype),
        "dx": TensorSpec(shape, dtype, fill="empty"), "dweight": TensorSpec(row, dtype, fill="empty"),
        "dbias": TensorSpec(row, dtype, fill="empty"), "eps": DEFAULT_EPS, "COLUMNS": columns,
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work: bytes of the inputs and outputs; bandwidth is the limit."""
    specs = problem.specs
    x, out = specs["x"], specs["out"]
    tiles = RowTiles(
        x.shape[0], x.shape[1], dtype=x.dtype, out_dtype=out.dtype, tile_rows="ROWS", tile_columns="BLOCK_SIZE",
        kept=True,
    )  # fmt: skip
    return Work(bytes=float(sum(spec.nbytes for spec in specs.values())), tiles=tiles)


def gradient_work(problem: Problem) -> Work:
    """The bytes of the gradient's inputs and outputs.

    It declares no tiles: programs that walk over many rows, and add up their part of two more gradients, are no walk
    that `RowTiles` describes. The model reads the kernel instead.
    """
    return Work(bytes=float(sum(spec.nbytes for spec in problem.specs.values())))


def layer_norm_reference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, out: Tensor, *, eps: float, **_extents: int
) -> Tensor:
    """Compute `(x - mean) / sqrt(variance + eps) * weight + bias` in float32 or wider, rounded once."""
    n, _ = _normal(x, eps)
    found = n if weight is None else n * weight.to(n.dtype)
    return (found if bias is None else found + bias.to(n.dtype)).to(out.dtype)


def layer_norm_backward_reference(
    x: Tensor, weight: Tensor | None, grad: Tensor, dx: Tensor, dweight: Tensor, dbias: Tensor, *, eps: float,
    **_extents: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x, weight and bias, in float32 or wider, rounded once."""
    n, scale = _normal(x, eps)
    wide = grad.to(n.dtype)
    g = wide if weight is None else wide * weight.to(n.dtype)
    found = (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True)) * scale
    over = tuple(range(x.ndim - 1))
    return found.to(dx.dtype), (wide * n).sum(over).to(dweight.dtype), wide.sum(over).to(dbias.dtype)


def _normal(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The rows with mean 0 and variance 1, and one over their standard deviation."""
    torch = require("torch", "the reference of layer_norm")
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    apart = wide - wide.mean(-1, keepdim=True)
    scale = (apart.square().mean(-1, keepdim=True) + eps).rsqrt()
    return apart * scale, scale
