"""A contestant, which is a callable or a kernel with a config, timed alone or in turn with others.

A plain callable does not say what it does to its arguments, so each contestant is called to find out. If a contestant
writes tensors that it reads, the arguments of all contestants are restored before every sample, outside the timed
region.
"""

from __future__ import annotations

import inspect
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

from triton_ops.backend import Arguments, CandidateError, Executable, FunctionKernel, Kernel, Operation, Protection
from triton_ops.base import Host
from triton_ops.benchmark.call_limits import CallTooLongError, ended_after
from triton_ops.device import CpuLoad, TorchDevice, Turns, probe
from triton_ops.evaluation import Renewal, Subject
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    TargetError,
    TritonKernelError,
)
from triton_ops.request import TuneProblem, device_of
from triton_ops.space import Config
from triton_ops.timing import CaptureError, EmptyCaptureError, GuardSummary, Launch, Rounds, Sampler, SharedTimer, Timer
from triton_ops.values import Measurement

MakeArguments: TypeAlias = Callable[[], Arguments]
"""Makes private arguments, with the same content each time."""
_SIMILAR = 4  # contestants whose launches per sample differ by no more than this factor get the same number


@dataclass(frozen=True)
class Contestant:
    """A callable, or a kernel with a config, and how to make its arguments.

    The config of a plain callable is empty. Contestants with the same function `arguments` can share what it makes.
    `operation` says what a right result is, if anything does. A call that lasts longer than `limit_s` is ended.
    """

    name: str
    kernel: Kernel
    config: Config
    _: KW_ONLY
    device_name: str
    arguments: MakeArguments
    operation: Operation | None = None
    limit_s: float = math.inf

    def own_arguments(self) -> Arguments:
        """Private arguments; a `ShapeMismatchError` where there is no memory for them."""
        with _copy_errors(self.device_name):
            return self.arguments()


def contestants_of(
    callables: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    device: str | None,
    seed: int = 0,
) -> list[Contestant]:
    """The contestants that a caller named: callables, or pairs of an operation, a kernel or a callable and a config.

    `device` None follows the arguments; `seed` is that of the inputs of an operation that is given no arguments.
    """
    arguments, device = Arguments.given(args, kwargs), TorchDevice.name_of(device)
    # By operation; 0 is the caller's own arguments.
    makers: dict[int, MakeArguments] = {0: partial(Protection.private_copy, arguments)}
    return [_contestant(name, what, arguments, makers, device, seed) for name, what in callables.items()]


def _contestant(
    name: str, what: Any, arguments: Arguments, makers: dict[int, MakeArguments], device: str | None, seed: int
) -> Contestant:
    target, config = what if _is_pair(what) else (what, None)
    config, operation = Config.with_own_members(config or {}), None
    if isinstance(target, Operation) and _is_pair(what):
        operation = target
        if not arguments.positional and not arguments.keyword:
            request = TuneProblem(target=target, space=[config]).request(device, seed).checked()
            maker = makers.setdefault(id(target), request.arguments)
            place = request.device_name
            return Contestant(name, request.kernel, config, device_name=place, arguments=maker, operation=operation)
        target = target.kernel
    kernel = None if isinstance(target, Operation) else FunctionKernel.as_kernel(target)
    if kernel is None or (kernel is target and not _is_pair(what)):
        raise KernelTypeError(f"{name} is a kernel without a config", hint="give a pair: (kernel, config)")
    kernel.check(config, arguments)
    _check_call(name, kernel, arguments, config)
    place = device_of(arguments, device)
    probe(place)
    return Contestant(name, kernel, config, device_name=place, arguments=makers[0], operation=operation)


def _is_pair(what: Any) -> bool:
    return isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], Mapping)


def _check_call(name: str, kernel: Kernel, arguments: Arguments, config: Config) -> None:
    """Raise if a Python function's signature does not take these arguments; other callables are not checked here."""
    signature = None
    with suppress(TypeError, ValueError):  # a builtin without a signature
        signature = inspect.signature(kernel.function) if isinstance(kernel, FunctionKernel) else None
    if signature is None:
        return
    hint = "all contestants are called with the same args and kwargs"
    with KernelTypeError.when(f"{name} cannot be called with these arguments", hint, TypeError):
        signature.bind(*arguments.positional, **arguments.keyword, **config)


def blame(name: str, error: Exception) -> TritonKernelError:
    """An error that names the contestant whose call raised `error`; errors of this package are returned as they are."""
    if isinstance(error, TritonKernelError):
        return error
    if isinstance(error, EmptyCaptureError):
        return TargetError(f"{name} cannot be timed: {error}", hint="let it work on the current stream")
    if isinstance(error, CandidateError):
        return TargetError(f"{name} cannot be used: {error}", hint="choose another config")
    return TargetError(f"{name} raised {CandidateError.one_line(error)}", hint="call it with the same arguments to try")


@contextmanager
def blame_calls_of(contestant: Contestant, calls: float = 1) -> Iterator[None]:
    """Turn errors of some calls of `contestant` into a `TargetError` that names it; those of graph capture pass."""
    try:
        with ended_after(calls * contestant.limit_s):
            yield
    except (TritonKernelError, CaptureError):
        raise
    except CallTooLongError as error:
        message = f"{contestant.name} was ended: a call of it takes more than {contestant.limit_s:g} s"
        raise TargetError(message, hint="give more seconds than a call takes, or a smaller problem") from error
    except Exception as error:
        raise blame(contestant.name, error) from error


def prepare(
    contestants: Sequence[Contestant], *, sets: int = 1, cold: bool = True, choose: Callable[..., Timer] | None = None,
    renewal: Callable[[Arguments], Renewal] | None = None,
) -> tuple[Timer, list[list[Sampler]]]:  # fmt: skip
    """Run every contestant once, to warm up and check it; the timer of all, and for each a sampler per argument set.

    On a CPU there are `sets` argument sets, which contestants with the same `arguments` share. On a GPU each contestant
    has one, with the further sets that keep L2 cold. Whoever fails is named in the error. On a CPU samples have new
    inputs by the `renewal` of each first argument set.

    Cost: a copy of the arguments per set, and two more while the tensors that a call writes are found; up to four calls
    of each contestant, and the calls that calibrate the timer.
    """
    name, *others = dict.fromkeys(each.device_name for each in contestants)
    if others:
        places = " and ".join(f"{each.name} runs on {each.device_name}" for each in contestants[:2])
        raise DeviceError(places, name, contestants[1].device_name, hint="compare them on one device")
    timers = SharedTimer(probe(name), name, cold=cold, choose=choose)
    with _copy_errors(name):
        count = sets if timers.device.is_cpu else 1
        argument_sets = {maker: [maker() for _ in range(count)] for maker in {each.arguments for each in contestants}}
    different = {id(each): each for each in contestants}
    findings = {place: _explore(each, argument_sets[each.arguments][0]) for place, each in different.items()}
    subjects = _subjects(argument_sets, timers, any(rewrites for _, rewrites, _ in findings.values()))
    if renewal is not None and timers.device.is_cpu:
        for row in subjects.values():
            shared = renewal(row[0].arguments)
            for subject in row:
                subject.renewal = shared
    launches = []
    for each in contestants:
        executable, _, outputs = findings[id(each)]
        with blame_calls_of(each):
            launches.append([subject.launch(executable, outputs, each.name) for subject in subjects[each.arguments]])
    with blame_calls_of(contestants[0]):
        timers.start_by_length(launches[0][0])
    return timers.prepare_all(launches[0][0], lambda timer: (timer, _samplers(contestants, launches, timer)))


def _subjects(
    argument_sets: Mapping[MakeArguments, Sequence[Arguments]], timers: SharedTimer, restores: bool
) -> dict[MakeArguments, list[Subject]]:
    """The subjects of each argument-making function, one per argument set.

    All subjects rotate through further argument sets, or none does, and then L2 is flushed before every call.
    """
    with _copy_errors(timers.device_name):
        counts = {maker: timers.sets(first.tensors()) for maker, (first, *_) in argument_sets.items()}
        rotates = min(counts.values()) > 1
        by_maker = {
            maker: [Subject.on(arguments, _always(counts[maker] if rotates else 1), restores) for arguments in sets]
            for maker, sets in argument_sets.items()
        }
        for subject in [subject for subjects in by_maker.values() for subject in subjects]:
            subject.further()
    return by_maker


def _always(count: int) -> Callable[[Iterable[Any]], int]:
    return lambda _: count


def _copy_errors(device_name: str) -> AbstractContextManager[None]:
    what = f"the arguments cannot be copied on {device_name}:"
    return CandidateError.as_error(ShapeMismatchError, what, "take a smaller problem", MemoryError, RuntimeError)


def _samplers(
    contestants: Sequence[Contestant], launches: Sequence[Sequence[Launch]], timer: Timer
) -> list[list[Sampler]]:
    """The samplers; contestants of similar speed get equally many launches per sample.

    The fixed cost of a sample then adds the same to each launch of those contestants.
    """
    first = []
    for contestant, (launch, *_) in zip(contestants, launches, strict=True):
        with blame_calls_of(contestant):
            first.append(timer.prepare(launch))
    most = max(sampler.launches for sampler in first)
    samplers = []
    for contestant, sampler, (launch, *others) in zip(contestants, first, launches, strict=True):
        each = most if sampler.launches * _SIMILAR >= most else sampler.launches
        with blame_calls_of(contestant):
            own = sampler if sampler.launches == each else timer.prepare(launch, each)
            row = [own, *(timer.prepare(other, each) for other in others)]
            samplers.append([one.inside(partial(blame_calls_of, contestant)) for one in row])
    return samplers


def _explore(contestant: Contestant, arguments: Arguments) -> tuple[Executable, bool, tuple[Any, ...]]:
    """Compile a contestant, call it at most three times, and restore the arguments.

    Returned are the executable, whether a call changes arguments that it reads, so that they must be restored, and the
    tensors that it only writes.

    A written tensor is an output if a call gives the same result whatever the tensor held before: the result of the
    call before, or one value in all elements. Else the call reads the tensor that it writes. A written array or
    container counts as read.
    """
    with blame_calls_of(contestant):
        executable = contestant.kernel.compile(contestant.config, arguments)
    by_parameter = arguments.by_name(contestant.kernel).keyword
    declared = tuple(Arguments(tuple(by_parameter.get(name) for name in executable.outputs)).tensors())
    with _copy_errors(contestant.device_name):
        tensors = list(arguments.tensors())
        others = list(Protection.host_values((*arguments.positional, *arguments.keyword.values())))
        before = {id(value): Protection([value]) for value in [*tensors, *others]}
    with blame_calls_of(contestant, calls=3):
        call = executable.bind(arguments)
        call()
        changes = [tensor for tensor in tensors if before[id(tensor)].changed()]
        outputs = {tensor.untyped_storage().data_ptr() for tensor in declared}
        unknown = [tensor for tensor in changes if tensor.untyped_storage().data_ptr() not in outputs]
        rewrites = any(before[id(value)].changed() for value in others)
        rewrites = rewrites or (bool(unknown) and _depends_on(call, unknown))
    for protection in before.values():
        protection.restore()
    return executable, rewrites, declared or (() if rewrites else tuple(unknown))


def _depends_on(call: Callable[[], Any], tensors: Sequence[Any]) -> bool:
    """Tell whether the result of a call in `tensors` depends on their content; they hold a result at first."""
    result = Protection(tensors)
    call()
    if result.changed():
        return True
    for tensor in tensors:
        values = tensor.detach()
        values.copy_(values[(0,) * values.dim()].clone())
    try:
        call()
    except Exception:  # noqa: BLE001 - the call need not accept these values: it has worked on the caller's
        return True
    return result.changed()


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
        confidence: `ok`, or in words why the times should not be relied on: the GPU was slowed, another process used
            it, or there is a single sample.
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

    def __iter__(self) -> Iterator[float]:
        """The times of the quantiles, in the order asked."""
        return iter(self.quantiles_ms)

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
    **others: Any,
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
        **others: None; options of other timers, such as `return_mode`, are refused by name.

    Returns:
        Milliseconds for each of `quantiles`, with the samples and the mode in which they were taken.

    Raises:
        KernelTypeError: `fn` is not callable, or not with these arguments.
        TargetError: `fn` raised.
        SettingsError: A budget or a quantile is out of range, or there is no such option.
        DeviceError, SpaceError, ShapeMismatchError: Device, config or arguments do not fit.

    Cost: the two budgets, and the calibration of the clock; at most ten times the budgets where restoring arguments
    takes longer than the calls, and 5 s of waits where the GPU is disturbed.
    """
    if others:
        hint = "the budgets are warmup_ms and rep_ms; the result has all samples: .median_ms, .samples_ms"
        raise SettingsError(f"time_ms takes no {', '.join(others)}", hint=hint)
    _check(warmup_ms, rep_ms, quantiles)
    (contestant,) = contestants_of({"fn": fn}, args, kwargs, device)
    place = contestant.device_name
    with measuring(place, wait) as notes_so_far:
        begun_s = time.time()
        timer, ((sampler,),) = prepare([contestant], cold=cold)
        with blame_calls_of(contestant):
            unwatched = Rounds(timer=timer)
            sample_ms = unwatched.sample_ms(sampler)
            warm = _samples(unwatched, sampler, sample_ms, warmup_ms) if warmup_ms else []
            rounds, guard = Rounds.guarded(timer, place, since_s=begun_s)
            samples = _samples(rounds, sampler, sample_ms, rep_ms)
        summary = guard.summary()
        before = (f"{summary.others_before} while the calls were warmed up",) if summary.others_before else ()
        notes = (*notes_so_far(), *before)
    ordered = sorted(samples)
    few = "too few timed calls to know the noise" if len(samples) < 2 else "ok"
    return Times(
        quantiles=tuple(quantiles), quantiles_ms=tuple(quantile(ordered, share) for share in quantiles),
        samples_ms=tuple(samples), launches=len(samples) * sampler.launches,
        warmup_launches=len(warm) * sampler.launches, launches_per_sample=sampler.launches, mode=timer.mode,
        confidence=summary.confidence_reason if summary.confidence == "low" else few, guard=summary, notes=notes,
    )  # fmt: skip


def counted_times(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, *, warmup_runs: int, runs: int
) -> Measurement:
    """Times of `runs` samples after `warmup_runs` others; a sample is several calls where one is too short."""
    (contestant,) = contestants_of({"fn": fn}, args, kwargs, None)
    place = contestant.device_name
    with measuring(place):
        timer, ((sampler,),) = prepare([contestant])
        with blame_calls_of(contestant):
            samples = Rounds(timer=timer).sample(sampler, warmup_runs + runs)
    return Measurement(tuple(samples[warmup_runs:]), timer.mode)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the ordered values do not exceed, interpolated linearly between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _samples(rounds: Rounds, sampler: Sampler, sample_ms: float, budget_ms: float) -> list[float]:
    """As many samples as fit into the budget, at least one; those of a round that does not count are taken again."""
    count = max(1, int(budget_ms / max(sample_ms, 1e-6)))
    return rounds.sample(sampler, count, _MOST_TIMES_BUDGET * budget_ms / 1e3)


@contextmanager
def measuring(place: str, wait: bool = True) -> Iterator[Callable[[], tuple[str, ...]]]:
    """A turn on a device, which is the current one meanwhile; what is yielded gives the notes on it so far."""
    device, turns = probe(place), Turns(place, wait)
    Host.cpu_threads()  # a forked child computes in one thread from here on
    with TorchDevice(place).current(), turns.turn(Turns.key_of(device, place)):
        load = CpuLoad()
        yield lambda: (*turns.notes, *load.notes(device))


def _check(warmup_ms: Any, rep_ms: Any, quantiles: Any) -> None:
    SettingsError.checked("warmup_ms", warmup_ms, 0)
    SettingsError.checked("rep_ms", rep_ms)
    if not isinstance(quantiles, Sequence) or isinstance(quantiles, (str, bytes)):
        raise SettingsError(f"quantiles is {quantiles!r}; it must be a list of numbers", hint="quantiles=(0.5, 0.9)")
    if wrong := [share for share in quantiles if not isinstance(share, Real) or not 0 <= float(share) <= 1]:
        raise SettingsError(f"quantile {wrong[0]!r} is not a number between 0 and 1")
