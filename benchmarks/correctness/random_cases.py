"""Random shapes, configs and kinds of inputs of the shipped kernels, for `benchmarks/correctness/random_shapes.py`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import triton_ops_kernels as kernels
from triton_ops.backend import Operation
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.space import Config

FILLS = ("uniform",) * 9 + ("zeros", "denormal", "large", "nan", "infinity", "uniform")
Draw = Callable[[random.Random, "Sizes"], tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large shapes may be.

    Attributes:
        side: The largest extent of a matrix that is multiplied.
        row: The largest row.
        elements: The most elements of a tensor of rows.
        tokens: The most rows, of which some kernels have a program for each.
        head: The largest size of a head of attention: twice as large, a compiler may take minutes for float32.
        row_lengths: How many lengths of rows are drawn, since each is compiled; None for any number.
        heads: How many pairs of sizes of heads are drawn, likewise.
        configs: How many configs are drawn for each dtype before one is drawn again, since each is compiled.
        new_configs: The share of cases after them with a config that was not drawn before.
        dtypes: Dtypes of problems that are not drawn.
    """

    side: int
    row: int
    elements: int
    tokens: int
    head: int
    row_lengths: int | None = None
    heads: int = 10**6
    configs: int = 12
    new_configs: float = 0.1
    dtypes: tuple[str, ...] = ()

    def extent(self, rng: random.Random, most: int | None = None) -> int:
        """An extent, small ones as often as large ones."""
        return round((most or self.side) ** rng.random())

    def columns(self, rng: random.Random) -> int:
        """The length of a row."""
        if self.row_lengths is None:
            return self.extent(rng, self.row)
        return self.extent(random.Random(rng.randrange(self.row_lengths)), self.row)

    def rows(self, rng: random.Random, columns: int) -> int:
        """How many rows there are of so many columns."""
        return self.extent(rng, min(self.tokens, max(1, self.elements // columns)))


# The interpreter computes products of bfloat16 from raw bits, and cuts off what bfloat16 does not hold.
INTERPRETED = Sizes(side=70, row=700, elements=1500, tokens=40, head=64, dtypes=("bfloat16", "float8_e4m3fn"))
ON_A_GPU = Sizes(
    side=4096, row=40_000, elements=2**25, tokens=2**25, head=128, row_lengths=32, heads=8, configs=6, new_configs=0.02
)


def _product(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    return sizes.extent(rng), sizes.extent(rng), sizes.extent(rng)


def _rows(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    columns = sizes.columns(rng)
    return sizes.rows(rng, columns), columns


def _heads(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    """Batch, positions, hidden size and heads, which are of any even size."""
    half = max(1, sizes.columns(rng) // 8)
    heads = max(1, min(rng.choice((1, 2, 3, 8, 32)), sizes.row // (2 * half)))
    hidden = 2 * half * heads
    tokens = sizes.rows(rng, hidden)
    batch = sizes.extent(rng, tokens)
    return batch, max(1, tokens // batch), hidden, heads


def _groups(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    rows, columns = _rows(rng, sizes)
    return rows, columns, rng.choice((128, columns))


def _scaled_groups(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    rows, columns = _rows(rng, sizes)
    return rows, columns, *rng.choice(((1, 128), (1, columns), (128, 128), (rows, columns)))


def _attention(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    """Batch, heads, heads of keys, queries, keys, sizes of keys and values, and the mask."""
    longest = min(sizes.side, 1024)
    shared, queries, keys = rng.randint(1, 3), sizes.extent(rng, longest), sizes.extent(rng, longest)
    widths = random.Random(rng.randrange(sizes.heads))
    key, value = (8 * sizes.extent(widths, sizes.head // 8) for _ in range(2))
    kv_heads = rng.randint(1, 3)
    return rng.randint(1, 3), kv_heads * shared, kv_heads, queries, keys, key, value, rng.randint(1, 2)


def _grouped(rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    """Rows, groups, columns, terms and the layout of the weights."""
    side = min(sizes.side, 2048)
    rows, columns, terms = (sizes.extent(rng, side) for _ in range(3))
    return rows, rng.randint(1, 12), columns, terms, rng.randint(1, 2)


DRAWN: dict[str, Draw] = {
    "attention": _attention,
    "attention_backward": _attention,
    "fp8_dequantize": _scaled_groups,
    "fp8_gemm": lambda rng, sizes: (*_product(rng, sizes), rng.randint(1, 3)),
    "fp8_quantize": _groups,
    "gated_mlp": _product,
    "gated_mlp_backward": _rows,
    "grouped_matmul": _grouped,
    "layer_norm": _rows,
    "layer_norm_backward": _rows,
    "matmul": _product,
    "rmsnorm_rope": _heads,
    "rmsnorm_rope_backward": _heads,
    "softmax": _rows,
    "softmax_backward": _rows,
}


def drawn_shape(operation: Operation, rng: random.Random, sizes: Sizes) -> tuple[int, ...]:
    """A shape that the operation takes; for one without a rule, extents below those of its named problems.

    Raises:
        ShapeMismatchError: No shape of a thousand fits.
    """
    named = [shape for shape, _ in operation.problems.values()]
    for attempt in count():
        draw = DRAWN.get(operation.name)
        shape = draw(rng, sizes) if draw else tuple(sizes.extent(rng, min(e, sizes.side)) for e in rng.choice(named))
        try:
            operation.problem(shape)
        except ShapeMismatchError:
            if attempt == 1_000:
                raise
        else:
            return shape
    raise AssertionError


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of a kernel: everything that it takes to make it again."""

    kernel: str
    shape: tuple[int, ...]
    dtype: str
    fill: str
    config: dict[str, Any] = field(hash=False)
    seed: int

    def __str__(self) -> str:
        extents = "x".join(map(str, self.shape))
        return f"{self.kernel} {extents} {self.dtype}, {self.fill}, seed {self.seed}, ({Config(self.config)})"


def cases(name: str, number: int, seed: int, sizes: Sizes) -> Iterator[Case]:
    """The random cases of a kernel."""
    rng, operation = random.Random(f"{name} {seed}"), kernels.load(name)
    dtypes = [dtype for dtype in operation.dtypes if dtype not in sizes.dtypes]
    configs: dict[str, list[Config]] = {}
    for place in range(number):
        shape, dtype = drawn_shape(operation, rng, sizes), rng.choice(dtypes)
        space = operation.space_for(operation.problem(shape, dtype))
        used = configs.setdefault(dtype, [])
        config = space.default_config if rng.random() < 0.25 else _config(space, rng, used, sizes)
        yield Case(kernel=name, shape=shape, dtype=dtype, fill=rng.choice(FILLS), config=dict(config), seed=place)


def _config(space: Any, rng: random.Random, used: list[Config], sizes: Sizes) -> Config:
    """A config of the space; mostly one that was drawn before, which is compiled already."""
    fitting = [config for config in used if space.why_not(config) is None]
    if len(used) >= sizes.configs and fitting and rng.random() >= sizes.new_configs:
        return rng.choice(fitting)
    used.append(space.sample(rng))
    return used[-1]
