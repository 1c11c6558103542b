"""The ranking model: the expected time of a config and a lower bound, with reasons, by device and declared work.

Before a config is compiled, its registers and shared memory are guessed; later the compiler's own figures are used.
The model makes no forecast if the work has no tiles, the device has no machine, or the config lacks a tunable.

Source of the model's form and constants: docs/concepts/model.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from operator import itemgetter
from statistics import StatisticsError, correlation
from typing import Any, NamedTuple

from triton_ops.base import is_positive, require
from triton_ops.cost_model.blocks import MOST_REGISTERS, footprint_of
from triton_ops.device import Machine
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import (
    Compiled,
    Footprint,
    Resources,
    Schedule,
    TilePlan,
    Trial,
    UnknownTileError,
    Work,
    is_power_of_two,
    warps_and_stages,
)

_GUESSED = (1.0, 0.9, 1.1)  # registers over their guess, whose standard deviation is about a tenth


@dataclass(frozen=True)
class ResourceTime:
    """The part of one resource, such as `shared memory`, in the expected time."""

    name: str
    alone_ms: float  # of the launch if all other resources cost nothing


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The expected time of one config, with the reasons."""

    expected_ms: float  # per launch, between two events; infinite if the block does not fit on the device
    lower_bound_ms: float  # the config's work over the device's rates: no kernel that does it can be faster
    terms: tuple[ResourceTime, ...]  # longest first
    blocks_per_unit: int  # at a time on one multiprocessor
    waves: float  # how often the device is filled with blocks
    registers: int
    spill_bytes: float  # per thread
    shared_bytes: int  # per block
    compiled: bool  # registers, spills and shared memory are the compiler's; otherwise guessed


class FirstPick(NamedTuple):
    """A config that is expected to be faster than the default, which nobody has measured for its problem."""

    config: Config
    expected_ms: float
    default_ms: float

    def __str__(self) -> str:
        gain = self.default_ms / self.expected_ms
        return f"a model of the work expects {self.expected_ms:.3g} ms, {gain:.3g} times as fast as the default"


_MOST_STEPS = 12  # from the first config to the pick, each of some ten forecasts
_STEP_GAIN = 0.02  # of a step: for less, a config that has won elsewhere is not left
_LEAST_SAVED_MS = 0.001  # of a launch: what is expected of short launches is off by more, but of all configs alike
_CLEAR_GAIN = 0.25  # for which less is enough
_TOO_MANY_WARPS = "its num_warps is no power of two, or makes more threads than a block may have"


@dataclass(frozen=True)
class Model:
    """The expected times of one problem's configs by declared work; with a machine of None it makes no forecast."""

    work: Work
    machine: Machine | None

    def score(self, configs: Sequence[Mapping[str, Any]]) -> list[float]:
        """Expected milliseconds of each config before it is compiled.

        A config without a forecast has NaN. A config has infinity if its block does not fit, or if no device launches a
        block of so many warps: a search then takes it last, where NaN would place it among the average ones.

        Cost: about 50 µs per config.
        """
        return [self.expected_ms(config) for config in configs]

    def expected_ms(self, config: Mapping[str, Any], resources: Resources | None = None) -> float:
        """Expected milliseconds of one config as by `score`, with the compiler's figures where `resources` has them."""
        outcome = self._planned(config, resources)
        if isinstance(outcome, str):
            return math.inf if outcome == _TOO_MANY_WARPS else math.nan
        return outcome[0]

    def bound_ms(self, config: Mapping[str, Any]) -> float:
        """The least time of a config's work at the device's rates; 0 if work or device is not known.

        Work that is declared is that of any config. Operations of several dtypes follow each other.
        """
        if self.machine is None:
            return 0.0
        least: Any = getattr(self.work.tiles, "least", None)
        flops, moved = least(config) if least is not None else ({self.work.dtype: self.work.flops}, self.work.bytes)
        rates = ((count, self.machine.mma_tflops(dtype)) for dtype, count in flops.items())
        return max(moved / (self.machine.peak_dram_gbps * 1e6), sum(n / (rate * 1e9) for n, rate in rates if rate > 0))

    def why_silent(self, config: Mapping[str, Any]) -> str:
        """The reason why the model makes no forecast for a config; empty if it makes one."""
        outcome = self._planned(config, None)
        return outcome if isinstance(outcome, str) else ""

    @staticmethod
    def spearman(first: Sequence[float], second: Sequence[float]) -> float:
        """Spearman's rank correlation of two lists of one length, equal figures sharing their mean rank.

        From -1 for the opposite order to 1 for the same one; 1 also where one side has no order.
        """
        try:
            return correlation(_ranks(first), _ranks(second))
        except StatisticsError:  # one side has no order
            return 1.0

    @property
    def prior(self) -> ModelPrior:
        """The model as the prior of a search."""
        return ModelPrior(self)

    def explain(self, config: Mapping[str, Any], resources: Resources | None = None) -> Forecast | None:
        """The expected time with its reasons; None if the model makes no forecast, and `why_silent` says why.

        `resources` are the compiler's figures; without them registers and shared memory are guessed.
        """
        outcome = self._planned(config, resources)
        if isinstance(outcome, str) or self.machine is None:
            return None
        expected_ms, plan, footprint, schedule = outcome
        launch = ResourceTime("launch", self.machine.launch_us / 1e3)
        terms = [launch, *(ResourceTime(name, alone) for name, alone in schedule.alone_ms.items() if alone > 0)]
        return Forecast(
            expected_ms=expected_ms,
            lower_bound_ms=self.bound_ms(config),
            terms=tuple(sorted(terms, key=lambda term: -term.alone_ms)),
            blocks_per_unit=self.machine.blocks_at_once(footprint.registers, footprint.shared_bytes, plan.warps),
            waves=schedule.waves,
            registers=footprint.registers,
            spill_bytes=footprint.spill_bytes,
            shared_bytes=footprint.shared_bytes,
            compiled=footprint.known,
        )

    def first_pick(self, space: ConfigSpace, winners: Iterable[Config], least_gain: float) -> FirstPick | None:
        """The config that is expected to be fastest; None where it is not faster than the default by `least_gain`.

        It begins with the fastest of the default and of `winners` of other problems, and changes one tunable after the
        other, two at once where one alone gains nothing. Choices without an order, such as algorithms, are those of the
        default or of a winner. What is expected to spill or not to fit is left out. There is no pick for a device, nor
        for tiles, of which nothing was recorded.

        Cost: some 100 forecasts, in 10 to 30 ms.
        """
        if self.machine is None or self.machine.unseen or getattr(self.work.tiles, "unseen", ""):
            return None
        default = space.default_config
        tried = dict.fromkeys((default, *winners))
        choices = {name: {one.get(name) for one in tried} for name, each in space.tunables.items() if not each.ordered}

        def around(configs: Iterable[Config]) -> dict[Config, None]:
            steps = (step for config in configs for step in space.neighbours(config, steps_only=True))
            return dict.fromkeys(it for it in steps if all(it.get(name) in values for name, values in choices.items()))

        config, ms = self._lightest(filter(space.__contains__, tried))
        for _ in range(_MOST_STEPS):
            near = around([config])
            step, step_ms = self._lightest(near)
            if step_ms * (1 + _STEP_GAIN) > ms:  # such as a longer step, which fits into the registers of more warps
                step, step_ms = self._lightest(around(near))
            if step_ms * (1 + _STEP_GAIN) > ms:
                break
            config, ms = step, step_ms
        if (forecast := self.explain(default)) is None:
            return None
        default_ms = forecast.expected_ms
        if forecast.spill_bytes:  # before it is compiled spills are a guess, which would decide alone
            default_ms = self.expected_ms(default, Resources(forecast.registers, 0))
        far = max(ms * (1 + least_gain), min(ms + _LEAST_SAVED_MS, ms * (1 + _CLEAR_GAIN)))
        return FirstPick(config, ms, default_ms) if far <= default_ms else None

    def _lightest(self, configs: Iterable[Config]) -> tuple[Config, float]:
        """The config that is expected to be fastest without spills, with its milliseconds; infinite if none is."""
        outcomes = ((config, self._planned(config, None)) for config in configs)
        times = [(one, math.inf if isinstance(it, str) or it[2].spill_bytes else it[0]) for one, it in outcomes]
        return min(times, key=itemgetter(1), default=(Config(), math.inf))

    def _planned(
        self, config: Mapping[str, Any], resources: Resources | None
    ) -> tuple[float, TilePlan, Footprint, Schedule] | str:
        """The expected milliseconds of a config, and its plan; in words, why there are none.

        For a number of warps that cannot be launched tiles have no layout.
        """
        if self.machine is None:
            return "the model does not know the device"
        if self.work.tiles is None:
            return "the work has no tiles"
        try:
            warps, _ = warps_and_stages(config)
            if not is_power_of_two(warps) or 32 * warps > self.machine.threads_per_block:
                return _TOO_MANY_WARPS
            plan = self.work.tiles.plan(config, self.machine)
        except UnknownTileError as error:
            return error.message
        footprint = footprint_of(plan.footprint, resources)
        schedule = plan.schedule(footprint)
        if footprint.shared_bytes > self.machine.shared_bytes_per_block:
            return math.inf, plan, footprint, schedule
        time_ms = _mean_ms(plan, footprint, schedule, self.machine) + self.machine.launch_us / 1e3
        return max(time_ms, self.bound_ms(config)), plan, footprint, schedule


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 for value in values]


def _mean_ms(plan: TilePlan, footprint: Footprint, schedule: Schedule, machine: Machine) -> float:
    """The time of a schedule; where registers are guessed, the mean over what the compiler may give instead.

    A guess near the limit for one more block on a multiprocessor would else decide alone.
    """
    if footprint.known:
        return schedule.time_ms
    times: dict[int, float] = {}
    total = 0.0
    for share in _GUESSED:
        registers = min(round(footprint.registers * share), MOST_REGISTERS)
        if (blocks := machine.blocks_at_once(registers, footprint.shared_bytes, plan.warps)) not in times:
            one = share == 1.0
            times[blocks] = (schedule if one else plan.schedule(replace(footprint, registers=registers))).time_ms
        total += times[blocks]
    return total / len(_GUESSED)


class ModelPrior:
    """The model's expected times, with the compiler's own figures for the configs that were tried."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._resources: dict[Config, Resources] = {}
        self._guessed: dict[Config, float] = {}  # for configs of which nothing is known, which a search asks for again

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds of each config: NaN without a forecast, infinity if its block does not fit.

        Cost: 20 µs per config.
        """
        return [self._expected_ms(config) for config in configs]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Keep the resources that the compiler gave the tried configs."""
        self._resources.update((t.config, t.resources) for t in trials if t.resources is not None)

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Keep what no guess can tell of configs that are not tried yet: whether their products are serialised.

        Registers are guessed until a config is tried, because real ones for some configs and guesses for the others
        would order them worse than guesses for all.
        """
        for one in previews:
            if one.resources is not None and one.resources.serialised is not None:
                self._resources.setdefault(one.config, Resources(serialised=one.resources.serialised))

    def _expected_ms(self, config: Config) -> float:
        if (resources := self._resources.get(config)) is not None:
            return self._model.expected_ms(config, resources)
        if config not in self._guessed:
            self._guessed[config] = self._model.expected_ms(config)
        return self._guessed[config]


_RIDGE = 1e-2  # for each row, on the diagonal: without it columns that follow from others leave no solution
_MOST_COLUMNS = 40  # of first degree; with more, columns of second degree would outnumber the configs


class Fit:
    """A fit of the finite expected times, all above 0, of some configs, for those of configs that were not read.

    The logarithm of the time is fitted by a polynomial of second degree in the logarithms of the tunables' numbers;
    words and flags are columns of zeros and ones. It takes NumPy, which a known winner does not need.
    """

    def __init__(self, configs: Sequence[Mapping[str, Any]], times: Sequence[float]) -> None:
        np = require("numpy", "a fit of expected times")
        names = sorted({name for config in configs for name in config})
        self._values = {name: sorted({repr(config.get(name)) for config in configs}) for name in names}
        self._numbers = [name for name in names if all(is_positive(config.get(name)) for config in configs)]
        rows, logs = self._rows(configs), np.log(np.asarray(times, dtype=float))
        self._centre = float(logs.mean())
        square = rows.T @ rows + _RIDGE * len(rows) * np.eye(rows.shape[1])
        self._weights = np.linalg.solve(square, rows.T @ (logs - self._centre))
        self._low, self._high = float(logs.min()), float(logs.max())

    def times(self, configs: Sequence[Mapping[str, Any]]) -> list[float]:
        """Expected times of other configs of the space, within the range of the known ones."""
        logs = self._rows(configs) @ self._weights + self._centre
        return [math.exp(min(max(log, self._low), self._high)) for log in logs]

    def _rows(self, configs: Sequence[Mapping[str, Any]]) -> Any:
        np = require("numpy", "a fit of expected times")
        first = np.array([self._first(config) for config in configs], dtype=float).reshape(len(configs), -1)
        columns = [np.ones(len(configs)), *first.T]
        if first.shape[1] <= _MOST_COLUMNS:
            columns += [a * b for a, b in combinations_with_replacement(first.T, 2)]
        return np.stack(columns, axis=1)

    def _first(self, config: Mapping[str, Any]) -> list[float]:
        row: list[float] = []
        for name, values in self._values.items():
            if name in self._numbers:
                row.append(math.log2(config[name]) if is_positive(config.get(name)) else 0.0)
            else:
                row += [float(repr(config.get(name)) == value) for value in values[1:]]
        return row
