"""Whole blocks of models with this package's kernels beside torch's own: the wall time of steps, as programs see it.

    python -m benchmarks.shipped.blocks_gpu --out benchmarks/results/nvidia-h200/blocks.json
    python -m benchmarks.shipped.blocks_gpu --blocks llama-decode-1 --modes eager --sides untuned --limit-s 100
    TRITON_INTERPRET=1 python -m benchmarks.shipped.blocks_gpu --tiny --on cpu --modes eager --out FILE  # no GPU

Seven blocks of `benchmarks.shipped.blocks` in three modes are 21 cells. In each, torch's own block takes turns with the
others: `untuned` has this package's kernels with what they run untuned, `tuned` with the winners of tunes, and `chosen`
asks choosers, which were tuned, for this package's kernel or torch's. A turn is several steps in a row with one
synchronisation at the end; no cache is flushed, and nothing hides the host. A speed is torch's time divided by that of
the side, inside the repetitions, with its 95 % interval. Before anything is timed, results are compared: of a side that
differs by more than ATOL + RTOL times torch's result nothing is timed. In a prefill of the mixture of experts some
tokens may, since two experts are nearly as likely.

A tune is of the block's own problems, in a folder of records that is new for each block. Rows are written as soon as
they are there; other rows of the same file are kept. The exit code is 1 if a row of this run is slower by its interval,
wrong, or failed, or if a geometric mean is below 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

import triton_ops
from benchmarks.document import headed, parser_of, save
from benchmarks.shipped.blocks import PARTS, SHAPES, Block, block_of
from triton_ops.backend import CandidateError
from triton_ops.device import probe
from triton_ops.timing import Interval

MODES: dict[str, Mapping[str, Any] | None] = {
    "eager": None, "compile": {}, "reduce-overhead": {"mode": "reduce-overhead"},
}  # fmt: skip
SIDES = tuple(side for side in PARTS if side != "torch")
ATOL, RTOL = 0.08, 0.03  # of results whose elements are about 1, rounded to bfloat16 several times
OTHER_EXPERTS = {"moe-prefill": 0.005}  # the share of elements that may differ by more
WARM_UPS = 5  # torch's graphs are recorded at the second call
TURN_S = 0.012
Row = dict[str, Any]
Call = Callable[[], Any]


@dataclass
class Cells:
    """The cells of one block; torch's own compiled block serves two of them in each mode, before and after the tune."""

    name: str
    block: Block
    x: Any
    repetitions: int

    def __post_init__(self) -> None:
        torch.compiler.reset()
        torch._dynamo.config.recompile_limit = 64  # each side and mode is another version of one function
        self._steps: dict[tuple[str, str], Call] = {}
        self._facts: dict[tuple[str, str], Row] = {}

    def rows(self, mode: str, sides: Sequence[str]) -> Iterator[Row]:
        """The row of each side in a mode."""
        rows = {side: {"block": self.name, "mode": mode, "side": side} for side in sides}
        for side, row in rows.items():
            row |= self._compared(mode, side)
        right = [side for side, row in rows.items() if "verdict" not in row]
        for side, figures in (self._timed(mode, right) if right else {}).items():
            rows[side] |= figures
        yield from rows.values()

    def _compared(self, mode: str, side: str) -> Row:
        """How the result of a side differs from torch's; with a verdict if it is wrong, or failed."""
        try:
            expected = self._step("torch", mode)().clone()
            differs, most = difference(self._step(side, mode)(), expected)
        except Exception as error:  # noqa: BLE001 - torch's compiler raises what it likes, and the rest goes on
            return {"verdict": f"failed: {CandidateError.one_line(error)}"}
        of_torch = {f"torch_{name}": fact for name, fact in self._facts["torch", mode].items()}
        row = {"differs": differs, "largest_difference": most, **self._facts[side, mode], **of_torch}
        if differs <= OTHER_EXPERTS.get(self.name, 0.0):
            return row
        return {**row, "verdict": f"wrong: {differs:.2%} of the elements differ, by {most:.3g} at most"}

    def _timed(self, mode: str, sides: Sequence[str]) -> dict[str, Row]:
        calls = {side: self._step(side, mode) for side in ("torch", *sides)}
        steps = steps_of(calls["torch"])
        times = turns(calls, steps, self.repetitions)
        ratios = {side: Interval.of_gain(times["torch"], times[side]).ratio for side in sides}
        return {
            side: {
                "verdict": verdict(ratio), "speedup": ratio.centre, "interval": [ratio.low, ratio.high],
                "torch_ms": statistics.median(times["torch"]), "ms": statistics.median(times[side]),
                "steps": steps, "repetitions": self.repetitions,
            }
            for side, ratio in ratios.items()
        }  # fmt: skip

    def _step(self, side: str, mode: str) -> Call:
        """A step of a side in a mode, warmed up."""
        if (side, mode) not in self._steps:
            begin, block, options = time.monotonic(), self.block.on(side), MODES[mode]
            skipped = counters["inductor"]["cudagraph_skips"]
            run = block if options is None else torch.compile(block, dynamic=False, **options)
            for _ in range(WARM_UPS):
                run(self.x)
            wait()
            self._facts[side, mode] = {
                "compile_s": round(time.monotonic() - begin, 1),
                "without_graph": counters["inductor"]["cudagraph_skips"] - skipped,
            }
            self._steps[side, mode] = lambda: run(self.x)
        return self._steps[side, mode]


def wait() -> None:
    """Until the GPU has nothing left to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def steps_of(call: Call) -> int:
    """As many steps as a turn has."""
    taken_s = min(_seconds(call, 5) for _ in range(3)) / 5
    return min(200, max(5, round(TURN_S / taken_s)))


def _seconds(call: Call, steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        call()
    wait()
    return time.perf_counter() - begin


def turns(calls: Mapping[str, Call], steps: int, repetitions: int) -> dict[str, list[float]]:
    """For each call the milliseconds of a step, one figure for each repetition, in which all have a turn."""
    rng, times = random.Random(0), {name: list[float]() for name in calls}
    for _ in range(repetitions):
        for name in rng.sample(list(calls), len(calls)):
            times[name].append(_seconds(calls[name], steps) / steps * 1e3)
    return times


def difference(result: Any, expected: Any) -> tuple[float, float]:
    """The share of elements that differ by more than the tolerance, and the largest difference."""
    near = torch.isclose(result.float(), expected.float(), RTOL, ATOL)
    return 1.0 - near.double().mean().item(), (result.float() - expected.float()).abs().max().item()


def verdict(ratio: Interval) -> str:
    """What the interval of a speed says."""
    return "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "not distinguishable"


def tune(block: Block, x: Any, sides: Iterable[str], budget_s: float) -> dict[str, Any]:
    """Tune what sides run, kernels and choosers, by a step of the block; the seconds of each, or what failed."""
    outcomes: dict[str, Any] = {}
    for side in sides:
        begin = time.monotonic()
        try:
            with triton_ops.tuning(budget_s=budget_s), triton_ops.on_miss("tune"):
                block.on(side)(x)
            outcomes[side] = round(time.monotonic() - begin, 1)
        except Exception as error:  # noqa: BLE001 - what is left untuned is timed as it is
            outcomes[side] = f"failed: {CandidateError.one_line(error)}"
        print(f"tuned {side}: {outcomes[side]}", flush=True)
    return outcomes


def summary(rows: Sequence[Row], sides: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each side, in each mode and in all, the geometric mean, the least, and how many are slower or untimed."""
    figures = {}
    for side in sides:
        for mode in (*MODES, "all"):
            own = [row for row in rows if row["side"] == side and mode in (row["mode"], "all")]
            speeds = [row["speedup"] for row in own if "speedup" in row]
            if own:
                figures[f"{side} / {mode}"] = {
                    "cells": len(own), "slower": sum(row["verdict"] == "slower" for row in own),
                    "wrong_or_failed": len(own) - len(speeds), "least": min(speeds, default=None),
                    "geometric_mean": math.exp(statistics.fmean(map(math.log, speeds))) if speeds else None,
                }  # fmt: skip
    return figures


def missed(figures: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a cell is slower, wrong or failed, or a mean below 1."""
    return any(each["slower"] or each["wrong_or_failed"] or each["geometric_mean"] < 1 for each in figures.values())


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = parser_of(__doc__)
    parser.add_argument("--blocks", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="NAME")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--tune-s", type=float, default=5.0, help="seconds for each tune of a kernel")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="begin no further cell after so many seconds")
    parser.add_argument("--on", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tiny", action="store_true", help="blocks of some elements, to try the script out")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace, end: float) -> Iterator[Row]:
    """The rows that are asked for: of each block the untuned side in all modes, then its tunes, then the others."""
    phases = [sides for sides in (["untuned"], ["tuned", "chosen"]) if set(sides) & set(options.sides)]
    for name in options.blocks:
        if time.monotonic() >= end:
            return
        cells = Cells(
            name, *block_of(name, options.tiny, options.on, getattr(torch, options.dtype)), options.repetitions
        )
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.environ["TRITON_OPS_CACHE_DIR"] = folder
            for sides in phases:
                asked = [side for side in sides if side in options.sides]
                after_untuned = dict.fromkeys(["tuned", *asked]) if sides != ["untuned"] else ()
                tunes = tune(cells.block, cells.x, after_untuned, options.tune_s)
                for mode in options.modes:
                    if time.monotonic() >= end:
                        return
                    for row in cells.rows(mode, asked):
                        yield {**row, "tune_s": tunes.get(row["side"])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, and write one JSON file; the exit code is 1 if a cell is slower, wrong or failed."""
    options, begin = options_of(arguments), time.monotonic()
    device = probe(options.on)
    out = options.out or Path("benchmarks/results") / device.name.lower().replace(" ", "-") / "blocks.json"
    old = json.loads(out.read_text(encoding="utf-8"))["rows"] if out.is_file() else []
    rows = {(row["block"], row["mode"], row["side"]): row for row in old}
    new: list[Row] = []
    with torch.no_grad():
        for row in measured(options, begin + options.limit_s):
            new.append(row)
            rows[row["block"], row["mode"], row["side"]] = row
            print(f"{time.monotonic() - begin:6.1f} s  {line_of(row)}", flush=True)
            about = {"device": device.name, "driver": device.driver, "tolerance": {"atol": ATOL, "rtol": RTOL}}
            about |= {"summary": summary(list(rows.values()), SIDES), "rows": list(rows.values())}
            about["launches"] = [launch.text for launch in triton_ops.launches()]
            save(out, headed("python -m benchmarks.shipped.blocks_gpu", options.commit, **about))
    figures = summary(new, SIDES)
    for name, each in figures.items():
        print(f"{name}: {json.dumps(each)}")
    return int(missed(figures))


def line_of(row: Row) -> str:
    """A row as a line."""
    line = f"{row['block']} {row['mode']} {row['side']}: {row['verdict']}"
    if "speedup" not in row:
        return line
    low, high = row["interval"]
    return f"{line}, {row['speedup']:.3f} ({low:.3f} to {high:.3f}), {row['ms']:.4f} ms, torch {row['torch_ms']:.4f} ms"


if __name__ == "__main__":
    sys.exit(main())
