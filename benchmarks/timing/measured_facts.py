"""What timing on this GPU is like: the figures that set the constants of `triton_ops.timing`.

    python -m benchmarks.timing.measured_facts --out benchmarks/results/nvidia-h200/facts.json

Tick of the events; cost of a graph replay beside the launches in it; warm and cold; spread of a difference inside a
round by length of block; drift; whether NVML tells clocks and reasons; what a race of one config with itself says.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from pathlib import Path

import torch

from benchmarks.document import headed, save
from benchmarks.tuning.spaces import SPACES, loaded
from triton_ops.backend import Protection
from triton_ops.device import probe
from triton_ops.timing import Arm, Interval, Launch, Rounds, guard_for
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer, sets_needed
from triton_ops.timing.race_statistics import robust_sigma
from triton_ops.values import Measurement


def tick_us() -> dict:
    """Smallest steps between event times of short launches."""
    x = torch.empty(1 << 16, device="cuda")
    timer = EventTimer(cache="warm")
    samples = sorted({round(1e3 * t, 4) for t in timer.prepare(Launch(lambda: x.add_(1))).take(timer, 2000)})
    steps = [round(b - a, 4) for a, b in itertools.pairwise(samples)]
    return {
        "distinct": len(samples),
        "smallest_step_us": min(steps, default=None),
        "median_us": statistics.median(samples),
    }


def launches(space: str, count: int) -> tuple[list[Launch], int]:
    """The first `count` fast configs of a space, with argument sets to rotate."""
    operation, arguments, executables, default = loaded(space)
    spec = probe("cuda")
    touched = sum(t.untyped_storage().nbytes() for t in arguments.tensors())
    count_of_sets = sets_needed(touched, spec.l2_bytes) or 1
    sets = [Protection.private_copy(arguments) for _ in range(count_of_sets - 1)]
    configs = [default, *[c for c in executables if c != default]][: 4 * count]
    calls_by_config = []
    for config in configs:
        calls = [executables[config].bind(values) for values in (arguments, *sets)]
        calls_by_config.append(
            Launch(calls[0], None, tuple(calls[1:]), (arguments.keyword[operation.kernel.outputs[0]],))
        )
    timer = EventTimer()
    times = [min(timer.prepare(launch).take(timer, 3)) for launch in calls_by_config]
    ranked = sorted(range(len(calls_by_config)), key=times.__getitem__)
    return [calls_by_config[i] for i in ranked[:count]], count_of_sets


def timers(short: bool) -> dict:
    """Every mode, cold by rotation, by flush, and warm."""
    by_mode = {"event-cold": EventTimer(cache="cold"), "event-flushed": EventTimer(cache="flushed")}
    by_mode["event-warm"] = EventTimer(cache="warm")
    if short:
        by_mode |= {"graph-cold": GraphTimer(cold=True), "graph-warm": GraphTimer(cold=False)}
    return by_mode


def modes(launch: Launch, short: bool) -> dict:
    """Median and spread of one launch in every mode."""
    table = {}
    for name, timer in timers(short).items():
        start = time.monotonic()
        sampler = timer.prepare(launch)
        prepared_ms = 1e3 * (time.monotonic() - start)
        samples = sampler.take(timer, 50)
        table[name] = {
            "median_ms": statistics.median(samples),
            "sigma": robust_sigma([math.log(s) for s in samples]),
            "prepare_ms": prepared_ms,
            "launches": sampler.launches,
        }
    return table


def unrolled(launch: Launch) -> dict:
    """Time per launch by number of launches in a graph."""
    timer = GraphTimer(cold=False)
    counts = (1, 2, 4, 8, 16, 32, 64, 128)
    return {str(n): statistics.median(timer.prepare(launch, n).take(timer, 30)) for n in counts}


def paired(fast: list[Launch], timer, block: int, rounds: int = 60) -> dict:
    """Spread of round-centred block medians and of paired differences, and of one config with itself."""
    arms = [Arm(timer.prepare(launch), block) for launch in [*fast, fast[0]]]
    start = time.monotonic()
    Rounds(timer=timer).run(arms, rounds)
    seconds = time.monotonic() - start
    rows = [arm.values_ms for arm in arms]
    centres = [statistics.median(column) for column in zip(*rows, strict=True)]
    centred = [robust_sigma(Measurement.contrasts(row, centres)) for row in rows]
    absolute = [robust_sigma([math.log(value) for value in row]) for row in rows]
    itself = Interval.of_gap(rows[-1], rows[0])
    level = [math.log(centre) for centre in centres]
    lag1 = statistics.correlation(level[:-1], level[1:]) if len(level) > 3 else None
    return {
        "block": block,
        "rounds": rounds,
        "seconds": seconds,
        "sigma_absolute": statistics.median(absolute),
        "sigma_round_centred": statistics.median(centred),
        "sigma_pair": statistics.median(robust_sigma(Measurement.contrasts(row, rows[0])) for row in rows[1:]),
        "itself": [itself.low, itself.centre, itself.high],
        "level_lag1": lag1,
        "level_range": max(level) - min(level),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/facts.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    guard = guard_for("cuda")
    facts: dict = {"tick": tick_us(), "spaces": {}}
    for space in SPACES:
        short = space.startswith("rms") or "4096" in space
        fast, sets = launches(space, 6)
        entry: dict = {"copies": sets, "modes": modes(fast[0], short), "paired": []}
        if space.startswith("rms"):
            entry["unrolled_warm_ms"] = unrolled(fast[0])
        timer = GraphTimer() if short else EventTimer(cache="cold")
        entry["paired"] = [paired(fast, timer, block) for block in (1, 3, 5, 10)]
        facts["spaces"][space] = entry
        guard.round_ok()
    spec = probe("cuda")
    document = headed(
        "python -m benchmarks.timing.measured_facts",
        options.commit,
        device={"name": spec.name, "arch": spec.arch, "driver": spec.driver, "l2_bytes": spec.l2_bytes},
        guard=str(guard.summary()),
        **facts,
    )
    save(options.out, document)
    print(json.dumps({k: v for k, v in document.items() if k != "versions"}, indent=None)[:9000])


if __name__ == "__main__":
    main()
