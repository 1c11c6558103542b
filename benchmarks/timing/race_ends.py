"""What the end of the race costs and what it decides: last comparisons by several policies on a simulated device.

    python -m benchmarks.timing.race_ends --seeds 12 --out benchmarks/results/simulated/race_ends.json
    python -m benchmarks.timing.race_ends --lengths 1000 --out benchmarks/results/simulated/race_lengths.json

Every policy sees the same configs, screenings and disturbances: the recorded shapes of `simulated_quality.py`, and
fields of rivals at known distances from the default, under four kinds of noise. The truth is known. A row says how
often the winner is within 1 % of the best finalist, its regret, how often a config that is truly no faster than the
default replaced it, how often a default that is 1 % behind stayed, and the rounds and seconds of the comparison. No
GPU is needed; the seconds are the simulated device's. Takes 0.05 s for each comparison.

With `--lengths`, so many whole tunes of three configs for each cell of a grid instead: launches of 10 us to a minute, a
config that is 1 to 25 times as fast as the default, jitters of 2 to 30 %, and budgets of 2 to 300 s and none. A false
winner is one that is no faster than the default; a config is left behind if it is faster than the winner by four
jitters and by a tenth, though eight rounds of the finalists fitted into what the search had left. Exit code 1 if a cell
has more than 1 % or 2 % of these. Takes 10 ms of one CPU for each tune.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from tests.simulated_device import DISTURBANCES, POWER_CAPPED, Disturbance, Noise, SimulatedDevice, SimulatedTimer

from benchmarks.document import headed, save
from benchmarks.pages.tables import ends_table
from benchmarks.timing.simulated_quality import SHAPES, Ground, KnownTimes
from benchmarks.timing.unverified import search_of, unverified
from triton_ops import ConfigSpace
from triton_ops.backend import Arguments
from triton_ops.device import probe
from triton_ops.evaluation import FinalRequest, Outcome
from triton_ops.evaluation.finals import compare_finalists, finalists
from triton_ops.request import Budget, Effort
from triton_ops.space import Config
from triton_ops.timing import HostTimer, RacePolicy, SharedTimer

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


LENGTHS_MS = (0.01, 1.0, 50.0, 400.0, 2000.0, 60_000.0)
RATIOS = (1.0, 1.02, 1.1, 1.5, 2.0, 25.0)
JITTERS = (0.02, 0.1, 0.3)
BUDGETS_S = (2.0, 30.0, 300.0, None)
LONG_MS = 10.0  # from which the host's clock is taken, and budgets matter
FALSE, LEFT = 0.01, 0.02  # of the tunes of a cell
FITS, JITTERS_APART, TENTH = 8, 4.0, 0.1


@dataclass(frozen=True)
class Cell:
    """One kind of tune: a default's time, how many times as fast another config is, noise, and seconds."""

    launch_ms: float
    ratio: float
    jitter: float
    budget_s: float | None

    @property
    def apart(self) -> bool:
        """True if the other config is so much faster that it should win."""
        return math.log(self.ratio) >= max(JITTERS_APART * self.jitter, math.log1p(TENTH)) - 1e-9

    def tuned(self, seed: int) -> Tuned:
        """One tune of a default, the other config, and one that is equal to the default."""
        device = SimulatedDevice(Noise(sample=self.jitter, spikes=0.0, drift=0.0, carry=0.0, process=0.0), seed=seed)
        times = {Config(config=place): self.launch_ms / (self.ratio if place == 1 else 1.0) for place in range(3)}
        default, *_ = times
        kernels = {config: device.kernel(time_ms, config.text) for config, time_ms in times.items()}
        is_long = self.launch_ms >= LONG_MS
        timer = HostTimer(lambda: round(1e9 * device.now_s)) if is_long else SimulatedTimer(device)
        shared_timer = SharedTimer(probe("cpu"), "cpu", choose=lambda *_, **__: timer)
        evaluator = unverified(KnownTimes(kernels), Arguments(), QUICK, shared_timer)
        limits = QUICK if self.budget_s is None else replace(QUICK, budget=Budget(seconds=self.budget_s))
        space = ConfigSpace.from_configs(times, default=default)
        search = search_of(evaluator, space, default, seed, QUICK, replace(limits, worthwhile=0.0), device.clock)
        left_s, begun_s = search.budget.comparison_s, device.now_s
        final = FinalRequest(trials=tuple(search.trials.values()), default=default, seed=seed, seconds=left_s)
        outcome = compare_finalists(evaluator, final, limits, clock=device.clock)
        assert outcome.winner is not None  # every config works
        round_s = sum(times[trial.config] for trial in finalists(search.trials, limits, {default})) / 1e3
        winner = outcome.winner.config
        return Tuned(
            false=winner != default and times[winner] >= times[default],
            left=self.apart and times[winner] > min(times[config] for config in search.trials),
            fits=left_s is None or FITS * round_s <= left_s,
            told=outcome.told,
            seconds=device.now_s - begun_s,
            over_s=0.0 if left_s is None else device.now_s - begun_s - left_s,
        )


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One tune against the truth: see the cells; `over_s` are seconds beyond what the search had left."""

    false: bool
    left: bool
    fits: bool
    told: bool
    seconds: float
    over_s: float


def cells() -> Iterator[Cell]:
    """The grid; a short launch needs no more than the smallest budget."""
    for launch_ms, ratio, jitter in itertools.product(LENGTHS_MS, RATIOS, JITTERS):
        for budget_s in BUDGETS_S if launch_ms >= LONG_MS else (BUDGETS_S[0],):
            yield Cell(launch_ms, ratio, jitter, budget_s)


def cell_figures(cell: Cell, tunes: int) -> dict[str, float]:
    """The figures of a cell: false winners among all tunes, and configs left behind where rounds fitted."""
    every = [cell.tuned(seed) for seed in range(tunes)]
    fitting = [tuned for tuned in every if tuned.fits]
    return {
        **asdict(cell),
        "tunes": tunes,
        "false_winners": sum(tuned.false for tuned in every),
        "fitting": len(fitting),
        "left_behind": sum(tuned.left for tuned in fitting),
        "untold": sum(not tuned.told for tuned in every),
        "seconds": round(statistics.mean(tuned.seconds for tuned in every), 3),
        "most_over_s": round(max(tuned.over_s for tuned in every), 3),
    }


def missed_cells(rows: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """The cells that miss a bar."""
    return [
        row for row in rows
        if row["false_winners"] > FALSE * row["tunes"] or row["left_behind"] > LEFT * row["fitting"]
    ]  # fmt: skip


def lengths(tunes: int, out: Path | None) -> int:
    """Go through the grid, write and print; 1 if a cell misses a bar."""
    rows = []
    with ProcessPoolExecutor() as pool:
        for row in pool.map(partial(cell_figures, tunes=tunes), cells()):
            rows.append(row)
            if missed_cells([row]):
                print("missed:", row, flush=True)
    worst = {
        "cells": len(rows),
        "tunes": sum(row["tunes"] for row in rows),
        "most_false_winners": max(row["false_winners"] / row["tunes"] for row in rows),
        "most_left_behind": max(row["left_behind"] / max(row["fitting"], 1) for row in rows),
        "missed": len(missed_cells(rows)),
    }
    print(worst)
    if out is not None:
        save(out, headed(f"python -m benchmarks.timing.race_ends --lengths {tunes}", None, summary=worst, cells=rows))
    return bool(worst["missed"])


def main() -> int:
    """Compare, write and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, metavar="TUNES", help="so many tunes of launches of each length instead")
    parser.add_argument("--seeds", type=int, default=12, help="comparisons on each ground under each disturbance")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--out", type=Path, help="where to write all figures as JSON")
    options = parser.parse_args()
    if options.lengths:
        return lengths(options.lengths, options.out)
    by_policy = {name: figures(options.seeds, POLICIES[name]) for name in options.policies}
    document = {
        **headed(f"python -m benchmarks.timing.race_ends --seeds {options.seeds}", None),
        "policies": {name: asdict(POLICIES[name]) for name in by_policy},
        "figures": by_policy,
    }
    if options.out is not None:
        save(options.out, document)
    print(ends_table(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
