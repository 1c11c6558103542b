"""What the end of the race costs and what it decides: last comparisons by several policies on a simulated device.

    python -m benchmarks.timing.race_ends --seeds 12 --out benchmarks/results/simulated/race_ends.json

Every policy sees the same configs, screenings and disturbances: the recorded shapes of `simulated_quality.py`, and
fields of rivals at known distances from the default, under four kinds of noise. The truth is known. A row says how
often the winner is within 1 % of the best finalist, its regret, how often a config that is truly no faster than the
default replaced it, how often a default that is 1 % behind stayed, and the rounds and seconds of the comparison. No
GPU is needed; the seconds are the simulated device's. Takes 0.05 s for each comparison.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.simulated_device import DISTURBANCES, POWER_CAPPED, Disturbance, Noise, SimulatedDevice

from benchmarks.document import headed, save
from benchmarks.pages.tables import ends_table
from benchmarks.timing.simulated_quality import SHAPES, Ground
from triton_ops.evaluation import Outcome
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import RacePolicy

GOOD = 0.01
CLEARLY = 0.0025  # slower than the default by more than this is told by hundreds of rounds
CONFIGS = 240
QUICK = Effort.named("quick")
POLICIES: Mapping[str, RacePolicy] = {
    "until all are equal, visits of 2.5 ms": RacePolicy(checkpoints=(4, 8, 16, 32), seconds=1.0),
    "until all are equal, visits of 1.25 ms": replace(QUICK.race, regret=None),
    "until none can be faster, visits of 2.5 ms": replace(QUICK.race, visit_ms=2.5),
    "quick": QUICK.race,
}
NOISES: Mapping[str, Noise] = {
    "short kernels": Noise(),
    "power-capped": POWER_CAPPED,
    "quiet": Noise(sample=0.003, drift=0.003, carry=0.001, process=0.001),
    "heavy tails": Noise(spikes=0.15, spike=0.1),
}
FAR = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7)
FIELDS: Mapping[str, tuple[float, ...]] = {
    "all equal": (0.0,) * 6,
    "default 0.3 % behind": (0.003, 0.0, 0.001, 0.002, 0.01),
    "default 1 % behind": (0.01, 0.0, 0.001, 0.002, 0.012),
    "default 2 % behind": (0.02, 0.0, 0.01, 0.02, 0.03),
    "default 6 % behind": (0.06, 0.0, 0.005, 0.01, 0.03),
    "default 25 % behind": (0.25, 0.0, 0.007, 0.014, 0.03),
    "default 1 % ahead": (0.0, 0.01, 0.012, 0.015, 0.03),
}
"""By which share each config is slower than the fastest; the first is the default, and six more are far behind."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """One last comparison against the truth, in this process of the simulated device.

    Attributes:
        regret: By which share the winner is slower than the best finalist.
        replaced: Whether the winner replaced a default than which it is truly no faster.
        clearly: Whether it is slower than that default by more than 0.25 %.
        missed: Whether the default stayed though it is more than 1 % slower than the best finalist.
        unsure: Whether the outcome says that it should not be relied on.
        rounds: How many rounds the race had.
        seconds: How long the whole comparison took, on the device's clock.
    """

    regret: float
    replaced: bool
    clearly: bool
    missed: bool
    unsure: bool
    rounds: int
    seconds: float


def grounds(seeds: int) -> Iterator[tuple[str, int, Ground]]:
    """The spaces and fields, under each disturbance and for each seed: the kind, the seed, and a fresh device."""
    for disturbance in DISTURBANCES.values():
        for seed in range(seeds):
            for shape in SHAPES.values():
                yield "recorded spaces", seed, Ground.of(shape, disturbance, seed, configs=CONFIGS)
            for noise in NOISES.values():
                for gaps in FIELDS.values():
                    yield "known fields", seed, field_of(gaps, noise, disturbance, seed)


def field_of(gaps: Sequence[float], noise: Noise, disturbance: Disturbance, seed: int) -> Ground:
    """A default and rivals at known distances, and six configs that are far behind."""
    device = SimulatedDevice(noise, disturbance, seed=seed, process=seed)
    times = {Config(config=place): 0.1 * (1 + gap) for place, gap in enumerate((*gaps, *FAR))}
    kernels = {config: device.kernel(time_ms, config.text) for config, time_ms in times.items()}
    return Ground(device, kernels, Config(config=0))


def ended(ground: Ground, seed: int, effort: Effort) -> Ending:
    """A whole selection on one ground, and the grade of its last comparison."""
    started: list[float] = []
    outcome = ground.select(seed, effort, lambda: started.append(ground.device.now_s))
    return graded(ground, outcome, ground.device.now_s - started[0])


def graded(ground: Ground, outcome: Outcome, seconds: float) -> Ending:
    """The grade of one outcome."""
    assert outcome.winner is not None  # every config works
    raced = [trial for trial in outcome.trials if trial.final is not None]
    best = min(ground.kernels[trial.config].own_ms for trial in raced)
    own, default = ground.kernels[outcome.winner.config].own_ms, ground.kernels[ground.default].own_ms
    other = outcome.winner.config != ground.default
    return Ending(
        regret=own / best - 1,
        replaced=other and own >= default,
        clearly=other and own > default * (1 + CLEARLY),
        missed=not other and default > best * (1 + GOOD),
        unsure=outcome.confidence != "ok",
        rounds=max(trial.final.rounds for trial in raced if trial.final is not None),
        seconds=seconds,
    )


def summary(endings: Sequence[Ending]) -> dict[str, float]:
    """Figures of many endings: shares, means, and the worst regret."""
    return {
        "comparisons": len(endings),
        "within_1pct": statistics.mean(it.regret <= GOOD for it in endings),
        "regret_mean": statistics.mean(it.regret for it in endings),
        "regret_max": max(it.regret for it in endings),
        "replaced": statistics.mean(it.replaced for it in endings),
        "clearly": statistics.mean(it.clearly for it in endings),
        "missed": statistics.mean(it.missed for it in endings),
        "unsure": statistics.mean(it.unsure for it in endings),
        "rounds": statistics.mean(it.rounds for it in endings),
        "seconds": statistics.mean(it.seconds for it in endings),
    }


def figures(seeds: int, policy: RacePolicy) -> dict[str, dict[str, float]]:
    """The summaries of one policy, by the kind of ground."""
    by_kind: dict[str, list[Ending]] = {}
    for kind, seed, ground in grounds(seeds):
        by_kind.setdefault(kind, []).append(ended(ground, seed, replace(QUICK, race=policy)))
    return {kind: summary(endings) for kind, endings in by_kind.items()}


def main() -> None:
    """Compare, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=12, help="comparisons on each ground under each disturbance")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--out", type=Path, help="where to write all figures as JSON")
    options = parser.parse_args()
    by_policy = {name: figures(options.seeds, POLICIES[name]) for name in options.policies}
    document = {
        **headed(f"python -m benchmarks.timing.race_ends --seeds {options.seeds}", None),
        "policies": {name: asdict(POLICIES[name]) for name in by_policy},
        "figures": by_policy,
    }
    if options.out is not None:
        save(options.out, document)
    print(ends_table(document))


if __name__ == "__main__":
    main()
