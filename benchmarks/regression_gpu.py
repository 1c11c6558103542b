"""Figures of one GPU that no change of the code may make worse, in under eight minutes.

    python -m benchmarks.regression_gpu                       every part, into results/<device>/regression.json
    python -m benchmarks.regression_gpu --parts launches winners --out /tmp/a.json
    python -m benchmarks.regression_gpu --compare BEFORE.json [...] --with AFTER.json [...]

tunes       five kernels tuned from empty caches: seconds, and the winner's share of the best config's speed
lists       first calls of kernels with 2, 4 and 8 configs, in seconds and as a share of those of `triton.autotune`
launches    host time of a known launch, as a share of `triton.autotune`'s and of a plain launch's
verdicts    planted faults that are found, and correct configs that are refused
winners     shipped winners beside the default configs, interleaved

Each figure has a range: of its repeats, or the 95 % interval of its comparison. `--compare` fails with 1 where the
ranges of a figure before and after do not meet and the later one is the worse. Run both on one card, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton

import triton_ops
import triton_ops_kernels as kernels
from benchmarks import launch_cost
from benchmarks.correctness import verdicts
from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.bodies import BODIES
from triton_ops import ConfigSpace, Operation, compare, tune
from triton_ops.benchmark import RivalRun
from triton_ops.device import probe
from triton_ops.tuner import Silent
from triton_ops_kernels.rivals import rivals_of

TUNED = (
    ("matmul", (4096, 4096, 4096)),
    ("softmax", (8192, 4096)),
    ("layer_norm", (8192, 4096)),
    ("attention", (1, 32, 8, 2048, 2048, 128, 128, 2)),
    ("gated_mlp", (2048, 11008, 4096)),
)
CONFIGS, REPEATS = 64, 2
LISTS, EXTENTS, ROUNDS = (2, 4, 8), (1024, 2048, 3072, 4096), 4

Figure = dict[str, Any]


def figure(values: Iterable[float], better: str, **more: Any) -> Figure:
    """The median of repeats with their range; `better` is `lower` or `higher`."""
    numbers = [float(value) for value in values]
    return {
        "value": statistics.median(numbers), "low": min(numbers), "high": max(numbers), "better": better, **more,
    }  # fmt: skip


# tunes


def tunes(_: argparse.Namespace) -> dict[str, Figure]:
    """Five kernels from empty caches, and all of their configs afterwards."""
    figures: dict[str, Figure] = {}
    for name, shape in TUNED:
        operation = kernels.load(name)
        space = part_of_space(operation, shape)
        with empty_caches() as folder:
            runs = [cold_tune(operation, shape, space, seed) for seed in range(REPEATS)]
            exhaustive = tune(operation, space=space, shape=shape, dtype="bfloat16", search="exhaustive",
                              effort="exhaustive", cache_dir=f"{folder}/all", listener=Silent())  # fmt: skip
        shares = [share_of_best(operation, shape, winner, exhaustive.best_config) for _, winner in runs]
        figures[f"tune {name}, seconds"] = figure((seconds for seconds, _ in runs), "lower")
        figures[f"tune {name}, share of the best speed"] = figure(shares, "higher")
    return figures


def part_of_space(operation: Operation, shape: tuple[int, ...]) -> ConfigSpace:
    """The default and a random sample of the space, the same in every run."""
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    others = [config for config in space if config != space.default_config]
    sample = random.Random(0).sample(others, min(CONFIGS - 1, len(others)))
    return ConfigSpace.from_configs([space.default_config, *sample])


@contextmanager
def empty_caches() -> Iterator[str]:
    """Triton's disk cache, and a folder for records, that hold nothing."""
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/compiled"
        try:
            yield folder
        finally:
            os.environ.pop("TRITON_CACHE_DIR")
            if before is not None:
                os.environ["TRITON_CACHE_DIR"] = before


def cold_tune(operation: Operation, shape: tuple[int, ...], space: ConfigSpace, seed: int) -> tuple[float, dict]:
    """Seconds and winner of one default tune, from empty caches."""
    with empty_caches() as folder:
        start = time.monotonic()
        result = tune(operation, space=space, shape=shape, dtype="bfloat16", seed=seed, cache_dir=folder,
                      listener=Silent())  # fmt: skip
        return time.monotonic() - start, result.best_config


def share_of_best(operation: Operation, shape: tuple[int, ...], winner: dict, best: dict) -> float:
    """The winner's speed as a share of the best config's, from interleaved rounds; 1 for the same config."""
    if winner == best:
        return 1.0
    arguments = operation.materialise(operation.problem(shape, "bfloat16"), "cuda").keyword
    outcome = compare((operation, winner), (operation, best), kwargs=dict(arguments), seconds=2.0)
    return outcome.b_ms / outcome.a_ms


# lists


def list_of(body: str, count: int) -> list[triton.Config]:
    """So many configs of a body; lists of different lengths have none in common, so that each compiles its own."""
    stages = LISTS.index(count) + 1
    blocks = BODIES[body][2]
    pairs = [(block, warps) for warps in (4, 8) for block in blocks][:count]
    return [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages) for block, warps in pairs]


def first_calls(autotune: Any, extents: Sequence[int]) -> dict[str, list[float]]:
    """For each body and length of list, the seconds of the first call at each extent, from empty caches."""
    torch.cuda.init()
    seconds: dict[str, list[float]] = {}
    for body, (kernel, grid, _) in BODIES.items():
        for count in LISTS:
            tuned = autotune(list_of(body, count), key=["n"])(kernel)
            seconds[f"{body}, {count} configs"] = [_call_s(tuned, grid, body, extent) for extent in extents]
    return seconds


def _call_s(tuned: Any, grid: Any, body: str, extent: int) -> float:
    x, y, out = (torch.randn(extent, extent, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    n = extent * extent if body == "add" else extent
    torch.cuda.synchronize()
    start = time.monotonic()
    tuned[grid](x, y, out, n)
    torch.cuda.synchronize()
    return time.monotonic() - start


def lists(options: argparse.Namespace) -> dict[str, Figure]:
    """Both tuners' first calls, each time in a new process with empty caches, and each of them ahead in turn.

    The first round has all extents. The others have the first one alone, whose call also starts what a process needs:
    it is the dearest and comes once in a process, so that only further processes tell how much it varies.
    """
    rounds: dict[str, list[dict[str, list[float]]]] = {"ours": [], "triton": []}
    for turn in range(ROUNDS):
        for side in sorted(rounds, reverse=turn % 2 == 1):
            rounds[side].append(_side(side, EXTENTS if turn == 0 else EXTENTS[:1], options))
    figures: dict[str, Figure] = {}
    for label in rounds["ours"][0]:
        first, rival_first = ([turn[label][0] for turn in rounds[side]] for side in ("ours", "triton"))
        later, rival_later = (rounds[side][0][label][1:] for side in ("ours", "triton"))
        figures[f"list {label}, first key, seconds"] = _beside(first, rival_first)
        figures[f"list {label}, later keys, seconds"] = _beside(later, rival_later)
    return figures


def _beside(seconds: Sequence[float], rival: Sequence[float]) -> Figure:
    rival_s = statistics.median(rival)
    return figure(seconds, "lower", triton_s=rival_s, ratio=statistics.median(seconds) / rival_s)


def _side(side: str, extents: Sequence[int], options: argparse.Namespace) -> dict[str, list[float]]:
    with empty_caches() as folder:
        environment = {**os.environ, "TRITON_OPS_CACHE_DIR": f"{folder}/records"}
        out = Path(folder) / "seconds.json"
        command = [
            sys.executable, "-m", "benchmarks.regression_gpu", "--side", side, "--out", str(out),
            "--extents", *map(str, extents),
        ]  # fmt: skip
        subprocess.run(command, env=environment, check=True, timeout=300, capture_output=not options.verbose)
        seconds: dict[str, list[float]] = json.loads(out.read_text(encoding="utf-8"))
        return seconds


# launches, verdicts, winners


def launches(_: argparse.Namespace) -> dict[str, Figure]:
    """Ratios of host time, each from the least of many rounds; three times."""
    runs = [launch_cost.measured("cuda", 15) for _ in range(3)]
    figures: dict[str, Figure] = {}
    for case in runs[0]:
        for rival in launch_cost.LIMITS:
            ratios = (run[case][launch_cost.OURS] / run[case][rival] for run in runs)
            figures[f"launch {case}, of {rival}"] = figure(ratios, "lower")
    return figures


def verdicts_figures(_: argparse.Namespace) -> dict[str, Figure]:
    """Planted faults found at any tile, faulty configs found, and correct variants refused."""
    with tempfile.TemporaryDirectory() as folder:
        faults = verdicts.faults_part(folder, "cuda")
        correct = verdicts.correct_part(folder, "cuda")
    rows = [row for kernel in faults["kernels"] for row in kernel["rows"]]
    return {
        "verdicts, faulty configs found": figure([sum(row["wrong"] for row in rows)], "higher"),
        "verdicts, faulty configs": figure([sum(row["tiles"] for row in rows)], "higher"),
        "verdicts, correct configs refused": figure([correct["wrong"]], "lower", of=correct["variants"]),
    }


def winners(_: argparse.Namespace) -> dict[str, Figure]:
    """For each shipped kernel its named problems with a winner, beside the default config."""
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        until_s = time.monotonic() + 75.0
        run = RivalRun(rivals_of=rivals_of, rivals=("default",), seconds=0.4, cache_dir=folder)
        for row in run.rows(map(kernels.load, kernels.names())):
            if row.speedup is not None and row.interval is not None:
                low, high = row.interval
                figures[f"winner {row.kernel} {row.problem}, speed over the default"] = {
                    "value": row.speedup, "low": low, "high": high, "better": "higher", "origin": row.origin,
                }  # fmt: skip
            if time.monotonic() >= until_s:
                break
    return figures


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Figure]]] = {
    "tunes": tunes, "lists": lists, "launches": launches, "verdicts": verdicts_figures, "winners": winners,
}  # fmt: skip


# comparison of runs


def pooled(paths: Sequence[Path]) -> dict[str, Figure]:
    """The figures of several runs of one state of the code: the median of each, with the range of all."""
    runs = [json.loads(path.read_text(encoding="utf-8"))["figures"] for path in paths]
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: _together([run[name] for run in runs if name in run]) for name in names}


def _together(figures: Sequence[Figure]) -> Figure:
    value = statistics.median(each["value"] for each in figures)
    low, high = min(each["low"] for each in figures), max(each["high"] for each in figures)
    return {**figures[0], "value": value, "low": low, "high": high}


def worse(before: Figure, after: Figure) -> bool:
    """Whether the ranges do not meet and the later one is on the worse side."""
    if after["better"] == "lower":
        return bool(after["low"] > before["high"])
    return bool(after["high"] < before["low"])


def report(before: dict[str, Figure], after: dict[str, Figure]) -> int:
    """Print each figure of both states; returns 1 where one is worse or missing, else 0."""
    bad = 0
    for name, old in before.items():
        new = after.get(name)
        fault = "MISSING" if new is None else "WORSE" if worse(old, new) else ""
        bad += bool(fault)
        later = "" if new is None else f"{new['value']:.4g} ({new['low']:.4g} to {new['high']:.4g})"
        print(f"{name}: {old['value']:.4g} ({old['low']:.4g} to {old['high']:.4g}) -> {later} {fault}".rstrip())
    print(f"{len(before)} figures, {bad} worse or missing")
    return int(bad > 0)


def measured(options: argparse.Namespace) -> int:
    """Run the parts and write the document after each."""
    device = probe("cuda")
    out = options.out or Path("benchmarks/results") / device.name.lower().replace(" ", "-") / "regression.json"
    figures: dict[str, Figure] = {}
    seconds: dict[str, float] = {}
    for part in options.parts:
        start = time.monotonic()
        new = PARTS[part](options)
        seconds[part] = round(time.monotonic() - start, 1)
        print(f"{part}: {seconds[part]} s")
        for name, each in new.items():
            print(f"  {name}: {each['value']:.4g} ({each['low']:.4g} to {each['high']:.4g})", flush=True)
        figures.update(new)
        save(out, headed("python -m benchmarks.regression_gpu", options.commit, device=device.name,
                         driver=device.driver, seconds=seconds, figures=figures))  # fmt: skip
    return 0


def main() -> int:
    """Measure, or compare what was measured."""
    parser = parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--verbose", action="store_true", help="show what the processes of `lists` print")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="BEFORE")
    parser.add_argument("--with", type=Path, nargs="+", metavar="AFTER", dest="after")
    parser.add_argument("--side", choices=["ours", "triton"], help="used by the script itself")
    parser.add_argument("--extents", type=int, nargs="+", default=EXTENTS, help="used by the script itself")
    options = parser.parse_args()
    if options.side:
        autotune = triton_ops.autotune if options.side == "ours" else triton.autotune
        options.out.write_text(json.dumps(first_calls(autotune, options.extents)), encoding="utf-8")
        return 0
    if options.compare:
        return report(pooled(options.compare), pooled(options.after or ()))
    return measured(options)


if __name__ == "__main__":
    sys.exit(main())
