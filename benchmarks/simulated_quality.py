"""How good selections are on a simulated device, where the truth is known and disturbances come when asked for.

    python -m benchmarks.simulated_quality --repeats 40 --out simulated_quality.json

Whole selections (first looks, race, decision) over spaces of 480 configs like those recorded on an H200, under no
disturbance and under each: how often the winner is within 1 % of the best, its regret, winners outside of the true tie
set, arms that differ from themselves, whether a 2 % slowdown is found, what the reversed list changes, and what it
costs beside `triton.testing.do_bench` (25 + 100 ms per config). No GPU is needed. Takes 0.1 s per selection.
"""

from __future__ import annotations

import argparse
import bisect
import datetime
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from triton_ops.measure.arm import Arm
from triton_ops.measure.decision import INDIFFERENCE, decide
from triton_ops.measure.race import race
from triton_ops.measure.select import Selection, SelectPolicy, select
from triton_ops.measure.simulate import (
    DISTURBANCES,
    POWER_CAPPED,
    Disturbance,
    Noise,
    SimulatedDevice,
    SimulatedKernel,
    SimulatedTimer,
)
from triton_ops.measure.stats import wilson
from triton_ops.measure.timer import Launch
from triton_ops.runner.effort import effort_of

EFFORT = effort_of("exhaustive")
POLICY = SelectPolicy(EFFORT.screen, EFFORT.near, EFFORT.finalists, EFFORT.race)

ARMS = 480
DO_BENCH_S = 0.125  # of device time per config
GOOD = 0.01  # regret of a winner that no honest re-measurement beats
SLOWDOWN = 0.02
DRAWS = 8  # spaces of one shape
DEFAULT_RANKS = (3, 10, 30, 60, 120)  # places by true time that a default may have

# Shares of configs, and how much slower than the best they are, in recorded spaces.
SHARES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
SKINNY = (1.0, 1.005, 1.005, 1.012, 1.016, 1.033, 1.059, 1.149, 1.285, 1.611, 2.154, 4.727, 35.12)
SQUARE = (1.0, 1.024, 1.045, 1.058, 1.088, 1.191, 1.413, 1.709, 2.228, 3.224, 4.658, 7.453, 26.82)
DEEP = (1.0, 1.027, 1.064, 1.121, 1.158, 1.347, 1.568, 2.02, 2.505, 3.61, 4.943, 10.32, 57.94)
FP8 = (1.0, 1.008, 1.027, 1.062, 1.122, 1.359, 1.553, 2.203, 2.774, 4.478, 6.331, 12.30, 40.90)
SHORT = (1.0, 1.02, 1.022, 1.04, 1.085, 1.203, 1.317, 1.663, 2.071, 3.011, 4.395, 8.323, 50.46)
ROWS = (1.0, 1.0, 1.001, 1.007, 1.019, 1.064, 1.106, 1.167, 1.245, 1.388, 1.952, 3.082, 25.69)
SOFTMAX = (1.0, 1.003, 1.02, 1.036, 1.045, 1.072, 1.125, 1.239, 1.312, 1.771, 2.437, 4.484, 30.54)
TIES = (1.0, 1.001, 1.002, 1.003, 1.005, 1.01, 1.06, 1.167, 1.245, 1.388, 1.952, 3.082, 25.69)  # 10 within 0.5 %


@dataclass(frozen=True)
class Shape:
    """A space: its best time in milliseconds, by which factors the others are slower, and what timing it is like."""

    best_ms: float
    factors: tuple[float, ...]
    noise: Noise = field(default_factory=Noise)

    def times_ms(self, seed: int, arms: int = ARMS) -> list[float]:
        """True times in random order: one from each of `arms` equal shares, at a random place of it."""
        rng = random.Random(seed)
        drawn = [self.best_ms * _between(self.factors, (k + rng.random()) / arms) for k in range(arms)]
        rng.shuffle(drawn)
        return drawn


SHAPES = {
    "matmul bf16 16x14336x4096": Shape(0.0394, SKINNY),
    "matmul bf16 4096x4096x4096": Shape(0.1951, SQUARE, POWER_CAPPED),
    "matmul bf16 512x4096x14336": Shape(0.0823, DEEP, POWER_CAPPED),
    "matmul fp8 1024x8192x8192": Shape(0.1006, FP8, POWER_CAPPED),
    "rmsnorm bf16 128x8192": Shape(0.0064, SHORT),
    "rmsnorm bf16 8192x4096": Shape(0.0395, ROWS),
    "softmax bf16 8192x4096": Shape(0.0448, SOFTMAX),
    "many ties": Shape(0.05, TIES),
    "many ties, power-capped": Shape(0.19, TIES, POWER_CAPPED),
    "skinny, power-capped": Shape(0.19, SKINNY, POWER_CAPPED),
}


@dataclass(frozen=True)
class Grade:
    """One selection against the truth.

    Attributes:
        regret: By which share the winner's true time exceeds the best.
        outside: Whether the winner is outside of the true tie set: within the indifference zone of the best in this
            process, or within what the selection itself called its noise beyond that.
        beyond: Whether it is outside of the zone itself.
        differs: Whether a finalist was declared different from itself.
        missed: Whether the 95 % interval of that misses none.
        gpu_s: Device time.
        finalists: How many were raced.
        rounds: How often.
        winner: Name of the winner.
        ties: Names of those that it tied with.
    """

    regret: float
    outside: bool
    beyond: bool
    differs: bool
    missed: bool
    gpu_s: float
    finalists: int
    rounds: int
    winner: str
    ties: tuple[str, ...]


def graded(
    shape: Shape,
    disturbance: Disturbance,
    seed: int,
    policy: SelectPolicy | None = None,
    *,
    backwards: bool = False,
) -> Grade:
    """One selection in a process of its own, from one of eight spaces, with its list as it is or backwards."""
    space = seed % DRAWS
    device = SimulatedDevice(shape.noise, disturbance, seed=seed, process=seed)
    kernels = {f"{i:03d}": device.kernel(time_ms, f"{i:03d}") for i, time_ms in enumerate(shape.times_ms(space))}
    ranked = sorted(kernels, key=lambda name: kernels[name].true_ms)
    default = ranked[random.Random(space).choice(DEFAULT_RANKS)]
    names = list(kernels)[::-1] if backwards else list(kernels)
    found = select(
        [Launch(kernels[name]) for name in names],
        [(name != default, random.Random(name).random(), name) for name in names],
        SimulatedTimer(device),
        policy or POLICY,
        random.Random(seed),
        default=names.index(default),
        clock=device.clock,
    )
    return _grade(found, names, kernels, device.busy_s)


def _grade(found: Selection, names: Sequence[str], kernels: Mapping[str, SimulatedKernel], gpu_s: float) -> Grade:
    winner = names[found.winner]
    behind = kernels[winner].own_ms / min(kernel.own_ms for kernel in kernels.values()) - 1
    itself = found.itself
    return Grade(
        regret=kernels[winner].true_ms / min(kernel.true_ms for kernel in kernels.values()) - 1,
        outside=behind > INDIFFERENCE + found.noise,
        beyond=behind > INDIFFERENCE,
        differs=itself is not None and abs(itself.centre) > max(INDIFFERENCE, itself.margin),
        missed=itself is not None and not itself.low <= 0 <= itself.high,
        gpu_s=gpu_s,
        finalists=len(found.raced),
        rounds=found.rounds,
        winner=winner,
        ties=tuple(names[i] for i in found.ties),
    )


def told_apart(noise: Noise, disturbance: Disturbance, slowdown: float, seed: int) -> bool:
    """Whether a race of two launches, one truly slower by `slowdown`, ends with the other one alone."""
    device = SimulatedDevice(noise, disturbance, seed=seed, process=seed)
    timer, policy = SimulatedTimer(device), POLICY.race
    pair = []
    for slower in (0.0, slowdown):  # of one name, and so of one bias: the same kernel with more to do
        sampler = timer.prepare(device.launch(0.1 * (1 + slower), "kernel"))
        pair.append(Arm(sampler, policy.samples(0.1 * sampler.launches)))
    race(pair, timer, policy, random.Random(seed), clock=device.clock)
    dropped = [i for i, arm in enumerate(pair) if arm.dropped_at is not None]
    found = decide([arm.medians_ms for arm in pair], [(1,), (0,)], dropped=dropped)
    return found.ties == (0,) if slowdown else len(found.ties) < 2


def condition(disturbance: Disturbance, shapes: Mapping[str, Shape], repeats: int, *, pairs: int = 100) -> dict:
    """All figures under one disturbance.

    Args:
        disturbance: What goes on besides.
        shapes: The spaces.
        repeats: Selections per space; each in another process.
        pairs: Races of two, of either kind and under either noise.
    """
    found = {name: [graded(shape, disturbance, seed) for seed in range(repeats)] for name, shape in shapes.items()}
    few = range(min(repeats, DRAWS))
    changed = sum(
        graded(shape, disturbance, seed, backwards=True) != found[name][seed]
        for name, shape in shapes.items()
        for seed in few
    )
    kinds = (Noise(), POWER_CAPPED)
    same, slow = (
        [told_apart(noise, disturbance, share, seed) for noise in kinds for seed in range(pairs)]
        for share in (0.0, SLOWDOWN)
    )
    return {
        **summary([grade for grades in found.values() for grade in grades]),
        "flip_rate": statistics.mean(flip_rate(grades[draw::DRAWS]) for grades in found.values() for draw in few),
        "aa_pairs_told_apart": sum(same) / len(same),
        "power_2pct": sum(slow) / len(slow),
        "reversed_list_changes": changed,
        "spaces": {name: summary(grades) for name, grades in found.items()},
    }


def summary(grades: Sequence[Grade]) -> dict:
    """Figures of many selections."""
    count = len(grades)
    good = sum(grade.regret <= GOOD for grade in grades)
    regrets = sorted(grade.regret for grade in grades)
    costs = sorted(grade.gpu_s for grade in grades)
    return {
        "selections": count,
        "within_1pct": good,
        "wilson_low": wilson(good, count).low,
        "regret_mean": statistics.mean(regrets),
        "regret_p95": regrets[math.ceil(0.95 * count) - 1],
        "regret_max": regrets[-1],
        "outside_tie_set": sum(grade.outside for grade in grades) / count,
        "beyond_zone": sum(grade.beyond for grade in grades) / count,
        "aa_false_positive": sum(grade.differs for grade in grades) / count,
        "aa_interval_misses": sum(grade.missed for grade in grades) / count,
        "finalists": statistics.median(grade.finalists for grade in grades),
        "rounds": statistics.median(grade.rounds for grade in grades),
        "gpu_s_median": statistics.median(costs),
        "gpu_s_max": costs[-1],
        "share_of_do_bench": statistics.mean(costs) / (ARMS * DO_BENCH_S),
        "share_of_do_bench_max": costs[-1] / (ARMS * DO_BENCH_S),
    }


def flip_rate(grades: Sequence[Grade]) -> float:
    """How likely two selections from one space have different winners."""
    counts = Counter(grade.winner for grade in grades)
    return 1 - sum((n / len(grades)) ** 2 for n in counts.values())


def shortfalls(figures: Mapping[str, Mapping]) -> list[str]:
    """What misses a target, in words; the interval is that of all conditions together."""
    good, count = (sum(found[key] for found in figures.values()) for key in ("within_1pct", "selections"))
    missed = [] if wilson(good, count).low >= 0.95 else [f"within 1 %: {good} of {count}"]
    for name, found in figures.items():
        missed += [f"{name}: {key} {found[key]:.4g}" for key, most in AT_MOST.items() if found[key] > most]
        missed += [f"{name}: {key} {found[key]:.4g}" for key, least in AT_LEAST.items() if found[key] < least]
    return missed


AT_MOST = {
    "regret_p95": GOOD,
    "outside_tie_set": 0.02,
    "aa_false_positive": 0.06,
    "aa_pairs_told_apart": 0.06,
    "share_of_do_bench_max": 0.2,
    "reversed_list_changes": 0,
}
AT_LEAST = {"power_2pct": 0.9}


def main() -> None:
    """Grade and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="selections per space and disturbance")
    parser.add_argument("--disturbances", nargs="*", default=list(DISTURBANCES))
    parser.add_argument("--process-bias", type=float, help="standard deviation, in place of the default's 0.002")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shapes = SHAPES
    if options.process_bias is not None:
        shapes = {
            name: replace(shape, noise=replace(shape.noise, process=options.process_bias))
            for name, shape in SHAPES.items()
        }
    figures = {name: condition(DISTURBANCES[name], shapes, options.repeats) for name in options.disturbances}
    document = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": "python -m benchmarks.simulated_quality",
        "arms": ARMS,
        "repeats": options.repeats,
        "policy": asdict(POLICY),
        "noise": {"default": asdict(Noise()), "power-capped": asdict(POWER_CAPPED)},
        "shortfalls": shortfalls(figures),
        "disturbances": figures,
    }
    text = json.dumps(document, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _between(factors: Sequence[float], share: float) -> float:
    """The factor at a share, on a line between logarithms."""
    at = bisect.bisect_right(SHARES, share) - 1
    part = (share - SHARES[at]) / (SHARES[at + 1] - SHARES[at])
    return math.exp((1 - part) * math.log(factors[at]) + part * math.log(factors[at + 1]))


if __name__ == "__main__":
    main()
