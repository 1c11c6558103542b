"""The grid of a call as the tuner takes it: evaluated for every config, so that no other process needs its code."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend.fast_launch import taken_apart
from triton_ops.backend.unwrap import unwrap
from triton_ops.exceptions import FixedGridWarning, KernelTypeError
from triton_ops.space import Config, ConfigSpace
from triton_ops.space.tunable import checked_value

_OURS = ("triton_ops", "triton")
_AXES = 3
_MOST = 4_096  # configs of a space for which the grid is evaluated ahead


@dataclass(frozen=True)
class GridByConfig:
    """A grid that was evaluated for every config of a space.

    Attributes:
        names: The tunables.
        extents: From the tunables' values to the grid, or to the text of what the grid function raised.
    """

    names: tuple[str, ...]
    extents: Mapping[tuple[Any, ...], Any] = field(hash=False)

    def __call__(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The grid of the config whose values are in `meta`.

        Raises:
            ValueError: The grid function raised for it, or it is none of the configs.
        """
        found: tuple[int, ...] | str | None = self.extents.get(_values(meta, self.names))
        if found is None or isinstance(found, str):
            raise ValueError(found or "the grid of this config is not known: it was no config when the call was made")
        return found


def checked_grid(grid: Any, name: str, said: str = "is") -> Any:
    """`grid`, if it is what may stand in the brackets of a launch.

    Args:
        grid: What stands there.
        name: The kernel's name.
        said: Stands between kernel and grid in the error.

    Raises:
        KernelTypeError: It is neither a function nor one to three extents.
    """
    if callable(grid) or (isinstance(grid, Sequence) and not isinstance(grid, str) and 1 <= len(grid) <= _AXES):
        return grid
    raise KernelTypeError(
        f"the grid of {name} {said} {grid!r}; it must be one to three extents, or a function that returns them",
        hint=f"write kernel[({grid},)]" if isinstance(grid, int) else "write kernel[(programs,)]",
    )


def checked_when_called(grid: Any, name: str) -> Any:
    """`grid`; a function is one whose result is checked as a grid is."""
    if not callable(grid):
        return grid
    return lambda meta: checked_grid(grid(meta), name, "is a function that returned")


def grid_of_call(grid: Any, function: Any, given: Mapping[str, Any], space: ConfigSpace) -> Callable[..., Any]:
    """The grid of a call as a function of the config, which other processes can be sent.

    Args:
        grid: Extents, or a function of what a launch is given, as in `kernel[grid]`.
        function: The kernel, with its heuristics.
        given: The call's arguments by name.
        space: The configs. A grid function is sent as it is where there are too many.
    """
    if callable(grid) and space.size.total > _MOST:
        found: Callable[..., Any] = grid
        return found
    return grids_by_config(grid, function, given, space)


def grids_by_config(grid: Any, function: Any, given: Mapping[str, Any], space: ConfigSpace) -> GridByConfig:
    """The grid of a call for every config of a space."""
    names = tuple(space.tunables)
    configs = (config.with_members(space.members) for config in space)
    return GridByConfig(names, {_values(config, names): _extents(grid, function, given, config) for config in configs})


def _values(values: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The values of tunables in a launch or a config, members of an `Enum` and dtypes by name."""
    return tuple(checked_value(name, values[name]) for name in names)


def _extents(grid: Any, function: Any, given: Mapping[str, Any], config: Config) -> Any:
    try:
        if not callable(grid):
            return tuple(int(extent) for extent in grid)
        inner, heuristics = taken_apart(function)
        meta = {**given, **config}
        for name, heuristic in heuristics.items():
            meta[name] = heuristic(meta)
        defaults = inspect.signature(unwrap(inner)).parameters.values()
        meta = {**{p.name: p.default for p in defaults if p.default is not p.empty}, **meta}
        return tuple(int(extent) for extent in grid(meta))
    except Exception as error:  # noqa: BLE001 - the user's own function; the launch of that config will say why
        return f"the grid function raised {type(error).__name__}: {error}"


def tell_of_fixed_grid(grid: Sequence[int], function: Any, name: str, tunables: Collection[str]) -> None:
    """Issue a `FixedGridWarning` for a grid that stays as it is while a kernel's block sizes are tuned."""
    if blocks := blocks_left_out(function, tunables):
        warnings.warn(
            f"the grid {tuple(grid)} of {name} stays as it is, and its programs are numbered by blocks that are tuned "
            f"({', '.join(blocks)}): too many are launched where a block is larger, and too few where it is smaller; "
            f"write it as a function: lambda meta: (triton.cdiv(n, meta[{blocks[0]!r}]),)",
            FixedGridWarning,
            stacklevel=_caller(),
        )


def _caller() -> int:
    """How far up the stack the first frame outside of this package and of Triton is, as `warnings.warn` counts it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


def blocks_left_out(function: Any, tunables: Collection[str]) -> list[str]:
    """The tunables by which a kernel multiplies its program's number: a grid that does not follow them is wrong.

    With larger blocks than it was written for, programs have nothing to do; with smaller ones, a part stays undone.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return []
    programs = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_program(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                numbered = _is_program(one) or (isinstance(one, ast.Name) and one.id in programs)
                if numbered and isinstance(other, ast.Name) and other.id in tunables:
                    found.append(other.id)
    return sorted({*found})


def _is_program(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "program_id"
