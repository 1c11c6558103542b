"""What the host says of a tensor: which of its axes an argument of a launch is the stride or the extent of."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from triton_ops.lint.source.functions import last_name
from triton_ops.lint.source.launches import Launch


@dataclass(frozen=True)
class AxisOf:
    """An axis of a tensor on the host.

    Attributes:
        tensor: The expression of the tensor, as text.
        axis: The number of the axis; negative ones count from the end.
    """

    tensor: str
    axis: int


def stride_of(launch: Launch, name: str) -> AxisOf | None:
    """The axis whose stride a parameter is given; None if that is not seen."""
    given = launch.given.get(name)
    return None if given is None else _axis_of(launch, given, "stride")


def extents_of(launch: Launch, name: str) -> list[AxisOf]:
    """The axes whose extent a parameter is given: several where a name is given several, as by `K, N = b.shape`."""
    given = launch.given.get(name)
    if given is None:
        return []
    several = launch.names.get(given.id, []) if isinstance(given, ast.Name) else [given]
    found = [_axis_of(launch, one, attribute) for one in several for attribute in ("shape", "size")]
    return [one for one in found if one is not None]


def rank_of(launch: Launch, tensor: str) -> int | None:
    """The number of axes of a tensor, where its shape is taken apart; None if it is not."""
    axes = [
        found.axis
        for given in launch.names.values()
        for one in given
        if isinstance(one, ast.Subscript) and (found := _axis_of(launch, one, "shape")) is not None
        if found.tensor == tensor and found.axis >= 0
    ]
    return max(axes) + 1 if axes else None


def tensor_of(launch: Launch, name: str) -> str | None:
    """The tensor that a parameter is given, as text; None if it is not seen."""
    found = launch.given.get(name)
    return None if found is None else ast.unparse(found)


def _axis_of(launch: Launch, given: ast.expr, attribute: str) -> AxisOf | None:
    node = launch.resolved(given)
    if isinstance(node, ast.Subscript):  # x.stride()[0], x.shape[0], x.size()[0]
        owner, place = node.value, node.slice
        if isinstance(owner, ast.Name):
            owner = launch.resolved(owner)
        if isinstance(owner, ast.Call) and last_name(owner) == attribute and not owner.args:
            return _made(owner.func, place)
        if isinstance(owner, ast.Attribute) and owner.attr == attribute:
            return _made(owner, place)
    if isinstance(node, ast.Call) and last_name(node) == attribute and node.args:
        return _made(node.func, node.args[0])
    return None


def _made(accessor: ast.expr, place: ast.expr) -> AxisOf | None:
    if not isinstance(accessor, ast.Attribute):
        return None
    if isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub) and isinstance(place.operand, ast.Constant):
        axis = -int(str(place.operand.value))
    elif isinstance(place, ast.Constant) and type(place.value) is int:
        axis = place.value
    else:
        return None
    return AxisOf(ast.unparse(accessor.value), axis)
