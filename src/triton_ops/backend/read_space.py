"""The space of configs that a kernel has by itself, where nobody has written a list.

Which constants are tiles, the source says; how large they may be, extents of the problem and limits of the device say;
which of them a grid can follow, the grid itself says, asked with several values. What is left alone has a reason each.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from triton_ops.backend.constant_roles import NUMBERED, ConstantRole, SourceRoles
from triton_ops.backend.kernel_source import KernelSource, blocks_of, is_false
from triton_ops.backend.origins import Layers
from triton_ops.backend.roles import Arguments
from triton_ops.backend.rules import RULES, RuleInput
from triton_ops.base import cached_property
from triton_ops.device import Target
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Tunable
from triton_ops.values import ITEM_BYTES, TensorSpec

_SIDES = (16, 256, 64)  # of tiles that are multiplied: the least, the largest, and the one to begin with
_JOINED = (1, 256, 8)  # likewise, of tiles whose product is such a side, as rows and columns of pixels are
_LONE, _AMONG = (64, 32768, 1024), (1, 1024, 32)  # likewise, of the one tile of a kernel, and of one of several
_FEW_SIDES = 3  # of a tile that lies in a part of a tensor: with fewer, those below the least are taken as well
_MOST_ELEMENTS, _MOST_EACH = 65536, 256  # of a block that no product makes, and of each thread
_COUNTS = ((1, 2, 3, 4, 6, 8, 12, 16), 1)
_VALUES: dict[str, tuple[tuple[int, ...], int]] = {
    "group": ((1, 2, 4, 6, 8, 12, 16), 8), "num_stages": ((1, 2, 3, 4, 5), 2), "loop_unroll_factor": ((1, 2, 4), 1),
    **dict.fromkeys(("split", "count", "programs"), _COUNTS),
    **dict.fromkeys(("option", "flag"), ((False, True), False)),
}  # fmt: skip
"""The values of constants that size no block, and the first of them, by an option's name or the role."""
_ALONE = {
    "num_ctas": "a kernel must be written for clusters of programs; who knows it to be names it",
    "maxnreg": "on NVIDIA's devices the fastest configs are tried with the limits beside the registers that they have",
}
_USUAL = {"num_warps": 4, "num_stages": 3}  # what Triton takes where a launch has none
_WIDE = 8192  # elements of a row, above which one warp has too many


class ReadSpace:
    """The space of a kernel for one problem and device, as it was read by `of`.

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

    def __init__(
        self, source: KernelSource, values: Mapping[str, object], target: Target, grid: Any, computed: Collection[str]
    ) -> None:
        self._source, self._values, self._target, self._computed = source, values, target, computed
        self._roles = SourceRoles.of(source)
        self.tunables: dict[str, Tunable] = {}
        self.derived: dict[str, int | None] = {}
        self.reasons: dict[str, str] = {}
        self.meaning: dict[str, str] = {}
        self.grid: tuple[str, ...] = ()
        self.first: dict[str, Any] = {}
        for role in self._roles.roles.values():
            self._take(role)
        self._ask(grid)
        self.options = self._launch_options()
        entries = {**self.tunables, **self.options}
        # A rule that every config breaks, as of a row that no block should have whole, leaves nothing to choose from.
        self.constraints = tuple(rule for rule in self._rules() if any(
            rule.kept_by(dict(zip(rule.names, row, strict=True)))
            for row in itertools.product(*(entries[name] for name in rule.names))
        ))  # fmt: skip

    @cached_property
    def space(self) -> ConfigSpace:
        """The space, in which a derived constant has its one value."""
        fixed = {name: Choice([value]) for name, value in self.derived.items() if value is not None}
        space = ConfigSpace({**self.tunables, **fixed, **self.options}, self.constraints)
        first = Config({**space.first_config(), **self.first})
        return space if space.why_not(first) else ConfigSpace(space.tunables, self.constraints, first)

    @property
    def limits_registers(self) -> bool:
        """Tell whether configs may limit registers: neither the kernel nor the call has a constant of that name."""
        return "maxnreg" not in self._source.own_names and "maxnreg" not in self._values

    @classmethod
    def of(cls, kernel: Any, values: Mapping[str, Any], device: Any = None, *, grid: Any = None) -> ReadSpace:
        """Read the space of a JIT function; some milliseconds, and nothing is compiled.

        Args:
            kernel: The JIT function, with its decorators or without.
            values: Known arguments by name: tensors or their specs, and numbers; constants among them are left alone.
            device: A `DeviceSpec` or a `Target`; None assumes an sm_90.
            grid: The author's grid, a tuple or a function of all arguments and constants; None if it is not known.

        Raises:
            KernelTypeError: The kernel's source cannot be read.
        """
        inner = Layers.of(kernel)[-1]
        if (source := KernelSource.of(inner)) is None:
            raise KernelTypeError(
                f"the source of {getattr(inner, '__name__', inner)} cannot be read, so that its space is not known",
                hint='give the space: a list of configs, or {"BLOCK": [64, 128]}',
            )
        target = Target.named("sm_90") if device is None else device
        target = target if isinstance(target, Target) else Target.of(target)
        return cls(source, values, target, grid, Layers.heuristics(kernel))

    def _take(self, role: ConstantRole) -> None:
        name = role.name
        if name in self._computed:
            self.meaning[name] = "the kernel's heuristics compute it"
        elif role.kind == "meaning" or (role.doubt and not self._is_open(role)):
            self.meaning[name] = role.doubt or role.reason
        elif name in self._values:
            self.meaning[name] = f"the call gives it; without that, {role.reason}"
        elif role.kind == "derived":
            extent = self._extent(role)
            self.derived[name] = None if extent is None else _padded(extent)
            self.reasons[name] = role.reason
        else:
            self.tunables[name], self.first[name] = self._values_of(role)
            bound = (
                f", and {'divides' if within else 'is a multiple of'} {part}" for within, part, _ in self._parts(name)
            )
            reason = "".join((role.reason, *(bound if role.kind == "tile" else ())))
            self.reasons[name] = f"{reason}; results must agree: {role.doubt}" if role.doubt else reason

    def _is_open(self, role: ConstantRole) -> bool:
        """Tell whether runs may decide a doubt: a launch needs a value, and nobody has given one."""
        # With equal numbers in the tensor that tiles number, such as scales of one, results agree by chance.
        return role.doubt != NUMBERED and role.name not in {*self._values, *self._source.defaults}

    def _extent(self, role: ConstantRole) -> int | None:
        return max((value for name in role.extents if type(value := self._values.get(name)) is int), default=None)

    def _values_of(self, role: ConstantRole) -> tuple[Tunable, object]:
        if role.kind != "tile":
            values, first = _VALUES.get(role.option) or _VALUES[role.kind]
            return Tunable(values, ordered=role.kind not in ("option", "flag") or role.option in _VALUES), first
        sized = [one for one in self._roles.roles.values() if one.kind in ("tile", "derived")]
        least, most, first = _LONE if len(sized) < 2 else _AMONG
        if self._roles.products:
            least, most, first = _JOINED if role.joined else _SIDES
        if self._roles.products and role.in_loop and self._item_bytes == 1:
            least *= 2  # Triton adds up 32 bytes at least
        extent = self._extent(role)
        most = most if extent is None else max(min(most, _padded(extent)), least)
        sides = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
        smaller = [] if self._roles.products else [1 << power for power in range(least.bit_length() - 1)]
        kept = self._in_parts(role.name, sides)
        if len(kept) < min(len(sides), _FEW_SIDES):
            kept = self._in_parts(role.name, smaller) + kept
        sides = kept or sides
        if extent is not None and not role.masked:
            sides = [side for side in sides if extent % side == 0] or sides
        return Tunable(tuple(sides), ordered=True), max((side for side in sides if side <= first), default=sides[0])

    def _in_parts(self, name: str, sides: Sequence[int]) -> list[int]:
        """The sides of a tile that divide the parts of a tensor in which it must lie, or are multiples of its parts."""
        for is_within, _, extent in self._parts(name):
            sides = [side for side in sides if (extent % side if is_within else side % extent) == 0]
        return [*sides]

    def _parts(self, name: str) -> Iterator[tuple[bool, str, int]]:
        """The parts of a tensor in which a tile lies, and then those that it has, with their extents if known."""
        tuned = {role.name for role in self._roles.roles.values() if role.kind != "meaning"}  # unless the call gives it
        known = {name: value for name, value in self._source.defaults.items() if name not in tuned} | {**self._values}
        for parts in (self._roles.within, self._roles.whole):
            for part in sorted(part for tile, part in parts if tile == name):
                extent = int(part) if part.isdigit() else known.get(part)
                if type(extent) is int and extent > 0:
                    yield parts is self._roles.within, part, extent

    def _ask(self, grid: object) -> None:
        """Leave those tiles alone whose number the grid does not follow; a small problem is one program with any."""
        for role in self._roles.roles.values():
            if role.by_grid and role.name in self.tunables and grid is not None:
                grids = [self._grid_with(grid, role.name, value) for value in self.tunables[role.name]]
                if not role.masked:
                    self._keep_exact(role.name, grid)
                is_one = callable(grid) and not {*(grids[0] or ())} - {1}
                if None not in grids and len({*grids}) == 1 and len(grids) > 1 and not is_one:
                    how = "ignores it" if callable(grid) else "is fixed numbers"
                    self.grid += (f"{role.name} decides how many programs there must be, and the grid {how}",)
                    self.meaning[role.name] = self.grid[-1]
                    del self.tunables[role.name], self.first[role.name], self.reasons[role.name]

    def _keep_exact(self, name: str, grid: object) -> None:
        """Keep the sides of a tile without a mask that divide what the grid covers: others would reach beyond it."""
        sides = {side: self._grid_with(grid, name, side) for side in self.tunables[name] if isinstance(side, int)}
        whole = math.prod(self._grid_with(grid, name, 1) or ())
        exact = [side for side, extents in sides.items() if extents and math.prod(extents) * side == whole]
        if len(exact) > 1:
            self.tunables[name] = Tunable(tuple(exact), ordered=True)
            self.first[name] = max((side for side in exact if side <= self.first[name]), default=exact[0])

    def _grid_with(self, grid: Any, name: str, value: Any) -> tuple[int, ...] | None:
        meta = {**self._source.defaults, **{n: v for n, v in self.derived.items() if v}, **self.first, **self._values}
        try:
            return tuple(int(extent) for extent in (grid({**meta, name: value}) if callable(grid) else grid))
        except Exception:  # noqa: BLE001 - the caller's own function, of what is not all known here
            return None

    def _launch_options(self) -> dict[str, Tunable]:
        warps = (2, 4, 8) if self._roles.products else (1, 2, 4, 8, 16, 32) if self._whole <= _WIDE else (4, 8, 16, 32)
        most = self._target.threads_per_block // self._target.warp_size
        values = {"num_warps": tuple(number for number in warps if number <= most)}
        reasons = {"num_warps": "it divides the elements of a block among threads"}
        if self._roles.loops:
            values["num_stages"] = (2, 3, 4, 5, 6) if self._roles.products else (1, 2, 3, 4)
            reasons["num_stages"] = "a loop loads: its loads run ahead"
        alone = _ALONE | ({} if self._roles.loops else {"num_stages": "no loop loads, so that nothing runs ahead"})
        self.meaning |= {name: why for name, why in alone.items() if name not in self._source.own_names}
        values = {name: numbers for name, numbers in values.items() if name not in self._source.own_names}
        self.reasons |= {name: reasons[name] for name in values}
        self.first |= {name: _USUAL[name] for name in values if _USUAL[name] in values[name]}
        return {name: Tunable(numbers, ordered=True) for name, numbers in values.items()}

    def _rules(self) -> Iterator[Constraint]:
        names = {*self.tunables, *self.options}
        for large, small in sorted(self._roles.ties | self._roles.whole):
            if large in names and small in names:
                reason = f"the loop that steps by {small}, {{{small}}}, ends at multiples of {large}, {{{large}}}"
                if (large, small) not in self._roles.ties:
                    reason = f"{large}, {{{large}}}, is divided into whole parts of {small}, {{{small}}}"
                yield Constraint(f"{large}_by_{small}", _divides, reason, names=(large, small))
        for number, node in enumerate(self._roles.asserts, 1):
            own = tuple(sorted(names & {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}))
            if own:
                reason = f"the kernel asserts that {ast.unparse(node)}"
                yield Constraint(f"assert_{number}", partial(self._is_kept, node), reason, names=own)
        if tiles := tuple(name for name in self.tunables if self._roles.roles[name].kind == "tile"):
            yield from self._limits(tiles)

    def _limits(self, tiles: tuple[str, ...]) -> Iterator[Constraint]:
        limited = (*tiles, *({"num_warps"} & self.options.keys()))
        yield Constraint("limits", self._is_within_limits, "a block is over the limits of the device", names=limited)
        if self._roles.products:
            staged = (*tiles, *({"num_stages"} & self.options.keys()))
            over = f"the operands of a product take over {self._target.shared_bytes_per_block:,} bytes of shared memory"
            yield Constraint("shared", self._fits_shared, over, names=staged)
            if any(self._roles.roles[name].joined for name in tiles):
                under = f"a side of a product is under {_SIDES[0]}"
                yield Constraint("sides", self._has_sides, under, names=tiles)
        elif len(tiles) > 1 or self._whole > 1:
            fewer = f"a block of more than {_MOST_ELEMENTS:,} elements, or {_MOST_EACH} for each thread, spills"
            yield Constraint("elements", self._has_few_elements, fewer, names=limited)

    def _is_kept(self, assertion: ast.expr, /, **values: object) -> bool:
        return not is_false(self._source, assertion, {**self._known, **values})

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The values of constants and numbers that the problem decides."""
        return {**self._values, **{name: value for name, value in self.derived.items() if value is not None}}

    def _is_within_limits(self, **values: Any) -> bool:
        """Ask the free rules of the compiler, which know of threads, ranges, accumulators and too wide tiles."""
        blocks = blocks_of(self._source.function, {**self._known, **values})
        facts = RuleInput(self._target, blocks, values.get("num_warps", _USUAL["num_warps"]))
        return all(rule(facts) is None for rule in RULES)

    def _fits_shared(self, **values: Any) -> bool:
        """Compare what a product loads ahead: both operands where it is the only one, else at least the smaller."""
        sums = blocks_of(self._source.function, {**self._known, **values}).accumulators
        inner = [values[name] for name in values if name in self.tunables and self._roles.roles[name].in_loop]
        widths = [sum(shape) if len(sums) == 1 else min(shape) for shape in sums]
        stages = max(values.get("num_stages", 2) - 1, 1)
        elements: int = min(widths, default=0) * min(inner, default=0) * stages
        return elements * (self._item_bytes or 1) <= self._target.shared_bytes_per_block

    def _has_sides(self, **values: Any) -> bool:
        sums = blocks_of(self._source.function, {**self._known, **values}).accumulators
        return all(min(shape) >= _SIDES[0] for shape in sums)

    @cached_property
    def _item_bytes(self) -> int | None:
        """The size of the smallest element of an argument; None where none is known."""
        specs = (TensorSpec.of(value) if Arguments.is_tensor(value) else value for value in self._values.values())
        return min((ITEM_BYTES.get(spec.dtype, 1) for spec in specs if isinstance(spec, TensorSpec)), default=None)

    @cached_property
    def _whole(self) -> int:
        """The number of elements in what one block covers whole, as far as extents are known."""
        derived = (self._known.get(role.name) for role in self._roles.roles.values() if role.kind == "derived")
        return math.prod(extent for extent in derived if type(extent) is int)

    def _has_few_elements(self, **values: Any) -> bool:
        """Compare with what spills, or with the smallest block where that is larger already."""
        threads = values.pop("num_warps", _USUAL["num_warps"]) * self._target.warp_size
        least = math.prod(min(self.tunables[name].values) for name in values)  # type: ignore[type-var, arg-type]
        return bool(math.prod(values.values()) <= max(min(_MOST_ELEMENTS, _MOST_EACH * threads) // self._whole, least))


def _padded(extent: int) -> int:
    return 1 << max(extent - 1, 0).bit_length()


def _divides(**values: Any) -> bool:
    large, small = values.values()
    return int(large) % int(small) == 0
