"""What a round of a race costs beside the work that it times: rests, the delay, the sensors, and the host's own work.

    python -m benchmarks.round_cost
    python -m benchmarks.round_cost --arms 2 4 8 --rounds 50 --out OUT.json

On a GPU. The arms are one copy of 64 MiB and one of 4 KiB, each as many times as there are arms, by graphs as in a
tune. Each round is split into milliseconds of work that is timed, of rest in which the host sleeps, of the delay
before the work, of reading the sensors, and of what is left: the host's own work, and waits for the device.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from triton_ops.device import probe
from triton_ops.request.effort import PRESETS
from triton_ops.timing import Arm, Launch, guard_for
from triton_ops.timing.graph import GraphTimer
from triton_ops.timing.races import next_order, visit

_SIZES = (64 << 20, 4 << 10)
_WARM_UP = 5  # rounds in which the delay grows


class Clocked:
    """Adds up the seconds of a function's calls."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self.seconds = call, 0.0

    def __call__(self, *given: Any) -> Any:
        """Call the function."""
        begun = time.perf_counter()
        try:
            return self._call(*given)
        finally:
            self.seconds += time.perf_counter() - begun


def split(size: int, count: int, rounds: int) -> dict[str, float]:
    """The milliseconds of the parts of a round over so many equal copies."""
    timer, policy, rng = GraphTimer("cuda"), PRESETS["quick"].race, random.Random(0)
    pace = timer._queue._pace
    rest = pace._sleep = Clocked(time.sleep)
    reads = Clocked(guard_for("cuda").round_ok)
    arms = [_arm(timer, size, policy.samples) for _ in range(count)]
    order: list[Arm] = []
    parts: Counter[str] = Counter()
    for turn in range(_WARM_UP + rounds):
        rest.seconds = reads.seconds = 0.0
        order = next_order(arms, order, turn, rng)
        begun = time.perf_counter()
        visited = visit(order, timer)
        reads()
        if turn < _WARM_UP:
            continue
        parts["round_ms"] += 1e3 * (time.perf_counter() - begun)
        parts["work_ms"] += sum(sum(samples) * arm.sampler.launches for arm, samples in visited)
        parts["rest_ms"] += 1e3 * rest.seconds
        parts["sensors_ms"] += 1e3 * reads.seconds
        parts["delay_ms"] += timer._queue._delay_ms  # of each burst, of which short rounds have one
    found = {name: total / rounds for name, total in parts.items()}
    known = found["work_ms"] + found["rest_ms"] + found["sensors_ms"] + found["delay_ms"]
    return {**found, "left_ms": found["round_ms"] - known}


def _arm(timer: GraphTimer, size: int, samples: Callable[[float], int]) -> Arm:
    source = torch.ones(size // 4, device="cuda")
    target = torch.empty_like(source)
    launch = Launch(lambda: target.copy_(source), outputs=(target,))
    launch.call()
    sampler = timer.prepare(launch)
    with timer.round():
        pending = sampler.queue(3)
    return Arm(sampler, samples(min(pending()) * sampler.launches))


def main() -> None:
    """Print a row for each copy and number of arms, and write them if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = {}
    for size in _SIZES:
        for count in asked.arms:
            found = rows[f"{count} copies of {size:,} bytes"] = split(size, count, asked.rounds)
            print(f"{count} copies of {size:,} bytes:", {name: round(ms, 2) for name, ms in found.items()}, flush=True)
    if asked.out is not None:
        device = probe("cuda").name
        save(asked.out, headed("python -m benchmarks.round_cost", asked.commit, device=device, rows=rows))


if __name__ == "__main__":
    main()
