"""A call of a decorated kernel as it is noted, with its miss and with its record, so that it can be made again.

The key of such a call holds what decides the config: values of the key's arguments, dtypes, and classes of the rest. To
make the call again takes more: shapes, numbers, and the grid, which was a function in the caller's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import Arguments, is_tensor, names_of_addresses
from triton_ops.cache import NotedCall
from triton_ops.dispatch.grids import grids_by_config
from triton_ops.problem import plain
from triton_ops.space import ConfigSpace
from triton_ops.task.request import spec_of
from triton_ops.tensors import TensorSpec

_MOST = 256  # configs of a space: more would make the list of misses, records and lockfiles long


def note_of(given: Mapping[str, Any], function: Any, grid: Any, space: ConfigSpace) -> NotedCall | str:
    """The note of a call, or in words why the call cannot be made again from plain values.

    Args:
        given: The call's arguments by name.
        function: The kernel, with its heuristics.
        grid: What stood in the brackets.
        space: The configs that may be taken.

    Cost: some microseconds for each config.
    """
    values = {name: spec_of(value) if is_tensor(value) else value for name, value in given.items()}
    kinds = (TensorSpec, bool, int, float, str, type(None))
    strange = [f"{name} is of {_kind(value)}" for name, value in values.items() if not isinstance(value, kinds)]
    if addressed := names_of_addresses(Arguments(keyword=given)):
        return f"the addresses in {', '.join(addressed)} are of this process's memory"
    if strange:
        return f"{', '.join(strange)}, of which no value is noted"
    if space.size.total > _MOST:
        return f"there are {space.size.total} configs, and the grid is noted for {_MOST} at most"
    table = grids_by_config(grid, function, given, space)
    configs = [dict(zip(table.names, at, strict=True)) for at in table.extents]
    grids = [found if isinstance(found, str) else list(found) for found in table.extents.values()]
    return NotedCall(arguments={name: plain(value) for name, value in values.items()}, configs=configs, grids=grids)


def _kind(value: Any) -> str:
    """The class of a value, by the name that people know it by."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
