"""What results are made of: their items and fields, and copies of them that nobody else can write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from triton_ops.backend import Arguments, value_copy


def as_list(result: Any) -> list[Any]:
    """The results of a call as a list, also where the call returns a single one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def kept(found: Any) -> Any:
    """A copy of a result, without its gradient graph, which later launches and the caller's code cannot change."""
    return rebuilt(found, lambda part: value_copy(Arguments((part,)).map(lambda tensor: tensor.detach()).positional[0]))


def rebuilt(found: Any, change: Callable[[Any], Any]) -> Any:
    """A result after a change; an instance of a dataclass is made anew around its fields after the change."""
    if (parts := fields_of(found)) is None:
        return change(found)
    made = copy.copy(found)
    for name, value in parts.items():
        object.__setattr__(made, name, rebuilt(value, change))  # a frozen instance takes it in no other way
    return made


def has_fields(value: Any) -> bool:
    """Whether a value is an instance of a dataclass."""
    return is_dataclass(value) and not isinstance(value, type)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The values of a dataclass instance by name; None for anything else."""
    return {each.name: getattr(value, each.name, None) for each in fields(value)} if has_fields(value) else None
