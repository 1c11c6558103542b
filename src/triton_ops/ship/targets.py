"""The entries of lockfiles with the kernels that they name, and what can be said of one without launching anything.

Kernels are found again as objects that can be tuned, checked and compiled. What a file names is no reason to run code:
its names only choose among the kernels that the caller has given, those that this package ships, and those that a
module of this process has declared.

A key has either every argument (shapes, strides, numbers), or, as those of decorated kernels, the dtype of a tensor and
under `NAME:class` what the compiler specialises on. Both are enough to compile, and neither needs a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import getattr_static
from itertools import product
from typing import Any

from triton_ops import dispatch
from triton_ops.backend import Arguments, Compiler, Executable, FunctionKernel, Kernel, Operation, StandIn
from triton_ops.base import cached_property, canonical_json
from triton_ops.device import DeviceSpec, Target
from triton_ops.exceptions import PACKAGES, KernelTypeError, NotLoadedError, SpaceError, TargetError, TritonKernelError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.space import Config, ConfigSpace, why_not_of_a_file
from triton_ops.values import (
    ALIGNMENTS,
    CLASS,
    EXAMPLES,
    ITEM_BYTES,
    KNOWN_MULTIPLE,
    TYPES,
    IntegerClass,
    Key,
    Mapper,
    Problem,
    Range,
    TensorSpec,
    contiguous_stride,
)

Named = Operation | Kernel
_NAME_IT = "name its file or module, if you trust it, with --kernels; in Python, give it as a target"
_OF_A_PROGRAM = "a script or notebook has defined it, and no other program can: define it in a module"


class Targets:
    """Kernels by the names that they have in records; nothing is imported or called to find one.

    The targets are operations, kernels, functions, decorated kernels, Triton's own too, and objects that have an
    operation; they are found before all others, which are shipped kernels, and kernels that a module of this process
    holds under the name: see `is_declared`.
    """

    def __init__(self, targets: Iterable[Any] = ()) -> None:
        self._targets: dict[str, tuple[Named, Any]] = {}
        for each in targets:
            target = as_target(each)
            if target.name in self._targets:
                raise TargetError(f"two targets are called {target.name}", hint="give one of them")
            self._targets[target.name] = target, each
        self._own_names = tuple(self._targets)

    def decorated(self, name: str) -> Any:
        """The object of that name as it was given or stands in its module, such as a decorated kernel's."""
        self.find(name)
        return self._targets[name][1]

    def find(self, name: str) -> Named:
        """The operation or the kernel that records call `name`; NotLoadedError if there is none."""
        if name not in self._targets:
            target = Operation.shipped(name) if name in Operation.shipped_names() else _declaration(name)
            if target is None or as_target(target).name != name:
                message = f"{name} is not loaded; loaded are {', '.join(self._own_names) or 'shipped kernels alone'}"
                raise NotLoadedError(message, hint=_OF_A_PROGRAM if name.startswith("__main__:") else _NAME_IT)
            self._targets[name] = as_target(target), target
        return self._targets[name][0]


def is_declared(candidate: Any) -> bool:
    """True if an object was declared as a kernel: an operation, a chooser, a kernel of this package, or decorated.

    A function is none: whoever names its module has not said that it may be called with what a file holds.
    """
    # By its class first: to ask an object of another package for an attribute may run code of its own.
    if {"triton", *PACKAGES}.isdisjoint(str(kind.__module__).partition(".")[0] for kind in type(candidate).__mro__):
        return False
    try:
        return not isinstance(as_target(candidate), FunctionKernel)
    except TritonKernelError:  # such as a kernel of Triton's without a decorator
        return False


def as_target(source: Any) -> Named:
    """The operation or the kernel in what a caller gives; KernelTypeError if it is neither, and no callable either."""
    source = getattr(source, "operation", source)  # of a chooser
    if isinstance(source, Operation):
        return source
    # Triton's own objects have `fn`, and have imported Triton, as what knows them does.
    operation = dispatch.operation_of(source) if hasattr(source, "fn") else None
    return FunctionKernel.as_kernel(source) if operation is None else operation


def kernel_in(target: Named) -> Kernel:
    """The kernel of an operation, or the kernel itself."""
    return target.kernel if isinstance(target, Operation) else target


def check_given(kernel: Kernel, stated: Mapping[str, Any]) -> None:
    """Check what a file states for a kernel, arguments or a config without a space: see `why_not_of_a_file`.

    The names of arguments may be of classes, as `NAME:class`.
    """
    plain = {name.partition(":")[0]: value for name, value in stated.items()}
    if why := why_not_of_a_file(plain, getattr(kernel, "parameter_names", ())):
        raise KernelTypeError(f"{kernel.name}: {why}", hint="give it in the space of an operation, and tune that")


def has_classes(problem: Mapping[str, Any]) -> bool:
    """True if a problem has only what a compiler specialises on, for some arguments, as those of decorated kernels."""
    return any(name.endswith(CLASS) for name in problem)


def specs_of(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A problem of a key as arguments by name, with a `TensorSpec` for each tensor; what is ignored is left out."""
    if has_classes(problem):
        raise KernelTypeError(
            "only the classes of its arguments are known: it is a decorated kernel, and its call could not be noted",
            hint="tune it where it is called, with on_miss='tune'",
        )
    return {name: Problem.from_plain(value) for name, value in problem.items() if value != {"any": True}}


def _declaration(name: str) -> Any:
    """The kernel that is declared under this name in a module of this process; None if nothing is.

    Neither a module nor a class is asked in a way that lets it answer with code of its own, such as a late import.
    """
    module, _, path = name.partition(":")
    value: Any = sys.modules.get(module)
    for depth, part in enumerate(path.split(".")):
        if value is None or (depth and not issubclass(type(value), type)):
            return None
        value = getattr_static(value, part, None)
    return value if is_declared(value) else None


def stand_ins(problem: Mapping[str, Any]) -> Arguments:
    """The arguments of a problem by name, with stand-ins for tensors; what is ignored is left out."""
    classes = {name.removesuffix(CLASS): text for name, text in problem.items() if name.endswith(CLASS)}
    plain = {name: value for name, value in problem.items() if not name.endswith(CLASS) and value != {"any": True}}
    arguments = {name: _argument(value, classes.get(name)) for name, value in plain.items()}
    arguments.update({name: _of_class(name, text) for name, text in classes.items() if name not in plain})
    return Arguments(keyword=arguments)


def specialised(problem: Mapping[str, Any], ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
    """The problem with one value of each kind that its ranges hold: 1, a multiple of 16, and another number.

    Kernels are compiled anew for these kinds, so that together the problems stand for all in the ranges.
    """
    for values in product(*map(_kinds, ranges)):
        extents = {name: value for each, value in zip(ranges, values, strict=True) for name in each.extents}
        yield with_extents(problem, extents)


def with_extents(problem: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The problem with other values of some extents; the strides of a row-major tensor follow its shape."""
    return {name: _replace_extents(name, argument, values) for name, argument in problem.items()}


def _replace_extents(name: str, argument: Any, values: Mapping[str, int]) -> Any:
    if not isinstance(argument, Mapping) or "shape" not in argument:
        return values.get(name, argument)
    shape = [values.get(f"{name}[{axis}]", extent) for axis, extent in enumerate(argument["shape"])]
    if shape == list(argument["shape"]):
        return argument
    row_major = argument["stride"][-1:] == [1]
    return {**argument, "shape": shape, "stride": [*contiguous_stride(shape)] if row_major else argument["stride"]}


def _argument(value: Any, kind: str | None) -> Any:
    if isinstance(value, str) and value.partition(" ")[0] in ITEM_BYTES and kind in ALIGNMENTS.values():
        dtype, _, shape = value.partition(" ")
        extents = tuple(int(extent) for extent in shape.split("x")) if shape else (KNOWN_MULTIPLE,)
        return StandIn.of(TensorSpec(extents, dtype, aligned=kind == ALIGNMENTS[True]))
    if isinstance(value, str) and kind is None and value in TYPES:
        return EXAMPLES[value]
    argument = Problem.from_plain(value)
    return StandIn.of(argument) if isinstance(argument, TensorSpec) else argument


def _of_class(name: str, text: Any) -> Any:
    """A value of a class, which is that of an integer, or a constant itself."""
    if text in ALIGNMENTS.values():
        raise KernelTypeError(f"{name} is a tensor of no known dtype", hint="call the kernel with its arguments")
    return EXAMPLES.get(text, text) if isinstance(text, str) else text


def _kinds(span: Range) -> list[int]:
    """The least value of each class in a range, of extents from 1 on."""
    low = max(span.low, 1)
    values = (-(-low // KNOWN_MULTIPLE) * KNOWN_MULTIPLE, low + 2, low + 1, low)
    # The least value of a class comes last, and so stays.
    least = {IntegerClass.of(value): value for value in values if value <= span.high}
    return sorted(least.values()) or [span.low]


UNREACHABLE = "no launch finds it"


@dataclass(frozen=True)
class BoundEntry:
    """An entry with its device, and with the operation or the kernel of its name."""

    entry: LockEntry
    device: LockedDevice
    target: Named

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return kernel_in(self.target)

    def is_on(self, device: DeviceSpec | None) -> bool:
        """True if the entry is of this device."""
        return device is not None and self.device.why_not(Key.facts_of(device)) is None

    @cached_property
    def specs(self) -> dict[str, Any] | None:
        """The arguments with specs for tensors; None where the entry has only their classes."""
        return None if has_classes(self.entry.problem) else specs_of(self.entry.problem)

    @cached_property
    def by_shape(self) -> dict[str, Any] | None:
        """Shape and dtype by which an operation makes the problem itself, with its values; None where it does not."""
        try:
            extents, *dtypes = self.entry.label.split()
            shape, dtype = tuple(map(int, extents.split("x"))), next(iter(dtypes), None)
            problem = self.target.problem(shape, dtype) if isinstance(self.target, Operation) else Problem("")
        except (ValueError, TritonKernelError):  # the label is for people, and may be anything
            return None
        plain = {name: Problem.plain(argument) for name, argument in problem.arguments}
        same = canonical_json(plain) == canonical_json(dict(self.entry.problem))
        return {"shape": shape, "dtype": dtype} if same else None

    @cached_property
    def space(self) -> ConfigSpace | None:
        """The config space of the problem; None for a kernel without one, SpaceError if it cannot be made."""
        if not isinstance(self.target, Operation):
            return None
        if self.specs is None or isinstance(self.target.space, ConfigSpace):
            return self.target.space if isinstance(self.target.space, ConfigSpace) else None
        problem = Problem(self.target.name, tuple(self.specs.items()), self.entry.label)
        try:
            return self.target.space_for(problem)
        except TritonKernelError:
            raise
        except Exception as error:  # the operation's own function, which an edited problem may not fit
            message = f"{self.target.name} has no space for this problem: {type(error).__name__}: {error}"
            raise SpaceError(message, hint="is an argument missing?") from error

    def at(self, values: Mapping[str, int]) -> BoundEntry:
        """The entry as it serves a problem with other values of the extents in its ranges."""
        return replace(self, entry=replace(self.entry, problem=with_extents(self.entry.problem, values), ranges=()))

    def why_invalid(self, lock: Lockfile) -> str | None:
        """The reason why the entry cannot be what a launch gets, as one sentence; None if it can."""
        try:
            unreachable, outside = self._why_unreachable(lock), self._why_outside_space()
            if reason := unreachable or outside:
                return reason
            check_given(self.kernel, self.entry.problem)
            if self.space is None:
                check_given(self.kernel, self.entry.config)
                check_given(self.kernel, self.entry.default or {})
            if self.specs is not None:
                self.kernel.check(self.entry.config, Arguments(keyword=self.specs))
        except TritonKernelError as error:
            return str(error)
        return None

    def compilers(self, target: Target) -> Iterator[tuple[Compiler, Callable[[Config], Executable]]]:
        """The compilers of every launch that the entry answers, one for each kind, and what loads a config of it."""
        members = {} if self.space is None else self.space.members
        kinds = set()
        for problem in specialised(self.entry.problem, self.entry.ranges):
            arguments = stand_ins(problem)
            compiler = Compiler.of(self.kernel, arguments, target, members)
            if compiler is not None and compiler.kind not in kinds:
                kinds.add(compiler.kind)
                yield compiler, partial(self._load, arguments)

    def _load(self, arguments: Arguments, config: Config) -> Executable:
        members = {} if self.space is None else self.space.members
        return self.kernel.compile(config.with_members(members), arguments)

    def _why_unreachable(self, lock: Lockfile) -> str | None:
        if parts := Key.changes_since(self.entry.identity, self.kernel.identity):
            return f"{UNREACHABLE}: the kernel's {' and '.join(parts)} changed since"
        if (pinned := lock.find(self.key_on())) is None:
            return f"{UNREACHABLE}: {lock.why_not(self.key_on())}"
        if pinned.entry != self.entry:
            return f"{UNREACHABLE}: the entry of {pinned.entry.label or pinned.entry.problem} comes first"
        return None

    def _why_outside_space(self) -> str | None:
        """The reason, at its own problem or an end of one of its ranges, with its own values of all other extents."""
        ends = ((each.extents, value) for each in self.entry.ranges for value in dict.fromkeys((each.low, each.high)))
        for place in (self, *(self.at(dict.fromkeys(*end)) for end in ends)):
            reason = None if place.space is None else place.space.why_not(self.entry.config)
            if reason is not None:
                where = "" if place is self else f" at {place.extents_text(self)}"
                return f"its config ({self.entry.config}) is not in the space{where}: {reason}"
        return None

    def extents_text(self, other: BoundEntry) -> str:
        """The extents that differ from those of another one, as `M=17`."""
        mine, theirs = Mapper.extents_of(self.entry.problem), Mapper.extents_of(other.entry.problem)
        return ", ".join(f"{name}={value}" for name, value in mine.items() if theirs.get(name) != value)

    def key_on(self, here: DeviceSpec | None = None) -> Key:
        """The key of a launch on a device that is here; None is the entry's own."""
        entry, names = self.entry, ("kind", "name", "arch", "units", "threads")
        own = {**{name: getattr(self.device, name) for name in names}, "driver": entry.origin.driver}
        problem, identity = dict(entry.problem), dict(self.kernel.identity)
        device = own if here is None else Key.facts_of(here)
        return Key(kernel=entry.kernel, problem=problem, identity=identity, device=device, cache_state="cold")


def bound(
    lock: Lockfile, targets: Targets, kernel: str | None = None
) -> Iterator[tuple[LockEntry, BoundEntry | TritonKernelError]]:
    """The entries of a lockfile, those of one kernel if it is named, each with its kernel or why that is not found."""
    devices = {device.alias: device for device in lock.devices}
    for entry in lock.entries:
        if kernel is None or entry.kernel == kernel:
            try:
                yield entry, BoundEntry(entry, devices[entry.device], targets.find(entry.kernel))
            except TritonKernelError as error:
                yield entry, error


def target_for(device: LockedDevice, here: DeviceSpec | None) -> Target:
    """The target of a device: with its limits, where the device is this one or the table has it; else DeviceError."""
    spec = here or DeviceSpec.named(device.name)
    if spec is not None and spec.kind == device.kind:
        return Target.of(spec)
    return Target.named(device.arch or device.kind)
