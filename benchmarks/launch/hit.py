"""How long it takes to find a winner that is known: `tune` on a kept kernel and on a plain callable, and `recall`.

    python -m benchmarks.launch.hit --out benchmarks/results/cpu/hit.json

Medians of many calls in one process, in microseconds, and what a tenth of the calls stay below: on a machine that is
busy with other things, the median tells of these. The record is on disk, and is read at every call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops import FunctionKernel, TensorSpec, operation, recall, tune
from triton_ops.base import Host
from triton_ops.device import probe

SPACE = {"BLOCK": [16, 32, 64]}


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


def main() -> None:
    """Tune once, then look up many times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/hit.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    kernel = FunctionKernel(plain)
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[str, Callable[[], Any]] = {
            "tune, operation by shape": lambda: tune(summed, cache_dir=folder),
            "tune, kept kernel": lambda: tune(kernel, (1.0,), space=SPACE, cache_dir=folder),
            "tune, plain callable": lambda: tune(plain, (1.0,), space=SPACE, cache_dir=folder),
            "recall, operation by shape": lambda: recall(summed, cache_dir=folder),
            "recall, kept kernel": lambda: recall(kernel, (1.0,), cache_dir=folder),
        }
        for call in calls.values():
            call()
        figures = {name: taken_us(call, options.times) for name, call in calls.items()}
    command = f"python -m benchmarks.launch.hit --times {options.times}"
    document = headed(
        command,
        options.commit,
        device=probe("cpu").name,
        cpus=Host.usable_cpus(),
        load=os.getloadavg()[0],
        microseconds=figures,
    )
    save(options.out, document)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
