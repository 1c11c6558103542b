"""An entry of a lockfile with the kernel that it names: what can be said of it without launching anything.

A key has either every argument (shapes, strides, numbers), or, as those of decorated kernels, the dtype of a tensor and
under `NAME:class` what the compiler specialises on. Both are enough to compile, and neither needs a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

from triton_ops.backend import Arguments, Compiler, Executable, Kernel, Operation, StandIn
from triton_ops.device import DeviceSpec, Target
from triton_ops.exceptions import KernelTypeError, SpaceError, TritonKernelError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.ship.targets import Targets, check_named, has_classes, kernel_in, specs_of
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import ITEM_BYTES, Key, Mapper, Problem, Range, TensorSpec, contiguous_stride

_CLASS = ":class"
_STEP = 16  # Triton specialises integers on being 1, or a multiple of this
_WIDE = 1 << 40  # a multiple of 16 that needs 64 bits
_INTEGERS = {"1": 1, "a multiple of 16": _STEP, "no multiple of 16": _STEP + 1}
_OTHERS: dict[str, Any] = {"float": 0.5, "bool": True, "NoneType": None}


def stand_ins(problem: Mapping[str, Any]) -> Arguments:
    """The arguments of a problem by name, with stand-ins for tensors; what is ignored is left out."""
    classes = {name.removesuffix(_CLASS): text for name, text in problem.items() if name.endswith(_CLASS)}
    plain = {name: value for name, value in problem.items() if not name.endswith(_CLASS) and value != {"any": True}}
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
    if isinstance(value, str) and value.partition(" ")[0] in ITEM_BYTES and kind in ("aligned", "not aligned"):
        dtype, _, shape = value.partition(" ")
        extents = tuple(int(extent) for extent in shape.split("x")) if shape else (_STEP,)
        return StandIn.of(TensorSpec(extents, dtype, aligned=kind == "aligned"))
    if isinstance(value, str) and kind is None and value in _OTHERS:
        return _OTHERS[value]
    argument = Problem.from_plain(value)
    return StandIn.of(argument) if isinstance(argument, TensorSpec) else argument


def _of_class(name: str, text: Any) -> Any:
    """A value of a class, which is that of an integer, or a constant itself."""
    if not isinstance(text, str):
        return text
    narrow = text.removesuffix(" of 64 bits")
    if narrow in _INTEGERS:
        return _INTEGERS[narrow] + (_WIDE if narrow != text else 0)
    if text in ("aligned", "not aligned"):
        raise KernelTypeError(f"{name} is a tensor of no known dtype", hint="call the kernel with its arguments")
    return _OTHERS.get(text, text)


def _kinds(span: Range) -> list[int]:
    multiple = -(-span.low // _STEP) * _STEP or _STEP
    values = {span.low if span.low == 1 else None, multiple if multiple <= span.high else None}
    other = next((v for v in range(span.low, min(span.high, span.low + 2) + 1) if v > 1 and v % _STEP), None)
    return sorted(value for value in {*values, other} if value is not None) or [span.low]


UNREACHABLE = "no launch finds it"


@dataclass(frozen=True)
class BoundEntry:
    """An entry with its device, and with the operation or the kernel of its name."""

    entry: LockEntry
    device: LockedDevice
    target: Operation | Kernel

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
            raise SpaceError(
                f"{self.target.name} has no space for this problem: {type(error).__name__}: {error}",
                hint="is an argument missing?",
            ) from error

    def at(self, values: Mapping[str, int]) -> BoundEntry:
        """The entry as it serves a problem with other values of the extents in its ranges."""
        return replace(self, entry=replace(self.entry, problem=with_extents(self.entry.problem, values), ranges=()))

    def ends(self) -> Iterator[BoundEntry]:
        """The entry at both ends of each of its ranges, with its own values of all other extents."""
        for each in self.entry.ranges:
            yield from (self.at(dict.fromkeys(each.extents, value)) for value in {each.low: 0, each.high: 0})

    def why_invalid(self, lock: Lockfile) -> str | None:
        """The reason why the entry cannot be what a launch gets, as one sentence; None if it can."""
        try:
            for reason in (self._why_unreachable(lock), self._why_outside_space()):
                if reason is not None:
                    return reason
            own = (*self.entry.config, *(self.entry.default or ())) if self.space is None else ()
            check_named(self.kernel, [*self.entry.problem, *own])
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
        source = {name: text for name, text in self.kernel.identity.items() if name in self.entry.source}
        parts = [name for name, text in self.entry.source.items() if source.get(name) != text]
        if parts:
            return f"{UNREACHABLE}: the kernel's {' and '.join(parts)} changed since"
        pinned = lock.find(self._key())
        if pinned is None:
            return f"{UNREACHABLE}: {lock.why_not(self._key())}"
        if pinned.entry != self.entry:
            return f"{UNREACHABLE}: the entry of {pinned.entry.label or pinned.entry.problem} comes first"
        return None

    def _why_outside_space(self) -> str | None:
        if self.space is None:
            return None
        for place in (self, *self.ends()):
            reason = None if place.space is None else place.space.why_not(self.entry.config)
            if reason is not None:
                where = "" if place is self else f" at {place.extents_text(self)}"
                return f"its config ({self.entry.config}) is not in the space{where}: {reason}"
        return None

    def extents_text(self, other: BoundEntry) -> str:
        """The extents that differ from those of another one, as `M=17`."""
        mine, theirs = Mapper.extents_of(self.entry.problem), Mapper.extents_of(other.entry.problem)
        return ", ".join(f"{name}={value}" for name, value in mine.items() if theirs.get(name) != value)

    def _key(self) -> Key:
        device, entry = self.device, self.entry
        where = {"kind": device.kind, "name": device.name, "arch": device.arch, "units": device.units}
        where |= {} if device.threads is None else {"threads": device.threads}
        return Key(
            kernel=entry.kernel,
            problem=dict(entry.problem),
            identity=dict(self.kernel.identity),
            device={**where, "driver": entry.origin.driver},
            cache_state="cold",
        )


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
