"""Every shipped kernel on random shapes, configs and inputs, judged by the rule for verdicts.

    python -m benchmarks.correctness.random_shapes  # small shapes, in Triton's interpreter; minutes
    python -m benchmarks.correctness.random_shapes --device cuda --processes 12
    python -m benchmarks.correctness.random_shapes --kernels softmax --shapes 50 --seed 7

A shape is drawn with a config of the operation's space, the default in one case of four, and with inputs: uniform, or,
in one case of three, zeros, denormals, large values, or a few NaN or infinities among uniform ones. The result must be
right by the rule, and have the same bits at a second launch. Attention, whose error grows with its scores, and
gradients that may be a difference of equal numbers, as those of attention and of the layer norm, are right by the rule
or within what rounding can do (`by_bound` says how many were). What the device cannot run, such as too much shared
memory, runs with the default config. The exit code is 1 if a result is wrong.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch

import triton_ops_kernels as kernels
from benchmarks.correctness.rounding_bounds import (
    attention_excess,
    attention_gradient_excess,
    layer_norm_gradient_excess,
)
from benchmarks.document import commit_here, headed, parser_of, save
from triton_ops.backend import Arguments, CandidateError, Operation, Protection
from triton_ops.benchmark import check_result
from triton_ops.device import probe
from triton_ops.exceptions import ShapeMismatchError, TritonKernelError, WrongResultError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels.attention.problems import attention_reference

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


LARGE = {"float16": 16.0}
"""How many times as large inputs are, by dtype; 1,024 times for others."""
TWO_PRODUCTS = {("gated_mlp", "float16"): 2.0}
"""The same, where two products are multiplied, and all would overflow but what is left where terms cancel out."""
SCORED = {(kernel, name) for kernel in ("attention", "attention_backward") for name in ("q", "k")}
"""Inputs that are at most 16 times as large: weights are exp(score - logarithm), whose error grows with the score."""
MEETING = {("layer_norm", "weight"), ("layer_norm_backward", "weight"), ("layer_norm_backward", "grad")}
"""Inputs that hold NaN where others hold infinities: those would meet zeros, or other infinities in a sum over the row,
where rounding and the order of the sum decide between infinity and NaN."""
BOUNDS = {
    "attention": attention_excess,
    "attention_backward": attention_gradient_excess,
    "layer_norm_backward": layer_norm_gradient_excess,
}
"""Of some kernels, the largest error of results divided by what rounding can do, from arguments and results."""


def wrong(case: Case, device: str, by_bound: list[Case] | None = None) -> str | None:
    """How the result of a case is wrong, or why it does not run; None if it is right at both launches.

    Args:
        case: The case.
        device: `cpu` or `cuda`.
        by_bound: Takes the case if it is right by the bound of rounding alone.
    """
    operation = kernels.load(case.kernel)
    problem = operation.problem(case.shape, case.dtype)
    values = dict(operation.materialise(problem, device, case.seed).keyword)
    spoil(values, problem.specs, case)
    config = Config(case.config)
    try:
        try:
            first = _right(operation, config, values, case, by_bound)
        except CandidateError:
            config = operation.space_for(problem).default_config
            first = _right(operation, config, values, case, by_bound)
        again = launched(operation, config, values)
    except (WrongResultError, CandidateError, TritonKernelError) as error:
        return CandidateError.one_line(error)
    same = all(bits(one).equal(bits(other)) for one, other in zip(first, again, strict=True))
    return None if same else "a second launch gives other bits"


def _right(
    operation: Operation, config: Config, values: Mapping[str, Any], case: Case, by_bound: list[Case] | None
) -> list[Any]:
    """The outputs of one launch, which are right by the rule, or within what rounding can do.

    Raises:
        WrongResultError: They are neither.
    """
    try:
        return check_result(operation, config, values)
    except WrongResultError:
        result = launched(operation, config, values)
        if operation.name not in BOUNDS or BOUNDS[operation.name](values, result) > 1:
            raise
    if by_bound is not None:
        by_bound.append(case)
    return result


def launched(operation: Operation, config: Config, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of one launch on copies of the arguments."""
    copy = Protection.private_copy(Arguments(keyword=values))
    executable = operation.kernel.compile(config, copy)
    executable.launch(copy)
    return [copy.keyword[name] for name in executable.outputs]


def bits(tensor: Any) -> Any:
    """The memory of a tensor as whole numbers, of which NaN is one."""
    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(wide[tensor.element_size()])


def spoil(values: dict[str, Any], specs: Mapping[str, TensorSpec], case: Case) -> None:
    """Put the case's extreme values into the inputs of 16 bits and more, in place."""
    for name, spec in specs.items():
        tensor = values[name]
        if spec.fill != "uniform" or not tensor.dtype.is_floating_point or tensor.element_size() == 1:
            continue
        if case.fill == "zeros":
            tensor.zero_()
        elif case.fill == "denormal":
            tensor.mul_(8 * torch.finfo(tensor.dtype).smallest_normal)
        elif case.fill == "large":
            most = TWO_PRODUCTS.get((case.kernel, case.dtype), 16.0 if (case.kernel, name) in SCORED else math.inf)
            tensor.mul_(min(LARGE.get(case.dtype, 1024.0), most))
        elif case.fill in ("nan", "infinity"):
            rng = random.Random(f"{name} {case.seed}")
            undefined = case.fill == "nan" or (case.kernel, name) in MEETING
            special = float("nan") if undefined else rng.choice((1, -1)) * float("inf")
            part = spoilt(case.kernel, name, values)
            for _ in range(rng.randint(0, 2)):
                part[tuple(map(rng.randrange, part.shape))] = special
    if case.kernel == "attention_backward":  # the result and its logarithms are those of the inputs
        values["out"], values["lse"] = attention_reference(**values)


def spoilt(kernel: str, name: str, values: Mapping[str, Any]) -> Any:
    """The part of an input where NaN and infinities have a defined effect.

    That is all of it but for attention with a mask, where 0 times infinity makes NaN or nothing, as tiles go. There it
    is the values of keys that all queries see, which see any, and for the gradient these keys and the last query.
    """
    tensor = values[name]
    if not values.get("CAUSAL", False):
        return tensor
    if name == "v" or (name == "k" and kernel == "attention_backward"):
        return tensor[:, :, : max(1, values["k"].shape[2] - values["q"].shape[2] + 1)]
    return tensor[:, :, -1:] if kernel == "attention_backward" else tensor


@dataclass(kw_only=True)
class Part:
    """What became of a part of a kernel's cases."""

    ran: int = 0
    by_bound: list[Case] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    fills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def judged(name: str, part: int, options: Mapping[str, Any]) -> Part:
    """Judge a part of a kernel's cases."""
    sizes = INTERPRETED if options["device"] == "cpu" else ON_A_GPU
    warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of NaN and infinity in the interpreter
    start, tally = time.monotonic(), Part()
    for place, case in enumerate(cases(name, options["shapes"], options["seed"], sizes)):
        if place % options["parts"] != part:
            continue
        if options["limit_s"] and time.monotonic() - start > options["limit_s"]:
            break
        tally.ran += 1
        tally.fills[case.fill] += 1
        try:
            how = wrong(case, options["device"], tally.by_bound)
        except RuntimeError as error:  # torch's own, such as a fault of a launch that it tells of where it waits
            how = CandidateError.one_line(error)
        if how is not None:
            tally.wrong.append({**asdict(case), "how": how})
            print(f"wrong: {case}: {how}", flush=True)
    tally.seconds = time.monotonic() - start
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, write one JSON file, and return 1 if a result is wrong."""
    parser = parser_of(__doc__)
    parser.add_argument("--kernels", nargs="*", default=[], choices=kernels.names(), metavar="NAME")
    parser.add_argument("--shapes", type=int, default=1000, help="random cases of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--limit-s", type=float, default=0.0, help="seconds for each process and kernel; 0 for no limit"
    )
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported, here and in the other processes
    settings = {**vars(options), "parts": options.processes}
    out = options.out or Path("benchmarks/results") / _folder(options.device) / "random_shapes.json"
    commit = options.commit or commit_here()
    table: dict[str, Any] = json.loads(out.read_text())["kernels"] if out.is_file() else {}
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(judged, name, part, settings): name
            for name in options.kernels or kernels.names()
            for part in range(options.processes)
        }
        parts: dict[str, list[Part]] = {}
        for future in as_completed(waiting):
            name = waiting[future]
            parts.setdefault(name, []).append(future.result())
            if len(parts[name]) < options.processes:
                continue
            table[name] = {**_row(name, parts[name], options.seed), "commit": commit}
            print(f"{name}: {table[name]['cases']} cases, {table[name]['wrong']} wrong", flush=True)
            about = {"device": options.device, "kernels": dict(sorted(table.items()))}
            save(out, headed("python -m benchmarks.correctness.random_shapes", commit, **about))
    return int(any(table[name]["wrong"] for name in parts))


def _row(name: str, parts: Sequence[Part], seed: int) -> dict[str, Any]:
    """The figures of a kernel, from those of the parts of its cases."""
    bad = [case for part in parts for case in part.wrong]
    fills = sum((part.fills for part in parts), Counter[str]())
    bounded: dict[str, Any] = {}
    if name in BOUNDS:
        kinds = Counter(f"{case.dtype}, {case.fill}" for part in parts for case in part.by_bound)
        bounded = {"by_bound": kinds.total(), "by_bound_of": dict(sorted(kinds.items()))}
    return {
        "cases": sum(part.ran for part in parts), "wrong": len(bad), **bounded, "fills": dict(sorted(fills.items())),
        "seconds": max(part.seconds for part in parts), "seed": seed, "examples": bad[:10],
    }  # fmt: skip


def _folder(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return probe("cuda").name.lower().replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
