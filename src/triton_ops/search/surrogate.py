"""The surrogate: it learns the measured configs, from which it expects the times of all others.

The surrogate is a Gaussian process with a Matérn kernel (nu = 5/2) and one length per column, on the logarithm of time.
On recorded spaces of 4,000 to 18,000 configs a search with it finds faster configs in 25 to 100 evaluations than with
forests of trees, which know no order between unmeasured values. Lengths, amplitude and noise have broad priors (lengths
grow with the root of the number of columns: Hvarfner, Hellsten and Nardi, 2024; those of flags are long, as those that
fit whole recorded spaces are), and the most probable ones are used; without priors, ten points would decide on ten
lengths.

The process is written out here (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, sections 2.2
and 5.4.1), because the slope of its likelihood by all lengths is then two products of matrices: a search waits a third
as long for it as for that of scikit-learn, with the same proposals.

SciPy is imported when the first surrogate is made: a quarter of a second, which other searches do not need. A tune
begins that import with its first step, since the first surrogate is due soon after the first trials.

Both correlations have parameters, of which logarithms are taken, and tell by each how the correlations change. They are
made from a Matérn function (nu = 5/2) of the distance, where each scale of columns has a length of its own.

Values are logarithms of time, so that differences are ratios. A failed config has the median value: with the largest
value it would make its neighbours look slow, and good configs often are neighbours of configs that no longer fit.
Differences above the median are shrunk, because they tell little of where the best config is.

Configs become rows of numbers, made from the tunables alone, so that near rows mean similar effects. Numbers keep their
order and, if all are positive, their ratios: half of a column is the rank among the values and half the logarithm,
because sizes of 32, 64, 128 act by ratio while a list such as 1, 2, 3, 250 is mostly an order. Whole numbers that are
not all powers of two get a second column for how often two divides them, because hardware depends on alignment as well
as size (112 and 128 are near in size and far apart in effect). Other values get one column per value; more than sixteen
values share sixteen columns, and any two of them differ in about half of these. All columns lie in 0 to 1; a tunable
with one value has no column.

Four figures of a compiled config tell more of its speed than its tunables do: registers and spilled bytes per thread,
shared memory per block, and the number of blocks that a multiprocessor then holds at a time. The figures become columns
beside those of the tunables. For a config that is not compiled, the figures are estimated from the compiled configs by
a regression on the tunables, because the compiler's figures are mostly products of powers of the tunables.

The trials of the same kernel on another shape, dtype or device are a prior: a config that was tried there has its time
there, and a surrogate of the trials there estimates all others. Distance weakens the ratios of time: the farther the
other place, the closer to 1 they are. The measurements here decide how much the prior counts; a time from another place
is never a measurement.

Of two configs that are the same program, one needs to be measured. Equal figures alone do not mean an equal program: on
recorded spaces the times of configs that agree in all four figures differ by up to 8 %.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.base import require
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Compiled, Trial

if TYPE_CHECKING:
    from triton_ops.space import Tunable, Value

Floats: TypeAlias = NDArray[np.float64]

_MOST_LABELS = 16  # most columns of one tunable, because each column makes the surrogate slower
_HIGHEST_POWER = 6  # factors of two beyond 64 change no alignment that hardware uses


class Encoder:
    """The columns of one space: `columns` of them, 0 for a space of one config.

    Each has the number of its scale, where the columns of words of one tunable have one scale, and the number of its
    tunable, of those with several values. `flags` are the scales of tunables that are on or off.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._axes = {name: _Axis(tunable) for name, tunable in space.tunables.items() if len(tunable) > 1}
        self.columns = sum(axis.width for axis in self._axes.values())
        own = [[*range(axis.width)] if axis.numeric else [0] * axis.width for axis in self._axes.values()]
        before = accumulate((max(scales) + 1 for scales in own), initial=0)
        self.scales = [first + scale for first, scales in zip(before, own, strict=False) for scale in scales]
        values = [space.tunables[name].values for name in self._axes]
        flags = {number for number, each in enumerate(values) if len(each) == 2 and {*each} == {0, 1}}  # False equals 0
        self.tunables = [number for number, axis in enumerate(self._axes.values()) for _ in range(axis.width)]
        self.flags = {scale for scale, of in zip(self.scales, self.tunables, strict=True) if of in flags}

    def rows(self, configs: Sequence[Mapping[str, Any]]) -> Floats:
        """One row per config, each entry in 0 to 1; an unlisted number lies between others, a word at 0.5."""
        if not self._axes or not configs:
            return np.zeros((len(configs), self.columns))
        return np.hstack([[axis.code(config.get(name)) for config in configs] for name, axis in self._axes.items()])


class _Axis:
    def __init__(self, tunable: Tunable) -> None:
        self._numbers = sorted({float(v) for v in tunable.values if _is_number(v)})  # type: ignore[arg-type]
        self.numeric = len(self._numbers) == len(tunable)
        if self.numeric:
            whole = [value for value in tunable.values if isinstance(value, int) and value > 0]
            odd_ones = any(value & (value - 1) for value in whole)  # no powers of two: divisibility matters
            self._divisible = len(whole) == len(tunable) > 2 and odd_ones
            self.width = 1 + self._divisible
        else:
            self._numbers, self._divisible = [], False
            self._labels = _labels(len(tunable))
            self.width = self._labels.shape[1]
        self._ranks = np.linspace(0.0, 1.0, len(self._numbers)) if self._numbers else np.zeros(0)
        self._codes = {_key(value): self._code(value, at) for at, value in enumerate(tunable.values)}

    def code(self, value: Value) -> tuple[float, ...]:
        code = self._codes.get(_key(value))
        return self._code(value, None) if code is None else code

    def _code(self, value: Value, position: int | None) -> tuple[float, ...]:
        if not self._numbers and position is not None:
            return tuple(self._labels[position].tolist())
        if not self._numbers or not _is_number(value):
            return (0.5,) * self.width
        size = _scale(float(value), self._numbers, self._ranks)  # type: ignore[arg-type]
        return (size, _twos(value) / _HIGHEST_POWER) if self._divisible else (size,)


def _labels(count: int) -> Floats:
    """One row per label, with about the same distance between any two rows; shape (count, 16 at most)."""
    if count <= _MOST_LABELS:
        return np.eye(count)
    # distinct numbers, the digits of which are the columns; the seed is fixed, so that a search can be repeated
    numbers = np.random.default_rng(count).permutation(max(count, 1 << _MOST_LABELS))[:count]
    return (numbers[:, None] >> np.arange(_MOST_LABELS) & 1) / 2


def _key(value: Value) -> tuple[type, Value]:
    return type(value), value  # the type separates True from 1, which are one key to a dict


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scale(value: float, among: list[float], ranks: Floats) -> float:
    at = bisect_left(among, value)  # far quicker than to interpolate among all of many values
    exact = at < len(among) and among[at] == value
    rank = float(ranks[at]) if exact else float(np.interp(value, among, ranks))
    if among[0] <= 0:
        return rank
    low, high = math.log(among[0]), math.log(among[-1])
    ratio = (math.log(min(max(value, among[0]), among[-1])) - low) / (high - low)
    return (rank + ratio) / 2


def _twos(value: Value) -> int:
    """The number of times that two divides `value`, at most six; 0 unless `value` is a whole number above 0."""
    if not isinstance(value, int) or value <= 0:
        return 0
    return min((value & -value).bit_length() - 1, _HIGHEST_POWER)


COLUMNS = 4
_FEWEST = 6  # compiled configs that the regression needs
_PENALTY = 0.01  # ridge penalty of the regression's coefficients, for columns from 0 to 1
_CROSSED = 12  # products of two columns are taken for at most so many columns


class CompilerColumns:
    """The compiled configs, each with its columns, in the order in which they were added."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self._at: dict[Config, int] = {}
        self._rows: list[Floats] = []  # the columns of the tunables
        self._figures: list[Floats] = []  # the columns of the compiler's figures
        self._launch: dict[Config, str] = {}
        self._same: dict[str, list[Config]] = {}
        self._fitted: Floats | None = None

    def places(self, configs: Sequence[Config]) -> NDArray[np.intp]:
        """The position of each config in the attribute `configs`; -1 for a config that was not compiled."""
        return np.array([self._at.get(config, -1) for config in configs], dtype=np.intp)

    @property
    def width(self) -> int:
        """The number of the compiler's columns: 0 until six configs are compiled."""
        return COLUMNS if len(self.configs) >= _FEWEST else 0

    def take(self, preview: Compiled, row: Floats) -> None:
        """Add a config that can be launched and whose registers are known, with the row of its tunables."""
        if preview.config in self._at:
            return
        self._at[preview.config] = len(self.configs)
        self.configs.append(preview.config)
        self._rows.append(row)
        self._figures.append(_columns(preview))
        self._fitted = None
        if preview.launch is not None:
            self._launch[preview.config] = preview.launch
            self._same.setdefault(preview.launch, []).append(preview.config)

    def same_program(self, config: Config) -> list[Config]:
        """The other compiled configs that are the same program as `config`."""
        launch = self._launch.get(config)
        return [] if launch is None else [other for other in self._same[launch] if other != config]

    def rows(self, rows: Floats, places: NDArray[np.intp]) -> Floats:
        """The rows of configs' tunables, followed by the compiler's figures, known or estimated."""
        if not self.width or not len(rows):
            return np.hstack([rows, np.zeros((len(rows), self.width))]) if self.width else rows
        # far from the compiled configs a polynomial of second degree leaves the range of the figures
        figures = np.clip(_terms(rows) @ self._coefficients(), -0.25, 1.25)
        mask = places >= 0
        figures[mask] = np.array(self._figures)[places[mask]]
        return np.hstack([rows, figures])

    def _coefficients(self) -> Floats:
        if self._fitted is None:
            terms, figures = _terms(np.array(self._rows)), np.array(self._figures)
            penalty = _PENALTY * np.eye(terms.shape[1])
            penalty[0, 0] = 1e-9  # the constant term is not penalised
            coefficients: Floats = np.linalg.solve(terms.T @ terms + penalty, terms.T @ figures).astype(np.float64)
            self._fitted = coefficients
        return self._fitted


def wasteful(preview: Compiled) -> bool:
    """True if a config that can be launched comes last, because a rule defers it or it spills."""
    return preview.deferred or (preview.resources is not None and preview.resources.wasteful)


def _columns(preview: Compiled) -> Floats:
    """The logarithms of the four figures, each scaled to about 0 to 1 over the range of all devices."""
    resources = preview.resources
    registers = spilled = memory = 0
    if resources is not None:
        registers, spilled, memory = resources.registers or 0, resources.spill_bytes or 0, resources.shared_bytes or 0
    return np.array(
        [
            math.log2(max(registers, 16) / 16) / 4,  # 16 to 256 registers
            min(math.log2(1 + spilled / 4) / 8, 1.0),  # up to 1 KiB per thread
            math.log2(max(memory, 1)) / 18,  # up to 256 KiB
            math.log2(max(preview.resident or 1, 1)) / 5,  # up to 32 blocks
        ]
    )


def _terms(rows: Floats) -> Floats:
    """The terms of the regression: 1, each column, its square, and the products of two columns if there are few."""
    count, width = rows.shape
    one, two = np.triu_indices(width) if width <= _CROSSED else (np.arange(width), np.arange(width))
    return np.hstack([np.ones((count, 1)), rows, rows[:, one] * rows[:, two]])


_LEARNED = 400  # most trials that are learned: more would take seconds
_SLOW = 0.3  # factor on differences above the median
_LEAST_MS = 1e-9
_FIFTHS = 1.68  # standard deviations between the first and the last fifth of a normal distribution


def values_of(trials: Sequence[Trial]) -> Floats:
    """The value of each trial, as the module describes; at least one trial must be ok."""
    times = np.array([math.log(max(trial.rank, _LEAST_MS)) if trial.ok else math.nan for trial in trials])
    middle = float(np.nanmedian(times))
    times = np.where(np.isnan(times), middle, times)
    return np.where(times > middle, middle + _SLOW * (times - middle), times)


def noise_of(trials: Sequence[Trial]) -> Floats:
    """The standard error of each value by its own samples: times of a screening are noisier than those of a race."""
    # 1.25: the standard error of a median, in standard errors of a mean
    times = [trial.best_measurement if trial.ok else None for trial in trials]
    return np.array([1.25 * it.spread / _FIFTHS / math.sqrt(len(it.samples_ms)) if it else 0.0 for it in times])


def most_telling(trials: Sequence[Trial]) -> list[Trial]:
    """At most 400 of `trials`: 200 of the fastest, and the latest of the others."""
    if len(trials) <= _LEARNED:
        return list(trials)
    fastest = sorted((t for t in trials if t.ok), key=lambda t: (t.rank, t.config.text))[: _LEARNED // 2]
    configs = {trial.config for trial in fastest}
    return fastest + [trial for trial in trials if trial.config not in configs][-(_LEARNED - len(fastest)) :]


Slope: TypeAlias = Callable[[Floats], Floats]

_LENGTH = 0.3  # expected length over the root of the number of columns, for columns from 0 to 1
_LENGTH_ALONE = 1.0  # expected length where each tunable has a distance of its own
_SHARE = 1.0  # expected share of a tunable
_FLAG = 8.0  # how many times as long the length of a tunable that is on or off is expected to be: most matter little
_CORRELATION_LIMITS = (-3.0, 4.0)  # of the logarithm of each parameter


class Correlation(Protocol):
    """A correlation of rows, with the expected logarithm of each parameter."""

    expectation: Floats

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`, by the logarithms of the parameters; shape (n, m)."""

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope.

        The slope takes a weight for each pair of rows, symmetrical, and returns for each parameter the sum of the
        correlations' slopes by its logarithm, times the weights.
        """


class ByDistance:
    """One distance over all columns, so that rows are alike where they are alike in all.

    Each column has the number of its scale, from 0 on; `flags` are the scales of tunables that are on or off.
    """

    def __init__(self, scales: Sequence[int], flags: Collection[int] = ()) -> None:
        self._of = np.array(scales, dtype=np.intp)
        lengths = max(scales, default=-1) + 1
        self.expectation = _expected_lengths(_LENGTH * math.sqrt(lengths), lengths, flags)

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`."""
        lengths = np.exp(logs)[self._of]
        return _matern(_squares(rows / lengths, others / lengths))

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope."""
        near = rows / np.exp(logs)[self._of]
        squares = _squares(near, near)

        def slope(weights: Floats) -> Floats:
            by_columns = _by_columns(weights * _matern_slope(squares), near)
            return np.bincount(self._of, by_columns, minlength=len(logs)).astype(float)

        return _matern(squares), slope


class ByTunables:
    """A distance for each tunable, so that rows that are alike in some tunables are alike to some degree.

    The correlation is the product of (1 + s * m) / (1 + s) over the tunables, where m is the Matérn function of the
    distance along a tunable and s is its share: a sum over all sets of tunables.
    """

    def __init__(self, scales: Sequence[int], tunables: Sequence[int], flags: Collection[int] = ()) -> None:
        self._of = np.array(scales, dtype=np.intp)
        self._lengths, shares = max(scales) + 1, max(tunables) + 1
        self._columns = [np.flatnonzero(np.array(tunables) == at) for at in range(shares)]
        lengths = _expected_lengths(_LENGTH_ALONE, self._lengths, flags)
        self.expectation: Floats = np.concatenate([lengths, np.full(shares, math.log(_SHARE))])

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`."""
        lengths, product = np.exp(logs[: self._lengths])[self._of], np.ones((len(rows), len(others)))
        for share, columns in zip(np.exp(logs[self._lengths :]), self._columns, strict=True):
            near, far = rows[:, columns] / lengths[columns], others[:, columns] / lengths[columns]
            first, same = _distinct(rows[:, columns])
            product *= ((1 + share * _matern(_squares(near[first], far))) / (1 + share))[same]
        return product

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope."""
        lengths, shares = np.exp(logs[: self._lengths])[self._of], np.exp(logs[self._lengths :])
        near = rows / lengths
        squares = [_squares(near[:, columns], near[:, columns]) for columns in self._columns]
        alike = [_matern(one) for one in squares]
        whole = np.prod([(1 + share * one) / (1 + share) for share, one in zip(shares, alike, strict=True)], axis=0)

        def slope(weights: Floats) -> Floats:
            by_columns, by_shares = np.empty(len(self._of)), np.empty(len(shares))
            for at, (share, columns) in enumerate(zip(shares, self._columns, strict=True)):
                factor = weights * whole * share / (1 + share * alike[at])  # the sum without this tunable, in part
                by_shares[at] = (factor * (alike[at] - 1)).sum() / (1 + share)
                by_columns[columns] = _by_columns(factor * _matern_slope(squares[at]), near[:, columns])
            return np.concatenate([np.bincount(self._of, by_columns, minlength=self._lengths), by_shares])

        return whole, slope


def _expected_lengths(usual: float, lengths: int, flags: Collection[int]) -> Floats:
    return np.log([usual * (_FLAG if scale in flags else 1.0) for scale in range(lengths)])


def _distinct(rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the first of all equal rows, and for each row its place among these positions."""
    sums = (rows * np.sqrt(np.arange(2, rows.shape[1] + 2))).sum(axis=1)  # no two rows of values have one sum
    _, first, same = np.unique(sums, return_index=True, return_inverse=True)
    return first, same


def _by_columns(pull: Floats, near: Floats) -> Floats:
    """For each column the sum of `pull` times the squared distance of each pair of rows along it."""
    sums: Floats = 2 * (pull.sum(axis=1) @ near**2 - np.einsum("ik,ik->k", near, pull @ near))
    return sums


def _squares(rows: Floats, others: Floats) -> Floats:
    squares: Floats = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * rows @ others.T
    return np.maximum(squares, 0.0, out=squares)  # rounding makes the squares of near rows negative


def _matern(squares: Floats) -> Floats:
    away = np.sqrt(5 * squares)
    correlation: Floats = (1 + away + away**2 / 3) * np.exp(-away)
    return correlation


def _matern_slope(squares: Floats) -> Floats:
    """Minus twice the slope of `_matern` by the squared distance: its slope by the logarithm of a length, over that."""
    away = np.sqrt(5 * squares)
    slope: Floats = 5 / 3 * (1 + away) * np.exp(-away)
    return slope


_GROWTH = 1.15  # lengths are found anew once there are so many times the points of the last time
_LEAST = 0.1  # least standard deviation by which values are scaled, because few points may agree by chance
_AMPLITUDE = 2.0  # expected logarithm: the values of few configs say little of how far apart those of all are
_STEPS = 25  # steps of L-BFGS: later steps change no proposal
_NOISE = 0.1  # expected deviation of a value from a smooth function, in standard deviations of the values
_LIMITS = {"amplitude": (-4.0, 3.0), "noise": (2 * math.log(0.01), 2 * math.log(0.7))}  # logs
_JITTER = 1e-8  # variance added to each value, so that equal rows do not make the covariance singular
_LEAST_VARIANCE = 1e-9
_AT_A_TIME = 1_024  # rows that are predicted at a time, so that their covariances stay in a CPU's cache
_PURPOSE = "the search `auto`"


class Surrogate:
    """Learns the values of some rows, and predicts the values of others; raises MissingDependencyError."""

    def __init__(self, correlation: Correlation) -> None:
        self._linear = require("scipy.linalg", _PURPOSE)
        self._minimize = require("scipy.optimize", _PURPOSE).minimize
        self._threads = require("threadpoolctl", _PURPOSE).ThreadpoolController()
        self._correlation = correlation
        # the logarithms of the amplitude, of each length or share, and of the noise, with their standard deviations
        self._expectation = np.array([_AMPLITUDE, *self._correlation.expectation, 2 * math.log(_NOISE)])
        self._spread = np.array([*[1.0] * (len(self._expectation) - 1), 2.0])
        parameters = [_CORRELATION_LIMITS] * len(correlation.expectation)
        self._limits = [_LIMITS["amplitude"], *parameters, _LIMITS["noise"]]
        self._theta = self._expectation
        self._next_fit = 0.0
        self._mean, self._deviation = 0.0, 1.0

    def learn(self, rows: Floats, values: Floats, noise: Floats) -> None:
        """Learn these values in place of all before, at least two; `noise` is the known part of their deviations.

        Cost: 0.2 ms for 50 rows, 0.5 ms for 200; 5 ms and 40 ms when the lengths are found anew.
        """
        self._mean, self._deviation = float(values.mean()), max(float(values.std()), _LEAST)
        scaled, variances = (values - self._mean) / self._deviation, (noise / self._deviation) ** 2 + _JITTER
        with self._threads.limit(limits=1):  # several threads would wait for each other and for the compilers' CPUs
            if len(values) >= self._next_fit:
                self._theta = self._most_probable(rows, scaled, variances)
                self._next_fit = len(values) * _GROWTH + 1
            self._rows = rows
            covariance = self._amplitude * self._correlate(rows, rows)
            covariance[np.diag_indices(len(rows))] += math.exp(self._theta[-1]) + variances
            self._root = self._linear.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
            self._weights = self._linear.cho_solve((self._root, True), scaled, check_finite=False)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """The expected value of each row, and the standard deviation of the expectation.

        This is without the noise of a measurement, which is no doubt about the config. Cost: about 1 µs per row for 100
        learned rows.
        """
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        with self._threads.limit(limits=1):
            for begin in range(0, len(rows), _AT_A_TIME):
                part = slice(begin, begin + _AT_A_TIME)
                covariance = self._amplitude * self._correlate(rows[part], self._rows)
                mean[part] = covariance @ self._weights
                projection = self._linear.solve_triangular(self._root, covariance.T, lower=True, check_finite=False)
                variance[part] = self._amplitude - np.einsum("ij,ij->j", projection, projection)
        doubt = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        return mean * self._deviation + self._mean, doubt * self._deviation

    def correlation(self, rows: Floats, row: Floats) -> Floats:
        """The correlation of the value of each of `rows` with that of `row`: 1 for `row` itself, 0 without relation."""
        return self._correlate(rows, row[None])[:, 0]

    @property
    def _amplitude(self) -> float:
        return math.exp(self._theta[0])

    def _correlate(self, rows: Floats, others: Floats) -> Floats:
        return self._correlation.of(self._theta[1:-1], rows, others)

    def _most_probable(self, rows: Floats, values: Floats, variances: Floats) -> Floats:

        def penalty(theta: Floats) -> tuple[float, Floats]:
            value, slope = self._unlikeliness(theta, rows, values, variances)
            off = (theta - self._expectation) / self._spread
            return value + 0.5 * float(off @ off), slope + off / self._spread

        minimum: Any = self._minimize(
            penalty, self._theta, jac=True, method="L-BFGS-B", bounds=self._limits, options={"maxiter": _STEPS}
        )
        best: Floats = minimum.x
        return best

    def _unlikeliness(self, theta: Floats, rows: Floats, values: Floats, variances: Floats) -> tuple[float, Floats]:
        """The negative logarithm of the values' likelihood, less a constant, and its slope by each of `theta`."""
        amplitude, noise = math.exp(theta[0]), math.exp(theta[-1])
        alike, slope_of = self._correlation.with_slope(theta[1:-1], rows)
        signal = amplitude * alike
        covariance = signal.copy()
        covariance[np.diag_indices(len(rows))] += noise + variances
        root = self._linear.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        weights = self._linear.cho_solve((root, True), values, check_finite=False)
        inverse = np.tril(self._linear.lapack.dpotri(root, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        pull = inverse - np.outer(weights, weights)  # twice the slope by each entry of the covariance
        slope = [float((pull * signal).sum()), *(amplitude * slope_of(pull)), noise * float(np.trace(pull))]
        return 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum()), 0.5 * np.array(slope)


def expected_improvement(mean: Floats, doubt: Floats, best: float) -> Floats:
    """The expected decrease below `best` of each value, where a value above `best` counts as 0."""
    depth = (best - mean) / doubt
    below = require("scipy.special", _PURPOSE).ndtr(depth)
    improvement: Floats = doubt * (depth * below + np.exp(-0.5 * depth**2) / math.sqrt(2 * math.pi))
    return np.maximum(improvement, 0.0)  # far above `best` two terms cancel, and rounding leaves less than 0


_FAR = 8.0  # at this distance, ratios are taken to the power 1/e
_FEWEST_RAN = 3  # trials that the surrogate needs
_FAILED = 0.9  # a config that failed there has this quantile of the times of configs that ran


class Transfer:
    """Trials of one other place at a distance as a prior for `space`; those with other tunables are left out."""

    def __init__(self, space: ConfigSpace, trials: Sequence[Trial], distance: float = 0.0) -> None:
        names = set(space.tunables)
        mine = [trial for trial in trials if set(trial.config) == names]
        self._tempered = math.exp(-distance / _FAR)
        self._levels = _levels_of(mine)
        self._encoder = Encoder(space)
        self._learned = most_telling(mine)
        self._surrogate: Surrogate | None = None

    def __len__(self) -> int:
        return len(self._levels)

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Each config's time there over the median time there, weakened by distance; NaN if it cannot be estimated."""
        levels = np.array([self._levels.get(config, math.nan) for config in configs])
        new = np.flatnonzero(np.isnan(levels))
        if len(new) and sum(trial.ok for trial in self._learned) >= _FEWEST_RAN and self._encoder.columns:
            levels[new] = self._filled_in([configs[at] for at in new])
        return [math.exp(level * self._tempered) if math.isfinite(level) else math.nan for level in levels]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Do nothing: trials here do not change the times of the other place."""

    def _filled_in(self, configs: Sequence[Config]) -> Floats:
        if self._surrogate is None:
            self._surrogate = Surrogate(ByDistance(self._encoder.scales, self._encoder.flags))
            rows = self._encoder.rows([trial.config for trial in self._learned])
            self._surrogate.learn(rows, values_of(self._learned), noise_of(self._learned))
        levels, _ = self._surrogate.predict(self._encoder.rows(configs))
        return levels - float(np.median(values_of(self._learned)))


def _levels_of(trials: Sequence[Trial]) -> dict[Config, float]:
    ok = [trial for trial in trials if trial.ok]
    if not ok:
        return {}
    logs = dict(zip((trial.config for trial in ok), values_of(ok), strict=True))
    middle, slow = (float(np.quantile(list(logs.values()), share)) for share in (0.5, _FAILED))
    return {trial.config: float(logs.get(trial.config, slow)) - middle for trial in trials}
