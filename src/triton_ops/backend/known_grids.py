"""Results of grid functions that are known: of those that plainly do nothing but arithmetic on numbers.

`lambda meta: (triton.cdiv(n, meta["BLOCK"]),)` costs the host as much as everything else before a launch, as `cdiv` is
made for kernels. Its result follows from its code, from the numbers that it closes over, and from those that it looks
up in `meta`. A grid function that names anything else is called each time.
"""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

_MODULES = ("triton", "math")
_FUNCTIONS = frozenset({"cdiv", "next_power_of_2", "ceil", "floor", "min", "max", "abs", "int"})
_BUILTINS = frozenset({"min", "max", "abs", "int"})
_MOST = 4_096


@dataclass(frozen=True)
class _Plan:
    """What the result of a piece of code follows from.

    Attributes:
        code: The code; held, so that no other one gets its place.
        look_up: The numbers that it may look up in `meta`, in order.
        names: What it names of the module around it.
        values: What these names must mean.
        number: The code's own.
    """

    code: CodeType
    look_up: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    names: tuple[str, ...]
    values: tuple[Any, ...]
    number: int


class KnownGrids:
    """Grids by what they follow from. Safe to share among threads.

    Args:
        parameters: The kernel's parameters, which `meta` holds.
    """

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self._parameters = parameters
        self._plans: dict[int, _Plan | None] = {}
        self._known: dict[Any, Any] = {}

    def of(self, grid: Callable[[Mapping[str, Any]], Any], meta: Mapping[str, Any]) -> Any:
        """What `grid(meta)` returns."""
        if type(grid) is not FunctionType:
            return grid(meta)
        plan = self._plans.get(id(grid.__code__), _UNSEEN)
        if plan is _UNSEEN:
            plan = self._planned(grid)
        if plan is None:
            return grid(meta)
        numbers = (*plan.look_up(meta), *[cell.cell_contents for cell in grid.__closure__ or ()])
        for number in numbers:
            if number.__class__ is not int:
                return grid(meta)
        place = (plan.number, numbers, *map(grid.__globals__.get, plan.names))
        found = self._known.get(place)
        if found is None:
            found = grid(meta) if place[2:] != plan.values else self._kept(place, grid(meta))
        return found

    def _kept(self, place: Any, found: Any) -> Any:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[place] = found
        return found

    def _planned(self, grid: FunctionType) -> _Plan | None:
        """The plan of a function's code; None if it is called each time."""
        if len(self._plans) >= _MOST:
            self._plans.clear()
            self._known.clear()
        plan = self._plans[id(grid.__code__)] = self._plan_of(grid)
        return plan

    def _plan_of(self, grid: FunctionType) -> _Plan | None:
        code = grid.__code__
        texts = [each for each in code.co_consts if isinstance(each, str) and each != grid.__doc__]
        plain = all(each is None or isinstance(each, (int, str)) for each in code.co_consts)
        strange = {*code.co_names} - {*_MODULES} - _FUNCTIONS
        if not plain or strange or code.co_cellvars or code.co_argcount != 1 or code.co_kwonlyargcount:
            return None
        if grid.__defaults__ or code.co_flags & _STARRED or not {*texts} <= {*self._parameters}:
            return None
        used = [name for name in code.co_names if name in grid.__globals__]
        modules = {"triton": importlib.import_module("triton"), "math": math}
        if any(grid.__globals__[name] is not modules.get(name) for name in used):
            return None
        shadowed = [name for name in code.co_names if name in _BUILTINS and name not in used]
        names = (*used, *shadowed)
        return _Plan(code, _looking_up(tuple(dict.fromkeys(texts))), names, tuple(map(modules.get, names)), id(code))


def _looking_up(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that gives the values of these names."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return (lambda meta: (meta[names[0]],)) if names else (lambda _: ())


_UNSEEN: Any = object()
_STARRED = 0x04 | 0x08  # `*args` and `**kwargs`
