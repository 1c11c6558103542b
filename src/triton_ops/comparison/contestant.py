"""A contestant: a callable or a config of a kernel that is going to be timed beside others, or alone.

What a call does to its arguments is found out by calling, since a plain callable does not tell. A call that writes what
it reads has its arguments put back before every sample, outside the timed region, and so have those it is compared
with.
"""

from __future__ import annotations

import inspect
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from triton_ops.backend import (
    Arguments,
    CandidateError,
    Executable,
    FunctionKernel,
    Kernel,
    Operation,
    Protection,
    by_name,
    one_line,
    private_copy,
)
from triton_ops.evaluation.subject import ArgumentSet, Choose, Clock, Subject
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.hardware import probe
from triton_ops.measure import CaptureError, EmptyCaptureError, Launch, Sampler, Timer, choose_timer, take
from triton_ops.measure.duel import COARSEST_TICK_MS, FEW_TICKS
from triton_ops.space import Config
from triton_ops.task.task import as_kernel, device_of, make_task

Maker: TypeAlias = Callable[[], Arguments]
"""Makes private arguments; what it makes is equal every time."""
_log = logging.getLogger("triton_ops")
_ALIKE = 4  # times: samples of contestants that differ by less take equally many launches
_SAMPLES = 3  # that tell whether a launch is too short for its timer


@dataclass(frozen=True)
class Contestant:
    """What is timed.

    Attributes:
        name: In messages and results.
        kernel: How it becomes a call.
        config: Of the kernel; empty for a plain callable.
        device_name: Where it runs, as torch names it.
        arguments: Makes private arguments; contestants that have the same maker can run on each other's.
    """

    name: str
    kernel: Kernel
    config: Config
    device_name: str
    arguments: Maker


def contestants_of(
    given: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    device: str | None,
    seed: int = 0,
) -> list[Contestant]:
    """The contestants that a caller named.

    Args:
        given: Name to a callable, or to a pair of an operation, a kernel or a callable and a config.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        device: Where they run; None follows the arguments.
        seed: Of the inputs of an operation that is given no arguments.

    Raises:
        KernelTypeError: Not callable, or not with these arguments.
        DeviceError: The arguments are elsewhere.
        SpaceError: A config does not fit its kernel.
    """
    arguments = Arguments(tuple(args), dict(kwargs or {}))
    makers: dict[int, Maker] = {}  # by operation; 0 is the caller's own arguments
    makers[0] = partial(private_copy, arguments)
    return [_contestant(name, what, arguments, makers, device, seed) for name, what in given.items()]


def _contestant(
    name: str,
    what: Any,
    arguments: Arguments,
    makers: dict[int, Maker],
    device: str | None,
    seed: int,
) -> Contestant:
    target, config = what if _is_pair(what) else (what, None)
    config = Config(config or {})
    if isinstance(target, Operation) and _is_pair(what):
        if not arguments.positional and not arguments.keyword:
            task = make_task(target, space=[config], device=device, seed=seed)
            return Contestant(
                name, task.kernel, config, task.device_name, makers.setdefault(id(target), task.arguments)
            )
        target = target.kernel
    kernel = None if isinstance(target, Operation) else as_kernel(target)
    if kernel is None or (kernel is target and not _is_pair(what)):
        raise KernelTypeError(f"{name} is a kernel without a config", hint="give a pair: (kernel, config)")
    kernel.check(config, arguments)
    _check_call(name, kernel, arguments, config)
    place = device_of(arguments, device)
    probe(place)
    return Contestant(name, kernel, config, place, makers[0])


def _is_pair(what: Any) -> bool:
    return isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], Mapping)


def _check_call(name: str, kernel: Kernel, arguments: Arguments, config: Config) -> None:
    """Raise if a Python function cannot be called so; what cannot be told before is found by calling."""
    if not isinstance(kernel, FunctionKernel):
        return
    try:
        signature = inspect.signature(kernel.function)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*arguments.positional, **arguments.keyword, **config)
    except TypeError as error:
        raise KernelTypeError(
            f"{name} cannot be called with these arguments: {error}",
            hint="all contestants are called with the same args and kwargs",
        ) from error


def blamed(name: str, error: Exception) -> TritonKernelError:
    """What a call of a contestant raised, as an error that names it; errors of this package stay as they are."""
    if isinstance(error, TritonKernelError):
        return error
    if isinstance(error, EmptyCaptureError):
        return TargetError(f"{name} cannot be timed: {error}", hint="let it work on the current stream")
    if isinstance(error, CandidateError):
        return TargetError(f"{name} cannot be used: {error}", hint="choose another config")
    return TargetError(f"{name} raised {one_line(error)}", hint="call it with the same arguments to try")


@contextmanager
def blaming(contestant: Contestant) -> Iterator[None]:
    """Inside, what a call of `contestant` raises becomes an error that names it; only capture errors pass.

    Raises:
        TargetError: The contestant raised, or does nothing that could be timed.
    """
    try:
        yield
    except (TritonKernelError, CaptureError):
        raise
    except Exception as error:
        raise blamed(contestant.name, error) from error


@dataclass(frozen=True)
class Prepared:
    """Contestants that were run, with one timer for all.

    Attributes:
        timer: The timer.
        samplers: Per contestant one sampler for each of its argument sets; all have the same number of sets.
    """

    timer: Timer
    samplers: list[list[Sampler]]


def prepare(
    contestants: Sequence[Contestant], *, sets: int = 1, cold: bool = True, choose: Choose | None = None
) -> Prepared:
    """Run every contestant once, as warm-up and check, and prepare what samples it.

    Args:
        contestants: What to run.
        sets: Argument sets per contestant on a CPU; contestants with the same maker share them. On a GPU there is one,
            with the further sets that keep L2 cold.
        cold: On a GPU, whether L2 holds nothing of the arguments when a launch starts.
        choose: Gives the timer; None is `choose_timer`.

    Raises:
        TargetError: A contestant raised.
        DeviceError: The contestants are on several devices.
        ShapeMismatchError: The arguments do not fit in memory as often as needed.

    Cost: a copy of the arguments per set, and two more while it is found out what a call writes; up to four calls of
    each contestant, and what calibrates the timer.
    """
    choose = choose or choose_timer
    name = _one_device(contestants)
    clock = Clock(probe(name), name, cold=cold, choose=choose)
    with _copying(name):
        count = sets if clock.device.kind == "cpu" else 1
        made = {maker: [maker() for _ in range(count)] for maker in {each.arguments for each in contestants}}
    found = {id(each): _explored(each, made[each.arguments][0]) for each in {id(c): c for c in contestants}.values()}
    subjects = _subjects(made, clock, any(explored.rewrites for explored in found.values()))
    launches = [_launches(each, found[id(each)], subjects[each.arguments]) for each in contestants]
    with blaming(contestants[0]):
        timer = _timer(clock, choose, launches[0][0])
    try:
        return Prepared(timer, _samplers(contestants, launches, timer))
    except CaptureError as error:
        _log.warning("%s: timed by event pairs instead", error)
        timer = clock.change(launches[0][0])
        return Prepared(timer, _samplers(contestants, launches, timer))


def _one_device(contestants: Sequence[Contestant]) -> str:
    places = [each.device_name for each in contestants]
    if len(set(places)) > 1:
        said = " and ".join(f"{each.name} runs on {each.device_name}" for each in contestants[:2])
        raise DeviceError(said, places[0], places[1], hint="compare them on one device")
    return places[0]


def _subjects(made: Mapping[Maker, Sequence[Arguments]], clock: Clock, restores: bool) -> dict[Maker, list[Subject]]:
    """Per maker its argument sets; all rotate through further sets, or none: L2 is then flushed before every call."""
    with _copying(clock.device_name):
        counts = {maker: clock.sets(first) for maker, (first, *_) in made.items()}
        rotates = min(counts.values()) > 1
        found = {
            maker: [
                Subject(ArgumentSet(given, protected=restores), _always(counts[maker] if rotates else 1), restores)
                for given in sets
            ]
            for maker, sets in made.items()
        }
        for subject in [subject for subjects in found.values() for subject in subjects]:
            subject.further()
    return found


def _always(count: int) -> Callable[[Arguments], int]:
    return lambda _: count


def _launches(contestant: Contestant, explored: _Explored, subjects: Sequence[Subject]) -> list[Launch]:
    with blaming(contestant):
        return [subject.launch(explored.executable, explored.outputs) for subject in subjects]


@contextmanager
def _copying(device_name: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise ShapeMismatchError(
            f"the arguments cannot be copied on {device_name}: {one_line(error)}", hint="take a smaller problem"
        ) from error


def _timer(clock: Clock, choose: Choose, launch: Launch) -> Timer:
    """The timer, by one launch; one that is too short for event pairs, with nothing to rotate, is timed warm."""
    timer = clock.start(launch)
    if timer.mode != "event-flushed" or launch.reset is not None:
        return timer
    took_ms = statistics.median(take(timer.prepare(launch), timer, _SAMPLES))
    if took_ms >= FEW_TICKS * COARSEST_TICK_MS:
        return timer
    warm = choose(clock.device, clock.device_name, launch, cold=False)
    if not warm.mode.startswith("graph"):
        return timer
    _log.warning("%.4f ms is too short for event pairs, and no tensors were given to rotate: timed warm", took_ms)
    return warm


def _samplers(
    contestants: Sequence[Contestant], launches: Sequence[Sequence[Launch]], timer: Timer
) -> list[list[Sampler]]:
    """Samplers with equally many launches per sample where that can be: what a sample costs then weighs alike."""
    first = []
    for contestant, (launch, *_) in zip(contestants, launches, strict=True):
        with blaming(contestant):
            first.append(timer.prepare(launch))
    most = max(sampler.launches for sampler in first)
    samplers = []
    for contestant, sampler, (launch, *others) in zip(contestants, first, launches, strict=True):
        each = most if sampler.launches * _ALIKE >= most else sampler.launches
        with blaming(contestant):
            own = sampler if sampler.launches == each else timer.prepare(launch, each)
            samplers.append([own, *(timer.prepare(other, each) for other in others)])
    return samplers


@dataclass(frozen=True)
class _Explored:
    """A contestant compiled and called: whether it must be given the old arguments again, and what it writes."""

    executable: Executable
    rewrites: bool
    outputs: tuple[Any, ...]


def _explored(contestant: Contestant, arguments: Arguments) -> _Explored:
    """Compile and run a contestant, at most four times, and put everything back.

    A written tensor is an output if what it held does not matter: neither what the call left there, nor one of its
    values all over it. Else the call reads what it writes.
    """
    with blaming(contestant):
        executable = contestant.kernel.compile(contestant.config, arguments)
    named = by_name(contestant.kernel, arguments).keyword
    declared = tuple(Arguments(tuple(named.get(name) for name in executable.outputs)).tensors())
    with _copying(contestant.device_name):
        before = [(tensor, Protection([tensor])) for tensor in arguments.tensors()]
    with blaming(contestant):
        call = executable.bind(arguments)
        call()
        written = [tensor for tensor, saved in before if saved.changed()]
        known = {tensor.untyped_storage().data_ptr() for tensor in declared}
        unknown = [tensor for tensor in written if tensor.untyped_storage().data_ptr() not in known]
        rewrites = bool(unknown) and _reads(call, unknown)
    for _, saved in before:
        saved.restore()
    return _Explored(executable, rewrites, declared or (() if rewrites else tuple(unknown)))


def _reads(call: Callable[[], Any], written: Sequence[Any]) -> bool:
    """Whether the result of a call in `written`, which holds one, depends on what was there before."""
    result = Protection(written)
    call()
    if result.changed():
        return True
    for tensor in written:
        values = tensor.detach()
        values.copy_(values[(0,) * values.dim()].clone())
    try:
        call()
    except Exception:  # noqa: BLE001 - such values are no fault of the call, which has worked on the caller's
        return True
    return result.changed()
