"""Loads, stores and atomic operations of TTIR, by pointers and by tensor descriptors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from triton_ops.ttir.scope import Scope, result_type
from triton_ops.ttir.syntax import Operation, Type
from triton_ops.ttir.trace import AccessTrace, Weights
from triton_ops.ttir.values import Value, Vector, uniform, unknown

_SPREAD = 7919  # numbers that stand in for loaded data are this far apart for neighbouring addresses
_FARTHEST = 1 << 40
_UNKNOWN_STRIDE = 1 << 20
_COORDINATES = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")


def load(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.load`: pointers, perhaps a mask, perhaps what stands for masked elements."""
    pointer, *rest = scope.all(operation.operands)
    mask = rest[0] if rest and rest[0].type.truth else None
    _take(scope, operation, "load", pointer, mask)
    return [_data(scope, operation, pointer)]


def store(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.store`: pointers, values, perhaps a mask."""
    pointer, *rest = scope.all(operation.operands)
    _take(scope, operation, "store", pointer, rest[1] if len(rest) > 1 else None)
    return []


def atomic(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.atomic_rmw` and `tt.atomic_cas`: pointers, values, perhaps a mask; what was there before is data."""
    pointer, *rest = scope.all(operation.operands)
    mask = rest[-1] if rest and rest[-1].type.truth else None
    _take(scope, operation, "atomic", pointer, mask)
    return [unknown(result_type(operation), made_up=True)]


def make_descriptor(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.make_tensor_descriptor`: a pointer, extents and strides."""
    base = scope.value(operation.operands[0])
    extents, strides = (scope.all(_NAME.findall(part)) for part in _COORDINATES.findall(operation.text)[:2])
    block = operation.types[-1]  # `<64x32xbf16>`, or with `tensor` before it
    kind = Type(block.shape, base.type.element, descriptor=True)
    return [
        Value(kind, base.base, (None,) * len(kind.shape), base.root, strides=tuple(strides), extents=tuple(extents))
    ]


def descriptor_load(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.descriptor_load` and `tt.descriptor_gather`."""
    kind = result_type(operation)
    _take_block(scope, operation, "load", kind)
    return [unknown(kind, source=operation.number)]


def descriptor_store(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.descriptor_store` and `tt.descriptor_scatter`."""
    _take_block(scope, operation, "store", operation.types[-1])
    return []


def descriptor_reduce(scope: Scope, operation: Operation) -> list[Value]:
    """`tt.descriptor_reduce`: an atomic operation on each element of a block."""
    _take_block(scope, operation, "atomic", operation.types[-1])
    return []


def _take(scope: Scope, operation: Operation, kind: str, pointer: Value, mask: Value | None) -> None:
    scope.see(operation.number, pointer)
    nothing = np.zeros(scope.count)
    met = AccessTrace(
        kind, pointer, pointer.type.item_bytes, pointer.type.element, scope.loops, False, nothing, nothing.copy(),
        tile=1, distinct=1.0, lines=1.0, sectors=1.0, run_bytes=pointer.type.item_bytes,
    )  # fmt: skip
    scope.trace.accessed(operation.number, scope.weight, met, mask)


def _take_block(scope: Scope, operation: Operation, kind: str, block: Type) -> None:
    """Count a block of a tensor whose place the coordinates tell."""
    described = scope.value(operation.operands[0])
    at = scope.all(_NAME.findall(_COORDINATES.findall(operation.text)[0]))
    pointer = _corner(scope, described, at)
    scope.see(operation.number, pointer)
    tile = int(np.prod([1, *block.shape]))
    run = (block.shape[-1] if block.shape else 1) * block.item_bytes
    met = AccessTrace(
        kind, pointer, block.item_bytes, block.element, scope.loops, True, np.zeros(scope.count),
        np.zeros(scope.count), tile=tile, distinct=1.0, lines=tile * block.item_bytes / min(128, run),
        sectors=tile * block.item_bytes / min(32, run), run_bytes=run,
    )  # fmt: skip
    scope.trace.accessed(operation.number, scope.weight, met, None, _inside(scope, described, at, block))


def _corner(scope: Scope, described: Value, at: list[Value]) -> Value:
    """Where a block begins, as a pointer; tensors of coordinates, as of a gather, count as data."""
    kind = Type((), described.type.element, pointer=True)
    base: Vector | None = np.zeros(scope.count, dtype=np.int64) if described.base is None else described.base
    for axis, one in enumerate(at):
        if one.base is None or base is None:
            base = None
            break
        stride = described.strides[axis].base if axis < len(described.strides) else None
        far = _UNKNOWN_STRIDE if axis < len(at) - 1 else 1
        base = base + one.base * (far if stride is None else stride)
    return unknown(kind, root=described.root) if base is None else uniform(kind, base, root=described.root)


def _inside(scope: Scope, described: Value, at: list[Value], block: Type) -> Weights:
    """Elements of a block that lie inside the tensor, by program."""
    found = np.ones(scope.count)
    for axis, length in enumerate(block.shape):
        extent = described.extents[axis].base if axis < len(described.extents) else None
        begin = at[axis].base if axis < len(at) and not at[axis].varying and not at[axis].made_up else None
        left = length if extent is None or begin is None else np.clip(extent - begin, 0, length)
        found = found * left
    return found


def _data(scope: Scope, operation: Operation, pointer: Value) -> Value:
    """What a load gives: data where it is known, numbers in its place where it is whole numbers, else unknown."""
    held = pointer.type
    kind = Type(held.shape, held.element) if not held.element.startswith("!") else Type(held.shape, "i8", pointer=True)
    if not kind.whole or pointer.base is None:
        return unknown(kind, made_up=kind.whole, source=operation.number)
    content = None if pointer.root is None else scope.programs.contents.get(pointer.root)
    if content is not None and not pointer.made_up and len(pointer.varying) < 2:
        return _looked_up(kind, pointer, content)
    axes = tuple(None if axis is None else axis * _SPREAD % _FARTHEST for axis in pointer.axes)
    base = (pointer.base * _SPREAD + operation.number) % _FARTHEST
    return replace(uniform(kind, base, made_up=True), axes=axes)


def _looked_up(kind: Type, pointer: Value, content: Vector) -> Value:
    assert pointer.base is not None
    last = len(content) - 1
    if not pointer.varying:
        return uniform(kind, content[np.clip(pointer.base, 0, last)])
    (at,) = pointer.varying
    axis = pointer.axes[at]
    assert axis is not None
    found = content[np.clip(pointer.base[:, None] + axis, 0, last)]
    axes = tuple(found if k == at else None for k in range(len(kind.shape)))
    return Value(kind, np.zeros(len(found), dtype=np.int64), axes)


ACCESSES = {
    "tt.load": load,
    "tt.store": store,
    "tt.atomic_rmw": atomic,
    "tt.atomic_cas": atomic,
    "tt.make_tensor_descriptor": make_descriptor,
    "tt.descriptor_load": descriptor_load,
    "tt.descriptor_gather": descriptor_load,
    "tt.descriptor_store": descriptor_store,
    "tt.descriptor_scatter": descriptor_store,
    "tt.descriptor_reduce": descriptor_reduce,
}
