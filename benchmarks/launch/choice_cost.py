"""The host's cost of a chosen call: calling the winner through a chooser, beside calling it directly.

    python -m benchmarks.launch.choice_cost [--rounds 2000] [--limit-s 60] [--json FILE]

Both are called in turn, in blocks of a hundred calls whose order is drawn anew in each round; the difference of the
medians is the cost. It needs no GPU: what is measured is the host's code. The line of each contestant has its ratio to
the direct call.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from triton_ops import Implementation, choose

_CALLS = 100  # short enough that few blocks are interrupted by what else runs on the host
_LIMIT_US = 2.0


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


def measured(rounds: int, limit_s: float) -> list[dict[str, object]]:
    """One row for each contestant, with microseconds of one call."""
    end, rng, rows = time.monotonic() + limit_s, random.Random(0), []
    with tempfile.TemporaryDirectory() as folder:
        pairs = contestants(folder)
        samples: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
        for _ in range(rounds):
            for name, pair in pairs.items():
                for which in rng.sample((0, 1), 2):
                    start = time.perf_counter()
                    pair[which]()
                    samples[name][which].append((time.perf_counter() - start) / _CALLS * 1e6)
            if time.monotonic() > end:
                break
    for name, (direct, chosen) in samples.items():
        ours, theirs = statistics.median(chosen), statistics.median(direct)
        extra = statistics.median(late - early for early, late in zip(direct, chosen, strict=True))
        rows.append({
            "call": name, "direct_us": theirs, "chosen_us": ours, "extra_us": extra, "ratio": ours / theirs,
            "rounds": len(direct), "within": extra <= _LIMIT_US,
        })  # fmt: skip
    return rows


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--limit-s", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.rounds < 1 or options.limit_s <= 0:
        parser.error("--rounds must be 1 or more, and --limit-s above 0")
    torch.set_num_threads(1)
    rows = measured(options.rounds, options.limit_s)
    for row in rows:
        print(
            f"{row['call']:28s} direct {row['direct_us']:6.2f} us   chosen {row['chosen_us']:6.2f} us   "
            f"extra {row['extra_us']:5.2f} us   ratio {row['ratio']:.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps({"limit_us": _LIMIT_US, "torch": torch.__version__, "rows": rows}, indent=2))
    sys.exit(0 if all(row["within"] for row in rows) else 1)


if __name__ == "__main__":
    main()
