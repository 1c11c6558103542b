"""An entry of a lockfile with the kernel that it names: what can be said of it without launching anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from triton_ops.backend import AheadOfTime, Arguments, Compilable, CompilesAhead, Kernel, Operation
from triton_ops.device import DeviceSpec, Target, named_target, spec_named, target_of
from triton_ops.exceptions import SpaceError, TritonKernelError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.ship.stand_ins import kind_of, specialised, stand_ins, with_extents
from triton_ops.ship.targets import Targets, check_named, kernel_in
from triton_ops.space import ConfigSpace
from triton_ops.values import Key, Problem, extents_of, from_plain

UNREACHABLE = "no launch finds it"


@dataclass(frozen=True)
class Bound:
    """An entry with its kernel.

    Attributes:
        entry: The entry.
        device: Its device.
        target: The operation or the kernel of its name.
    """

    entry: LockEntry
    device: LockedDevice
    target: Operation | Kernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return kernel_in(self.target)

    @cached_property
    def specs(self) -> dict[str, Any] | None:
        """The arguments with specs for tensors; None where the entry has only their classes."""
        if any(name.endswith(":class") for name in self.entry.problem):
            return None
        plain = {name: value for name, value in self.entry.problem.items() if value != {"any": True}}
        return {name: from_plain(value) for name, value in plain.items()}

    @cached_property
    def space(self) -> ConfigSpace | None:
        """The config space of the problem; None for a kernel without one.

        Raises:
            SpaceError: The operation cannot make one for this problem.
        """
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

    def at(self, values: Mapping[str, int]) -> Bound:
        """The entry as it serves a problem with other values of the extents in its ranges."""
        return replace(self, entry=replace(self.entry, problem=with_extents(self.entry.problem, values), ranges=()))

    def ends(self) -> Iterator[Bound]:
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

    @property
    def ahead(self) -> Compilable | None:
        """The kernel as it is compiled without a device; None if there is nothing to compile."""
        return self.kernel.compiled_ahead if isinstance(self.kernel, CompilesAhead) else None

    def programs(self, target: Target) -> Iterator[tuple[AheadOfTime, tuple[Any, ...]]]:
        """The kernels to compile for every launch that the entry answers, each with what tells its code from others.

        Raises:
            KernelTypeError: The arguments cannot be made.
        """
        ahead = self.ahead
        if ahead is None:
            return
        by_value = bool(ahead.compile_imports) or ahead.parsed is None
        constants = {param.name for param in getattr(ahead.parsed, "params", ()) if param.is_constexpr}
        members = {} if self.space is None else self.space.members
        kinds = set()
        for problem in specialised(self.entry.problem, self.entry.ranges):
            arguments = stand_ins(problem)
            kind = kind_of(arguments, by_value)
            fixed = tuple((name, value) for name, value in arguments.keyword.items() if name in constants)
            if (kind, fixed) not in kinds:
                kinds.add((kind, fixed))
                yield AheadOfTime(ahead, arguments, target, members), (self.kernel.name, kind, fixed)

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

    def extents_text(self, other: Bound) -> str:
        """The extents that differ from those of another one, as `M=17`."""
        mine, theirs = extents_of(self.entry.problem), extents_of(other.entry.problem)
        return ", ".join(f"{name}={value}" for name, value in mine.items() if theirs.get(name) != value)

    def _key(self) -> Key:
        """The key of a launch of the very problem on the very device."""
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
) -> Iterator[tuple[LockEntry, Bound | TritonKernelError]]:
    """The entries of a lockfile, those of one kernel if it is named, each with its kernel or why that is not found."""
    devices = {device.alias: device for device in lock.devices}
    for entry in lock.entries:
        if kernel is None or entry.kernel == kernel:
            try:
                yield entry, Bound(entry, devices[entry.device], targets.find(entry.kernel))
            except TritonKernelError as error:
                yield entry, error


def target_for(device: LockedDevice, here: DeviceSpec | None) -> Target:
    """The target of a device: with its limits, where the device is this one or the table has it.

    Raises:
        DeviceError: It is no GPU, or its architecture is not known.
    """
    spec = here or spec_named(device.name)
    if spec is not None and spec.kind == device.kind:
        return target_of(spec)
    return named_target(device.arch or device.kind)
