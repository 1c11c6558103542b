"""What a known winner costs the host: found by `tune` and by `recall`, and called through a chooser.

    python -m benchmarks.launch.known_winner --out benchmarks/results/cpu/hit.json

Microseconds of many calls in one process, without a GPU. `found`: `tune` on a kept kernel and on a plain callable, and
`recall`, whose record is on disk and is read at every call; the median, and what a tenth of the calls stay below, since
on a machine that is busy with other things the median tells of these. `called`: the winner by itself and through a
chooser, each in the least of many rounds. The exit code is 1 where that costs more than its limit.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from benchmarks.launch_cost import least_us
from triton_ops import FunctionKernel, Implementation, TensorSpec, choose, operation, recall, tune
from triton_ops.base import Host
from triton_ops.device import probe

SPACE = {"BLOCK": [16, 32, 64]}
_CALLS = 100  # short enough that few rounds are interrupted by what else runs on the host
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


def called(rounds: int, folder: str) -> dict[str, dict[str, float]]:
    """By name of a chooser, microseconds of the winner's own call, and of the same through the chooser."""
    a, b, x = torch.randn(8, 8), torch.randn(8, 8), torch.randn(16)
    choices = {
        "one tensor": ({"relu": torch.relu, "other": lambda x: x.clamp(min=0)}, {"x": x}),
        "two tensors": ({"mm": torch.mm, "other": lambda a, b: a @ b}, {"a": a, "b": b}),
        "two tensors and gradients": (
            {"mm": torch.mm, "other": Implementation(lambda a, b: a @ b, gradient=False)}, {"a": a, "b": b},
        ),
        "a tensor and a number": (
            {"mul": torch.mul, "other": lambda x, factor: x * factor}, {"x": x, "factor": 2},
        ),
    }  # fmt: skip
    rows = {}
    for name, (implementations, values) in choices.items():
        chooser = choose(implementations, name=name, parameters=tuple(values), cache_dir=folder, budget_s=5.0)
        args = tuple(values.values())
        chooser.tune(args)
        direct = chooser.implementations[str(chooser.why(*args).found.config["implementation"])].run({})
        calls = {"direct_us": partial(direct, *args), "chosen_us": partial(chooser, *args)}
        us = least_us(calls, rounds, lambda: None, _CALLS)
        rows[name] = {**us, "extra_us": us["chosen_us"] - us["direct_us"]}
        print(name, {what: round(each, 2) for what, each in rows[name].items()})
    return rows


def main() -> int:
    """Measure, print and save; the exit code is 1 where a chooser costs more than its limit."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=2000, help="look-ups of each kind")
    parser.add_argument("--rounds", type=int, default=2000, help="of a hundred calls")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures, rows = found(options.times, folder), called(options.rounds, folder)
    print(json.dumps(figures))
    if options.out:
        command = f"python -m benchmarks.launch.known_winner --times {options.times} --rounds {options.rounds}"
        save(options.out, headed(
            command, options.commit, device=probe("cpu").name, cpus=Host.usable_cpus(), load=os.getloadavg()[0],
            microseconds=figures, limit_us=_LIMIT_US, called=rows,
        ))  # fmt: skip
    return 0 if all(row["extra_us"] <= _LIMIT_US for row in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
