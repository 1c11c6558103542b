"""What a known winner costs the host: found by `tune` and by `recall`, and called through a chooser.

    python -m benchmarks.launch.known_winner --out benchmarks/results/cpu/hit.json

Microseconds of many calls in one process, without a GPU. `found`: `tune` on a kept kernel and on a plain callable, and
`recall`, whose record is on disk and is read at every call; the median, and what a tenth of the calls stay below, since
on a machine that is busy with other things the median tells of these. `called`: the winner by itself and through a
chooser, in blocks of a hundred calls whose order is drawn anew in each round; the median of the differences is the
cost. The exit code is 1 where that is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from triton_ops import FunctionKernel, Implementation, TensorSpec, choose, operation, recall, tune
from triton_ops.base import Host
from triton_ops.device import probe

SPACE = {"BLOCK": [16, 32, 64]}
_CALLS = 100  # short enough that few blocks are interrupted by what else runs on the host
_LIMIT_US = 2.0


@operation(space=SPACE, arguments=lambda N=64: {"x": TensorSpec((N,), "float32")}, name="summed", device="cpu")
def summed(x: Any, *, BLOCK: int) -> Any:
    """A call that takes a microsecond: what is measured is the look-up."""
    return x if BLOCK else None


def plain(x: float, *, BLOCK: int) -> float:
    """The same without an operation."""
    return x * BLOCK


def taken_us(call: Callable[[], Any], times: int) -> dict[str, float]:
    """Median and first decile of many calls after some that are not counted."""
    samples = []
    for number in range(times + 20):
        start = time.perf_counter()
        call()
        if number >= 20:
            samples.append((time.perf_counter() - start) * 1e6)
    return {"median": round(statistics.median(samples), 1), "p10": round(statistics.quantiles(samples, n=10)[0], 1)}


def found(times: int, folder: str) -> dict[str, dict[str, float]]:
    """Tune once, then look up many times."""
    kernel = FunctionKernel(plain)
    calls: dict[str, Callable[[], Any]] = {
        "tune, operation by shape": lambda: tune(summed, cache_dir=folder),
        "tune, kept kernel": lambda: tune(kernel, (1.0,), space=SPACE, cache_dir=folder),
        "tune, plain callable": lambda: tune(plain, (1.0,), space=SPACE, cache_dir=folder),
        "recall, operation by shape": lambda: recall(summed, cache_dir=folder),
        "recall, kept kernel": lambda: recall(kernel, (1.0,), cache_dir=folder),
    }
    for call in calls.values():
        call()
    return {name: taken_us(call, times) for name, call in calls.items()}


def contestants(folder: str) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By name: the direct call, and the same through a chooser."""
    a, b, x = torch.randn(8, 8), torch.randn(8, 8), torch.randn(16)
    keep = {"cache_dir": folder, "budget_s": 5.0}
    one = choose({"relu": torch.relu, "other": lambda x: x.clamp(min=0)}, name="one tensor", parameters=("x",), **keep)
    two = choose({"mm": torch.mm, "other": lambda a, b: a @ b}, name="two tensors", parameters=("a", "b"), **keep)
    graded = choose(
        {"mm": torch.mm, "other": Implementation(lambda a, b: a @ b, gradient=False)},
        name="two tensors and gradients", parameters=("a", "b"), **keep,
    )  # fmt: skip
    scaled = choose(
        {"mul": torch.mul, "other": lambda x, factor: x * factor}, name="a tensor and a number",
        parameters=("x", "factor"), **keep,
    )  # fmt: skip
    calls = {
        one.name: (one, (x,)),
        two.name: (two, (a, b)),
        graded.name: (graded, (a, b)),
        scaled.name: (scaled, (x, 2)),
    }
    pairs = {}
    for name, (chooser, args) in calls.items():
        chooser.tune(args)
        chooser(*args)
        direct = chooser.implementations[str(chooser.why(*args).found.config["implementation"])].run({})
        pairs[name] = (_repeated(direct, args), _repeated(chooser, args))
    return pairs


def _repeated(call: Callable[..., object], args: tuple[object, ...]) -> Callable[[], object]:
    def run() -> None:
        for _ in range(_CALLS):
            call(*args)

    return run


def called(rounds: int, folder: str) -> list[dict[str, Any]]:
    """One row for each chooser, with microseconds of one call."""
    rng, rows, pairs = random.Random(0), [], contestants(folder)
    samples: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for _ in range(rounds):
        for name, pair in pairs.items():
            for which in rng.sample((0, 1), 2):
                start = time.perf_counter()
                pair[which]()
                samples[name][which].append((time.perf_counter() - start) / _CALLS * 1e6)
    for name, (direct, chosen) in samples.items():
        ours, theirs = statistics.median(chosen), statistics.median(direct)
        extra = statistics.median(late - early for early, late in zip(direct, chosen, strict=True))
        rows.append({
            "call": name, "direct_us": theirs, "chosen_us": ours, "extra_us": extra, "ratio": ours / theirs,
            "rounds": len(direct), "within": extra <= _LIMIT_US,
        })  # fmt: skip
    return rows


def main() -> int:
    """Measure, print and save; the exit code is 1 where a chooser costs more than its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2000, help="look-ups of each kind")
    parser.add_argument("--rounds", type=int, default=2000, help="of blocks of a hundred calls")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/hit.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures, rows = found(options.times, folder), called(options.rounds, folder)
    command = f"python -m benchmarks.launch.known_winner --times {options.times} --rounds {options.rounds}"
    document = headed(
        command, options.commit, device=probe("cpu").name, cpus=Host.usable_cpus(), load=os.getloadavg()[0],
        microseconds=figures, limit_us=_LIMIT_US, called=rows,
    )  # fmt: skip
    save(options.out, document)
    print(json.dumps(figures))
    for row in rows:
        print(
            f"{row['call']:28s} direct {row['direct_us']:6.2f} us   chosen {row['chosen_us']:6.2f} us   "
            f"extra {row['extra_us']:5.2f} us   ratio {row['ratio']:.2f}"
        )
    return 0 if all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
