"""Ten slow functions with their spaces, as their users would write them: of NumPy, of C++ and of torch on a CPU.

Each is a function with its tunables as keywords: `tune(case.function, case.arguments(), space=case.space)` tunes it.
`record_callables` beside this module records their whole spaces.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triton_ops import Choice, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo
from triton_ops.base import require

SOURCE = Path(__file__).with_name("callables.cpp")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")


@dataclass(frozen=True)
class Case:
    """A function, its space and its problem.

    Attributes:
        function: Called with the arguments and the tunables; returns its result, or writes the last argument.
        space: What may be tried.
        shape: The extents of the problem.
        drawn: From a generator and the extents to the arguments, of which the last may be written.
        reference: The right result of these arguments.
    """

    function: Callable[..., Any]
    space: ConfigSpace
    shape: tuple[int, ...]
    drawn: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]

    @property
    def name(self) -> str:
        """The name of the function, whose first word says what it is written with."""
        return self.function.__name__

    def arguments(self) -> tuple[Any, ...]:
        """The arguments, which are the same in every process."""
        return self.drawn(np.random.default_rng(0), *self.shape)


def normal(draw: np.random.Generator, *shape: int) -> Any:
    """Normal numbers in float32."""
    return draw.standard_normal(shape, np.float32)


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """The threads of a function of NumPy, which calls NumPy in each of them."""
    return ThreadPoolExecutor(threads)


def side_by_side(threads: int, step: Callable[[Any], object], parts: Iterable[Any]) -> None:
    """Call `step` with each part, in so many threads."""
    for _ in pool(threads).map(step, parts) if threads > 1 else map(step, parts):
        pass


def numpy_product(a: Any, b: Any, *, rows: int, columns: int, inner: int, copied: str, threads: int) -> Any:
    """A matrix product in blocks; `copied` says whether blocks are copied before they are multiplied."""
    m, k, n = *a.shape, b.shape[1]
    out = np.zeros((m, n), np.float32)

    def step(at: tuple[int, int]) -> None:
        part = out[at[0] : at[0] + rows, at[1] : at[1] + columns]
        for l in range(0, k, inner):  # noqa: E741 - as in textbooks
            left, right = a[at[0] : at[0] + rows, l : l + inner], b[l : l + inner, at[1] : at[1] + columns]
            if copied == "blocks":
                left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
            part += left @ right

    side_by_side(threads, step, [(i, j) for i in range(0, m, rows) for j in range(0, n, columns)])
    return out


def numpy_softmax(x: Any, *, rows: int, buffers: str, sums: str, divide: bool, threads: int) -> Any:
    """A softmax of rows in chunks of rows."""
    out = np.empty_like(x)
    ones = np.ones((x.shape[1], 1), x.dtype)
    add = {
        "sum": lambda part: part.sum(axis=1, keepdims=True), "einsum": lambda part: np.einsum("ij->i", part)[:, None],
        "product": lambda part: part @ ones,
    }[sums]  # fmt: skip

    def step(first: int) -> None:
        part, to = x[first : first + rows], out[first : first + rows]
        if buffers == "fresh":
            part = np.exp(part - part.max(axis=1, keepdims=True))
        else:
            kept = to if buffers == "out" else np.empty_like(part)
            np.subtract(part, part.max(axis=1, keepdims=True), out=kept)
            part = np.exp(kept, out=kept)
        total = add(part)
        if divide:
            np.divide(part, total, out=to)
        else:
            np.multiply(part, 1 / total, out=to)

    side_by_side(threads, step, range(0, len(x), rows))
    return out


def numpy_standardise(x: Any, *, rows: int, columns: int, method: str, precise: bool, layout: str) -> Any:
    """Every column less its mean, over its deviation; sums are made in chunks of rows, for a block of columns."""
    out, kind = np.empty_like(x, order=layout), np.float64 if precise else np.float32
    for left in range(0, x.shape[1], columns):
        part = x[:, left : left + columns] if layout == "C" else np.asfortranarray(x[:, left : left + columns])
        chunks = [part[first : first + rows] for first in range(0, len(x), rows)]
        mean = sum(chunk.sum(axis=0, dtype=kind) for chunk in chunks) / len(x)
        if method == "two_pass":
            squares = sum(((chunk - mean) ** 2).sum(axis=0, dtype=kind) for chunk in chunks)
        elif method == "moments":
            squares = sum(np.square(chunk).sum(axis=0, dtype=kind) for chunk in chunks) - len(x) * mean**2
        else:
            squares = sum(np.einsum("ij,ij->j", chunk, chunk, dtype=kind) for chunk in chunks) - len(x) * mean**2
        scale = (squares / len(x)) ** -0.5
        for first, chunk in zip(range(0, len(x), rows), chunks, strict=True):
            out[first : first + rows, left : left + columns] = (chunk - mean) * scale
    return out


@functools.cache
def library() -> Any:
    """The functions of C++, compiled once on a machine; `OSError` without g++, `CalledProcessError` if it fails."""
    place = Path(tempfile.gettempdir(), f"callables_{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so")
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            part = Path(folder, place.name)
            subprocess.run(["g++", *FLAGS, str(SOURCE), "-o", str(part)], check=True)
            part.replace(place)
    return ctypes.CDLL(str(place))


def called(name: str, *values: Any) -> None:
    """Call a function of C++ with arrays and whole numbers."""
    getattr(library(), name)(*(value.ctypes if isinstance(value, np.ndarray) else int(value) for value in values))


def cpp_stencil(x: Any, out: Any, *, tile_y: int, tile_x: int, unroll: int, threads: int, stream: bool) -> None:
    """Nine points of a star; results may be written past the caches."""
    called("stencil", x, out, *x.shape, tile_y, tile_x, unroll, threads, stream)


ORDERS = ["ijk", "ikj", "kij"]


def cpp_product(
    a: Any, b: Any, out: Any, *, tile_i: int, tile_j: int, tile_k: int, order: str, unroll: int, pack: bool,
    threads: int,
) -> None:  # fmt: skip
    """A matrix product of square matrices in tiles."""
    called("product", a, b, out, len(a), tile_i, tile_j, tile_k, ORDERS.index(order), unroll, pack, threads)


def cpp_histogram(
    x: Any, out: Any, *, tables: str, copies: int, interleaved: bool, wide: bool, chunk: int, threads: int
) -> None:
    """Counts of whole numbers."""
    called("histogram", x, out, x.size, out.size, tables == "shared", copies, interleaved, wide, chunk, threads)


SCHEDULES = ["static", "dynamic", "guided"]


def cpp_sparse(
    begins: Any, places: Any, values: Any, x: Any, order: Any, out: Any, *, schedule: str, chunk: int, columns: int,
    by_length: bool, threads: int,
) -> None:  # fmt: skip
    """A sparse matrix by a dense one of few columns; `order` has the rows by their length."""
    how = SCHEDULES.index(schedule), chunk, columns, by_length, threads
    called("sparse", begins, places, values, x, order, out, *out.shape, *how)


PRECISIONS = ["float32", "quick", "float64"]


def cpp_black_scholes(
    columns: Any, triples: Any, out: Any, *, width: int, precision: str, packed: bool, chunk: int, threads: int
) -> None:
    """Prices of options; the inputs are three columns, or triples."""
    called("black_scholes", columns, triples, out, out.size, width, PRECISIONS.index(precision), packed, chunk, threads)


def torch_attention(q: Any, k: Any, v: Any, *, chunk: int, heads: int, method: str, layout: str, threads: int) -> Any:
    """Attention of some queries and heads at a time; the inputs are [heads, tokens, extent]."""
    torch = require("torch", "attention")
    torch.set_num_threads(threads)
    if layout == "tokens":  # as a model's projections leave them
        q, k, v = (each.transpose(0, 1).contiguous().transpose(0, 1) for each in (q, k, v))
    out, scale = torch.empty_like(q), q.shape[-1] ** -0.5
    for head in range(0, len(q), heads):
        keys, values = k[head : head + heads], v[head : head + heads]
        for first in range(0, q.shape[1], chunk):
            part = q[head : head + heads, first : first + chunk]
            if method == "fused":
                done = torch.nn.functional.scaled_dot_product_attention(part[None], keys[None], values[None])[0]
            elif method == "scaled":
                scores = torch.baddbmm(part.new_zeros(()), part, keys.mT, beta=0, alpha=scale)
                done = scores.softmax(-1) @ values
            else:
                done = ((part * scale) @ keys.mT).softmax(-1) @ values
            out[head : head + heads, first : first + chunk] = done
    return out


def torch_top_k(x: Any, *, method: str, parts: int, chunk: int, in_order: bool, threads: int) -> Any:
    """The 64 largest numbers of each row, the largest first; `in_parts` takes those of parts of a row first."""
    torch = require("torch", "the largest numbers")
    torch.set_num_threads(threads)
    found = []
    for rows in x.split(chunk):
        if method == "sort":
            found.append(rows.sort(dim=1, descending=True, stable=in_order).values[:, :64])
            continue
        if method == "in_parts":
            rows = rows.view(len(rows), parts, -1).topk(64, sorted=False).values.flatten(1)
        best = rows.topk(64, sorted=in_order).values
        found.append(best if in_order else best.sort(dim=1, descending=True).values)
    return torch.cat(found)


def star(x: Any) -> Any:
    """What `cpp_stencil` writes."""
    out = np.zeros_like(x)
    near = x[1:-3, 4:-4] + x[3:-1, 4:-4] + x[2:-2, 3:-5] + x[2:-2, 5:-3]
    far = x[:-4, 4:-4] + x[4:, 4:-4] + x[2:-2, 2:-6] + x[2:-2, 6:-2]
    out[2:-2, 4:-4] = 0.5 * x[2:-2, 4:-4] + 0.1 * near + 0.025 * far
    return out


def drawn_rows(draw: np.random.Generator, rows: int, width: int) -> tuple[Any, ...]:
    """A sparse matrix whose rows have from 1 to 2,000 numbers, most of them few; with the other arguments."""
    lengths = np.minimum(1 + draw.pareto(1.2, rows) * 6, 2000).astype(np.int32)
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = draw.integers(0, rows, begins[-1], np.int32)
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    return begins, places, normal(draw, len(places)), normal(draw, rows, width), order, np.zeros((rows, width), "f4")


def row_sums(begins: Any, places: Any, values: Any, x: Any, *_others: Any) -> Any:
    """What `cpp_sparse` writes."""
    return np.add.reduceat(values[:, None] * x[places], begins[:-1])


def drawn_options(draw: np.random.Generator, count: int) -> tuple[Any, ...]:
    """Spot prices, strikes and years, as columns and as triples, and room for prices."""
    columns = draw.uniform([[80], [80], [0.2]], [[120], [120], [2]], (3, count)).astype(np.float32)
    return columns, np.ascontiguousarray(columns.T), np.zeros(count, np.float32)


def prices(columns: Any, *_others: Any) -> Any:
    """What `cpp_black_scholes` writes."""
    spot, strike, years = columns.astype(np.float64)
    below = np.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))
    d = (np.log(spot / strike) + 0.065 * years) / (0.3 * np.sqrt(years))
    return spot * below(d) - strike * np.exp(-0.02 * years) * below(d - 0.3 * np.sqrt(years))


def tensors(draw: np.random.Generator, *shape: int, number: int) -> tuple[Any, ...]:
    """So many tensors of normal numbers."""
    return tuple(require("torch", "tensors").from_numpy(normal(draw, *shape)) for _ in range(number))


def attended(q: Any, k: Any, v: Any) -> Any:
    """What `torch_attention` returns."""
    return require("torch", "attention").softmax(q.double() @ k.double().mT * q.shape[-1] ** -0.5, -1) @ v.double()


THREADS = IntRange(1, 4)

CASES = [
    Case(numpy_product, ConfigSpace(
        {"rows": [720, 360, 240, 144, 72], "columns": [720, 360, 180, 72], "inner": [720, 240, 90],
         "copied": ["none", "blocks"], "threads": THREADS},
        [Constraint("parts", lambda rows, columns, threads: 720 // rows * (720 // columns) >= threads,
                    "each of {threads} threads has a block")],
    ), (720, 720, 720), lambda draw, m, n, k: (normal(draw, m, k), normal(draw, k, n)), np.matmul),
    Case(numpy_softmax, ConfigSpace(
        {"rows": [2048, 1024, 700, 512, 256, 100, 64, 16, 4], "buffers": ["fresh", "out", "kept"],
         "sums": ["sum", "einsum", "product"], "divide": [True, False], "threads": PowerOfTwo(1, 4)},
        [Constraint("chunks", lambda rows, threads: -(-2048 // rows) >= threads, "each of {threads} threads has one")],
    ), (2048, 1024), lambda draw, *shape: (normal(draw, *shape),),
        lambda x: np.exp(x, dtype=np.float64) / np.exp(x, dtype=np.float64).sum(axis=1, keepdims=True)),
    Case(numpy_standardise, ConfigSpace(
        {"rows": [4000, 2000, 1000, 300, 100], "columns": [400, 200, 100, 40],
         "method": ["two_pass", "moments", "einsum"], "precise": [True, False], "layout": ["C", "F"]},
    ), (4000, 400), lambda draw, *shape: (normal(draw, *shape) + np.float32(2),),
        lambda x: (x - x.mean(axis=0, dtype=np.float64)) / x.std(axis=0, dtype=np.float64)),
    Case(cpp_stencil, ConfigSpace(
        {"tile_y": [3072, 256, 48, 12, 3], "tile_x": [3072, 1024, 500, 128, 32], "unroll": [1, 2, 6],
         "threads": THREADS, "stream": Flag()},
        [Constraint("tile", lambda tile_y, tile_x: tile_y * tile_x >= 768, "a tile has at least 768 points"),
         Constraint("tiles", lambda tile_y, tile_x, threads: -(-3068 // tile_y) * -(-3064 // tile_x) >= threads,
                    "each of {threads} threads has a tile"),
         Constraint("rows", lambda tile_y, unroll: tile_y >= unroll, "{unroll} rows are in a tile")],
    ), (3072, 3072), lambda draw, *shape: (normal(draw, *shape), np.zeros(shape, np.float32)), lambda x, _out: star(x)),
    Case(cpp_product, ConfigSpace(
        {"tile_i": [16, 48, 96], "tile_j": [384, 128, 32], "tile_k": [384, 96], "order": Choice(ORDERS),
         "unroll": PowerOfTwo(1, 8), "pack": Flag(), "threads": [1, 2, 4]},
        [Constraint("strip", lambda tile_j, unroll: tile_j * unroll <= 768, "{unroll} strips stay in the first cache"),
         Constraint("block", lambda tile_j, tile_k, pack: not pack or tile_j * tile_k <= 16_384, "a copy is small"),
         Constraint("order", lambda tile_k, order: tile_k < 384 or order == "ijk", "one step of k has one order"),
         Constraint("threads", lambda tile_i, threads: threads < 4 or tile_i <= 48, "threads have equal shares")],
    ), (384, 384), lambda draw, m, n: (normal(draw, m, n), normal(draw, m, n), np.zeros((m, n), np.float32)),
        lambda a, b, _out: a @ b),
    Case(cpp_histogram, ConfigSpace(
        {"tables": ["private", "shared"], "copies": PowerOfTwo(1, 8), "interleaved": Flag(), "wide": Flag(),
         "chunk": [1 << 20, 1 << 17, 50_000, 1 << 14, 1 << 11], "threads": THREADS},
        [Constraint("shared", lambda tables, copies, wide: tables == "private" or (copies == 1 and not wide),
                    "a shared table is one, and read singly"),
         Constraint("copies", lambda copies, interleaved: copies > 1 or not interleaved, "one table is in one piece")],
    ), (8_000_000, 4096), lambda draw, count, bins: (
        (bins * draw.beta(0.6, 4, count)).astype(np.uint16), np.zeros(bins, np.int32)),
        lambda x, out: np.bincount(x, minlength=out.size)),
    Case(cpp_sparse, ConfigSpace(
        {"schedule": Choice(SCHEDULES), "chunk": [5000, 1250, 300, 64, 16, 4, 1], "columns": [1, 4, 8, 16],
         "by_length": Flag(), "threads": THREADS},
        [Constraint("schedule", lambda schedule, threads: threads > 1 or schedule == "static", "one thread has all")],
    ), (20_000, 16), drawn_rows, row_sums),
    Case(cpp_black_scholes, ConfigSpace(
        {"width": [1, 4, 8, 16, 64], "precision": Choice(PRECISIONS), "packed": Flag(),
         "chunk": [256_000, 64_000, 16_000, 3200, 640], "threads": THREADS},
        [Constraint("chunks", lambda chunk, threads: -(-256_000 // chunk) >= threads, "each thread has a chunk")],
    ), (256_000,), drawn_options, prices),
    Case(torch_attention, ConfigSpace(
        {"chunk": [384, 192, 128, 96, 64, 32], "heads": [8, 4, 2, 1], "method": ["plain", "scaled", "fused"],
         "layout": ["heads", "tokens"], "threads": THREADS},
    ), (8, 384, 64), functools.partial(tensors, number=3), attended),
    Case(torch_top_k, ConfigSpace(
        {"method": ["topk", "sort", "in_parts"], "parts": PowerOfTwo(1, 16), "chunk": [128, 64, 48, 32, 16, 8],
         "in_order": [True, False], "threads": THREADS},
        [Constraint("parts", lambda method, parts: (method == "in_parts") == (parts > 1), "{method} has one part")],
    ), (128, 4096), functools.partial(tensors, number=1), lambda x: x.sort(dim=1, descending=True).values[:, :64]),
]  # fmt: skip
