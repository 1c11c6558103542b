"""Calls of a decorated kernel as problems, with their grids, the heuristics around the kernel, and their spaces.

The key of a decorator says which values decide. Beside them a problem holds the dtypes of all tensors, and, under
`NAME:class`, what Triton specialises code on: alignment, being 1 or a multiple of 16, and the values of other constexpr
parameters. A winner may be borrowed over another class, and over None, a bool and a float in each other's place, which
Triton's own key takes for one; it is never taken for an exact one.

The config space of a call is made here where the kernel's author has written no list of configs, or one to be widened.

Facts used, from Triton 3.6 to 3.9: `Heuristics.run` calls each of `values` with the arguments that the call gives by
name, what the config brings, `grid`, `warmup` and what came before it, and runs its `fn` with the value.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops import backend
from triton_ops.backend import Arguments, KernelSource, Layers, Protection, SourceRoles
from triton_ops.base import canonical_json
from triton_ops.exceptions import PACKAGES, ConfigCollisionError, FixedGridWarning, KernelTypeError, SpaceError
from triton_ops.records import NotedCall
from triton_ops.request import spec_of
from triton_ops.space import ConfigSpace, UnlistedSpace, checked_value
from triton_ops.values import CLASS, TYPES, Argument, Mapper, Problem, TensorSpec, as_stored, class_of

_SHOWN = 6
_SAMPLE = 1 << 16  # elements of a tensor


@dataclass(frozen=True, kw_only=True)
class CalledWith:
    """The problem of one call: `problem` as it stands in a key, and in short as `label`.

    A borrowed winner may differ in the names `loose`. `given` are the kernel's arguments by name, without what is no
    parameter; `asked` is the problem with its own values: no range of a bucket, and what is ignored as well.
    """

    problem: Mapping[str, Argument]
    loose: frozenset[str]
    label: str
    given: Arguments = field(compare=False)
    asked: Mapping[str, Argument] = field(default_factory=dict, compare=False)

    @property
    def text(self) -> str:
        """Equal for equal problems."""
        return canonical_json(dict(self.problem))

    def check(self, *, launched: bool = True) -> None:
        """Check that kernels can take the tensors of the call, and, where it is launched, that they have memory."""
        checked = TensorSpec.check_memory if launched else TensorSpec.check_strided
        for name, value in self.given.keyword.items():
            if Arguments.is_tensor(value):
                checked(value, name)

    @property
    def device(self) -> str:
        """The torch name of the first tensor's device; empty without tensors."""
        return next((str(tensor.device) for tensor in self.given.tensors()), "")

    def hides_tiles(self, space: ConfigSpace, outputs: Collection[str]) -> bool:
        """Tell whether all data that a launch reads are equal, so that wrong tiles may give results of right ones."""
        inputs = {name: value for name, value in self.given.keyword.items() if name not in outputs}
        tensors = Arguments(keyword=inputs).tensors()
        parts = [as_stored(each.flatten()[:_SAMPLE]) for each in tensors if each.numel() > 1]
        numbers = (part.float() if part.is_floating_point() else part for part in parts)
        return bool(getattr(space, "tiles", ()) and parts) and all(bool((part == part[0]).all()) for part in numbers)


@dataclass(frozen=True)
class Calls:
    """The rule by which calls of one kernel become problems: the values of `keys` decide, or as `mapper` has it."""

    parameters: Mapping[str, inspect.Parameter]
    constexprs: frozenset[str]
    keys: tuple[str, ...]
    mapper: Mapper

    @classmethod
    def of(cls, function: Any, keys: Sequence[str], mapper: Mapper) -> Calls:
        """The calls of a JIT function, or of one with heuristics around it."""
        parameters = Layers.parameters_of(Layers.unwrap(function))
        constexprs = frozenset(name for name, each in parameters.items() if "constexpr" in str(each.annotation))
        return cls(parameters, constexprs, tuple(name for name in keys if name in parameters), mapper)

    def problem(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CalledWith:
        """The problem of a call."""
        values = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        by_name = {name: values[name] for name in self.parameters if name in values}
        defaults = {name: each.default for name, each in self.parameters.items() if each.default is not each.empty}
        facts: dict[str, Argument] = {}
        for name, value in {**defaults, **by_name}.items():
            facts.update(self._facts(name, value))
        keyed = self.mapper.keyed(facts) if self.mapper.buckets or self.mapper.ignored else facts
        ranged = {name for bucket, _ in self.mapper.buckets for name in bucket}
        classes = {f"{name}{CLASS}": class_of(by_name[name]) for name in ranged.intersection(by_name)}
        keyed = {**keyed, **classes}
        loose = {name for name in keyed if name.endswith(CLASS)}
        others = {*keyed}.difference(self.keys, (name.removesuffix(CLASS) for name in loose))
        loose |= {name for name in others if keyed[name] in (*TYPES,)}
        return CalledWith(
            problem=keyed, loose=frozenset(loose), label=self._label(by_name), given=Arguments(keyword=by_name),
            asked={**facts, **classes},
        )  # fmt: skip

    def _facts(self, name: str, value: Any) -> dict[str, Argument]:
        if Arguments.is_tensor(value):
            return self._facts_of_tensor(name, value)
        if name in self.keys:
            return {name: _plain(value)}
        if name in self.constexprs:
            return {f"{name}{CLASS}": _plain(value)}
        if isinstance(value, int) and not isinstance(value, bool):
            return {f"{name}{CLASS}": class_of(value)}
        if value is None or isinstance(value, (bool, float)):
            return {name: class_of(value)}
        return {name: _plain(value)}

    def _facts_of_tensor(self, name: str, tensor: Any) -> dict[str, Argument]:
        try:
            kind = class_of(tensor)
            shape = f" {'x'.join(map(str, tensor.shape))}" if name in self.keys else ""
        except RuntimeError:  # there is no such address, or no shape
            TensorSpec.check_strided(tensor, name)
            raise
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {name: f"{dtype}{shape}", f"{name}{CLASS}": kind}

    def _label(self, named: Mapping[str, Any]) -> str:
        parts = [f"{it}={named[it]}" for it in self.keys if it in named and not Arguments.is_tensor(named[it])]
        dtypes = dict.fromkeys(str(v.dtype).removeprefix("torch.") for v in named.values() if Arguments.is_tensor(v))
        return " ".join([*parts[:_SHOWN], *dtypes])


def refuse_tuned(names: Collection[str], tuned: Collection[str], kernel: str) -> None:
    """Raise ConfigCollisionError if a call gives a value to a parameter that is tuned."""
    if clash := sorted({*names}.intersection(tuned)):
        hint = "leave it out of the call, or call the kernel below the decorator: kernel.fn[grid](...)"
        raise ConfigCollisionError(f"{', '.join(clash)} is tuned, and a call of {kernel} gives it as well", hint=hint)


def _plain(value: Any) -> Any:
    spec = spec_of(value)
    return str(spec) if isinstance(spec, TensorSpec) else Problem.plain(spec)


Heuristics = dict[str, Callable[[dict[str, Any]], Any]]


@dataclass
class Variants:
    """The launches of one key of a kernel with heuristics, by the values that these compute at each call."""

    function: Any
    config: Any
    brings: Mapping[str, Any]
    given: Sequence[str]
    runs: list[Any]
    entries: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def of(self, grid: Any, values: Mapping[str, Any]) -> Any:
        """The entry for these arguments; None if what heuristics compute was not seen."""
        if self.runs != runs_of(self.function):
            return None
        arguments = {**{name: values[name] for name in self.given}, **self.brings}
        results = computed(Layers.heuristics(self.function), arguments, grid)
        return self.entries.get(tuple(results.items()))


def runs_of(function: Any) -> list[Any]:
    """The functions that run each of the heuristics and the kernel: the class's, and one in its place on the object."""
    runs = [(function, type(function).run, vars(function).get("run"))]
    return runs if not hasattr(function, "values") else runs + runs_of(function.fn)


def computed(heuristics: Heuristics, arguments: Mapping[str, Any], grid: Any) -> dict[str, Any]:
    """The values of heuristics for a launch, each of them told what Triton tells it."""
    results: dict[str, Any] = {}
    for name, heuristic in heuristics.items():
        results[name] = heuristic({**arguments, "grid": grid, "warmup": False, **results})
    return results


_OURS = ("triton", *PACKAGES)
_AXES = 3
_MOST = 4_096  # configs of a space for which the grid is evaluated ahead


@dataclass(frozen=True)
class GridByConfig:
    """A grid that was evaluated for every config of a space: values to extents, or what the function raised."""

    names: tuple[str, ...]
    extents: Mapping[tuple[Any, ...], Any] = field(hash=False)

    def __call__(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The grid of the config whose values are in `meta`; raises ValueError if there is none."""
        extents: tuple[int, ...] | str | None = self.extents.get(_values(meta, self.names))
        if extents is None or isinstance(extents, str):
            raise ValueError(extents or "the grid of this config is not known: it was no config when the call was made")
        return extents


def checked_grid(grid: Any, name: str, verb: str = "is") -> Any:
    """`grid`, if it is what may stand in the brackets of a launch; raises KernelTypeError."""
    if callable(grid) or (_of_extents(grid) and all(hasattr(extent, "__index__") for extent in grid)):
        return grid
    if _of_extents(grid):
        message = f"the grid of {name} {verb} {grid!r}; its extents must be integers"
        raise KernelTypeError(message, hint="divide with triton.cdiv(n, block), which rounds up")
    message = f"the grid of {name} {verb} {grid!r}; it must be one to three extents, or a function that returns them"
    hint = f"write kernel[({grid},)]" if isinstance(grid, int) else "write kernel[(programs,)]"
    raise KernelTypeError(message, hint=hint)


def _of_extents(grid: Any) -> bool:
    return isinstance(grid, Sequence) and not isinstance(grid, str) and 1 <= len(grid) <= _AXES


def checked_when_called(grid: Any, name: str) -> Any:
    """`grid`; a function is one whose result is checked as a grid is."""
    if not callable(grid):
        return grid
    return lambda meta: checked_grid(grid(meta), name, "is a function that returned")


def grid_of_call(grid: Any, function: Any, values: Mapping[str, Any], space: ConfigSpace) -> Callable[..., Any]:
    """The grid of a call as a function that other processes can be sent; it stays as it is with too many configs."""
    if callable(grid) and space.size.total > _MOST:
        checked: Callable[..., Any] = grid
        return checked
    return grids_by_config(grid, function, values, space)


def grids_by_config(grid: Any, function: Any, values: Mapping[str, Any], space: ConfigSpace) -> GridByConfig:
    """The grid of a call for every config of a space."""
    names = tuple(space.tunables)
    configs = (config.with_members(space.members) for config in space)
    extents = {_values(config, names): extents_of(grid, function, values, config) for config in configs}
    return GridByConfig(names, extents)


def _values(values: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The values of tunables in a launch or a config, members of an `Enum` and dtypes by name."""
    return tuple(checked_value(name, values.get(name)) for name in names)


def extents_of(grid: Any, function: Any, values: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """The extents of a grid for a config, or in words what the grid function raised."""
    try:
        if not callable(grid):
            return tuple(int(extent) for extent in grid)
        return tuple(operator.index(extent) for extent in grid(_meta(grid, function, values, config)))
    except Exception as error:  # noqa: BLE001 - the user's own function; the launch of that config will say why
        return f"the grid function raised {type(error).__name__}: {error}"


def _meta(grid: Any, function: Any, values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    meta = {**values, **config}
    return {**Layers.defaults_of(function), **meta, **computed(Layers.heuristics(function), meta, grid)}


_MOST_NOTED = 256  # configs of a space: more would make the list of misses, records and lockfiles long


def example_of(value: Any, most_bytes: float = math.inf) -> Any:
    """The spec of a tensor, with the numbers of one of whole numbers that is no larger; any other argument as it is."""
    if not Arguments.is_tensor(value):
        return value
    spec, drawn = TensorSpec.of(value), value.is_meta or value.is_floating_point() or value.is_complex()
    return spec if drawn or spec.nbytes > most_bytes else replace(spec, fill=value.detach().to("cpu", copy=True))


def note_of(arguments: Mapping[str, Any], function: Any, grid: Any, space: ConfigSpace) -> NotedCall | str:
    """The note of a call, or in words why the call cannot be made again from plain values."""
    values = {name: spec_of(value) if Arguments.is_tensor(value) else value for name, value in arguments.items()}
    kinds = (TensorSpec, bool, int, float, str, type(None))
    strange = [f"{name} is of {_kind(value)}" for name, value in values.items() if not isinstance(value, kinds)]
    if addressed := Protection.names_of_addresses(Arguments(keyword=arguments)):
        return f"the addresses in {', '.join(addressed)} are of this process's memory"
    if strange:
        return f"{', '.join(strange)}, of which no value is noted"
    if space.size.total > _MOST_NOTED:
        return f"there are {space.size.total} configs, and the grid is noted for {_MOST_NOTED} at most"
    table = grids_by_config(grid, function, arguments, space)
    configs = [dict(zip(table.names, at, strict=True)) for at in table.extents]
    grids = [extents if isinstance(extents, str) else list(extents) for extents in table.extents.values()]
    arguments = {name: Problem.plain(value) for name, value in values.items()}
    return NotedCall(arguments=arguments, configs=configs, grids=grids)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Meta(dict[str, Any]):
    """What a grid function is given. It keeps which names the function reads, for an extent may be 1 with any block."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    # `get` of a dictionary does not come by `__getitem__`.
    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


class GridWatch:
    """Looks at the grids of one kernel before they are used, and points out one that does not follow its blocks."""

    def __init__(self) -> None:
        self._told = False

    def look(
        self, grid: Any, function: Any, values: Mapping[str, Any], config: Mapping[str, Any], name: str,
        tunables: Collection[str],
    ) -> None:  # fmt: skip
        """Issue a `FixedGridWarning` for a grid that stays as it is while block sizes are tuned.

        Raises KernelTypeError if a grid function returned what is no grid; a tune would tell it after its last config.
        """
        meta = _Meta(_meta(grid, function, values, config))
        try:
            extents = grid(meta) if callable(grid) else grid
        except Exception:  # noqa: BLE001 - the user's own function; the launch will say why
            return
        checked_grid(extents, name, "is a function that returned" if callable(grid) else "is")
        alone = callable(grid) and {*extents} == {1}  # a small problem is one program with any block
        numbered = [] if self._told or alone else sorted((SourceRoles.numbered_by(function) & {*tunables}) - meta.read)
        blocks = [block for block in numbered
                  if all(extents_of(grid, function, values, {**config, block: other}) == tuple(extents)
                         for other in (1, 2 * config.get(block, 1)))]  # fmt: skip
        if not blocks:
            return
        self._told = True
        warnings.warn(
            f"the grid {extents} of {name} stays as it is, and its programs are numbered by blocks that are tuned "
            f"({', '.join(blocks)}): too many are launched where a block is larger, and too few where it is smaller; "
            f"write it as a function of the block: lambda meta: (triton.cdiv(n, meta[{blocks[0]!r}]),)",
            FixedGridWarning,
            stacklevel=_caller(),
        )


def _caller() -> int:
    """Steps up the stack to the first frame outside of this package and of Triton, as `warnings.warn` counts it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


def space_of_call(function: Any, values: Mapping[str, Any], grid: Any) -> UnlistedSpace:
    """The space that is read from a kernel for one call; what the call gives is no tunable.

    The default has the values of the kernel's signature; where that has none for some tile, it is made up. Raises
    SpaceError for a constant that is no tile, and that neither the call nor the signature gives.
    """
    view, source = backend.ReadSpace.of(function, values, grid=grid), KernelSource.read(Layers.of(function)[-1])
    defaults = source.defaults
    needed = source.constants - values.keys() - defaults.keys() - Layers.heuristics(function).keys()
    unknown = {name: view.reasons[name] for name, value in view.derived.items() if value is None}
    if lacking := [f"{name} ({why})" for name, why in {**view.meaning, **unknown}.items() if name in needed]:
        hint = "give it in the call: what is found by measuring are tiles and launch options alone"
        raise SpaceError(f"{Layers.unwrap(function).__name__} is called without {', '.join(lacking)}", hint=hint)
    signed = [{name: defaults[name] for name in view.tunables}] if view.tunables.keys() <= defaults.keys() else []
    return UnlistedSpace.around(view.space, signed, view.tunables, limits_registers=view.limits_registers)


def space_around(
    function: Any, values: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], names: Mapping[str, Any], grid: Any
) -> UnlistedSpace:
    """The space around configs that somebody has written: other values of `names` that are tiles, and of options.

    The other names keep their values in `names`, and so does a constant that covers an extent.
    """
    others = {name: value for name, value in values.items() if name not in names}
    view = backend.ReadSpace.of(function, others, grid=grid)
    tunables = {**names, **{name: tile for name, tile in view.tunables.items() if name in names}, **view.options}
    rules = tuple(rule for rule in view.constraints if tunables.keys() >= {*rule.names})
    usual = {name: value for name, value in view.first.items() if name in view.options}
    whole = [{**usual, **seed} for seed in seeds]
    space = ConfigSpace(tunables, rules)
    return UnlistedSpace.around(space, whole, view.tunables, limits_registers=view.limits_registers)
