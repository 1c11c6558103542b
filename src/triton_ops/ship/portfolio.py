"""`choose_portfolio`: at most k configs for all measured problems of a kernel.

Times of different runs are never compared as they are. Each is taken as a ratio to the time of the default config of
the same run: by the race, where both were raced, else by their screenings.

The choice is one of at most k columns of a matrix of regrets, with a bound below which no choice lies. A row is a
problem and a column a config. A cell is the regret of the config on the problem, the share by which it is slower than
the best config that was measured there; it is infinite where the config was not measured, or failed. A problem is
served by the best of the chosen configs. A choice grows greedily, with exchanges of single columns. A mixed-integer
program then looks for a better one.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.backend import Operation
from triton_ops.base import cached_property, require
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import SettingsError, TargetError, UntunedError
from triton_ops.records import Record, Runs, may_have_records, store_in
from triton_ops.settings import cache_folder
from triton_ops.space import Config
from triton_ops.values import Key

SECONDS = 10.0
"""Time of the integer program; 300 configs on 40 problems, made at random, took it less than a second."""
_EPSILON = 1e-12
_PURPOSE = "choosing a portfolio"
_OPTIMAL, _INFEASIBLE = 0, 2  # statuses of `scipy.optimize.milp`

Cells: TypeAlias = "NDArray[np.float64]"
Matrix: TypeAlias = "Sequence[Sequence[float]] | Cells"


@dataclass(frozen=True)
class Choice:
    """A choice of columns."""

    columns: tuple[int, ...]  # those first that serve most rows
    value: float  # the worst or the mean regret, as was asked for; infinite if a row is not served
    bound: float  # no choice of as many columns has a smaller value

    @property
    def exact(self) -> bool:
        """True if no choice is better."""
        return self.value <= self.bound + _EPSILON


def least_worst(regrets: Matrix, weights: Sequence[float], k: int, seconds: float = SECONDS) -> Choice:
    """At most k columns with the least worst regret over all rows; of equal ones, one with a small mean regret.

    The least worst regret is one of the cells, and k columns reach it if they cover all rows by cells that are no
    larger: the cells below the regret of a greedy choice are searched by halves, each time for such a cover. The
    weights, all positive, are what each row counts in the mean. Where the seconds do not suffice, the best cover so far
    counts.
    """
    until = time.monotonic() + seconds
    total = _Total(regrets, weights, k)
    columns = total.exchanged()
    value = worst(regrets, columns)
    cells = np.array(regrets, dtype=np.float64)
    levels = [*np.unique(cells[cells < value]).tolist(), value]
    low, high, proven = 0, len(levels) - 1, 0  # no k columns reach a level before `proven`
    while low < high:
        middle = (low + high) // 2
        cover, impossible = _cover(cells <= levels[middle], k, until - time.monotonic())
        if cover is not None:
            columns, high = cover, middle
            continue
        low = middle + 1
        proven = low if impossible else proven
    # Of the choices that reach the least worst regret one of a small mean is looked for.
    allowed = np.where(cells <= levels[high], cells, math.inf)
    rivals = columns, least_mean(allowed, weights, k, until - time.monotonic()).columns
    columns = min(rivals, key=lambda each: (worst(regrets, each), total(each)))
    value = worst(regrets, columns)
    return Choice(_order(regrets, columns), value, min(value, levels[proven]))


def least_mean(regrets: Matrix, weights: Sequence[float], k: int, seconds: float = SECONDS) -> Choice:
    """At most k columns with the least weighted mean regret over all rows, as far as the seconds suffice."""
    total = _Total(regrets, weights, k)
    columns, least = _median(total, total.exchanged(), seconds)
    value = mean(regrets, weights, columns)
    bound = math.inf if least > total.most_served else least / math.fsum(weights)
    return Choice(_order(regrets, columns), value, min(value, bound))


def worst(regrets: Matrix, columns: Sequence[int]) -> float:
    """The largest regret of a row, each served by the best of some columns."""
    return float(_served(regrets, columns).max())


def mean(regrets: Matrix, weights: Sequence[float], columns: Sequence[int]) -> float:
    """The weighted mean regret of the rows, each served by the best of some columns; infinite if one is not served."""
    rows = _served(regrets, columns)
    return math.fsum(np.multiply(weights, rows)) / math.fsum(weights) if np.isfinite(rows).all() else math.inf


def _served(regrets: Matrix, columns: Sequence[int]) -> Cells:
    served: Cells = np.array(regrets, dtype=np.float64)[:, list(columns)].min(axis=1, initial=math.inf)
    return served


def _order(regrets: Matrix, columns: Sequence[int]) -> tuple[int, ...]:
    """The columns that serve a row, those first that serve most."""
    served = zip(regrets, _served(regrets, columns), strict=True)
    counts = Counter(min(columns, key=row.__getitem__) for row, regret in served if regret < math.inf)
    return tuple(sorted(counts, key=lambda column: (-counts[column], column)))


class _Total:
    """The total regret of at most k columns; a row that none of them serves outweighs all others."""

    def __init__(self, regrets: Matrix, weights: Sequence[float], k: int) -> None:
        cells = np.array(regrets, dtype=np.float64)
        self.weights, self.k = np.array(weights, dtype=np.float64), k
        largest = cells.max(initial=0.0, where=np.isfinite(cells))
        self.most_served = float(self.weights.sum() * largest)  # no choice that serves all rows has a larger total
        self.unserved = 1.0 + 2.0 * self.most_served / float(self.weights.min(initial=1.0))
        self.cells = np.minimum(cells, self.unserved)

    def __call__(self, columns: Sequence[int]) -> float:
        """The total; sums in another order differ in their last digits, and two choices could each seem better."""
        return math.fsum(self.weights * self.cells[:, list(columns)].min(axis=1, initial=self.unserved))

    def exchanged(self, columns: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Columns whose total no addition and no exchange of one column lowers."""
        while self.cells.size:
            smaller = [(*columns[:at], *columns[at + 1 :]) for at in range(len(columns))]
            smaller += [columns] if len(columns) < self.k else []
            better = min(map(self._with_one_more, smaller), key=self)
            if self(better) >= self(columns) - _EPSILON:
                break
            columns = better
        return columns

    def _with_one_more(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        minima = self.cells[:, list(columns)].min(axis=1, initial=self.unserved)
        return *columns, int(np.argmin(self.weights @ np.minimum(self.cells, minima[:, None])))


def _cover(covers: NDArray[np.bool_], k: int, seconds: float) -> tuple[tuple[int, ...] | None, bool]:
    """At most k columns that cover all rows, None if none were met in time, and whether there are none at all."""
    rows, count = covers.shape
    least = np.append(np.ones(rows), -float(k))
    answer = _answer(np.zeros(count), count, np.vstack([covers, -np.ones(count)]), least, seconds)
    return None if answer.x is None else _columns_of(answer.x, count), answer.status == _INFEASIBLE


def _median(total_of: _Total, start: tuple[int, ...], seconds: float) -> tuple[tuple[int, ...], float]:
    """The columns of the least total that were met in time, `start` if none are better, and a bound of the total.

    Beside a variable for each column the program has one for each cell but the largest of a row: 1 if no chosen column
    serves the row with as little. These are whole numbers by themselves where the columns are. A choice that serves a
    row with so much that its total is no less than that of `start` is not looked for: cells are capped there.
    """
    total, minima = total_of(start), total_of.cells.min(axis=1, initial=total_of.unserved)
    floor = math.fsum(total_of.weights * minima)
    if total <= floor + _EPSILON:
        return start, total
    count = total_of.cells.shape[1]
    costs, least = [0.0] * count, [-float(total_of.k)]
    entries = [(-1.0, 0, column) for column in range(count)]
    for row, weight, minimum in zip(total_of.cells, total_of.weights, minima, strict=True):
        cap = minimum + (total - floor) / weight
        levels = [*np.unique(row[row < cap]), cap]
        for at, (level, following) in enumerate(itertools.pairwise(levels)):
            entries += [(1.0, len(least), int(column)) for column in np.flatnonzero(row == level)]
            entries += [(1.0, len(least), len(costs)), (-1.0, len(least), len(costs) - 1)][: 2 if at else 1]
            least.append(0.0 if at else 1.0)
            costs.append(float(weight * (following - level)))
    numbers, *places = zip(*entries, strict=True)
    matrix = require("scipy.sparse", _PURPOSE).coo_array((numbers, places), shape=(len(least), len(costs)))
    answer = _answer(np.array(costs), count, matrix, np.array(least), seconds)
    columns = start if answer.x is None else min(start, _columns_of(answer.x, count), key=total_of)
    if answer.status == _OPTIMAL:
        return columns, total_of(columns)
    # It has no bound where the time ended before the first one.
    return columns, floor + max(0.0, answer.mip_dual_bound or 0.0)


def _answer(costs: Cells, whole: int, matrix: Any, least: Cells, seconds: float) -> Any:
    """The answer of the solver: variables between 0 and 1 of least cost, with sums of at least `least`.

    The first `whole` variables are 0 or 1. The matrix has the factors of the variables, a row for each sum.
    """
    optimize = require("scipy.optimize", _PURPOSE)
    return optimize.milp(
        costs,
        integrality=np.arange(len(costs)) < whole,
        bounds=optimize.Bounds(0, 1),
        constraints=optimize.LinearConstraint(matrix, least),
        # Otherwise HiGHS ends at a gap of 0.01 %, and nothing would be known to be the best.
        options={"time_limit": max(0.0, seconds), "mip_rel_gap": 0.0},
    )


def _columns_of(variables: Cells, count: int) -> tuple[int, ...]:
    # The solver's whole numbers are so up to a tolerance.
    return tuple(map(int, np.flatnonzero(variables[:count] > 0.5)))


@dataclass(frozen=True, kw_only=True)
class MeasuredProblem:
    """One problem with what was measured on it."""

    key: Key
    ratios: Mapping[Config, float]  # of each config that ran, its time over that of the default
    failed: frozenset[Config] = frozenset()  # configs that were tried and did not run, or were wrong
    noise: float = 0.0  # relative difference below which two configs count as equal in its tune

    @cached_property
    def best(self) -> Config:
        """The fastest config."""
        return min(self.ratios, key=lambda config: (self.ratios[config], config.text))

    def regret(self, config: Config) -> float:
        """The share by which a config is slower than the best here; infinite if it was not measured, or failed."""
        ratio = self.ratios.get(config)
        return math.inf if ratio is None else max(0.0, ratio / self.ratios[self.best] - 1.0)


def measured(record: Record, folder: Path) -> MeasuredProblem:
    """The measurements of a record's problem, from its kept run logs, else from the record."""
    ratios: dict[Config, float] = {}
    failures: set[Config] = set()
    for run in Runs(folder, record.id).with_trials(record.run):
        beside = None if record.default is None else run.trials.get(record.default)
        for trial in run.trials.values():
            if ratio := trial.over(beside):
                ratios.setdefault(trial.config, ratio)
        failures |= {trial.config for trial in run.trials.values() if trial.failed}
    ratios = ratios or _of_record(record)
    failed = frozenset(failures - ratios.keys())
    return MeasuredProblem(key=record.key, ratios=ratios, failed=failed, noise=record.noise)


def _of_record(record: Record) -> dict[Config, float]:
    """Winner, ties and default of a record whose run logs are gone: the ties count as fast as the winner."""
    if record.default is None or record.default_timing is None or not record.gain:
        return {record.winner: 1.0}
    ratio = 1.0 / record.gain
    return {record.default: 1.0, **dict.fromkeys(record.ties, ratio), record.winner: ratio}


class _NothingMeasuredError(TargetError, UntunedError):
    """A kernel of which no record counts; the command line ends with the code of that, as wherever records lack."""


@dataclass(frozen=True, kw_only=True)
class ServedProblem:
    """One problem, and the config of a portfolio that serves it."""

    label: str  # the problem in words
    key: str  # the id of its record
    config: Config | None  # None if none of the portfolio was measured there and ran
    regret: float  # the share by which it is slower than the best one there; infinite without one
    gain: float | None  # the default's time over that of the config; None without one
    best: Config  # of all that were measured there
    weight: float = 1.0  # what the problem counts in the mean


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """At most k configs for many problems of a kernel.

    Attributes:
        kernel: The kernel.
        device: The device on which all was measured.
        configs: The configs, those first that serve most problems.
        served: Each problem with what serves it, in the order of their labels.
        worst: The largest regret, the share by which a config is slower than the best one on its problem; infinite if a
            problem is not served.
        mean: The weighted mean regret; infinite if a problem is not served.
        objective: The regret that was made small: `worst` or `mean`.
        bound: No portfolio of as many measured configs has a smaller regret of that kind.
        exact: Whether this one reaches the bound, so that none is better.
        noise: The largest relative difference below which two configs counted as equal in a problem's tune. Regrets
            below it are none.
        measured: How many of the cells, configs times problems, were measured.
        cells: The number of cells.
        unmeasured: Problems on which a config of the portfolio was never tried, by config.
        left_out: Why records of the kernel do not count, with their number.
    """

    kernel: str
    device: str
    configs: tuple[Config, ...]
    served: tuple[ServedProblem, ...]
    worst: float
    mean: float
    objective: str
    bound: float
    exact: bool
    noise: float
    measured: int
    cells: int
    unmeasured: Mapping[Config, tuple[str, ...]]
    left_out: Mapping[str, int]

    @property
    def unserved(self) -> tuple[ServedProblem, ...]:
        """The problems for which no config of the portfolio is known to run."""
        return tuple(each for each in self.served if each.config is None)


def choose_portfolio(
    kernel: str | Operation | Any,
    k: int = 4,
    *,
    objective: str = "worst",
    device: str | None = None,
    weights: Mapping[str, float] | None = None,
    cache_dir: str | Path | None = None,
) -> Portfolio:
    """At most k configs for all problems of a kernel that were tuned, so that little is lost beside the best of each.

    Only measured times count: a config that was not tried on a problem, or failed there, does not serve it. Tunes that
    try the same configs on all problems, such as exhaustive ones, say most. With k = 1 it is the one config that is
    safe over all of them.

    Args:
        kernel: The kernel's name in records, an `Operation`, or an object that has one.
        k: The most configs.
        objective: `worst` for the least worst regret, and among those a small mean; `mean` for the least mean.
        device: The device's name, such as `NVIDIA H200`; None takes that of the records, if they have one.
        weights: What problems count in the mean, by their labels; 1 for others.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.

    Returns:
        The portfolio, with the config and the regret of each problem.

    Raises:
        SettingsError: `k` is no whole number of 1 or more, `objective` is another word, or `weights` has a label that
            no problem has, or a number that is not positive.
        MissingDependencyError: SciPy is not installed.
        TargetError: There is no record of the kernel that counts, which is an UntunedError too, or there are some of
            several devices and none is named.

    Cost: all run logs of the kernel's problems are read; the choice takes up to ten seconds.
    """
    SettingsError.checked("k", k, 1, whole=True, hint="4 is the default")
    if objective not in ("worst", "mean"):
        raise SettingsError(f"objective is {objective!r}; it is worst or mean", hint="worst is the default")
    name = _name_of(kernel)
    folder = cache_folder(cache_dir)
    records = [r for r in store_in(folder) if r.key.kernel == name] if may_have_records(folder) else []
    records = _of_device(name, records, device, folder)
    reasons = [_why_unlike(record, records[0].key) for record in records]
    alike = [record for record, why in zip(records, reasons, strict=True) if why is None]
    left_out = dict(Counter(filter(None, reasons)))
    problems = [measured(record, Path(folder)) for record in alike]
    if not problems:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        message = f"no record of {name} counts: {why or 'nothing was measured'}"
        raise _NothingMeasuredError(message, hint="tune its problems on")
    problems.sort(key=lambda problem: (problem.key.label, problem.key.id))
    return portfolio_of(problems, k, objective, _weights_of(problems, weights or {}), left_out)


def portfolio_of(
    problems: Sequence[MeasuredProblem], k: int, objective: str, weights: Sequence[float], left_out: Mapping[str, int]
) -> Portfolio:
    """The portfolio of measured problems, at least one, all of one kernel on one device."""
    configs = sorted({config for problem in problems for config in problem.ratios}, key=lambda config: config.text)
    regrets = [[problem.regret(config) for config in configs] for problem in problems]
    choice: Choice = (least_worst if objective == "worst" else least_mean)(regrets, weights, k)
    portfolio = tuple(configs[column] for column in choice.columns)
    served = tuple(_serve(problem, portfolio, weight) for problem, weight in zip(problems, weights, strict=True))
    return Portfolio(
        kernel=problems[0].key.kernel,
        device=str(problems[0].key.device.get("name", "")),
        configs=portfolio,
        served=served,
        worst=worst(regrets, choice.columns),
        mean=mean(regrets, weights, choice.columns),
        objective=objective,
        bound=choice.bound,
        exact=choice.exact,
        noise=max(problem.noise for problem in problems),
        measured=sum(len(problem.ratios) for problem in problems),
        cells=len(configs) * len(problems),
        unmeasured={
            config: tuple(one.key.label or one.key.id for one in missing)
            for config in portfolio
            if (missing := [one for one in problems if config not in {*one.ratios, *one.failed}])
        },
        left_out=left_out,
    )


def _serve(problem: MeasuredProblem, portfolio: Sequence[Config], weight: float) -> ServedProblem:
    config = min((each for each in portfolio if each in problem.ratios), key=problem.regret, default=None)
    return ServedProblem(
        label=problem.key.label or problem.key.id,
        key=problem.key.id,
        config=config,
        regret=math.inf if config is None else problem.regret(config),
        gain=None if config is None else 1.0 / problem.ratios[config],
        best=problem.best,
        weight=weight,
    )


def _name_of(kernel: Any) -> str:
    operation = getattr(kernel, "operation", kernel)
    name = operation.name if isinstance(operation, Operation) else kernel
    if isinstance(name, str) and name.strip():
        return name
    raise SettingsError(f"kernel is {kernel!r}; it must be a kernel's name or an Operation", hint="'matmul'")


def _of_device(name: str, records: Sequence[Record], device: str | None, folder: str) -> list[Record]:
    """The records of one device, the newest first; TargetError if there are none, or some of several devices."""
    devices = sorted({str(record.key.device.get("name", "")) for record in records})
    if device is None and len(devices) > 1:
        message = f"there are records of {name} on several devices: {', '.join(devices)}"
        raise TargetError(message, hint=f"name one: {devices[0]!r}")
    matches = [record for record in records if device is None or DeviceSpec.is_meant(device, record.key.device)]
    if not matches:
        others = f"; there are some on {', '.join(devices)}" if devices else ""
        of_device = f" on {device}" if device is not None and devices else ""
        message = f"there are no records of {name}{of_device} in {folder}{others}"
        raise _NothingMeasuredError(message, hint=f"triton-ops tune --all {name}")
    return sorted(matches, key=lambda record: record.created, reverse=True)


def _why_unlike(record: Record, newest: Key) -> str | None:
    key = record.key
    if key.unknown is not None:
        return "a part of the kernel is not known"
    if record.unproven:
        return f"unproven: {record.unproven}"
    if dict(key.identity) != dict(newest.identity):
        return "another source or other versions"
    if dict(key.device) != dict(newest.device):
        return "another driver, or other units of the device"
    if key.cache_state != newest.cache_state:
        return f"measured {key.cache_state}"
    return None


def _weights_of(problems: Sequence[MeasuredProblem], weights: Mapping[str, float]) -> list[float]:
    labels = {problem.key.label for problem in problems}
    for label, weight in weights.items():
        if label not in labels:
            raise SettingsError(f"no problem is called {label!r}", hint=f"labels are {', '.join(sorted(labels))}")
        SettingsError.checked(f"the weight of {label}", weight)
    return [float(weights.get(problem.key.label, 1.0)) for problem in problems]
