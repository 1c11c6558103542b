"""The C function under a compiled kernel's launcher, and what the launcher puts between a call and that function.

Triton's launchers are Python objects. Each call of one defines functions that would allocate scratch, looks at sizes
that never change, and then calls a C function with some constants added: about a microsecond of a launch. A launcher
that needs no scratch adds the same constants each time, so it is asked once, with marks in place of arguments.

Facts used, from Triton 3.6 to 3.9: a launcher keeps its C function as the attribute `launch`, is called with the grid,
the stream, the function, four things of the launch and the kernel's arguments, and hands on the latter either one by
one or, from 3.7 on, in one tuple at the end. `global_scratch_size` and `profile_scratch_size` say what it allocates;
`gsan_enabled` says that it does more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_GRID = (1, 1, 1)
_LEAD = 5  # arguments of the C function that come first: the grid, the stream and the function
_NEEDS = ("global_scratch_size", "profile_scratch_size")


@dataclass(frozen=True)
class DirectLaunch:
    """How to launch one compiled kernel without its launcher.

    Attributes:
        function: The C function.
        between: What comes after the grid, the stream and the function, and before the kernel's arguments.
        packed: Whether the kernel's arguments are one tuple.
    """

    function: Callable[..., Any]
    between: tuple[Any, ...]
    packed: bool


def direct_launch(launcher: Any, packed_metadata: Any) -> DirectLaunch | None:
    """How a launcher calls its C function, without hooks and launch metadata; None unless that is always the same.

    Args:
        launcher: The launcher of a compiled kernel, `CompiledKernel.run`.
        packed_metadata: That kernel's `packed_metadata`.
    """
    state = getattr(launcher, "__dict__", {})
    function = state.get("launch")
    if not callable(function) or any(state.get(name) != 0 for name in _NEEDS) or state.get("gsan_enabled"):
        return None
    calls = [_recorded(launcher, packed_metadata, marks) for marks in ((object(),), (object(), object()))]
    found = [None if call is None else _between(*call) for call in calls]
    if found[0] is None or found[0] != found[1]:
        return None
    return DirectLaunch(function, *found[0])


def _recorded(launcher: Any, packed_metadata: Any, marks: tuple[object, ...]) -> tuple[Any, ...] | None:
    """What a call with `marks` as the kernel's arguments hands to the C function; None if it does something else."""
    made: list[tuple[Any, ...]] = []
    asked = copy.copy(launcher)
    asked.launch = lambda *handed: made.append(handed)
    stream, kernel = object(), object()
    try:
        asked(*_GRID, stream, kernel, packed_metadata, None, None, None, *marks)
    except (TypeError, AttributeError):
        return None
    if len(made) != 1 or made[0][:_LEAD] != (*_GRID, stream, kernel):
        return None
    return made[0][_LEAD:], marks


def _between(handed: tuple[Any, ...], marks: tuple[object, ...]) -> tuple[tuple[Any, ...], bool] | None:
    """What stands before the marks, and whether they are one tuple; None where they do not come last."""
    if handed and handed[-1] == marks:
        return handed[:-1], True
    if handed[-len(marks) :] == marks:
        return handed[: -len(marks)], False
    return None
