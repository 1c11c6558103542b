"""How often `compare` is right: a callable against itself, and against one that does 10 % more, 100 times each.

The noise is that of the machine it runs on, so let it be quiet; its load is in the result. Tensor operations take one
thread: several that wait for each other on a busy machine differ by a hundred times. Every comparison is a new one,
with new copies of the arguments. Data as JSON on stdout; exit code 1 if a target is missed.

    python -m benchmarks.timing.compare_quality [--runs N] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from triton_ops import Comparison, compare
from triton_ops.device import probe

LEAST_SAME = 0.94  # of the comparisons with itself must not tell a difference
LEAST_FOUND = 0.95  # of the 10 % must be found, with the right sign
TIMES = 10  # calls of the unit of work in the fast callable; the slow one makes one more
Case = tuple[Callable[..., Any], tuple[Any, ...]]
"""A unit of work and its arguments."""


def repeated(work: Callable[..., Any], times: int) -> Callable[..., Any]:
    """A callable that does the work several times."""

    def call(*args: Any) -> None:
        for _ in range(times):
            work(*args)

    return call


def python_loop() -> Case:
    """The interpreter alone: nothing of memory."""

    def work() -> int:
        total = 0
        for number in range(200):
            total += number * number
        return total

    return work, ()


def small_sort() -> Case:
    """A few kilobytes in the first cache, where the placement of copies makes itself felt."""
    return torch.sort, (torch.rand(500),)


def element_wise(device: str = "cpu") -> Case:
    """0.4 MB through the second cache; on a GPU 16 MiB."""
    return torch.sin, (torch.rand(100_000 if device == "cpu" else 4 << 20, device=device),)


def in_place(device: str = "cpu") -> Case:
    """A call that reads what it writes, so that its arguments are restored before every sample."""
    return lambda x: x.mul_(1.5).sin_(), (torch.rand(20_000 if device == "cpu" else 4 << 20, device=device),)


def product(device: str = "cpu") -> Case:
    """A matrix product: many operations for each byte."""
    n = 100 if device == "cpu" else 1024
    return torch.mm, (torch.rand(n, n, device=device), torch.rand(n, n, device=device))


def graded(comparisons: list[Comparison], verdict: str) -> dict[str, Any]:
    """How many verdicts were right, and what was measured."""
    verdicts = [comparison.verdict for comparison in comparisons]
    return {
        "right": verdicts.count(verdict),  # type: ignore[arg-type]
        "runs": len(comparisons),
        "verdicts": {name: verdicts.count(name) for name in sorted(set(verdicts))},
        "percent_median": round(statistics.median(c.percent for c in comparisons), 2),
        "percent_range": [round(min(c.percent for c in comparisons), 2), round(max(c.percent for c in comparisons), 2)],
        "interval_width_median": round(statistics.median(c.interval[1] - c.interval[0] for c in comparisons), 2),
        "rounds_median": statistics.median(c.rounds for c in comparisons),
        "low_confidence": sum(c.confidence != "ok" for c in comparisons),
        "mode": comparisons[0].mode,
    }


def main() -> int:
    """Compare, print, and say by the exit code whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="comparisons of each kind")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = [os.getloadavg()[0]]
    gpu = [element_wise(options.device), in_place(options.device), product(options.device)]
    cases = dict(zip(("element_wise", "in_place", "product"), gpu, strict=True))
    if options.device == "cpu":
        cases = {"python_loop": python_loop(), "small_sort": small_sort(), **cases}
    result: dict[str, Any] = {}
    for name, (work, args) in cases.items():
        fast, slow = repeated(work, TIMES), repeated(work, TIMES + 1)
        start = time.monotonic()
        same = [compare(fast, fast, args=args, seed=seed) for seed in range(options.runs)]
        more = [compare(slow, fast, args=args, seed=seed, check=False) for seed in range(options.runs)]
        result[name] = {
            "itself": graded(same, "not distinguishable"),
            "10 % more": graded(more, "slower"),
            "elapsed_s": round(time.monotonic() - start, 1),
        }
        load.append(os.getloadavg()[0])
    within = all(
        case["itself"]["right"] >= LEAST_SAME * options.runs
        and case["10 % more"]["right"] >= LEAST_FOUND * options.runs
        for case in result.values()
    )
    about = {"device": probe(options.device).name, "python": platform.python_version(), "torch": torch.__version__}
    about |= {"cores": os.cpu_count(), "load": [round(min(load), 1), round(max(load), 1)]}
    print(json.dumps({**about, "targets_met": within, "cases": result}, indent=2))
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
