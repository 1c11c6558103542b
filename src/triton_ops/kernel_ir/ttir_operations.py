"""The meaning of each operation of TTIR as numbers of the values that it is given.

Loops, conditions and calls are in `evaluation.py`. Operations on single elements of floating point are counted, and
their results are unknown. An operation that is not in the table is taken for one of those: its results are unknown, and
a note says so where it is not one of floating point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from triton_ops.kernel_ir.trace import UNTOLD_ACCESS, Access, AccessTrace, DotTrace, Product, Reduction, Weights
from triton_ops.kernel_ir.ttir_syntax import TtirOperation, Type
from triton_ops.kernel_ir.ttir_walk import ProgramScope
from triton_ops.kernel_ir.values import (
    COMPARISONS,
    Value,
    Vector,
    add,
    conjunction,
    elementwise,
    merge,
    multiply,
    uniform,
    unknown,
)

_SPREAD = 7919  # numbers that stand in for loaded data are this far apart for neighbouring addresses
_FARTHEST = 1 << 40
_UNKNOWN_STRIDE = 1 << 20
_COORDINATES = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")


def _load(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    pointer, *rest = scope.all(operation.operands)
    mask = rest[0] if rest and rest[0].type.truth else None
    _record_access(scope, operation, "load", pointer, mask)
    return [_loaded_data(scope, operation, pointer)]


def _store(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    pointer, *rest = scope.all(operation.operands)
    _record_access(scope, operation, "store", pointer, rest[1] if len(rest) > 1 else None)
    return []


def _atomic(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """`tt.atomic_rmw` and `tt.atomic_cas`: pointers, values, perhaps a mask; what was there before is data."""
    pointer, *rest = scope.all(operation.operands)
    mask = rest[-1] if rest and rest[-1].type.truth else None
    _record_access(scope, operation, "atomic", pointer, mask)
    return [unknown(operation.result_type, made_up=True)]


def _make_descriptor(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    base = scope.value(operation.operands[0])
    extents, strides = (scope.all(_NAME.findall(part)) for part in _COORDINATES.findall(operation.text)[:2])
    block = operation.types[-1]  # `<64x32xbf16>`, or with `tensor` before it
    kind = Type(block.shape, base.type.element, descriptor=True)
    return [
        Value(kind, base.base, (None,) * len(kind.shape), base.root, strides=tuple(strides), extents=tuple(extents))
    ]


def _descriptor_load(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    kind = operation.result_type
    _record_block(scope, operation, "load", kind)
    return [unknown(kind, source=operation.number)]


def _descriptor_store(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    kind = "atomic" if operation.name == "tt.descriptor_reduce" else "store"
    _record_block(scope, operation, kind, operation.types[-1])
    return []


def _record_access(
    scope: ProgramScope, operation: TtirOperation, kind: str, pointer: Value, mask: Value | None
) -> None:
    element, size = pointer.type.element, pointer.type.item_bytes
    _count_access(scope, operation, pointer, mask, kind=kind, element=element, item_bytes=size, run_bytes=float(size))


def _record_block(scope: ProgramScope, operation: TtirOperation, kind: str, block: Type) -> None:
    """Count a block of a tensor whose place the coordinates tell."""
    described = scope.value(operation.operands[0])
    at = scope.all(_NAME.findall(_COORDINATES.findall(operation.text)[0]))
    tile, size = prod(block.shape), block.item_bytes
    run = (block.shape[-1] if block.shape else 1) * size
    _count_access(
        scope, operation, _corner(scope, described, at), None, _elements_inside(scope, described, at, block),
        kind=kind, element=block.element, item_bytes=size, descriptor=True, tile=tile, run_bytes=run,
        lines=tile * size / min(128, run), sectors=tile * size / min(32, run),
    )  # fmt: skip


def _count_access(
    scope: ProgramScope,
    operation: TtirOperation,
    pointer: Value,
    mask: Value | None,
    elements: Weights | None = None,
    **figures: Any,
) -> None:
    for pointers in scope.first_pointers:
        pointers.setdefault(operation.number, pointer)
    access = AccessTrace(
        Access(**(UNTOLD_ACCESS | figures)), pointer, scope.loops, np.zeros(scope.count), np.zeros(scope.count)
    )
    scope.trace.accessed(operation.number, access, scope.weight, mask, elements)


def _corner(scope: ProgramScope, described: Value, at: list[Value]) -> Value:
    """The begin of a block, as a pointer; tensors of coordinates, as of a gather, count as data."""
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


def _elements_inside(scope: ProgramScope, described: Value, at: list[Value], block: Type) -> Weights:
    elements = np.ones(scope.count)
    for axis, length in enumerate(block.shape):
        extent = described.extents[axis].base if axis < len(described.extents) else None
        begin = at[axis].base if axis < len(at) and not at[axis].varying and not at[axis].made_up else None
        length_inside = length if extent is None or begin is None else np.clip(extent - begin, 0, length)
        elements = elements * length_inside
    return elements


def _loaded_data(scope: ProgramScope, operation: TtirOperation, pointer: Value) -> Value:
    """The value of a load: data where it is known, numbers in its place where it is whole numbers, else unknown."""
    source = pointer.type
    pointers = source.element.startswith("!")
    kind = Type(source.shape, "i8" if pointers else source.element, pointer=pointers)
    if not kind.whole or pointer.base is None:
        return unknown(kind, made_up=kind.whole, source=operation.number)
    content = None if pointer.root is None else scope.programs.contents.get(pointer.root)
    if content is not None and not pointer.made_up and len(pointer.varying) < 2:
        return _known_data(kind, pointer, content)
    axes = tuple(None if axis is None else axis * _SPREAD % _FARTHEST for axis in pointer.axes)
    base = (pointer.base * _SPREAD + operation.number) % _FARTHEST
    return replace(uniform(kind, base, made_up=True), axes=axes)


def _known_data(kind: Type, pointer: Value, content: Vector) -> Value:
    assert pointer.base is not None
    last = len(content) - 1
    if not pointer.varying:
        return uniform(kind, content[np.clip(pointer.base, 0, last)])
    (at,) = pointer.varying
    axis = pointer.axes[at]
    assert axis is not None
    elements = content[np.clip(pointer.base[:, None] + axis, 0, last)]
    axes = tuple(elements if k == at else None for k in range(len(kind.shape)))
    return Value(kind, np.zeros(len(elements), dtype=np.int64), axes)


Handler: TypeAlias = Callable[[ProgramScope, TtirOperation], Sequence[Value]]

_SPECIAL = {
    "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt", "math.rsqrt", "math.sin", "math.cos", "math.tanh",
    "math.erf", "math.powf", "math.log1p", "math.expm1", "tt.precise_sqrt", "tt.precise_divf", "arith.divf",
    "arith.remf", "tt.extern_elementwise",
}  # fmt: skip
_MOVING = {"tt.trans", "tt.reshape", "ttg.convert_layout", "tt.bitcast", "arith.extf", "arith.truncf", "tt.fp_to_fp"}
_NOTHING = {
    "scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br", "tt.reduce.return", "tt.scan.return", "tt.assert",
    "tt.print", "gpu.barrier", "llvm.intr.assume", "ttg.barrier", "ttg.local_barrier", "tt.map_elementwise.return",
}  # fmt: skip


def unknown_results(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """The results of an operation that is not in the table: unknown; of floating point, the elements are counted."""
    name, kinds = operation.name, operation.kinds
    if not kinds:
        if name not in _NOTHING:
            scope.trace.note(f"{name} is not known here, and is taken to do nothing")
        return []
    if not name.startswith(("arith.", "math.", "tt.")):
        scope.trace.note(f"{name} is not known here, and its result counts as unknown")
    if not kinds[0].whole and not kinds[0].pointer:
        _count(scope, operation, kinds[0], name in _SPECIAL)
    return [unknown(kind) for kind in kinds]


def _count(scope: ProgramScope, operation: TtirOperation, kind: Type, special: bool) -> None:
    if operation.types or operation.result_types:
        elements = prod((operation.types[0] if operation.name in _MOVING else kind).shape)
        scope.trace.computed(scope.loop, scope.weight, elements, special)


def _constant(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    kind, number = operation.result_type, operation.literal
    if not kind.whole or not (number in ("true", "false") or number.lstrip("-").isdecimal()):
        return [unknown(kind)]
    value = int(number == "true") if number in ("true", "false") else int(number)
    return [uniform(kind, np.full(scope.count, abs(value) if kind.truth else value, dtype=np.int64), written=True)]


def _program(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    grid, axis = scope.programs.grid, operation.grid_axis
    ids = scope.programs.ids // prod(grid[:axis])
    if operation.name == "tt.get_num_programs":
        return [uniform(operation.result_type, np.full(scope.count, grid[axis], dtype=np.int64))]
    return [uniform(operation.result_type, ids if axis == 2 else ids % grid[axis])]


def _range(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    kind, start = operation.result_type, operation.attribute("start") or 0
    begin = np.full(scope.count, start, dtype=np.int64)
    if not scope.programs.whole or kind.shape[0] < 2:
        return [uniform(kind, begin)]
    return [Value(kind, begin, (np.arange(kind.shape[0], dtype=np.int64)[None, :],))]


def _broadcast(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """`tt.splat` and `tt.broadcast`: the same elements, more often."""
    value, kind = scope.value(operation.operands[0]), operation.result_type
    return [replace(value, type=kind, axes=value.axes or (None,) * len(kind.shape))]


def _expand_dims(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    value, at = scope.value(operation.operands[0]), operation.attribute("axis") or 0
    return [replace(value, type=operation.result_type, axes=(*value.axes[:at], None, *value.axes[at:]))]


def _transpose(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    value = scope.value(operation.operands[0])
    axes = tuple(value.axes[axis] for axis in operation.order(len(value.axes)))
    return [replace(value, type=operation.result_type, axes=axes)]


def _reshape(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """The same elements in another shape: known if elements vary along one axis that stays, or along none."""
    value, kind = scope.value(operation.operands[0]), operation.result_type
    varying = value.varying
    if not varying:
        return [replace(value, type=kind, axes=(None,) * len(kind.shape))]
    before, after = value.type.shape, kind.shape
    if len(varying) == 1 and [n for n in before if n > 1] == [n for n in after if n > 1]:
        extent = before[varying[0]]
        rank = [n for n in before if n > 1].index(extent)
        at = [k for k, n in enumerate(after) if n > 1][rank]
        axes = tuple(value.axes[varying[0]] if k == at else None for k in range(len(after)))
        return [replace(value, type=kind, axes=axes)]
    return [unknown(kind, root=value.root, made_up=value.made_up, source=value.source)]


def _keep(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """A change of type that keeps whole numbers as they are; truth values become numbers."""
    value, kind = scope.value(operation.operands[0]), operation.result_type
    if kind.truth and not value.type.truth:
        return [elementwise(kind, lambda x: x & 1, value)]
    if value.type.truth and not kind.truth:
        sign = -1 if operation.name == "arith.extsi" else 1
        return [elementwise(kind, lambda x: sign * x, value)]
    return [replace(value, type=kind)]


def _bitcast(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    value, kind = scope.value(operation.operands[0]), operation.result_type
    if (kind.pointer and value.type.pointer) or (kind.whole and value.type.whole):
        return [replace(value, type=kind)]
    return [unknown(kind, source=value.source, made_up=value.made_up)]


def _convert(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """Floating point in another format, which counts as one instruction for each element; its source stays known."""
    value, kind = scope.value(operation.operands[0]), operation.result_type
    _count(scope, operation, kind, special=False)
    return [replace(value, type=kind)]


def _add(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    one, other = scope.all(operation.operands)
    kind = operation.types[0] if operation.name == "tt.addptr" else operation.result_type
    return [add(kind, one, other, -1 if operation.name == "arith.subi" else 1)]


def _multiply(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    one, other = scope.all(operation.operands)
    kind = operation.result_type
    return [conjunction(kind, one, other) if kind.truth else multiply(kind, one, other)]


def _quotient(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(safe) * (np.sign(a) * np.sign(safe))
    return np.where(b == 0, 0, quotient)


def _remainder(a: Any, b: Any) -> Any:
    return a - _quotient(a, b) * b


def _ceiling(a: Any, b: Any) -> Any:
    return -(-a // np.where(b == 0, 1, b))


_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "arith.divsi": _quotient, "arith.divui": _quotient, "arith.remsi": _remainder, "arith.remui": _remainder,
    "arith.floordivsi": lambda a, b: a // np.where(b == 0, 1, b),
    "arith.ceildivsi": _ceiling, "arith.ceildivui": _ceiling,
    "arith.minsi": np.minimum, "arith.minui": np.minimum, "arith.maxsi": np.maximum, "arith.maxui": np.maximum,
    "arith.shli": lambda a, b: a << np.clip(b, 0, 62), "arith.shrsi": lambda a, b: a >> np.clip(b, 0, 62),
    "arith.shrui": lambda a, b: a >> np.clip(b, 0, 62),
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
}  # fmt: skip


def _whole_number(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    one, other = scope.all(operation.operands)
    kind = operation.result_type
    if kind.truth and operation.name == "arith.andi":
        return [conjunction(kind, one, other)]
    return [elementwise(kind, _WHOLE[operation.name], one, other)]


def _compare(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """A comparison; of what stands in for data the outcome is unknown."""
    one, other = scope.all(operation.operands)
    kind = Type(operation.result_type.shape, "i1")
    compare = COMPARISONS.get(operation.predicate[-2:])
    if one.made_up or other.made_up or compare is None:
        return [unknown(kind, made_up=True)]
    return [elementwise(kind, compare, one, other)]


def _select(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    condition, one, other = scope.all(operation.operands)
    kind = operation.result_type
    if not (kind.whole or kind.pointer):
        _count(scope, operation, kind, special=False)
        return [unknown(kind)]
    if condition.known and not condition.varying:
        assert condition.base is not None
        return [merge(condition.base, one, other)]
    root = one.root if one.root == other.root else None
    return [replace(elementwise(kind, np.where, condition, one, other), root=root)]


def _dot(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """`tt.dot` and `tt.dot_scaled`, whose first operand may hold two elements in a byte."""
    left, *others = scope.all(operation.operands)
    kind = operation.result_types[-1]
    tensors = [value for value in others if len(value.type.shape) == len(kind.shape)]
    right = next((v for v in tensors if v.type.shape[-1] == kind.shape[-1] and v is not tensors[-1]), tensors[0])
    inner = left.type.shape[-1] * (2 if operation.name == "tt.dot_scaled" and "lhs = e2m1" in operation.text else 1)
    rows, columns = kind.shape[-2:]
    batch = kind.shape[0] if len(kind.shape) == 3 else 1
    product = Product(
        batch=batch, rows=rows, columns=columns, inner=inner, element=left.type.element, loop=-1, executions=0.0,
        loads=(-1, -1),
    )  # fmt: skip
    dot = DotTrace(product, scope.loops, (left.source, right.source), np.zeros(scope.count))
    scope.trace.dots.setdefault(operation.number, dot).executions += scope.weight
    return [unknown(kind)]


def _reduce(scope: ProgramScope, operation: TtirOperation) -> list[Value]:
    """`tt.reduce` and `tt.scan`, which count once for each element that they take."""
    elements = prod(operation.types[0].shape) * len(operation.results)
    scope.trace.computed(scope.loop, scope.weight, elements, special=False)
    scope.trace.reductions += scope.weight
    axis = operation.attribute("axis")
    if operation.name == "tt.reduce" and axis is not None:
        reduction = Reduction(shape=operation.types[0].shape, axis=axis, executions=0.0)
        counts = scope.trace.reduced.setdefault(operation.number, (reduction, np.zeros(scope.count)))[1]
        counts += scope.weight
    operands = scope.all(operation.operands)
    made_up = any(value.made_up for value in operands)
    return [unknown(kind, made_up=made_up) for kind in operation.result_types[: len(operation.results)]]


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("tt.atomic_rmw", "tt.atomic_cas"), _atomic),
    **dict.fromkeys(("tt.descriptor_load", "tt.descriptor_gather"), _descriptor_load),
    **dict.fromkeys(("tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce"), _descriptor_store),
    **dict.fromkeys(_WHOLE, _whole_number),
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui"), _keep),
    **dict.fromkeys(("arith.bitcast", "tt.bitcast", "ttg.convert_layout"), _bitcast),
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _convert),
    **dict.fromkeys(("tt.dot", "tt.dot_scaled"), _dot),
    **dict.fromkeys(("tt.reduce", "tt.scan"), _reduce),
    **dict.fromkeys(
        ("arith.fptosi", "arith.fptoui"), lambda _, operation: [unknown(operation.result_type, made_up=True)]
    ),
    **dict.fromkeys(("tt.splat", "tt.broadcast"), _broadcast),
    "tt.load": _load,
    "tt.store": _store,
    "tt.make_tensor_descriptor": _make_descriptor,
    "arith.constant": _constant,
    "tt.get_program_id": _program,
    "tt.get_num_programs": _program,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
    "tt.int_to_ptr": lambda scope, operation: [  # into a tensor of its own, which the operation names
        replace(scope.value(operation.operands[0]), type=operation.result_type, root=-operation.number)
    ],
    "tt.addptr": _add,
    "arith.addi": _add,
    "arith.subi": _add,
    "arith.muli": _multiply,
    "arith.cmpi": _compare,
    "arith.select": _select,
}
