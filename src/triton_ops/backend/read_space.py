"""The space of configs that a kernel has by itself, where nobody has written a list.

Which constants are tiles, the source says; how large they may be, extents of the problem and limits of the device say;
which of them a grid can follow, the grid itself says, asked with several values. What is left alone has a reason each.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triton_ops.backend.constant_roles import ConstantRole, SourceRoles
from triton_ops.backend.kernel_source import KernelSource
from triton_ops.backend.origins import Layers, heuristics
from triton_ops.device import Target
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, PowerOfTwo, Tunable

_STAND_IN = "sm_90"  # where no device is named
_PRODUCT_SIDES = {
    "m": (16, 256, 64),
    "n": (16, 256, 64),
    "k": (16, 128, 32),
}  # least, largest, and the one to begin with
_LONE = (64, 16384, 1024)  # of a kernel with one tile
_AMONG = (1, 1024, 32)  # of one with several
_LEAST_DOT = 16  # the least side that `tl.dot` takes
_MOST_ELEMENTS = 32768  # of a block that no product makes
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
_OTHER_KINDS = {"group": ((1, 2, 4, 6, 8, 12, 16), 8), **dict.fromkeys(("split", "count", "programs"), (_COUNTS, 1))}
_LOOP_OPTIONS = {"num_stages": ((1, 2, 3, 4, 5), 2), "loop_unroll_factor": ((1, 2, 4), 1)}
_ALONE = {
    "num_ctas": "programs of one cluster share nothing that this kernel loads",
    "maxnreg": "num_warps divides the same registers",
}
_WORD_BYTES = 4


@dataclass(frozen=True)
class ReadSpace:
    """The space of a kernel for one problem and device, as it was read.

    Attributes:
        tunables: The constants that are searched, with their values.
        options: The launch options that are searched, with their values.
        derived: The constants that follow from the problem, each with its value, None where the extent is not known.
        reasons: Why each tunable, option or derived constant is one.
        meaning: Why each other constant, or launch option, is left alone.
        constraints: The rules that configs must keep.
        first: The config to begin with.
        grid: What the grid says against tuning; empty if nothing.
    """

    tunables: Mapping[str, Tunable]
    options: Mapping[str, Tunable]
    derived: Mapping[str, int | None]
    reasons: Mapping[str, str]
    meaning: Mapping[str, str]
    constraints: tuple[Constraint, ...]
    first: Config
    grid: tuple[str, ...] = ()

    @cached_property
    def space(self) -> ConfigSpace:
        """The space, in which a derived constant has its one value."""
        fixed = {name: Choice([value]) for name, value in self.derived.items() if value is not None}
        space = ConfigSpace({**self.tunables, **fixed, **self.options}, self.constraints)
        first = Config({**space.first_config(), **self.first})
        return space if space.why_not(first) else ConfigSpace(space.tunables, self.constraints, first)

    @classmethod
    def of(
        cls,
        kernel: Any,
        values: Mapping[str, Any],
        device: Any = None,
        *,
        grid: Any = None,
        fixed: Collection[str] = (),
    ) -> ReadSpace:
        """Read the space of a JIT function; some milliseconds, and nothing is compiled.

        Args:
            kernel: The JIT function, with its decorators or without.
            values: The arguments that are known, by name: tensors or their specs, and numbers.
            device: A `DeviceSpec` or a `Target`; None assumes an sm_90.
            grid: The author's grid, a tuple or a function of all arguments and constants; None if it is not known.
            fixed: Constants that the call gives, which are left alone.

        Raises:
            KernelTypeError: The kernel's source cannot be read.
        """
        inner = Layers.of(kernel)[-1]
        source = KernelSource.of(inner)
        if source is None:
            raise KernelTypeError(
                f"the source of {getattr(inner, '__name__', inner)} cannot be read, so that its space is not known",
                hint='give the space: a list of configs, or {"BLOCK": [64, 128]}',
            )
        target = (
            device if isinstance(device, Target) else Target.named(_STAND_IN) if device is None else Target.of(device)
        )
        return _Reading(
            source, SourceRoles.of(source), dict(values), target, grid, {*fixed}, heuristics(kernel)
        ).result()


@dataclass
class _Reading:
    """One reading, whose results grow."""

    source: KernelSource
    roles: SourceRoles
    values: dict[str, Any]
    target: Target
    grid: Any
    fixed: set[str]
    computed: set[str]
    tunables: dict[str, Tunable] = field(default_factory=dict)
    derived: dict[str, int | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    meaning: dict[str, str] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    grid_says: list[str] = field(default_factory=list)

    def result(self) -> ReadSpace:
        for role in self.roles.roles.values():
            self._take(role)
        self._ask_grid()
        options = self._launch_options()
        return ReadSpace(
            self.tunables, options, self.derived, self.reasons, self.meaning, tuple(self._constraints(options)),
            Config(self.first), tuple(self.grid_says),
        )  # fmt: skip

    def _take(self, role: ConstantRole) -> None:
        name = role.name
        if name in self.computed:
            self.meaning[name] = "the kernel's heuristics compute it"
        elif name in self.fixed:
            self.meaning[name] = "the call gives it"
        elif role.kind == "meaning" or (role.doubt and not self._is_open(name)):
            self.meaning[name] = role.doubt or role.reason
        elif role.kind == "derived":
            extent = self._extent(role)
            self.derived[name] = None if extent is None else 1 << max(extent - 1, 0).bit_length()
            self.reasons[name] = role.reason
        else:
            self.tunables[name], self.first[name] = self._values(role)
            self.reasons[name] = f"{role.reason}; results must agree: {role.doubt}" if role.doubt else role.reason

    def _is_open(self, name: str) -> bool:
        """Tell whether a constant has no value from the call, by default or by heuristics: a launch needs one."""
        return name not in {*self.values, *self.source.defaults, *self.fixed, *self.computed}

    def _extent(self, role: ConstantRole) -> int | None:
        numbers = [value for name in role.extents if type(value := self.values.get(name)) is int]
        return max(numbers, default=None)

    def _values(self, role: ConstantRole) -> tuple[Tunable, Any]:
        if role.kind in _OTHER_KINDS:
            values, first = _OTHER_KINDS[role.kind]
            return Tunable(values, ordered=True), first
        if role.kind == "option":
            if role.option in _LOOP_OPTIONS:
                values, first = _LOOP_OPTIONS[role.option]
                return Tunable(values, ordered=True), first
            return Flag(), False
        least, most, first = self._sides(role)
        extent = self._extent(role)
        if extent is not None:
            most = max(min(most, 1 << max(extent - 1, 0).bit_length()), least)
            exact = [side for side in PowerOfTwo(least, most) if extent % int(str(side)) == 0]
            if not role.masked and exact:
                return Tunable(tuple(exact), ordered=True), max((n for n in exact if n <= first), default=exact[0])  # type: ignore[type-var,operator]
        return PowerOfTwo(least, most), min(max(first, least), most)

    def _sides(self, role: ConstantRole) -> tuple[int, int, int]:
        sides = [_PRODUCT_SIDES[axis] for axis in sorted(role.axes)]
        if sides:
            return max(s[0] for s in sides), max(s[1] for s in sides), max(s[2] for s in sides)
        tiles = [one for one in self.roles.roles.values() if one.kind in ("tile", "derived")]
        return _AMONG if len(tiles) > 1 else _LONE

    def _ask_grid(self) -> None:
        """Leave those tiles alone whose number the grid does not follow."""
        for role in self.roles.roles.values():
            if role.by_grid and role.name in self.tunables and self.grid is not None:
                grids = [self._grid_with(role.name, value) for value in self.tunables[role.name]]
                if None not in grids and len({*grids}) == 1 and len(grids) > 1:
                    how = "ignores it" if callable(self.grid) else "is fixed numbers"
                    self.grid_says.append(f"{role.name} decides how many programs there must be, and the grid {how}")
                    self.meaning[role.name] = self.grid_says[-1]
                    del self.tunables[role.name], self.first[role.name], self.reasons[role.name]

    def _grid_with(self, name: str, value: Any) -> tuple[int, ...] | None:
        meta = {**self.source.defaults, **{n: v for n, v in self.derived.items() if v}, **self.first, **self.values}
        try:
            grid = self.grid({**meta, name: value}) if callable(self.grid) else self.grid
            return tuple(int(extent) for extent in grid)
        except Exception:  # noqa: BLE001 - the caller's own function, of what is not all known here
            return None

    def _launch_options(self) -> dict[str, Tunable]:
        options: dict[str, Tunable] = {}
        widest = max((value or 0 for value in self.derived.values()), default=0)
        warps = (2, 4, 8) if self.roles.products else (1, 2, 4, 8, 16) if widest < _LONE[1] // 2 else (4, 8, 16, 32)
        if "num_warps" not in self.source.own_names:
            most = self.target.threads_per_block // self.target.warp_size
            options["num_warps"] = Tunable(tuple(n for n in warps if n <= most), ordered=True)
            self.reasons["num_warps"] = "divides a block's elements among threads"
        if "num_stages" in self.source.own_names:
            pass
        elif self.roles.loops:
            options["num_stages"] = Tunable((2, 3, 4, 5) if self.roles.products else (1, 2, 3, 4), ordered=True)
            self.reasons["num_stages"] = "a loop loads: its loads run ahead"
        else:
            self.meaning["num_stages"] = "no loop loads, so that nothing runs ahead"
        self.meaning.update({name: why for name, why in _ALONE.items() if name not in self.source.own_names})
        return options

    def _constraints(self, options: Mapping[str, Tunable]) -> Iterator[Constraint]:
        names = {*self.tunables, *options}
        for large, small in sorted(self.roles.ties):
            if large in names and small in names:
                reason = f"the loop that steps by {small} ends at multiples of {large}: {{{large}}} and {{{small}}}"
                yield _constraint(f"{large}_by_{small}", (large, small), _divides, reason)
        yield from self._block_limits()

    def _block_limits(self) -> Iterator[Constraint]:
        tiles = tuple(name for name in self.tunables if self.roles.roles[name].kind == "tile")
        if not self.roles.products and len(tiles) > 1:
            known = math.prod(value or 1 for value in self.derived.values())

            def fits(values: Mapping[str, Any]) -> bool:
                return bool(math.prod(values.values()) * known <= _MOST_ELEMENTS)

            yield _constraint("elements", tiles, fits, f"a block of more than {_MOST_ELEMENTS:,} elements spills")


def _divides(values: Mapping[str, Any]) -> bool:
    large, small = values.values()
    return int(large) % int(small) == 0


def _constraint(name: str, names: tuple[str, ...], holds: Callable[[dict[str, Any]], bool], reason: str) -> Constraint:
    """A constraint over tunables whose names are known only here."""

    def predicate(**values: Any) -> bool:
        return holds({each: values[each] for each in names})

    parameters = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in names]
    predicate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Constraint(name, predicate, reason)
