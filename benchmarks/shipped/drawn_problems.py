"""The shipped kernels at problems that nobody chose, untuned and tuned, beside the library.

    python -m benchmarks.shipped.drawn_problems --seed 1 --out benchmarks/results/nvidia-h200/drawn.json
    python -m benchmarks.shipped.drawn_problems --seed 1 --draw  # the problems alone, without a GPU

A seed draws the problems before anything is measured: kernels in turn, extents alike in their logarithms within the
ranges of RANGES, of which a third is left as it is drawn, odd or not, a third are multiples of 16, and a third of 128.
Of the weights of 8-bit products, and of experts, the library takes multiples of 16 alone.

The library is cuBLAS for products, `torch._scaled_mm` for 8-bit ones, the fastest backend of torch's attention, the
faster one of `torch._grouped_mm` and a product for each group, and for the others what torch has in eager mode. The
times are those of the GPU, interleaved, with L2 cold, as `benchmarks.shipped.kernels_gpu` takes them. Untuned means the
package's winners and defaults. A tune is the default one; its seconds are what a first user waits. The exit code is 1
if a bar of BARS is missed, 2 if problems were left out by `--limit-s`.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import triton_ops_kernels as kernels
from benchmarks.document import headed, parser_of, save
from triton_ops import tune
from triton_ops.backend import CandidateError
from triton_ops.benchmark import RivalRun
from triton_ops.device import probe
from triton_ops.exceptions import TritonKernelError
from triton_ops_kernels.rivals import rivals_of

RANGES = {
    "rows": (1, 8192), "columns": (512, 16384), "terms": (512, 16384), "many rows": (64, 32768), "row": (64, 160_000),
    "channels": (128, 16384), "length": (256, 8192), "cache": (1024, 32768), "expert": (512, 8192),
}  # fmt: skip
DTYPES = ("bfloat16", "float16")
MOST = 2**28  # elements of the largest tensor
RIVALS = {
    "matmul": ("library",), "fp8_gemm": ("library",), "attention": ("library",), "grouped_matmul": ("library", "eager"),
    "softmax": ("eager",), "layer_norm": ("eager",), "gated_mlp": ("eager",), "rmsnorm_rope": ("eager",),
}  # fmt: skip
BARS = {"untuned": (0.92, 0.75), "tuned": (1.05, 0.90)}
"""What the geometric mean and the least speed must reach."""
MOST_TUNE_S = 15.0
Shape = tuple[int, ...]
Row = dict[str, Any]


class Lot(random.Random):
    """Draws extents."""

    def extent(self, name: str, most: int = MOST, step: int = 1) -> int:
        """An extent of a range, up to `most` and a multiple of `step`."""
        low, high = RANGES[name]
        drawn = round(math.exp(self.uniform(math.log(low), math.log(max(low, min(high, most))))))
        multiple = max(step, self.choice((1, 16, 128)))
        return max(step, drawn // multiple * multiple or drawn)

    def product(self) -> Shape:
        """Rows, columns and terms."""
        return self.extent("rows"), self.extent("columns"), self.extent("terms")

    def scaled_product(self) -> Shape:
        """The same, and whether there is a scale for each tensor or for each row."""
        return self.extent("rows"), self.extent("columns", step=16), self.extent("terms", step=16), self.randint(1, 2)

    def long_rows(self) -> Shape:
        """Rows and their length, up to a vocabulary."""
        columns = self.extent("row")
        return self.extent("many rows", MOST // columns), columns

    def channels(self) -> Shape:
        """Rows and their length."""
        columns = self.extent("channels")
        return self.extent("many rows", MOST // columns), columns

    def heads(self) -> Shape:
        """Attention: a batch of prefills, with a mask or without, or of sequences that are decoded."""
        kv_heads, shared, head = self.choice((4, 8, 16)), self.choice((1, 4, 8)), self.choice((64, 64, 80, 128, 128))
        keys, decodes = self.extent("length"), self.random() < 0.25
        if decodes:
            keys = self.extent("cache")
        batch = self.randint(1, max(1, min(16, 2**15 // keys)))
        return batch, kv_heads * shared, kv_heads, 1 if decodes else keys, keys, head, head, self.randint(1, 2)

    def rotated(self) -> Shape:
        """Batch, positions, hidden size and heads."""
        heads, head, tokens = self.choice((8, 16, 28, 32, 64)), self.choice((64, 80, 128)), self.extent("many rows")
        batch = self.choice((1, 4, 16))
        return batch, max(1, tokens // batch), heads * head, heads

    def experts(self) -> Shape:
        """Rows, experts, columns, terms and the layout of the weights, as of linear layers."""
        groups, columns = self.choice((8, 16, 64)), self.extent("expert", step=16)
        return self.extent("many rows"), groups, columns, self.extent("expert", MOST // groups // columns, step=16), 2


DRAWS: dict[str, Callable[[Lot], Shape]] = {
    "matmul": Lot.product, "softmax": Lot.long_rows, "layer_norm": Lot.channels, "attention": Lot.heads,
    "fp8_gemm": Lot.scaled_product, "gated_mlp": Lot.product, "rmsnorm_rope": Lot.rotated,
    "grouped_matmul": Lot.experts,
}  # fmt: skip


def drawn(seed: int, count: int) -> list[tuple[str, Shape, str]]:
    """Kernel, shape and dtype of each problem of a seed."""
    lot = Lot(f"problems {seed}")
    names = lot.sample(list(DRAWS), len(DRAWS))
    in_turn = [names[place % len(names)] for place in range(count)]
    return [(name, DRAWS[name](lot), "bfloat16" if name == "fp8_gemm" else lot.choice(DTYPES)) for name in in_turn]


def measured(name: str, shape: Shape, dtype: str, options: argparse.Namespace, folder: str) -> Iterator[Row]:
    """The two rows of a problem: untuned, then tuned with the seconds that it took."""
    yield beside_library(name, shape, dtype, options, f"{folder}/empty")
    begin = time.monotonic()
    try:
        tune(kernels.load(name), shape=shape, dtype=dtype, device="cuda", cache_dir=f"{folder}/tuned")
    except (TritonKernelError, RuntimeError) as error:
        yield {"verdict": f"not tuned: {CandidateError.one_line(error)}", "tune_s": time.monotonic() - begin}
        return
    tune_s = time.monotonic() - begin
    yield {**beside_library(name, shape, dtype, options, f"{folder}/tuned"), "tune_s": tune_s}


def beside_library(name: str, shape: Shape, dtype: str, options: argparse.Namespace, folder: str) -> Row:
    """A problem with the config that a call runs with the records of a folder, beside the fastest of its rivals."""
    run = RivalRun(rivals_of=rivals_of, rivals=RIVALS[name], seconds=options.seconds, cache_dir=folder)
    try:
        rows = list(run.problem_rows(kernels.load(name), "drawn", shape, dtype))
    except (TritonKernelError, CandidateError, RuntimeError) as error:  # one problem does not end the run
        return {"verdict": f"not measured: {CandidateError.one_line(error)}"}
    compared = [row for row in rows if row.speedup is not None]
    if not compared:
        return {"verdict": "; ".join(row.verdict for row in rows)}
    row = min(compared, key=lambda each: each.speedup or 0.0)
    fields = ("rival", "config", "origin", "kernel_ms", "rival_ms", "speedup", "interval", "verdict", "confidence")
    return {field: getattr(row, field) for field in fields}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The geometric mean and the least of both states, how many have no speed, and the longest tune."""
    figures: dict[str, Any] = {"longest_tune_s": max((row["tune_s"] for row in rows if "tune_s" in row), default=0.0)}
    for state in BARS:
        own = [row for row in rows if row["state"] == state]
        speeds = [row["speedup"] for row in own if "speedup" in row]
        mean = math.exp(statistics.fmean(map(math.log, speeds))) if speeds else 0.0
        figures[state] = {
            "problems": len(own), "without_speed": len(own) - len(speeds), "geometric_mean": mean,
            "least": min(speeds, default=0.0),
        }  # fmt: skip
    return figures


def misses(figures: dict[str, Any]) -> list[str]:
    """The bars that are missed, in words."""
    lines = []
    for state, (mean, least) in BARS.items():
        own = figures[state]
        for name, bar in (("geometric_mean", mean), ("least", least)):
            if own[name] < bar:
                lines.append(f"{state}: the {name.replace('_', ' ')} is {own[name]:.3f}, below {bar}")
        if own["without_speed"]:
            lines.append(f"{state}: {own['without_speed']} of {own['problems']} problems have no speed")
    if figures["longest_tune_s"] > MOST_TUNE_S:
        lines.append(f"a tune took {figures['longest_tune_s']:.1f} s, over {MOST_TUNE_S:g} s")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, measure, and write one JSON file."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="begin no problem after so many seconds")
    parser.add_argument("--draw", action="store_true", help="only tell the problems")
    options, begin = parser.parse_args(arguments), time.monotonic()
    problems = drawn(options.seed, options.count)
    for name, shape, dtype in problems:
        print(f"drawn: {name} {'x'.join(map(str, shape))} {dtype}")
    if options.draw:
        return 0
    device = probe("cuda")
    out = options.out or Path("benchmarks/results") / device.name.lower().replace(" ", "-") / "drawn.json"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, shape, dtype in problems:
            if time.monotonic() - begin >= options.limit_s:
                break
            for state, row in zip(BARS, measured(name, shape, dtype, options, folder), strict=False):
                rows.append({"kernel": name, "shape": shape, "dtype": dtype, "state": state, **row})
                print(f"{time.monotonic() - begin:6.1f} s  {line_of(rows[-1])}", flush=True)
            about = {"device": device.name, "driver": device.driver, "seed": options.seed, "bars": BARS}
            about |= {"summary": summary(rows), "rows": rows}
            save(out, headed("python -m benchmarks.shipped.drawn_problems", options.commit, **about))
    figures = summary(rows)
    lines = misses(figures)
    print("\n".join([*(f"{name}: {each}" for name, each in figures.items()), *lines]))
    return 1 if lines else 2 * (len(rows) < 2 * len(problems))


def line_of(row: Row) -> str:
    """A row as a line."""
    speed = f"{row['speedup']:.3f} of {row['rival']}, {row['kernel_ms']:.4f} ms, " if "speedup" in row else ""
    tuned = f", tuned in {row['tune_s']:.1f} s" if "tune_s" in row else ""
    shape = "x".join(map(str, row["shape"]))
    return f"{row['kernel']} {shape} {row['dtype']} {row['state']}: {speed}{row['verdict']}, {row.get('origin')}{tuned}"


if __name__ == "__main__":
    sys.exit(main())
