"""A side of a comparison: a callable or a config of a kernel, run on private arguments, ready to be sampled.

What a call does to its arguments is found out by calling, since a plain callable does not tell: one that writes what
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
from functools import cached_property, partial
from typing import Any, TypeAlias

from triton_ops.backend import (
    Arguments,
    Artifact,
    CandidateError,
    FunctionKernel,
    Kernel,
    Operation,
    Protection,
    by_name,
    one_line,
    private_copy,
)
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.hardware import DeviceSpec, probe
from triton_ops.measure import CaptureError, EmptyCaptureError, Launch, Sampler, Timer, choose_timer, take
from triton_ops.measure.duel import COARSEST_TICK_MS, FEW_TICKS
from triton_ops.space import Config
from triton_ops.task.task import as_kernel, device_of, make_task, sets_for

Maker: TypeAlias = Callable[[], Arguments]
"""Makes private arguments; what it makes is equal every time."""
Choose: TypeAlias = Callable[..., Timer]
"""Gives the clock; called as `choose_timer`, which it is but in simulations."""

_log = logging.getLogger("triton_ops")
_ALIKE = 4  # samples of sides that differ less than this take equally many launches
_LOOKS = 3  # samples that tell whether a launch is too short for its clock


@dataclass(frozen=True)
class Side:
    """What is timed.

    Attributes:
        name: In messages and results.
        kernel: How it becomes a call.
        config: Of the kernel; empty for a plain callable.
        device_name: Where it runs, as torch names it.
        arguments: Makes private arguments; sides that have the same maker can run on each other's.
    """

    name: str
    kernel: Kernel
    config: Config
    device_name: str
    arguments: Maker

    def call(self, arguments: Arguments) -> Callable[[], Any]:
        """A call of this side on these arguments; compiles the first time."""
        with blaming(self):
            return self.kernel.bind(self._artifact(arguments), arguments)

    def _artifact(self, arguments: Arguments) -> Artifact:
        if "artifact" not in self._compiled:
            self._compiled["artifact"] = self.kernel.compile(self.config, arguments)
        return self._compiled["artifact"]

    @cached_property
    def _compiled(self) -> dict[str, Artifact]:
        return {}


def sides_of(
    given: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    device: str | None,
    seed: int = 0,
) -> list[Side]:
    """The sides that a caller named.

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
    return [_side(name, what, arguments, makers, device, seed) for name, what in given.items()]


def _side(
    name: str,
    what: Any,
    arguments: Arguments,
    makers: dict[int, Maker],
    device: str | None,
    seed: int,
) -> Side:
    target, config = what if _is_pair(what) else (what, None)
    config = Config(config or {})
    if isinstance(target, Operation) and _is_pair(what):
        if not arguments.positional and not arguments.keyword:
            task = make_task(target, space=[config], device=device, seed=seed)
            return Side(name, task.kernel, config, task.device_name, makers.setdefault(id(target), task.arguments))
        target = target.kernel
    kernel = None if isinstance(target, Operation) else as_kernel(target)
    if kernel is None or (kernel is target and not _is_pair(what)):
        raise KernelTypeError(f"{name} is a kernel without a config", hint="give a pair: (kernel, config)")
    kernel.check(config, arguments)
    _check_call(name, kernel, arguments, config)
    place = device_of(arguments, device)
    probe(place)
    return Side(name, kernel, config, place, makers[0])


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
            hint="all sides are called with the same args and kwargs",
        ) from error


def blamed(name: str, error: Exception) -> TritonKernelError:
    """What a call of the side `name` raised, as an error that names it; errors of this package stay as they are."""
    if isinstance(error, TritonKernelError):
        return error
    if isinstance(error, EmptyCaptureError):
        return TargetError(f"{name} cannot be timed: {error}", hint="let it work on the current stream")
    if isinstance(error, CandidateError):
        return TargetError(f"{name} cannot be used: {error}", hint="choose another config")
    return TargetError(f"{name} raised {one_line(error)}", hint="call it with the same arguments to try")


@contextmanager
def blaming(side: Side) -> Iterator[None]:
    """Inside, what a call of `side` raises becomes an error that names it; only capture errors pass.

    Raises:
        TargetError: The side raised, or does nothing that could be timed.
    """
    try:
        yield
    except (TritonKernelError, CaptureError):
        raise
    except Exception as error:
        raise blamed(side.name, error) from error


@dataclass(frozen=True)
class Stage:
    """Sides that were run, with one clock for all.

    Attributes:
        timer: The clock.
        samplers: Per side one sampler for each of its argument sets; all have the same number of sets.
    """

    timer: Timer
    samplers: list[list[Sampler]]


def staged(sides: Sequence[Side], *, sets: int = 1, cold: bool = True, choose: Choose | None = None) -> Stage:
    """Run every side once, as warm-up and check, and prepare what samples it.

    Args:
        sides: What to run.
        sets: Argument sets per side on a CPU; sides with the same maker share them. On a GPU there is one, with the
            copies that keep L2 cold.
        cold: On a GPU, whether L2 holds nothing of the arguments when a launch starts.
        choose: Gives the clock; None is `choose_timer`.

    Raises:
        TargetError: A side raised.
        DeviceError: The sides are on several devices.
        ShapeMismatchError: The arguments do not fit in memory as often as needed.

    Cost: a copy of the arguments per set, and two more while it is found out what a call writes; up to four calls of
    each side, and what calibrates the clock.
    """
    choose = choose or choose_timer
    name = _one_device(sides)
    device = probe(name)
    count = sets if device.kind == "cpu" else 1
    with _copying(name):
        made = {maker: [maker() for _ in range(count)] for maker in {side.arguments for side in sides}}
    different = {id(side): side for side in sides}
    effects = {key: _effects(side, made[side.arguments][0]) for key, side in different.items()}
    put_back = any(effect.rewrites for effect in effects.values())
    with _copying(name):
        resets = {maker: [_reset(given) if put_back else None for given in found] for maker, found in made.items()}
        rotated = _rotated(made, device, name, go_round=cold and not put_back)
    launches = [
        [
            Launch(side.call(given), reset, tuple(map(side.call, rotated[side.arguments])), effects[id(side)].outputs)
            for given, reset in zip(made[side.arguments], resets[side.arguments], strict=True)
        ]
        for side in sides
    ]
    with blaming(sides[0]):
        timer = _timer(choose, device, name, launches[0][0], cold)
    try:
        return Stage(timer, _prepared(sides, launches, timer))
    except CaptureError as error:
        _log.warning("%s: timed by event pairs instead", error)
        timer = choose(device, name, launches[0][0], cold=cold, capture=False)
        return Stage(timer, _prepared(sides, launches, timer))


def _one_device(sides: Sequence[Side]) -> str:
    places = [side.device_name for side in sides]
    if len(set(places)) > 1:
        said = " and ".join(f"{side.name} runs on {side.device_name}" for side in sides[:2])
        raise DeviceError(said, places[0], places[1], hint="compare them on one device")
    return places[0]


def _rotated(
    made: Mapping[Maker, Sequence[Arguments]], device: DeviceSpec, name: str, *, go_round: bool
) -> dict[Maker, list[Arguments]]:
    """Further copies that keep L2 cold, for all sides or for none: L2 is then flushed before every call of each."""
    further: dict[Maker, list[Arguments]] = {maker: [] for maker in made}
    for maker, (first, *_) in made.items():
        copies = sets_for(device, name, first) if go_round else 1
        if copies == 1:
            return {maker: [] for maker in made}
        further[maker] = [private_copy(first) for _ in range(copies - 1)]
    return further


@contextmanager
def _copying(device_name: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise ShapeMismatchError(
            f"the arguments cannot be copied on {device_name}: {one_line(error)}", hint="take a smaller problem"
        ) from error


def _reset(arguments: Arguments) -> Callable[[], None]:
    return Protection(arguments.tensors()).restore


def _timer(choose: Choose, device: DeviceSpec, name: str, launch: Launch, cold: bool) -> Timer:
    """The clock, by the first side; a launch too short for event pairs, with no arguments to rotate, is timed warm."""
    timer = choose(device, name, launch, cold=cold)
    if timer.mode != "event-flushed" or launch.reset is not None:
        return timer
    took_ms = statistics.median(take(timer.prepare(launch), timer, _LOOKS))
    if took_ms >= FEW_TICKS * COARSEST_TICK_MS:
        return timer
    warm = choose(device, name, launch, cold=False)
    if not warm.mode.startswith("graph"):
        return timer
    _log.warning("%.4f ms is too short for event pairs, and no tensors were given to rotate: timed warm", took_ms)
    return warm


def _prepared(sides: Sequence[Side], launches: Sequence[Sequence[Launch]], timer: Timer) -> list[list[Sampler]]:
    """Samplers with equally many launches per sample where that can be: what a sample costs then weighs alike."""
    first = []
    for side, (launch, *_) in zip(sides, launches, strict=True):
        with blaming(side):
            first.append(timer.prepare(launch))
    most = max(sampler.launches for sampler in first)
    samplers = []
    for side, sampler, (launch, *others) in zip(sides, first, launches, strict=True):
        each = most if sampler.launches * _ALIKE >= most else sampler.launches
        with blaming(side):
            own = sampler if sampler.launches == each else timer.prepare(launch, each)
            samplers.append([own, *(timer.prepare(other, each) for other in others)])
    return samplers


@dataclass(frozen=True)
class _Effects:
    """What a call does to its arguments: whether it must be given the old ones again, and what it writes."""

    rewrites: bool
    outputs: tuple[Any, ...]


def _effects(side: Side, arguments: Arguments) -> _Effects:
    """Run a side, at most four times, and put everything back.

    A written tensor is an output if what it held does not matter: neither what the call left there, nor one of its
    values all over it. Else the call reads what it writes.
    """
    call = side.call(arguments)
    named = by_name(side.kernel, arguments).keyword
    declared = tuple(Arguments(tuple(named.get(name) for name in side.kernel.outputs)).tensors())
    with _copying(side.device_name):
        before = [(tensor, Protection([tensor])) for tensor in arguments.tensors()]
    with blaming(side):
        call()
        written = [tensor for tensor, saved in before if saved.changed()]
        known = {tensor.untyped_storage().data_ptr() for tensor in declared}
        unknown = [tensor for tensor in written if tensor.untyped_storage().data_ptr() not in known]
        rewrites = bool(unknown) and _reads(call, unknown)
    for _, saved in before:
        saved.restore()
    return _Effects(rewrites, declared or (() if rewrites else tuple(unknown)))


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
