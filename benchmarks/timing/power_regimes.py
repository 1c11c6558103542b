"""In which power state a GPU ranks configs, and for how long it stays there: what paces a race.

    python -m benchmarks.timing.power_regimes --out benchmarks/results/nvidia-h200/power_regimes.json

The best configs of two matrix products are compared in four ways: in short rounds with rests between them (the chip
stays below its power limit), in short rounds without rests, in visits of 5 ms without rests, and each config alone for
a second at a time. A trace of one config from rest shows when the limit sets in.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.document import headed, save
from benchmarks.timing.unverified import GPU, unverified
from benchmarks.tuning.spaces import SPACES, operation_of
from triton_ops.device import probe
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import Arm, Rounds, Sampler, SharedTimer, Timer, guard_for
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer
from triton_ops.timing.race_statistics import robust_sigma
from triton_ops.timing.rounds import choose_timer, next_order, visit
from triton_ops.values import Measurement

NAMES = ("BM", "BN", "BK", "num_stages", "num_warps")
CONFIGS = {
    "matmul bf16 4096": [
        (128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (128, 256, 32, 5, 8), (128, 256, 32, 4, 8), (256, 128, 32, 5, 8),
        (128, 128, 64, 3, 8), (128, 128, 64, 3, 4), (256, 128, 64, 3, 8),
    ],
    "matmul fp8 8192": [
        (128, 128, 128, 3, 4), (256, 128, 64, 5, 8), (128, 128, 128, 3, 8), (256, 128, 64, 4, 8),
        (128, 128, 128, 4, 8), (256, 128, 128, 4, 8),
    ],
}  # fmt: skip


class Ground:
    """The configs of one space, ready to be timed."""

    def __init__(self, space: str) -> None:
        name, shape, dtype = SPACES[space]
        operation = operation_of(name)
        self.configs = [Config({**dict(zip(NAMES, v, strict=True)), "GROUP_M": 8}) for v in CONFIGS[space]]
        self.spec = probe("cuda")
        arguments = operation.materialise(operation.problem(shape, dtype), GPU)
        shared = SharedTimer(self.spec, GPU, choose=lambda *given, **how: without_rests(choose_timer(*given, **how)))
        evaluator = unverified(operation.kernel, arguments, Effort.named("exhaustive"), shared)
        self.samplers = {config: evaluator.sampler(config) for config in self.configs}
        assert shared.timer is not None
        self.timer: Timer = shared.timer
        self.sample_ms = {c: self._sample_ms(s) for c, s in self.samplers.items()}

    def _sample_ms(self, sampler: Sampler) -> float:
        return statistics.median(sampler.take(self.timer, 5)) * sampler.launches

    def arms(self, visit_ms: float) -> dict[Config, Arm]:
        """An arm for each config, with visits of about this long."""
        return {c: Arm(s, max(int(visit_ms / self.sample_ms[c]), 1)) for c, s in self.samplers.items()}


def without_rests(timer: Timer) -> Timer:
    """A timer of the same mode that leaves the rests to this script."""
    return GraphTimer("cuda", duty=1.0) if timer.mode == "graph-cold" else EventTimer("cuda", cache="cold", duty=1.0)


def heat(ground: Ground, seconds: float) -> None:
    """All configs in turn, without a rest."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        Rounds(timer=ground.timer).run(list(ground.arms(2.0).values()), 2)


def raced(ground: Ground, *, rounds: int, visit_ms: float, duty: float, heated_s: float) -> dict:
    """Rounds over all configs; the device works for the share `duty` of the time."""
    heat(ground, heated_s) if heated_s else time.sleep(1.0)
    arms, guard, rng = ground.arms(visit_ms), guard_for("cuda"), random.Random(1)
    order: list[Arm] = []
    round_ms = []
    for turn in range(rounds):
        start = time.monotonic()
        order = next_order(list(arms.values()), order, turn, rng)
        for arm, samples in visit(order, ground.timer):
            arm.visits.append(samples)
        took = time.monotonic() - start
        round_ms.append(took * 1e3)
        if duty < 1:
            time.sleep(took * (1 / duty - 1))
        elif turn % 10 == 0:
            guard.round_ok()
    if duty < 1:
        visit(order, ground.timer)
    guard.round_ok()
    rows = {config.text: arm.values_ms for config, arm in arms.items()}
    return {**compared(rows), "round_ms": statistics.median(round_ms), **seen(guard)}


def compared(rows: dict[str, list[float]]) -> dict:
    """Levels over the first config, the spread of a paired difference, and how much the common level moves."""
    first = next(iter(rows.values()))
    half = len(first) // 2
    return {
        "over_first_pct": {t: [round(100 * statistics.median(Measurement.contrasts(part, first[a:b])), 2)
                           for a, b in ((0, half), (half, len(first))) for part in [row[a:b]]]
                           for t, row in rows.items()},
        "pair_sigma_pct": 100 * statistics.median(robust_sigma(Measurement.contrasts(a, b))
                                                  for a, b in pairwise(rows.values())),
        "first_ms": [min(first), statistics.median(first), max(first)],
    }  # fmt: skip


def alone(ground: Ground, *, seconds: float, repeats: int) -> dict:
    """Each config by itself for a while, in random orders; its level in the second half of that while."""
    levels: dict[str, list[float]] = {config.text: [] for config in ground.configs}
    guard, rng = guard_for("cuda"), random.Random(2)
    heat(ground, 3.0)
    for _ in range(repeats):
        for config in rng.sample(ground.configs, len(ground.configs)):
            start, medians_ms = time.monotonic(), []
            while time.monotonic() - start < seconds:
                medians_ms.append(statistics.median(ground.samplers[config].take(ground.timer, 40)))
            guard.round_ok()
            levels[config.text].append(statistics.median(medians_ms[len(medians_ms) // 2 :]))
    first = next(iter(levels.values()))
    over = {t: [round(100 * (a / b - 1), 2) for a, b in zip(v, first, strict=True)] for t, v in levels.items()}
    return {"levels_ms": levels, "over_first_pct": over, **seen(guard)}


def traced(ground: Ground, *, burst: int, rest_s: float, seconds: float) -> list[float]:
    """Bursts of launches of the first config from rest, with rests between them: the median of each burst."""
    time.sleep(1.5)
    sampler, start, samples = ground.samplers[ground.configs[0]], time.monotonic(), []
    while time.monotonic() - start < seconds:
        samples.append(statistics.median(sampler.take(ground.timer, burst)))
        if rest_s:
            time.sleep(rest_s)
    return samples


def seen(guard) -> dict:
    """Clocks, power and regimes."""
    summary = guard.summary()
    clocks = [r.clock_mhz for r in guard.readings if r.clock_mhz]
    return {
        "sm_clock_mhz": statistics.median(clocks) if clocks else None,
        "power_w": summary.power_w,
        "temperature_c": summary.temperature_c,
        "regimes": summary.regimes,
    }


def of_space(space: str) -> dict:
    """All ways of comparing, one after another; rests at the end show whether the way before left something behind."""
    ground = Ground(space)
    ms = ground.sample_ms[ground.configs[0]]
    space_document: dict = {"mode": ground.timer.mode, "sample_ms": ms}
    burst = max(int(5.0 / ms), 1)
    space_document["trace"] = {
        "no rest": traced(ground, burst=burst, rest_s=0.0, seconds=2.5),
        "rest as long": traced(ground, burst=burst, rest_s=0.005, seconds=2.5),
        "rest twice as long": traced(ground, burst=burst, rest_s=0.01, seconds=2.5),
    }
    for name, ways in {
        "rested 1/4": {"rounds": 150, "visit_ms": 0.1, "duty": 0.25, "heated_s": 0.0},
        "rested 1/2": {"rounds": 150, "visit_ms": 0.1, "duty": 0.5, "heated_s": 0.0},
        "rested 1/2, visits of 1 ms": {"rounds": 100, "visit_ms": 1.0, "duty": 0.5, "heated_s": 0.0},
        "lasting, one launch": {"rounds": 300, "visit_ms": 0.1, "duty": 1.0, "heated_s": 3.0},
        "lasting, visits of 5 ms": {"rounds": 100, "visit_ms": 5.0, "duty": 1.0, "heated_s": 3.0},
        "rested 1/2 after that": {"rounds": 150, "visit_ms": 0.1, "duty": 0.5, "heated_s": 0.0},
    }.items():
        space_document[name] = raced(ground, **ways)
        print(space, name, json.dumps(space_document[name]), flush=True)
    space_document["alone"] = alone(ground, seconds=1.0, repeats=3)
    print(space, "alone", json.dumps(space_document["alone"]), flush=True)
    for name, trace in space_document["trace"].items():
        print(space, "trace", name, [round(v, 4) for v in trace[:: max(len(trace) // 40, 1)]], flush=True)
    return space_document


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/power_regimes.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    spec = probe("cuda")
    document = headed(
        "python -m benchmarks.timing.power_regimes",
        options.commit,
        device={"name": spec.name, "arch": spec.arch, "driver": spec.driver, "torch": torch.__version__},
        spaces={space: of_space(space) for space in CONFIGS},
    )
    save(options.out, document)


if __name__ == "__main__":
    main()
