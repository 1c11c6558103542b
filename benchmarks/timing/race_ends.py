"""Whole tunes of launches of any length on a simulated device, where the truth is known.

    python -m benchmarks.timing.race_ends --tunes 1000 --out benchmarks/results/simulated/race_lengths.json

So many tunes of three configs for each cell of a grid: launches of 10 us to a minute, a config that is 1 to 25 times as
fast as the default, jitters of 2 to 30 %, and budgets of 2 to 300 s and none. A false winner is one that is no faster
than the default; a config is left behind if it is faster than the winner by four jitters and by a tenth, though eight
rounds of the finalists fitted into what the search had left. Exit code 1 if a cell has more than 1 % or 2 % of these.
Takes 10 ms of one CPU for each tune.

Tests also race fields of rivals at known distances from the default, under four kinds of noise.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

from tests.simulated_device import POWER_CAPPED, Disturbance, Noise, SimulatedDevice, SimulatedTimer

from benchmarks.document import headed, parser_of, save
from benchmarks.timing.simulated_quality import GOOD, Ground, KnownTimes
from benchmarks.timing.unverified import search_of, unverified
from triton_ops import ConfigSpace
from triton_ops.backend import Arguments
from triton_ops.device import probe
from triton_ops.evaluation import FinalRequest
from triton_ops.evaluation.finals import compare_finalists, finalists
from triton_ops.request import Budget, Effort
from triton_ops.space import Config
from triton_ops.timing import HostTimer, RacePolicy, SharedTimer

CLEARLY = 0.0025  # slower than the default by more than this is told by hundreds of rounds
QUICK = Effort.named("quick")
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


def field_of(gaps: Sequence[float], noise: Noise, disturbance: Disturbance, seed: int) -> Ground:
    """A default and rivals at known distances, and six configs that are far behind."""
    device = SimulatedDevice(noise, disturbance, seed=seed, process=seed)
    times = {Config(config=place): 0.1 * (1 + gap) for place, gap in enumerate((*gaps, *FAR))}
    kernels = {config: device.kernel(time_ms, config.text) for config, time_ms in times.items()}
    return Ground(device, kernels, Config(config=0))


def ended(ground: Ground, seed: int, race: RacePolicy) -> dict[str, float]:
    """The grade of the last comparison of a whole selection on one ground.

    It has the winner's regret beside the best finalist; whether it is slower than a default that it replaced by more
    than 0.25 %; whether the default stayed though it is more than 1 % behind; and the seconds of the comparison.
    """
    started: list[float] = []
    outcome = ground.select(seed, replace(QUICK, race=race), lambda: started.append(ground.device.now_s))
    assert outcome.winner is not None  # every config works
    own_ms = {config: kernel.own_ms for config, kernel in ground.kernels.items()}
    best = min(own_ms[trial.config] for trial in outcome.trials if trial.final is not None)
    own, default = own_ms[outcome.winner.config], own_ms[ground.default]
    other = outcome.winner.config != ground.default
    return {
        "regret": own / best - 1,
        "clearly": other and own > default * (1 + CLEARLY),
        "missed": not other and default > best * (1 + GOOD),
        "seconds": ground.device.now_s - started[0],
    }


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


def main() -> int:
    """Go through the grid, write and print; 1 if a cell misses a bar."""
    parser = parser_of(__doc__)
    parser.add_argument("--tunes", type=int, default=1000, help="of each cell")
    options = parser.parse_args()
    rows = []
    with ProcessPoolExecutor() as pool:
        for row in pool.map(partial(cell_figures, tunes=options.tunes), cells()):
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
    if options.out is not None:
        command = f"python -m benchmarks.timing.race_ends --tunes {options.tunes}"
        save(options.out, headed(command, options.commit, summary=worst, cells=rows))
    return bool(worst["missed"])


if __name__ == "__main__":
    raise SystemExit(main())
