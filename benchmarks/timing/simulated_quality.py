"""How good selections are on a simulated device, where the truth is known and disturbances come when asked for.

    python -m benchmarks.timing.simulated_quality --repeats 40 --out benchmarks/results/simulated/selection.json

Whole selections by the runner's own search, race and decision, over spaces of 480 configs like those recorded on an
H200, under no disturbance and under each: how often the winner is within 1 % of the best, its regret, winners outside
of the true tie set, configs that differ from themselves, whether a 2 % slowdown is found, what the reversed list
changes, and what it costs beside `triton.testing.do_bench` (25 + 100 ms per config). No GPU is needed. A table on
stdout; exit code 1 if a target is missed. Takes 0.2 s per selection.
"""

from __future__ import annotations

import bisect
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.simulated_device import (
    DISTURBANCES,
    POWER_CAPPED,
    Disturbance,
    Noise,
    SimulatedDevice,
    SimulatedKernel,
    SimulatedTimer,
    wilson,
)

from benchmarks.document import headed, parser_of, save
from benchmarks.pages.tables import selection_table
from benchmarks.timing.unverified import searched, unverified
from triton_ops import ConfigSpace
from triton_ops.backend import Arguments, Executable
from triton_ops.device import probe
from triton_ops.evaluation import FinalRequest, Outcome
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import Arm, Rounds, SharedTimer
from triton_ops.timing.race_statistics import INDIFFERENCE
from triton_ops.values import Resources

EFFORT = Effort.named("exhaustive")
CONFIGS = 480
DO_BENCH_S = 0.125  # of device time per config
GOOD = 0.01  # regret of a winner that no honest re-measurement beats
SLOWDOWN = 0.02
RESOLUTION = 0.001  # of the zone's edge
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

    def times_ms(self, draw: int, configs: int = CONFIGS) -> list[float]:
        """True times in random order: one from each of so many equal shares, at a random place of it."""
        rng = random.Random(draw)
        drawn = [self.best_ms * _between(self.factors, (k + rng.random()) / configs) for k in range(configs)]
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


class KnownTimes:
    """A kernel whose configs take known times on a simulated device, and compile at once."""

    name = "simulated"
    identity: Mapping[str, str] = MappingProxyType({})
    outputs: tuple[str, ...] = ()

    def __init__(self, kernels: Mapping[Config, SimulatedKernel]) -> None:
        self._kernels = kernels

    def check(self, _tunables: Iterable[str], _arguments: Arguments) -> None:
        """Every config fits."""

    def compile(self, config: Config, _arguments: Arguments) -> Executable:
        """Resources that are not a matter of speed, so that the tie-break prefers now one config and now another."""
        resources = Resources(spill_bytes=0, shared_bytes=random.Random(config.text).randrange(1 << 17))
        return Executable(config=config, bind=lambda _: self._kernels[config], resources=resources)


@dataclass(frozen=True)
class Ground:
    """One space on a device of its own.

    Attributes:
        device: Where.
        kernels: What is known of each config, in the order of the list.
        default: One that is some way behind the best.
    """

    device: SimulatedDevice
    kernels: Mapping[Config, SimulatedKernel]
    default: Config

    @classmethod
    def of(
        cls, shape: Shape, disturbance: Disturbance, seed: int, *, configs: int = CONFIGS, backwards: bool = False
    ) -> Ground:
        """A fresh process, `seed`, and one of eight spaces of this shape, its list as it is or backwards."""
        draw = seed % DRAWS
        device = SimulatedDevice(shape.noise, disturbance, seed=seed, process=seed)
        times = {Config(config=i): time_ms for i, time_ms in enumerate(shape.times_ms(draw, configs))}
        default = sorted(times, key=times.__getitem__)[random.Random(draw).choice(DEFAULT_RANKS)]
        listed = list(times)[::-1] if backwards else list(times)
        return cls(device, {config: device.kernel(times[config], config.text) for config in listed}, default)

    def select(self, seed: int, effort: Effort = EFFORT, raced: Callable[[], object] = lambda: None) -> Outcome:
        """One whole selection, as `tune` does it but for checking, writing, and further processes.

        Args:
            seed: Of the search's and the race's random orders.
            effort: How much is measured.
            raced: Called before the last comparison.
        """
        clock, space = self.device.clock, ConfigSpace.from_configs(self.kernels, default=self.default)
        timer = SimulatedTimer(self.device)
        shared_timer = SharedTimer(probe("cpu"), "cpu", choose=lambda *_, **__: timer)
        evaluator = unverified(KnownTimes(self.kernels), Arguments(), effort, shared_timer)
        trials = searched(evaluator, space, self.default, seed, effort, clock)
        final = FinalRequest(trials=trials, default=self.default, seed=seed)
        raced()
        return compare_finalists(evaluator, final, effort, clock=clock)


@dataclass(frozen=True)
class Grade:
    """One selection against the truth.

    Attributes:
        regret: By which share the winner's true time exceeds the best.
        outside: Whether the winner is outside of the true tie set: in this process slower than the best by more than
            the indifference zone, and the 0.1 % to which an oracle of hundreds of rounds resolves its edge.
        behind_default: Whether the default is truly faster in this process, by more than the zone.
        differs: Whether a finalist was declared different from itself.
        share: Device time, over that of do_bench.
        winner: Text of the winner.
        ties: Texts of those that it tied with.
    """

    regret: float
    outside: bool
    behind_default: bool
    differs: bool
    share: float
    winner: str
    ties: tuple[str, ...]


def graded(
    shape: Shape,
    disturbance: Disturbance,
    seed: int,
    *,
    configs: int = CONFIGS,
    backwards: bool = False,
    effort: Effort = EFFORT,
) -> Grade:
    """One selection in a process of its own."""
    ground = Ground.of(shape, disturbance, seed, configs=configs, backwards=backwards)
    outcome = ground.select(seed, effort)
    assert outcome.winner is not None  # every config works
    known = ground.kernels
    winner, itself = known[outcome.winner.config], outcome.itself
    behind = winner.own_ms / min(kernel.own_ms for kernel in known.values()) - 1
    return Grade(
        regret=winner.true_ms / min(kernel.true_ms for kernel in known.values()) - 1,
        outside=behind > INDIFFERENCE + RESOLUTION,
        behind_default=winner.own_ms > known[ground.default].own_ms * (1 + INDIFFERENCE),
        differs=itself is not None and abs(itself.centre) > max(INDIFFERENCE, itself.margin),
        share=ground.device.busy_s / (configs * DO_BENCH_S),
        winner=outcome.winner.config.text,
        ties=tuple(config.text for config in outcome.ties),
    )


def told_apart(noise: Noise, disturbance: Disturbance, slowdown: float, seed: int) -> bool:
    """Whether a race of two launches, one truly slower by `slowdown`, ends with one of them alone; the faster, if any.

    Both are of one name, and so of one bias: the same kernel with more to do.
    """
    device = SimulatedDevice(noise, disturbance, seed=seed, process=seed)
    timer, arms, policy = SimulatedTimer(device), [], EFFORT.race
    for slower in (0.0, slowdown):
        sampler = timer.prepare(device.launch(0.1 * (1 + slower), "kernel"))
        arms.append(Arm(sampler, policy.samples(0.1 * sampler.launches)))
    rounds = Rounds(timer=timer, rng=random.Random(seed), clock=device.clock)
    rounds.race(arms, policy)
    decision = rounds.standing(dict(enumerate(arms)), preference={0: (1,), 1: (0,)}).decision
    return decision.ties == (0,) if slowdown else len(decision.ties) < 2


def condition(
    disturbance: Disturbance,
    shapes: Mapping[str, Shape],
    repeats: int,
    *,
    configs: int = CONFIGS,
    backwards: int = 2,
    pairs: int = 100,
) -> dict:
    """All figures under one disturbance.

    Args:
        disturbance: What goes on besides.
        shapes: The spaces.
        repeats: Selections per shape; each in another process.
        configs: In a space.
        backwards: How many of them are repeated with the list backwards.
        pairs: Races of two, of either kind and under either noise.
    """
    grades_by_shape = {
        name: [graded(shape, disturbance, seed, configs=configs) for seed in range(repeats)]
        for name, shape in shapes.items()
    }
    changed = sum(
        graded(shape, disturbance, seed, configs=configs, backwards=True) != grades_by_shape[name][seed]
        for name, shape in shapes.items()
        for seed in range(min(repeats, backwards))
    )
    same, slow = (
        [told_apart(noise, disturbance, share, seed) for noise in (Noise(), POWER_CAPPED) for seed in range(pairs)]
        for share in (0.0, SLOWDOWN)
    )
    draws = range(min(repeats, DRAWS))
    return {
        **summary([grade for grades in grades_by_shape.values() for grade in grades]),
        "flip_rate": statistics.mean(
            flip_rate(grades[draw::DRAWS]) for grades in grades_by_shape.values() for draw in draws
        ),
        "aa_pairs_told_apart": sum(same) / len(same),
        "power_2pct": sum(slow) / len(slow),
        "reversed_list_changes": changed,
        "spaces": {name: summary(grades) for name, grades in grades_by_shape.items()},
    }


def summary(grades: Sequence[Grade]) -> dict:
    """Figures of many selections."""
    count = len(grades)
    good = sum(grade.regret <= GOOD for grade in grades)
    regrets = sorted(grade.regret for grade in grades)
    return {
        "selections": count,
        "within_1pct": good,
        "regret_mean": statistics.mean(regrets),
        "regret_p95": regrets[math.ceil(0.95 * count) - 1],
        "regret_max": regrets[-1],
        "outside_tie_set": sum(grade.outside for grade in grades) / count,
        "aa_false_positive": sum(grade.differs for grade in grades) / count,
        "share_of_do_bench": statistics.mean(grade.share for grade in grades),
    }


def flip_rate(grades: Sequence[Grade]) -> float:
    """How likely two selections from one space have different winners."""
    counts = Counter(grade.winner for grade in grades)
    return 1 - sum((n / len(grades)) ** 2 for n in counts.values())


AT_MOST = {
    "regret_p95": GOOD,
    "outside_tie_set": 0.02,
    "aa_false_positive": 0.06,
    "aa_pairs_told_apart": 0.06,
    "share_of_do_bench": 0.2,
    "reversed_list_changes": 0,
}
AT_LEAST = {"power_2pct": 0.9}


def pooled(figures: Mapping[str, Mapping]) -> dict:
    """How many winners are good under all disturbances together."""
    good, count = (sum(figure[key] for figure in figures.values()) for key in ("within_1pct", "selections"))
    return {"within_1pct": good, "of": count, "wilson_low": wilson(good, count).low}


def shortfalls(figures: Mapping[str, Mapping]) -> list[str]:
    """What misses a target, in words; the Wilson interval is that of all disturbances together."""
    together = pooled(figures)
    missed = []
    if together["wilson_low"] < 0.95:
        missed.append(f"within 1 %: {together['within_1pct']} of {together['of']}")
    for name, figure in figures.items():
        missed += [f"{name}: {key} {figure[key]:.4g}" for key, most in AT_MOST.items() if figure[key] > most]
        missed += [f"{name}: {key} {figure[key]:.4g}" for key, least in AT_LEAST.items() if figure[key] < least]
    return missed


def main() -> int:
    """Grade, write and print; 1 if a target is missed."""
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="selections per space and disturbance")
    parser.add_argument("--disturbances", nargs="*", default=list(DISTURBANCES), choices=DISTURBANCES)
    parser.add_argument("--spaces", nargs="*", default=list(SHAPES), choices=SHAPES)
    options = parser.parse_args()
    shapes = {name: SHAPES[name] for name in options.spaces}
    figures = {name: condition(DISTURBANCES[name], shapes, options.repeats) for name in options.disturbances}
    document = headed(
        f"python -m benchmarks.timing.simulated_quality --repeats {options.repeats}", options.commit, configs=CONFIGS,
        repeats=options.repeats, shortfalls=shortfalls(figures), pooled=pooled(figures), disturbances=figures,
    )  # fmt: skip
    if options.out is not None:
        save(options.out, document)
    print(selection_table(document))
    for missed in document["shortfalls"]:
        print(f"missed: {missed}")
    return int(bool(document["shortfalls"]))


def _between(factors: Sequence[float], share: float) -> float:
    """The factor at a share, on a line between logarithms."""
    at = bisect.bisect_right(SHARES, share) - 1
    part = (share - SHARES[at]) / (SHARES[at + 1] - SHARES[at])
    return math.exp((1 - part) * math.log(factors[at]) + part * math.log(factors[at + 1]))


if __name__ == "__main__":
    raise SystemExit(main())
