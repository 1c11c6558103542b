"""Times of one callable, or of this package's matmul beside Inductor's candidates."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from triton_ops.base import require
from triton_ops.benchmark.contestant import blame_calls_of, contestants_of, prepare
from triton_ops.compile_modes import AutotuneTable, ProductShape
from triton_ops.device import CpuLoad, Turns, current_device, gpu_missing, probe, turn_key
from triton_ops.exceptions import DeviceError, SettingsError
from triton_ops.kernels.matmul import matmul
from triton_ops.timing import GuardSummary, Sampler, ScreenPolicy, Timer, guard_for, screen
from triton_ops.values import Measurement

_ESTIMATE = ScreenPolicy(screening_ms=3.0, least=1, most=5)
_MOST_QUEUED = 32  # samples in a round: with more, a GPU's queue is full, and waiting for the host enters the times
_MOST_TIMES_BUDGET = 10  # wall time over budget: restoring arguments between samples takes time that is in no sample


@dataclass(frozen=True, kw_only=True)
class Times:
    """Times of one call.

    Attributes:
        quantiles: The shares that were asked for, in the order asked.
        quantiles_ms: For each share the time that this share of the samples does not exceed, in milliseconds.
        samples_ms: Milliseconds per call, in the order taken; each is the mean of `launches_per_sample` calls.
        launches: How many calls were timed.
        warmup_launches: How many calls were run before to warm up, besides the first call and those that calibrated
            the clock.
        launches_per_sample: 1, or more where one call is too short for the clock: quantiles are then those of means,
            and nearer to the median than the quantiles of single calls are.
        mode: The clock and the state of the cache, such as `host` or `graph-cold`.
        confidence: `ok`, or in words why the times should not be relied on: the GPU was slowed, or another process
            used it.
        guard: Summary of the device's sensors during the timed calls; None where they were not watched.
        notes: Remarks on how it was measured, such as that other programs used the CPUs.
    """

    quantiles: tuple[float, ...]
    quantiles_ms: tuple[float, ...]
    samples_ms: tuple[float, ...]
    launches: int
    warmup_launches: int
    launches_per_sample: int
    mode: str
    confidence: str = "ok"
    guard: GuardSummary | None = None
    notes: tuple[str, ...] = ()

    @property
    def median_ms(self) -> float:
        """Half of the samples are faster."""
        return statistics.median(self.samples_ms)

    def __str__(self) -> str:
        parts = ", ".join(
            f"p{100 * share:g} {time_ms:.4g}"
            for share, time_ms in zip(self.quantiles, self.quantiles_ms, strict=True)
            if share != 0.5
        )
        notes = "".join(f"\nNote: {note}" for note in self.notes)
        shares = f" ({parts} ms)" if parts else ""
        doubt = "" if self.confidence == "ok" else f"; low confidence: {self.confidence}"
        return f"{self.median_ms:.4g} ms{shares}, {self.launches} launches, {self.mode}{doubt}{notes}"


def time_ms(
    fn: Any,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    warmup_ms: float = 25.0,
    rep_ms: float = 100.0,
    quantiles: Sequence[float] = (0.5, 0.2, 0.8),
    cold: bool = True,
    device: str | None = None,
    wait: bool = True,
) -> Times:
    """Time one callable, or one config of a kernel.

    Two calls of this function measure at different moments, between which clocks and temperatures drift: to find out
    which of two callables is faster, use `compare`.

    Below 0.2 ms a GPU is timed by replays of a graph of many calls, and a CPU by loops of 2 ms, so that neither the
    clock's step nor the host's cost of a launch is in the result.

    A GPU is watched as in `compare`: samples beside another process, or while the GPU was slowed, are taken again.
    Where that does not help, they are kept, and `confidence` says so.

    Args:
        fn: A callable, or a pair of an `Operation`, a kernel or a callable, and its config.
        args: Positional arguments of every call. Tensors, NumPy arrays, lists, dicts, sets and bytearrays are
            copied; if a call changes arguments that it reads, they are restored before every sample, outside the timed
            region. Objects of other classes are passed as they are.
        kwargs: Keyword arguments of every call.
        warmup_ms: Budget of calls before the timed ones, in milliseconds; 0 for none.
        rep_ms: Budget of the timed calls, in milliseconds. As many samples are taken as fit into it, at least one.
        quantiles: Shares from 0 to 1, in any order.
        cold: On a GPU, whether L2 holds nothing of the arguments when a call starts. Below 0.02 ms this needs tensors
            in the arguments; a callable without any is then timed warm.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then an operation. A callable that holds its
            CUDA tensors itself and takes no tensor needs `cuda`, or it is timed by the host's clock.
        wait: Whether to wait while another process measures on the same GPU; False raises a `DeviceError` instead.

    Returns:
        Milliseconds for each of `quantiles`, with the samples and the mode in which they were taken.

    Raises:
        KernelTypeError: `fn` is not callable, or not with these arguments.
        TargetError: `fn` raised.
        SettingsError: A budget or a quantile is out of range.
        DeviceError, SpaceError, ShapeMismatchError: Device, config or arguments do not fit.

    Cost: the two budgets, and the calibration of the clock; at most ten times the budgets where restoring arguments
    takes longer than the calls, and 5 s of waits where the GPU is disturbed.
    """
    _check(warmup_ms, rep_ms, quantiles)
    (contestant,) = contestants_of({"fn": fn}, args, kwargs, device)
    place = contestant.device_name
    device_spec, turns = probe(place), Turns(place, wait)
    with current_device(place), turns.turn(turn_key(device_spec, place)):
        load, begun_s = CpuLoad(), time.time()
        prepared = prepare([contestant], cold=cold)
        sampler, timer = prepared.samplers[0][0], prepared.timer
        with blame_calls_of(contestant):
            sample_ms = statistics.median(screen(sampler, timer, _ESTIMATE)) * sampler.launches
            warm = _samples(sampler, timer, sample_ms, warmup_ms) if warmup_ms else []
            guard = guard_for(place, begun_s)
            samples = _samples(sampler, timer, sample_ms, rep_ms, guard.round_ok)
        summary = guard.summary()
        before = (f"{summary.others_before} while the calls were warmed up",) if summary.others_before else ()
        notes = (*turns.notes, *load.notes(device_spec), *before)
    ordered = sorted(samples)
    return Times(
        quantiles=tuple(quantiles),
        quantiles_ms=tuple(quantile(ordered, share) for share in quantiles),
        samples_ms=tuple(samples),
        launches=len(samples) * sampler.launches,
        warmup_launches=len(warm) * sampler.launches,
        launches_per_sample=sampler.launches,
        mode=timer.mode,
        confidence=summary.confidence_reason if summary.confidence == "low" else "ok",
        guard=summary,
        notes=notes,
    )


def counted_times(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, *, warmup_runs: int, runs: int
) -> Measurement:
    """Times of a number of samples instead of a budget; a sample is several calls where one is too short for the clock.

    Args:
        fn: As for `time_ms`.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        warmup_runs: Samples that are not kept, 0 or more.
        runs: Samples that are kept, 1 or more.

    Raises:
        KernelTypeError, TargetError, DeviceError: As `time_ms`.
    """
    (contestant,) = contestants_of({"fn": fn}, args, kwargs, None)
    place = contestant.device_name
    with current_device(place), Turns(place, True).turn(turn_key(probe(place), place)):
        prepared = prepare([contestant])
        sampler, timer = prepared.samplers[0][0], prepared.timer
        with blame_calls_of(contestant):
            parts = [sampler.take(timer, min(_MOST_QUEUED, remaining)) for remaining in _parts(warmup_runs + runs)]
    return Measurement(tuple(sample for part in parts for sample in part)[warmup_runs:], timer.mode)


def _parts(count: int) -> Iterator[int]:
    """Numbers of samples that are left before each round."""
    while count > 0:
        yield count
        count -= _MOST_QUEUED


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the ordered values do not exceed, interpolated linearly between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _samples(
    sampler: Sampler,
    timer: Timer,
    sample_ms: float,
    budget_ms: float,
    keep: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> list[float]:
    """As many samples as fit into the budget, at least one; those of a round that does not count are taken again.

    Args:
        sampler: Takes samples.
        timer: Times them.
        sample_ms: About how long one takes.
        budget_ms: The budget.
        keep: Whether the round that has just ended counts; asked after each, and may wait.
        clock: Monotonic seconds.
    """
    count = max(1, int(budget_ms / max(sample_ms, 1e-6)))
    end = clock() + _MOST_TIMES_BUDGET * budget_ms / 1e3
    samples: list[float] = []
    while True:
        part = sampler.take(timer, min(count - len(samples), _MOST_QUEUED))
        samples += part if keep() else []
        if len(samples) >= count or clock() >= end:
            return samples or part


def _check(warmup_ms: Any, rep_ms: Any, quantiles: Any) -> None:
    if not isinstance(warmup_ms, Real) or not 0 <= float(warmup_ms) < math.inf:
        raise SettingsError(f"warmup_ms is {warmup_ms!r}; it must be milliseconds, 0 or more")
    if not isinstance(rep_ms, Real) or not 0 < float(rep_ms) < math.inf:
        raise SettingsError(f"rep_ms is {rep_ms!r}; it must be milliseconds above 0")
    if not isinstance(quantiles, Sequence) or isinstance(quantiles, (str, bytes)):
        raise SettingsError(f"quantiles is {quantiles!r}; it must be a list of numbers", hint="quantiles=(0.5, 0.9)")
    if wrong := [share for share in quantiles if not isinstance(share, Real) or not 0 <= float(share) <= 1]:
        raise SettingsError(f"quantile {wrong[0]!r} is not a number between 0 and 1")


OWN = "triton_ops.matmul"
_WHAT = "its winner, or its default config if nothing is recorded"


def beside_own(
    tables: Sequence[AutotuneTable], timed: Callable[[ProductShape], float] | None = None
) -> list[AutotuneTable]:
    """Tables of products with this package's matmul as one more candidate, the fastest first; others as they are.

    Args:
        tables: What Inductor measured.
        timed: Milliseconds of this package's matmul for a product; None measures them on this machine's GPU, with L2
            cold, as Inductor does. The product alone is timed: an `addmm` of Inductor's adds its bias too.

    Raises:
        DeviceError: There is no GPU, and there is a product to be measured.
    """
    times_ms: dict[ProductShape, float] = {}
    extended = []
    for table in tables:
        product = table.product
        if product is not None and product not in times_ms:
            times_ms[product] = (timed or _own_ms)(product)
        extended.append(table if product is None else table.with_choice(OWN, times_ms[product], _WHAT))
    return extended


def _own_ms(product: ProductShape) -> float:
    if (obstacle := gpu_missing()) is not None:
        raise DeviceError(f"there is no GPU to time the matmul on: {obstacle}", hint="leave --own out")
    torch = require("torch", "timing a product")
    dtype = getattr(torch, product.dtype)
    a = torch.randn(product.m, product.k, device="cuda", dtype=dtype)
    b = torch.randn(product.k, product.n, device="cuda", dtype=dtype)
    return time_ms(matmul, args=(a, b)).median_ms
