"""Simulations: the configs of a workload in the order of their expected times.

Of a textbook's workload it is by datasheet figures alone, the same on every computer; of a TARGET it is that of `rank`.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import chain
from typing import Any

from triton_ops.backend import Operation
from triton_ops.base import cached_property
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import SettingsError, SpaceError, TargetError
from triton_ops.space import Config, ConfigSpace, Value
from triton_ops.typed import parse_config
from triton_ops.values import ITEM_BYTES, Work, dtype_name, warps_and_stages
from triton_ops_lab.ranking import NO_FORECAST, Expectation, Expecter, ModelQuestion, by_program, expectations
from triton_ops_lab.recording import attention_work, product_work, row_work
from triton_ops_lab.simulated_ranking import NO_KERNEL, PlacedConfig, advice, ranking_of, table_name

_WARPS = (1, 2, 4, 8, 16, 32)
_STAGES = (1, 2, 3, 4, 5, 6)
_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A config with another value of one knob."""

    value: Value
    expected_ms: float  # 0 if the config cannot run
    why_not: str  # why it cannot run; empty if it can
    own: bool  # the config has this value


@dataclass(frozen=True)
class Dial:
    """One knob of a config, turned while the others stay."""

    name: str
    turns: Sequence[Turn]
    range: float  # the longest over the shortest expected time of the values that can run


@dataclass(frozen=True)
class SizePoint:
    """A problem of a series, and how the configs do there."""

    extents: Sequence[int]
    best_ms: float  # 0 if no config can run
    winner: int  # its place in the list of configs; -1 if none can run
    slower: Sequence[float]  # each config's expected time over the winner's; 0 for one that cannot run


def series(extents: Sequence[int], axis: int, count: int) -> list[list[int]]:
    """Problems that differ along one axis in round extents, two an octave, from a sixteenth of its extent on."""
    # 1, 1.5, 2, 3, 4, 6 … times the first, a power of two; of small ones some come twice
    begin = 1 << max(extents[axis] // 16, 1).bit_length() - 1
    values = [begin * 2 ** (at // 2) * (2 + at % 2) // 2 for at in range(count)]
    rising = [value for at, value in enumerate(values) if at == 0 or value > values[at - 1]]
    return [[*extents[:axis], value, *extents[axis + 1 :]] for value in rising]


MOST_CONFIGS = 20_000  # ranked within two or three seconds
LARGEST = 2**31 - 1  # of an extent: Triton's whole numbers of 32 bits
SHAPES = 13  # of a series: a table of them is no wider than a page
COMPARED = 8  # configs that are compared over shapes


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A computation whose configs are ranked: one of a textbook, or what a TARGET names."""

    title: str  # in words
    operation: Operation = field(hash=False)
    space: Any = None  # in place of the operation's own
    sides: str = ""  # what BM and BN, and where it is used BK, are in a textbook's workload
    least: Mapping[str, int] = field(default_factory=dict, hash=False)  # of these sides; empty for a TARGET
    others: tuple[str, ...] = ()  # tunables that its configs may have beside those of its space
    rule: str = ""  # what wins such work, as the beginning of a sentence

    def whole(self, values: Mapping[str, Any] | None = None) -> list[Config]:
        """All configs of a textbook's own space with other values; `SpaceError` if they are too many."""
        own = self.operation.space
        assert isinstance(own, ConfigSpace)
        space = ConfigSpace({**own.tunables, **(values or {})})
        if (configs := space.all_configs(MOST_CONFIGS)) is None:
            raise SpaceError(f"the space has {space.size.total:,} configs; the most is {MOST_CONFIGS:,}",
                             hint="leave values out")  # fmt: skip
        return configs

    def parsed(self, text: str) -> list[Config]:
        """The configs of a text with one on each line, such as `BM=128 BN=64 BK=32`; `SettingsError` without one."""
        configs = []
        for number, line in enumerate(text.splitlines(), 1):
            if parts := line.replace(",", " ").split():
                with SettingsError.when(f"Line {number}", "", SpaceError):
                    configs.append(Config(parse_config(parts, "config") or {}))
                    self.check(configs[-1:])
        if not configs:
            raise SettingsError("There is no config to rank")
        return configs

    def check(self, configs: Sequence[Config]) -> None:
        """Raise unless there are so many configs of a textbook's at most, each with its sides and no other tunables."""
        if len(configs) > MOST_CONFIGS:
            raise SpaceError(f"{len(configs):,} configs are too many; the most is {MOST_CONFIGS:,}", hint="give fewer")
        names = ("BM", "BN", "BK", "num_warps", "num_stages", *self.others)
        SpaceError.check_tunables(self.operation.name, chain(*configs), names)
        if missing := dict.fromkeys(name for config in configs for name in self.least if name not in config):
            raise SpaceError(f"a config has no {', '.join(missing)}: {self.sides}", hint="give every config a value")


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A ranking of configs, with what it is the ranking of."""

    workload: Workload
    shape: tuple[int, ...]
    dtype: str | None  # long name; None for a TARGET without a choice
    spec: DeviceSpec = field(hash=False)
    configs: Sequence[Config] = field(hash=False)
    factors: Sequence[float] = ()  # on the expected times, if the ranking is disturbed on purpose

    @property
    def problem(self) -> str:
        """The extents by name and the dtype; of a TARGET without extents its arguments."""
        names = self.workload.operation.extents
        shape = [f"{name}={extent}" for name, extent in zip(names, self.shape, strict=True)]
        return " ".join([*shape, self.dtype or ""]).strip() or self.workload.operation.problem().label

    @property
    def note(self) -> str:
        """What the tunables of a textbook's config mean; of a TARGET what of its ranking is guessed."""
        if self.workload.sides:
            return f"{self.workload.sides}."
        forecasts = [one.forecast for one in self._expected[1].values() if one.forecast is not None]
        guesses = sum(not forecast.compiled for forecast in forecasts)
        which = f"{guesses} of {len(self.configs)} configs are not compiled: their times are guessed."
        return which if guesses else "Every config that can run is compiled."

    @cached_property
    def question(self) -> ModelQuestion:
        """The problem for which the model is asked."""
        space = self.workload.space
        return ModelQuestion.of(self.workload.operation, shape=self.shape or None, dtype=self.dtype, space=space)

    @cached_property
    def _expected(self) -> tuple[Expecter, dict[Config, Expectation]]:
        able = [config for config in self.configs if not self._why_not(config)]
        if not able:
            return Expecter(self.question, self.spec), {}
        expecter, answers = expectations(self.question, self.spec, able)
        return expecter, by_program(answers.values())

    @property
    def _least(self) -> dict[str, int]:
        """The sides of a textbook's tiles with the least length that Triton takes; it sums 32 terms of 8 bits."""
        times = 2 if ITEM_BYTES.get(self.dtype or "") == 1 else 1
        return {name: least if least == 1 else least * times for name, least in self.workload.least.items()}

    def _why_not(self, config: Config) -> str:
        """The reason why Triton would not compile a config, as far as its values tell; else empty."""
        return ill_formed(config, self._least) if self._least else self.question.space.why_not(config) or ""

    def outcome(self, config: Config) -> PlacedConfig:
        """What is expected of a config, which has no place yet; one that is not in the ranking is not compiled."""
        expecter, answers = self._expected
        if refused := self._why_not(config):
            expectation = Expectation(config=config, forecast=None, refused=refused)
        else:
            expectation = answers.get(config) or expecter.guess(config)
        return PlacedConfig(config=config, expectation=expectation, spec=self.spec)

    @cached_property
    def standings(self) -> list[PlacedConfig]:
        """The configs, the winner first; `TargetError` where nothing is expected of any."""
        outcomes = [self.outcome(config) for config in self.configs]
        if all(one.expectation.silent and not one.expectation.refused for one in outcomes):
            raise TargetError(f"the model makes no forecast: {outcomes[0].why_not}", hint=NO_FORECAST)
        return ranking_of(outcomes, self.factors)

    @property
    def advice(self) -> str:
        """One sentence on what wins."""
        return advice(self.standings, self.workload.rule)

    def dials_of(self, one: PlacedConfig) -> list[Dial]:
        """A config of this ranking with each knob turned alone; empty if it cannot run."""
        dials = []
        for name, (own, values) in (self._turned(one.config) if one.place else {}).items():
            outcomes = [self.outcome(Config({**one.config, name: value})) for value in values]
            turns = [
                Turn(value=value, expected_ms=turned.expected_ms, why_not=turned.why_not, own=value == own)
                for value, turned in zip(values, outcomes, strict=True)
            ]
            times = [turn.expected_ms for turn in turns if not turn.why_not]
            dials.append(Dial(name, turns, max(times) / min(times) if times else 1.0))
        return dials

    def _turned(self, config: Config) -> dict[str, tuple[Any, Sequence[Any]]]:
        """The value of each knob, and those that it is given: of a TARGET those of its space."""
        if not self._least:
            tunables = self.question.space.tunables.items()
            return {name: (config[name], it.in_order) for name, it in tunables if len(it.values) > 1}
        warps, stages = warps_and_stages(config)
        lengths: dict[str, Any] = {name: config[name] for name in self._least}
        sides = {
            name: (own, [int(own * by) for by in _FACTORS if own * by >= self._least[name]])
            for name, own in lengths.items()
        }
        return {**sides, "num_warps": (warps, _WARPS), "num_stages": (stages, _STAGES)}

    @property
    def compared(self) -> Sequence[Config]:
        """The configs that are compared over shapes: all, or the first places of many."""
        return self.configs if len(self.configs) <= COMPARED else [one.config for one in self.standings[:COMPARED]]

    def over(self, extent: str) -> list[SizePoint]:
        """The `compared` configs at shapes that differ in one extent; `ShapeMismatchError` for an unknown one."""
        shapes, points = series(self.shape, self.workload.operation.axis(extent), SHAPES), []
        known = [self._expected[1].get(one) for one in self.compared]  # None for one that Triton would not compile
        for shape in shapes:
            expecter = self._expecter(replace(self, shape=tuple(shape)).question)  # nothing more is compiled
            times = [0.0 if one is None else expecter.of(one.as_run, one.compiled).finite_ms or 0.0 for one in known]
            best = min((time for time in times if time), default=0.0)
            winner = times.index(best) if best else -1
            points.append(SizePoint(shape, best, winner, [time / best if time else 0.0 for time in times]))
        return points

    def _expecter(self, question: ModelQuestion) -> Expecter:
        """What makes expectations at another shape, for which a kernel that declares no work is read anew."""
        if question.declared:
            return Expecter(question, self.spec)
        with CompilePool(question.compiler(self.spec), reuse=True) as pool:
            readings = question.readings(self.compared, pool, Machine.known(self.spec))
            return Expecter(question, self.spec, readings)

    def as_json(self) -> dict[str, Any]:
        """Every config's place and reasons as plain values."""
        return {
            "workload": self.workload.operation.name, "shape": self.shape, "dtype": self.dtype,
            "device": table_name(self.spec), "source": "model", "advice": self.advice,
            "configs": [one.as_json() for one in self.standings], "knobs": self.dials_of(self.standings[0]),
        }  # fmt: skip


def simulate(
    workload: Workload, spec: DeviceSpec, *, shape: Sequence[int] | None = None, dtype: str | None = None,
    configs: Sequence[Mapping[str, Any]] | None = None, jitter: float = 0.0, seed: int = 0,
) -> Simulation:  # fmt: skip
    """Rank configs of a workload by expected time; nothing runs, and no GPU is needed.

    Each None takes the workload's own extents and dtype, or the five configs of the lesson. `jitter` is the standard
    deviation of a random factor on each expected time, by which places are found; the same seed gives the same factors.

    Raises:
        ShapeMismatchError: The shape has another number of extents.
        SettingsError: An extent is out of range.
        UnsupportedDtypeError: The dtype is not known.
        DeviceError: The model does not know the device.
        TargetError: The model can say nothing of any config; the error says why.
        UnknownTunableError, SpaceError, ConfigValueError: The configs are none of the workload, none or too many.

    Cost: 0.1 ms per config; of a TARGET as `rank`.
    """
    medium, _ = workload.operation.problems["medium"] if workload.least else ((), None)
    whole = tuple(shape or medium) or workload.operation.full_shape(None)
    if faults := [extent for extent in whole if extent > LARGEST]:
        raise SettingsError(f"an extent of {faults[0]} is out of range", hint=f"at most {LARGEST:,}")
    workload.operation.problem(whole, dtype)  # which refuses what is not one
    candidates = tuple(map(Config, LESSON if configs is None else configs))
    if workload.least:
        workload.check(candidates)
    Machine.known(spec)
    rng = random.Random(seed)
    return Simulation(
        workload=workload, spec=spec, shape=whole, configs=candidates,
        dtype=dtype_name(dtype) if dtype else next(iter(workload.operation.dtypes), None),
        factors=[math.exp(rng.gauss(0, jitter)) for _ in candidates] if jitter else (),
    )  # fmt: skip


_THREADS = 1024  # most of one block
_ELEMENTS = 1_048_576  # most of one tile: Triton's limit
_ALGORITHMS = ("tiles", "persistent", "split_k", "stream_k")


def ill_formed(config: Mapping[str, Any], least: Mapping[str, int]) -> str:
    """The reason why Triton would not compile a textbook's config, as far as its values tell; else empty."""
    powers = {name: config[name] for name in least} | {"num_warps": config.get("num_warps", 1)}
    counts = {**powers, **{name: config.get(name, 1) for name in ("num_stages", "GROUP_M", "SPLIT")}}
    for name, value in counts.items():
        if not _is_count(value):
            return f"{name} is {value!r}; it must be a whole number of 1 or more"
    for name, value in powers.items():
        if value.bit_count() > 1:
            return f"{name} is {value}, which is no power of two"
        if value < least.get(name, 1):
            return f"{name} is {value}; the product needs {least[name]} or more"
    if 32 * powers["num_warps"] > _THREADS:
        return f"{config['num_warps']} warps are more than {_THREADS} threads, the most of one block"
    if powers["BM"] * powers["BN"] > _ELEMENTS:
        return f"a tile of {config['BM']} by {config['BN']} has more than {_ELEMENTS:,} elements"
    if config.get("ALGORITHM", "tiles") not in _ALGORITHMS:
        return f"ALGORITHM is {config['ALGORITHM']!r}; it must be one of {', '.join(_ALGORITHMS)}"
    programs = config.get("PROGRAMS", 0)
    return "" if _is_count(programs, 0) else f"PROGRAMS is {programs!r}; it must be a whole number of 0 or more"


def _is_count(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= 2**31


def _textbook(
    name: str, work: Callable[..., Work], space: Mapping[str, Sequence[int]], sizes: Mapping[str, tuple[int, ...]],
    **words: Any,
) -> Workload:  # fmt: skip
    """A workload that is known by its work alone: there is no kernel of it that could be launched."""

    @wraps(work)
    def arguments(*shape: int, dtype: str) -> dict[str, Any]:
        return inspect.signature(work).bind(*shape, dtype).arguments

    operation = Operation(
        name, NO_KERNEL, ConfigSpace.from_user(space), arguments, work=lambda problem: work(**dict(problem.arguments)),
        dtypes=tuple({_DTYPE: 2, **ITEM_BYTES}), problems={size: (shape, _DTYPE) for size, shape in sizes.items()},
    )  # fmt: skip
    return Workload(operation=operation, **words)


_DTYPE = "bfloat16"
_gemm = partial(
    _textbook,
    work=product_work,
    space={
        "BM": (16, 32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "num_warps": (4, 8),
        "num_stages": (2, 3, 4, 5),
    },
    sides="BM by BN elements of C per program, in steps of BK",
    least={"BM": 1, "BN": 1, "BK": 16},
    others=("GROUP_M", "ALGORITHM", "PROGRAMS", "SPLIT", "SWAPPED", "LOADS", "DESCRIPTORS", "HALVES"),
)  # fmt: skip
WORKLOADS = {
    workload.operation.name: workload
    for workload in (
        _gemm(
            "gemm",
            title="Big GEMM, compute-bound",
            sizes={
                "small": (1024, 1024, 1024), "medium": (4096, 4096, 4096), "large": (16384, 16384, 16384),
                "ragged": (3000, 5000, 4100),
            },
            rule="a large matrix product wants large tiles, which read each operand seldom, and warps to hold them",
        ),
        _gemm(
            "skinny-gemm",
            title="Skinny GEMM, memory-bound",
            sizes={
                "small": (1, 4096, 4096), "medium": (16, 14336, 4096), "large": (64, 28672, 8192),
                "ragged": (17, 11008, 4100),
            },
            rule="a product with few rows waits for memory: BM no taller than M, tiles enough for every "
            "multiprocessor, and stages that keep loads under way",
        ),
        _textbook(
            "rmsnorm",
            work=row_work,
            title="RMSNorm, memory-bound",
            sizes={"small": (512, 1024), "medium": (8192, 4096), "large": (65536, 8192), "ragged": (3000, 5000)},
            sides="BM rows per program, one after another, each read in chunks of BN columns; BK is not used",
            least={"BM": 1, "BN": 1},
            space={
                "BM": (1, 2, 4, 8), "BN": (64, 256, 512, 1024, 2048, 4096), "num_warps": (1, 2, 4, 8, 16),
                "num_stages": (1, 2, 3),
            },
            rule="a norm waits for memory: one row or few per program, a chunk that is most of the row, and a single "
            "stage, since there is no product to overlap with",
        ),
        _textbook(
            "attention",
            work=attention_work,
            title="Flash attention",
            sizes={
                "small": (1, 8, 1024, 64), "medium": (2, 16, 4096, 64), "large": (4, 32, 16384, 128),
                "ragged": (3, 12, 3000, 96),
            },
            sides="BM queries per program, BN keys per step; BK is not used",
            least={"BM": 1, "BN": 16},  # the second product adds up over the keys of a step
            space={
                "BM": (16, 32, 64, 128, 256), "BN": (16, 32, 64, 128), "num_warps": (4, 8), "num_stages": (1, 2, 3, 4),
            },
            rule="attention keeps a tall tile of queries on the chip, past which keys and values stream in moderate "
            "steps",
        ),
    )
}  # fmt: skip

LESSON = tuple(
    Config(BM=rows, BN=columns, BK=step, num_warps=warps, num_stages=stages)
    for rows, columns, step, warps, stages in (
        (128, 128, 32, 4, 3),
        (128, 256, 32, 8, 3),
        (64, 64, 64, 4, 4),
        (256, 128, 32, 8, 3),
        (64, 256, 32, 8, 4),
    )
)
"""The configs of a lesson on autotuning: five tiles that are fast in one workload and slow in the next."""
