"""A contestant is a callable, or a kernel with a config, that is timed alone or in turn with other contestants.

A plain callable does not say what it does to its arguments, so each contestant is called to find out. If a contestant
writes tensors that it reads, the arguments of all contestants are restored before every sample, outside the timed
region.
"""

from __future__ import annotations

import inspect
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
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
    as_kernel,
    host_values,
    one_line,
    private_copy,
)
from triton_ops.device import device_named, probe
from triton_ops.evaluation import ArgumentSet, Choose, SharedTimer, Subject
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.request import device_of, make_task
from triton_ops.space import Config, members_among
from triton_ops.timing import (
    Arm,
    CaptureError,
    EmptyCaptureError,
    Launch,
    Sampler,
    Timer,
    choose_timer,
)

MakeArguments: TypeAlias = Callable[[], Arguments]
"""Makes private arguments, with the same content each time."""
_log = logging.getLogger("triton_ops")
_SIMILAR = 4  # contestants whose launches per sample differ by no more than this factor get the same number
_SAMPLES = 3  # to find out whether a launch is too short for its timer


@dataclass(frozen=True)
class Contestant:
    """A callable, or a kernel with a config, and how to make its arguments.

    Attributes:
        name: The name in messages and results.
        kernel: The kernel, or the callable as a kernel.
        config: The kernel's config; empty for a plain callable.
        device_name: The torch name of the device that it runs on.
        arguments: Makes private arguments; contestants with the same function can share what it makes.
    """

    name: str
    kernel: Kernel
    config: Config
    _: KW_ONLY
    device_name: str
    arguments: MakeArguments


def contestants_of(
    callables: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    device: str | None,
    seed: int = 0,
) -> list[Contestant]:
    """The contestants that a caller named.

    Args:
        callables: Name to a callable, or to a pair of an operation, a kernel or a callable and a config.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        device: The device that they run on; None follows the arguments.
        seed: Seed of the inputs of an operation that is given no arguments.

    Raises:
        KernelTypeError: A contestant is not callable, or not with these arguments.
        DeviceError: The arguments are on another device.
        SpaceError: A config does not fit its kernel.
    """
    arguments, device = Arguments.given(args, kwargs), device_named(device)
    makers: dict[int, MakeArguments] = {}  # by operation; 0 is the caller's own arguments
    makers[0] = partial(private_copy, arguments)
    return [_contestant(name, what, arguments, makers, device, seed) for name, what in callables.items()]


def _contestant(
    name: str,
    what: Any,
    arguments: Arguments,
    makers: dict[int, MakeArguments],
    device: str | None,
    seed: int,
) -> Contestant:
    target, config = what if _is_pair(what) else (what, None)
    config = _config_of(config or {})
    if isinstance(target, Operation) and _is_pair(what):
        if not arguments.positional and not arguments.keyword:
            task = make_task(target, space=[config], device=device, seed=seed)
            make_arguments = makers.setdefault(id(target), task.arguments)
            return Contestant(name, task.kernel, config, device_name=task.device_name, arguments=make_arguments)
        target = target.kernel
    kernel = None if isinstance(target, Operation) else as_kernel(target)
    if kernel is None or (kernel is target and not _is_pair(what)):
        raise KernelTypeError(f"{name} is a kernel without a config", hint="give a pair: (kernel, config)")
    kernel.check(config, arguments)
    _check_call(name, kernel, arguments, config)
    place = device_of(arguments, device)
    probe(place)
    return Contestant(name, kernel, config, device_name=place, arguments=makers[0])


def _config_of(values: Mapping[str, Any]) -> Config:
    """A config with the members of an `Enum` that it was given."""
    return Config(values).with_members({name: members_among([value], name) for name, value in values.items()})


def _is_pair(what: Any) -> bool:
    return isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], Mapping)


def _check_call(name: str, kernel: Kernel, arguments: Arguments, config: Config) -> None:
    """Raise if a Python function's signature does not take these arguments; other callables are not checked here."""
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


def blame(name: str, error: Exception) -> TritonKernelError:
    """An error that names the contestant whose call raised `error`; errors of this package are returned as they are."""
    if isinstance(error, TritonKernelError):
        return error
    if isinstance(error, EmptyCaptureError):
        return TargetError(f"{name} cannot be timed: {error}", hint="let it work on the current stream")
    if isinstance(error, CandidateError):
        return TargetError(f"{name} cannot be used: {error}", hint="choose another config")
    return TargetError(f"{name} raised {one_line(error)}", hint="call it with the same arguments to try")


@contextmanager
def blame_calls_of(contestant: Contestant) -> Iterator[None]:
    """Turn errors of calls of `contestant` into errors that name it; errors of graph capture are passed on.

    Raises:
        TargetError: The contestant raised, or does nothing that could be timed.
    """
    try:
        yield
    except (TritonKernelError, CaptureError):
        raise
    except Exception as error:
        raise blame(contestant.name, error) from error


@dataclass(frozen=True)
class PreparedContestants:
    """Contestants that have run once and can be sampled by one timer.

    Attributes:
        timer: The timer of all contestants.
        samplers: For each contestant one sampler per argument set; all contestants have the same number of sets.
    """

    timer: Timer
    samplers: list[list[Sampler]]


def prepare(
    contestants: Sequence[Contestant], *, sets: int = 1, cold: bool = True, choose: Choose | None = None
) -> PreparedContestants:
    """Run every contestant once, to warm up and check it, and prepare its samplers.

    Args:
        contestants: The contestants.
        sets: Argument sets per contestant on a CPU; contestants with the same `arguments` share them. On a GPU each
            contestant has one, with the further sets that keep L2 cold.
        cold: On a GPU, whether L2 holds nothing of the arguments when a launch starts.
        choose: Chooses the timer; None is `choose_timer`.

    Raises:
        TargetError: A contestant raised.
        DeviceError: The contestants are on several devices.
        ShapeMismatchError: The copies of the arguments do not fit in memory.

    Cost: a copy of the arguments per set, and two more while the tensors that a call writes are found; up to four calls
    of each contestant, and the calls that calibrate the timer.
    """
    choose = choose or choose_timer
    name = _one_device(contestants)
    timers = SharedTimer(probe(name), name, cold=cold, choose=choose)
    with _copy_errors(name):
        count = sets if timers.device.kind == "cpu" else 1
        argument_sets = {maker: [maker() for _ in range(count)] for maker in {each.arguments for each in contestants}}
    findings = {
        id(each): _explore(each, argument_sets[each.arguments][0]) for each in {id(c): c for c in contestants}.values()
    }
    subjects = _subjects(argument_sets, timers, any(explored.rewrites for explored in findings.values()))
    launches = [_launches(each, findings[id(each)], subjects[each.arguments]) for each in contestants]
    with blame_calls_of(contestants[0]):
        timer = _timer(timers, choose, launches[0][0])
    try:
        return PreparedContestants(timer, _samplers(contestants, launches, timer))
    except CaptureError as error:
        _log.warning("%s: timed by event pairs instead", error)
        timer = timers.change(launches[0][0])
        return PreparedContestants(timer, _samplers(contestants, launches, timer))


def _one_device(contestants: Sequence[Contestant]) -> str:
    places = [each.device_name for each in contestants]
    if len(set(places)) > 1:
        places_text = " and ".join(f"{each.name} runs on {each.device_name}" for each in contestants[:2])
        raise DeviceError(places_text, places[0], places[1], hint="compare them on one device")
    return places[0]


def _subjects(
    argument_sets: Mapping[MakeArguments, Sequence[Arguments]], timers: SharedTimer, restores: bool
) -> dict[MakeArguments, list[Subject]]:
    """The subjects of each argument-making function, one per argument set.

    All subjects rotate through further argument sets, or none does, and then L2 is flushed before every call.
    """
    with _copy_errors(timers.device_name):
        counts = {maker: timers.sets(first) for maker, (first, *_) in argument_sets.items()}
        rotates = min(counts.values()) > 1
        by_maker = {
            maker: [
                Subject(ArgumentSet(arguments, protected=restores), _always(counts[maker] if rotates else 1), restores)
                for arguments in sets
            ]
            for maker, sets in argument_sets.items()
        }
        for subject in [subject for subjects in by_maker.values() for subject in subjects]:
            subject.further()
    return by_maker


def _always(count: int) -> Callable[[Arguments], int]:
    return lambda _: count


def _launches(contestant: Contestant, explored: _Explored, subjects: Sequence[Subject]) -> list[Launch]:
    with blame_calls_of(contestant):
        return [subject.launch(explored.executable, explored.outputs) for subject in subjects]


@contextmanager
def _copy_errors(device_name: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise ShapeMismatchError(
            f"the arguments cannot be copied on {device_name}: {one_line(error)}", hint="take a smaller problem"
        ) from error


def _timer(timers: SharedTimer, choose: Choose, launch: Launch) -> Timer:
    """The timer that suits a launch; a launch too short for event pairs, without tensors to rotate, is timed warm."""
    timer = timers.start(launch)
    if timer.mode != "event-flushed" or launch.reset is not None:
        return timer
    took_ms = statistics.median(timer.prepare(launch).take(timer, _SAMPLES))
    if took_ms >= Arm.LEAST_SAMPLE_MS:
        return timer
    warm = choose(timers.device, timers.device_name, launch, cold=False)
    if not warm.mode.startswith("graph"):
        return timer
    _log.warning("%.4f ms is too short for event pairs, and no tensors were given to rotate: timed warm", took_ms)
    return warm


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
            samplers.append([own, *(timer.prepare(other, each) for other in others)])
    return samplers


@dataclass(frozen=True)
class _Explored:
    """Findings from first calls of a contestant."""

    executable: Executable
    rewrites: bool  # whether a call changes arguments that it reads, so that they must be restored
    outputs: tuple[Any, ...]


def _explore(contestant: Contestant, arguments: Arguments) -> _Explored:
    """Compile a contestant, call it at most three times, and restore the arguments.

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
        others = list(host_values((*arguments.positional, *arguments.keyword.values())))
        before = {id(value): Protection([value]) for value in [*tensors, *others]}
    with blame_calls_of(contestant):
        call = executable.bind(arguments)
        call()
        changes = [tensor for tensor in tensors if before[id(tensor)].changed()]
        outputs = {tensor.untyped_storage().data_ptr() for tensor in declared}
        unknown = [tensor for tensor in changes if tensor.untyped_storage().data_ptr() not in outputs]
        rewrites = any(before[id(value)].changed() for value in others) or (
            bool(unknown) and _depends_on(call, unknown)
        )
    for protection in before.values():
        protection.restore()
    return _Explored(executable, rewrites, declared or (() if rewrites else tuple(unknown)))


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
