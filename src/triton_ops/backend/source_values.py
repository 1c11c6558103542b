"""The meaning of expressions in a kernel's source, with nothing executed: what they are made of, and their shapes.

An index is a sum of products; a block has for each axis the constants that size it. Names are followed to what they are
given, and parameters of helpers to what the caller gives.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from triton_ops.backend.kernel_source import KernelSource, last_name

Shape: TypeAlias = "tuple[frozenset[str], ...] | None"  # for each axis the constants that size it; None if unknown

NONE: frozenset[str] = frozenset()
REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or"}
DOTS = {"dot": (0, 1), "dot_scaled": (0, 3)}  # the places of both factors
BLOCKS = {"make_block_ptr": (4, "block_shape"), "make_tensor_descriptor": (3, "block_shape"),
           "zeros": (0, "shape"), "full": (0, "shape"), "broadcast_to": (1, "shape"), "reshape": (1, "shape"),
           "view": (1, "shape"), "_experimental_descriptor_load": (2, "shape")}  # fmt: skip
_SAME_PLACE = {"to", "cast", "multiple_of", "max_contiguous", "broadcast_to", "expand_dims", "reshape", "where"}
_ARITHMETIC = {"cdiv", "min", "max", "constexpr"}
_MARKS = {"program_id": {"program"}, "arange": {"range"}, "load": {"load"}}
_MOST_TERMS, _DEEPEST, _MOST_CALLS = 64, 24, 6


class Atom(NamedTuple):
    """A factor in the sum of products that an index is: a name, a constant, a range of one, or any other expression."""

    kind: str  # "name", "constant", "range", "other"
    key: str
    constants: frozenset[str] = NONE
    made_of: frozenset[str] = NONE


Terms: TypeAlias = "list[tuple[Atom, ...]]"


class CallFrame:
    """One call of a function, with what its parameters are given in the frame of the caller."""

    def __init__(
        self, source: KernelSource, given: Mapping[str, tuple[ast.expr, CallFrame]] | None = None, depth: int = 0
    ) -> None:
        self.source, self.given, self.depth = source, given, depth
        self._helpers: dict[int, CallFrame | None] = {}
        self._shapes: dict[str, Shape] = {}
        self._busy: set[str] = set()
        self._terms: dict[str, Terms] = {}
        self._made_of: dict[int, tuple[ast.expr, frozenset[str]]] = {}  # with the node, so that no identity returns

    def constants(self, node: ast.expr, deep: int = 0) -> frozenset[str] | None:
        """The kernel's constants that an expression is made of; None if it is made of anything else."""
        if isinstance(node, ast.Constant):
            return NONE
        if deep > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            return self._constants_of_name(node.id, deep)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)):
            return self._together(list(ast.iter_child_nodes(node)), deep)
        if isinstance(node, ast.Call):
            return self._together([*node.args], deep) if last_name(node) in _ARITHMETIC else None
        return NONE if isinstance(node, ast.Attribute) and node.attr.startswith("float") else None

    def _together(self, nodes: list[Any], deep: int) -> frozenset[str] | None:
        parts = [self.constants(each, deep + 1) for each in nodes if isinstance(each, ast.expr)]
        return None if None in parts else NONE.union(*filter(None, parts))

    def _constants_of_name(self, name: str, deep: int) -> frozenset[str] | None:
        source = self.source
        if name in source.stores:
            values = source.assignments.get(name, ())
            return self._together(list(values), deep) if len(values) == 1 and name not in source.own_names else None
        if name not in source.own_names:
            return NONE
        if self.given is None:
            return frozenset((name,)) if name in source.constants else None
        if name not in self.given:
            return NONE  # its default
        node, frame = self.given[name]
        return frame.constants(node, deep + 1)

    def values_of(self, name: str) -> list[tuple[ast.expr, CallFrame]]:
        """The expressions that a name is given here, or by the caller."""
        values: list[tuple[ast.expr, CallFrame]] = [(each, self) for each in self.source.assignments.get(name, ())]
        if self.given is not None and name in self.given:
            values.append(self.given[name])
        return values

    def helper(self, call: ast.Call) -> CallFrame | None:
        """The frame of a call of another JIT function; None for any other call."""
        if id(call) not in self._helpers:
            callee = self.source.callee(call) if self.depth < _MOST_CALLS else None
            self._helpers[id(call)] = (
                None
                if callee is None
                else CallFrame(callee, {name: (value, self) for name, value in callee.bound(call)}, self.depth + 1)
            )
        return self._helpers[id(call)]

    def made_of(self, node: ast.expr) -> frozenset[str]:
        """What an expression is made of, through names and helpers: `program`, `loop`, `range`, `load`."""
        if id(node) not in self._made_of:
            self._made_of[id(node)] = node, frozenset(self._marks(node, set()))
        return self._made_of[id(node)][1]

    def _marks(self, node: ast.expr, visited: set[tuple[int, str]]) -> set[str]:
        marks: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                marks |= _MARKS.get(last_name(inner), set())
                if (frame := self.helper(inner)) is not None and (id(inner), "") not in visited:
                    visited.add((id(inner), ""))
                    marks = marks.union(*(frame._marks(value, visited) for value in frame.returned))
            elif isinstance(inner, ast.Name) and (id(self), inner.id) not in visited:
                visited.add((id(self), inner.id))
                for value, frame in self.values_of(inner.id):
                    marks |= frame._marks(value, visited) | ({"loop"} if _is_loop(value) else set())
        return marks

    @cached_property
    def returned(self) -> list[ast.expr]:
        """What the function returns."""
        nodes = (node for node in ast.walk(self.source.node) if isinstance(node, ast.Return))
        return [node.value for node in nodes if node.value is not None]

    def terms(self, node: ast.expr) -> Terms:
        """An index as a sum of products; what is neither a sum nor a product is one factor."""
        constants = self.constants(node)
        if constants is not None:
            return [(Atom("constant", ast.unparse(node), constants),)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return (self.terms(node.left) + self.terms(node.right))[:_MOST_TERMS]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            pairs = ((a, b) for a in self.terms(node.left) for b in self.terms(node.right))
            return [(*a, *b) for a, b in pairs][:_MOST_TERMS]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "range" in self.made_of(node.left):
            return self.terms(node.left)  # elements beyond the end are wrapped round to its beginning
        if isinstance(node, ast.Subscript):
            return self.terms(node.value)
        if isinstance(node, ast.Call):
            return self._terms_of_call(node)
        if isinstance(node, ast.Name):
            return self._terms_of_name(node)
        return [(Atom("other", ast.unparse(node), made_of=self.made_of(node)),)]

    def _terms_of_call(self, call: ast.Call) -> Terms:
        name = last_name(call)
        if name == "arange" and len(call.args) == 2:
            return [(Atom("range", ast.unparse(call), self.constants(call.args[1]) or NONE),)]
        if name in _SAME_PLACE:
            inner = self.operands(call)
            place = 1 if name == "where" else 0
            return self.terms(inner[place]) if len(inner) > place else []
        return [(Atom("other", ast.unparse(call), made_of=self.made_of(call)),)]

    def _terms_of_name(self, node: ast.Name) -> Terms:
        name = node.id
        if name not in self._terms:
            self._terms[name] = [(Atom("name", f"{id(self)}.{name}", made_of=self.made_of(node)),)]
            sums = [pair for pair in self.values_of(name) if _is_sum(pair[0])]
            terms = [term for value, frame in sums for term in frame.terms(value)][:_MOST_TERMS]
            self._terms[name] = terms or self._terms[name]
        return self._terms[name]

    def operands(self, call: ast.Call) -> list[ast.expr]:
        """The arguments by place; of a method the value itself comes first."""
        if isinstance(call.func, ast.Attribute):
            root = call.func.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name) or root.id in self.source.stores or root.id in self.source.own_names:
                return [call.func.value, *call.args]
        return list(call.args)

    def shape(self, node: ast.expr) -> Shape:
        """The constants that size each axis of a block; an empty tuple for a number, None where it is not known."""
        if isinstance(node, ast.Name):
            return self._shape_of_name(node.id)
        if isinstance(node, ast.Subscript):
            return self._shape_of_index(node)
        if isinstance(node, ast.Call):
            return self._shape_of_call(node)
        if isinstance(node, ast.Attribute) and node.attr == "T":
            return _reversed(self.shape(node.value))
        if isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp)):
            return _broadcast([self.shape(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)])
        return () if isinstance(node, ast.Constant) else None

    def _shape_of_name(self, name: str) -> Shape:
        if name not in self._shapes and name not in self._busy:
            self._busy.add(name)
            shapes = (frame.shape(value) for value, frame in self.values_of(name) if not _is_loop(value))
            shape = max((each for each in shapes if each is not None), key=len, default=None)
            is_number = shape is None and name in self.source.own_names
            self._shapes[name] = () if is_number else shape
            self._busy.discard(name)
        return self._shapes.get(name)

    def _shape_of_index(self, node: ast.Subscript) -> Shape:
        inner = self.shape(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if inner is None or not all(_is_none(one) or isinstance(one, ast.Slice) for one in parts):
            return None
        axes = iter(inner)
        return tuple(NONE if _is_none(one) else next(axes, NONE) for one in parts)

    def _shape_of_call(self, call: ast.Call) -> Shape:
        name, operands = last_name(call), self.operands(call)
        if (frame := self.helper(call)) is not None:
            return next((shape for value in frame.returned if (shape := frame.shape(value)) is not None), None)
        if name == "arange" and len(operands) == 2:
            return (self.constants(operands[1]) or NONE,)
        if name in BLOCKS:
            sizes = self.source.argument(call, *BLOCKS[name])
            return self.sizes(sizes) if sizes is not None else None
        if name in DOTS and len(operands) > DOTS[name][1]:
            left, right = (self.shape(operands[place]) for place in DOTS[name])
            return (left[-2], right[-1]) if left and right and len(left) > 1 and len(right) > 1 else None
        if name == "trans" and len(operands) == 1:
            return _reversed(self.shape(operands[0]))
        if name in REDUCTIONS:
            return self._without_axis(call, operands)
        return self._shape_by_operands(call, name, operands)

    def _shape_by_operands(self, call: ast.Call, name: str, operands: list[ast.expr]) -> Shape:
        if name == "expand_dims" and len(operands) == 2 and isinstance(operands[1], ast.Constant):
            inner, at = self.shape(operands[0]), operands[1].value
            return None if inner is None or not isinstance(at, int) else (*inner[:at], NONE, *inner[at:])
        if (offsets := offsets_of(call)) is not None and not self.shape(operands[0]):
            return tuple(self.constants_within(each) for each in offsets)
        if name in ("advance", "load") or isinstance(call.func, ast.Attribute):
            return _broadcast([self.shape(each) for each in (operands[:1] if name == "advance" else operands)])
        return None

    def constants_within(self, node: ast.expr) -> frozenset[str]:
        """The constants that an index is a multiple of, in any of its parts."""
        return NONE.union(*(atom.constants for term in self.terms(node) for atom in term))

    def sizes(self, node: ast.expr) -> tuple[frozenset[str], ...]:
        """The constants of each item of a shape."""
        sizes = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        return tuple(self.constants(each) or NONE for each in sizes)

    def axis(self, call: ast.Call, place: int = 1) -> int | None:
        """The axis that a call names as a number; -1 for any from the end, None where it names none."""
        axis = self.source.argument(call, place if len(self.operands(call)) == len(call.args) else place - 1, "axis")
        if isinstance(axis, ast.UnaryOp):
            return -1
        return axis.value if isinstance(axis, ast.Constant) and isinstance(axis.value, int) else None

    def _without_axis(self, call: ast.Call, operands: list[ast.expr]) -> Shape:
        inner, axis = self.shape(operands[0]) if operands else None, self.axis(call)
        if not inner or axis is None or axis >= len(inner):
            return () if axis is None and inner else None
        return tuple(each for at, each in enumerate(inner) if at != axis % len(inner))


def _is_sum(node: ast.expr) -> bool:
    """Tell whether an index is made here, so that its parts are what it is made of."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Mod))
    if isinstance(node, ast.Call):
        return last_name(node) in _SAME_PLACE or last_name(node) == "arange"
    return isinstance(node, (ast.Subscript, ast.Name, ast.Constant))


def _is_loop(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node) in ("range", "static_range")


def offsets_of(call: ast.Call) -> list[ast.expr] | None:
    """The place of the block that a descriptor loads or stores; None for any other call."""
    first = call.args[0] if call.args and last_name(call) in ("load", "store") else None
    return first.elts if isinstance(first, (ast.List, ast.Tuple)) else None


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _reversed(shape: Shape) -> Shape:
    return None if shape is None else shape[::-1]


def _broadcast(shapes: list[Shape]) -> Shape:
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known), default=0)
    if not rank:
        return () if known else None
    padded = [(NONE,) * (rank - len(shape)) + shape for shape in known]
    return tuple(next((axis for axis in axes if axis), NONE) for axes in zip(*padded, strict=True))
