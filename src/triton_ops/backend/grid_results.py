"""Results of grid functions, which are called once for equal numbers.

`lambda meta: (triton.cdiv(n, meta["BLOCK"]),)` costs the host as much as everything else before a launch, as `cdiv` is
made for kernels. Its result follows from its code, from the numbers that it closes over, and from those that it looks
up in `meta`. A grid function that names anything else is called each time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

_MODULES = ("triton", "math")
_FUNCTIONS = frozenset({"cdiv", "next_power_of_2", "ceil", "floor", "min", "max", "abs", "int"})
_BUILTINS = frozenset({"min", "max", "abs", "int"})
_MOST = 1_024  # pieces of code, and results of each


@dataclass(frozen=True)
class _Plan:
    """What the result of a piece of code follows from, and the results that are known.

    Attributes:
        code: The code; held, so that no other one gets its place.
        numbers: Gives, of `meta` and a function of this code, the numbers that its result follows from; None if they
            are no plain numbers, or a name of the module around it means something else.
        known: The results by these numbers.
    """

    code: CodeType
    numbers: Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]
    known: dict[tuple[int, ...] | None, Any]


class KnownGrids:
    """Grids by what they follow from. Safe to share among threads.

    Args:
        parameters: The kernel's parameters, which `meta` holds.
    """

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self._parameters = parameters
        self._plans: dict[int, _Plan | None] = {}

    def of(self, grid: Callable[[Mapping[str, Any]], Any], meta: Mapping[str, Any]) -> Any:
        """What `grid(meta)` returns."""
        if type(grid) is not FunctionType:
            return grid(meta)
        plan = self._plans.get(id(grid.__code__), _UNSEEN)
        if plan is _UNSEEN:
            plan = self._planned(grid)
        if plan is None:
            return grid(meta)
        numbers = plan.numbers(meta, grid)
        found = plan.known.get(numbers)
        if found is None:
            found = grid(meta)
            if numbers is not None:
                _keep(plan.known, numbers, found)
        return found

    def _planned(self, grid: FunctionType) -> _Plan | None:
        """The plan of a function's code; None if it is called each time."""
        plan = self._plan_of(grid)
        _keep(self._plans, id(grid.__code__), plan)
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
        meanings = {name: modules.get(name) for name in (*used, *shadowed)}
        return _Plan(code, _numbers_of(tuple(dict.fromkeys(texts)), len(code.co_freevars), meanings), {})


def _keep(kept: dict[Any, Any], place: Any, found: Any) -> None:
    if len(kept) >= _MOST:
        kept.clear()
    kept[place] = found


def _numbers_of(
    names: Sequence[str], cells: int, meanings: Mapping[str, Any]
) -> Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]:
    """The function `numbers` of a plan, written out: a loop over the names would take twice as long.

    Args:
        names: What the code looks up in `meta`.
        cells: How many variables it closes over.
        meanings: What each name of the module around it must mean; None for a builtin that nothing there hides.
    """
    read = [f"meta[{name!r}]" for name in names] + [f"grid.__closure__[{cell}].cell_contents" for cell in range(cells)]
    lines = [f"    n{place} = {text}" for place, text in enumerate(read)]
    plain = [f"n{place}.__class__ is int" for place in range(len(read))]
    meant = [f"grid.__globals__.get({name!r}) is m{place}" for place, name in enumerate(meanings)]
    numbers = "".join(f"n{place}, " for place in range(len(read)))
    test = " and ".join([*plain, *meant]) or "True"
    source = ["def numbers(meta, grid):", *lines, f"    return ({numbers}) if {test} else None"]
    scope: dict[str, Any] = {f"m{place}": meaning for place, meaning in enumerate(meanings.values())}
    exec(compile("\n".join(source), "<numbers of a grid>", "exec"), scope)
    return cast(Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None], scope["numbers"])


_UNSEEN: Any = object()
_STARRED = 0x04 | 0x08  # `*args` and `**kwargs`
