"""The roles of a kernel's constants, by its source: which are tiles, and which are part of the meaning.

A constant that sizes a range of elements is a tile where programs or turns of a loop step by it. Where nothing steps,
one block covers an extent whole: the constant follows from the extent that its mask names. A constant is part of the
meaning, whatever else it does, where it lays a tensor out, enters the arithmetic on data, or where a result of one
block is kept for itself. What helpers do with a constant that they are given counts as if it stood in the kernel.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend.kernel_source import KernelSource, last_name
from triton_ops.backend.source_values import BLOCKS, DOTS, NONE, REDUCTIONS, Atom, CallFrame, Shape, offsets_of

_SCANS = {"cumsum", "cumprod", "associative_scan", "sort", "softmax", "topk"}
_MEMORY = {"load", "store"}
_LAID_OUT = {"make_block_ptr": (1, 2), "make_tensor_descriptor": (1, 2)}  # the places of extents and strides
_LOOP_KEYWORDS = ("num_stages", "warp_specialize", "flatten", "loop_unroll_factor", "disallow_acc_multi_buffer")
_KEYWORDS = {
    **dict.fromkeys(_LOOP_KEYWORDS, "option"),
    **dict.fromkeys(("allow_tf32", "input_precision", "max_num_imprecise_acc", "out_dtype"), "rounding"),
    **dict.fromkeys(("dtype", "element_ty"), "type"),
}
"""The kind of use that a constant has as one of these arguments."""

MEANING = {
    "layout": "it is an extent or a stride of a tensor",
    "stride": "it is a stride: elements are numbered by it",
    "parts": "it divides the elements of a tensor into groups",
    "value": "it enters the arithmetic on data",
    "type": "it is a type",
    "rounding": "it decides how products are rounded",
}
"""The uses that make a constant a part of the meaning, whatever its other uses are."""
_DOUBTS = {
    "numbering": "its tiles are numbered in memory: a tensor is laid out by them",
    "partial": "it decides which elements one program combines, and each program's result is kept for itself",
}
"""The uses that make a tile a part of the meaning, unless the caller makes up for it."""
_OTHERS: tuple[tuple[set[str], str, str], ...] = (
    ({"option"}, "option", "it is the {} of a loop"),
    ({"group"}, "group", "it groups neighbouring programs, and moves no result"),
    ({"programs"}, "programs", "it is the number of programs, which the grid decides"),
    ({"divided"}, "split", "it divides a loop among programs"),
    ({"turns", "placed"}, "count", "it counts what one program does in turn"),
)
"""The roles of constants that size no block, by the uses that they have."""
_FIXED = {
    "extent": "it is an extent: a mask is compared with it",
    "heads": "it divides the programs among the parts of a tensor",
    "turns": "it counts the turns of a loop",
    "branch": "the kernel branches on it",
}


@dataclass(frozen=True)
class ConstantRole:
    """The role of a constant: `tile`, `derived`, `group`, `split`, `count`, `option` or `meaning`, with the reason.

    Attributes:
        extents: The parameters that its tiles cover, or of a derived constant the one that it must cover.
        axes: Whether it is a row (`m`), a column (`n`) or the inner extent (`k`) of a product of tiles.
        option: Of an option, the argument of a loop that it is given as, such as `num_stages`.
        masked: Whether a mask or a descriptor guards the end of what it steps through.
        by_grid: Whether the grid must have a program for each of its tiles.
        doubt: Why it may be a part of the meaning nevertheless, which only runs with other values tell.
    """

    name: str
    kind: str
    reason: str
    extents: tuple[str, ...] = ()
    axes: frozenset[str] = NONE
    option: str = ""
    masked: bool = True
    by_grid: bool = False
    doubt: str = ""


@dataclass
class _Uses:
    """The uses of the kernel's constants by kind, and what is found beside them."""

    kinds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    extents: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    axes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # names that number or count tiles
    addresses: list[tuple[Atom, ...]] = field(default_factory=list)
    ties: set[tuple[str, str]] = field(default_factory=set)  # the first is a multiple of the second
    asserts: list[ast.expr] = field(default_factory=list)
    products: list[tuple[Shape, Shape]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)  # constant -> the argument of a loop that it is
    atomics: bool = False
    loops: bool = False  # whether a loop loads

    def note(self, kind: str, constants: frozenset[str]) -> None:
        for name in constants:
            self.kinds[name].add(kind)


class _Visit:
    """A visit of one call of a function, whose uses of constants it notes."""

    def __init__(self, frame: CallFrame, uses: _Uses) -> None:
        self.frame, self.source, self.uses = frame, frame.source, uses

    def visit(self) -> None:
        """Note the uses of constants in this function, and in those that it calls."""
        for node in ast.walk(self.source.node):
            if (handler := _HANDLERS.get(type(node))) is not None:
                handler(self, node)
        for name, values in self.source.assignments.items():
            for value in values:
                self._note_count(f"{id(self.frame)}.{name}", value)

    def _note_count(self, key: str, value: ast.expr) -> None:
        """Note a name that is given the number of tiles."""
        if isinstance(value, ast.Call) and last_name(value) == "cdiv" and len(value.args) > 1:
            divisor = value.args[1]
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv):
            divisor = value.right
        else:
            return
        if self.frame.constants(value) is None:
            for constant in self.frame.constants(divisor) or ():
                self.uses.numbers[constant].add(key)

    def _visit_branch(self, node: ast.If | ast.IfExp | ast.While) -> None:
        parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        for part in parts:
            inner = part.operand if isinstance(part, ast.UnaryOp) else part
            self.uses.note("flag" if isinstance(inner, ast.Name) else "branch", self.frame.constants(inner) or NONE)

    def _visit_call(self, call: ast.Call) -> None:
        name, operands, uses = last_name(call), self.frame.operands(call), self.uses
        if (frame := self.frame.helper(call)) is not None:
            _Visit(frame, uses).visit()
            return
        for keyword in call.keywords:
            kind = _KEYWORDS.get(str(keyword.arg))
            for constant in (kind and self.frame.constants(keyword.value)) or ():
                uses.kinds[constant].add(str(kind))
                uses.options[constant] = str(keyword.arg)
        if len(operands) > 1 and (name in ("arange", "to", "cast")):
            uses.note("range" if name == "arange" else "type", self.frame.constants(operands[1]) or NONE)
        elif name == "cdiv" and len(operands) == 2:
            self._note_cover(operands[0], operands[1])
        elif name in ("min", "minimum", "swizzle2d"):
            self._visit_least(operands[-1:] if name == "swizzle2d" else operands, operands)
        elif name == "static_assert" and operands:
            uses.asserts.append(operands[0])
        uses.atomics |= name.startswith("atomic")
        self._visit_shapes(call, name)
        self._visit_memory(call, name, operands)
        self._visit_combination(call, name, operands)

    def _visit_least(self, candidates: list[ast.expr], operands: list[ast.expr]) -> None:
        """The least of a constant and a number of programs is the size of a group of them."""
        made_of = NONE.union(*(self.frame.made_of(each) for each in operands if self.frame.constants(each) is None))
        for each in candidates if made_of & {"program", "loop"} else ():
            self.uses.note("group", self.frame.constants(each) or NONE)

    def _visit_shapes(self, call: ast.Call, name: str) -> None:
        sizes = self.source.argument(call, *BLOCKS[name]) if name in BLOCKS else None
        placed = [self.frame.constants_within(each) for each in offsets_of(call) or ()]
        for axis in (self.frame.sizes(sizes) if sizes is not None else ()) + tuple(placed):
            self.uses.note("block", axis)
        for place, keyword_name in zip(_LAID_OUT.get(name, ()), ("shape", "strides"), strict=False):
            node = self.source.argument(call, place, keyword_name)
            for part in ast.walk(node) if node is not None else ():
                self.uses.note("layout", (self.frame.constants(part) or NONE) if isinstance(part, ast.expr) else NONE)

    def _visit_memory(self, call: ast.Call, name: str, operands: list[ast.expr]) -> None:
        uses = self.uses
        if name in _MEMORY or name.startswith("atomic"):
            addresses = operands[:1]
        elif name == "make_block_ptr":
            base, offsets = self.source.argument(call, 0, "base"), self.source.argument(call, 3, "offsets")
            addresses = [
                *([base] if base else []),
                *(offsets.elts if isinstance(offsets, (ast.Tuple, ast.List)) else ()),
            ]
        else:
            return
        for each in addresses:
            uses.addresses += self.frame.terms(each)

    def _visit_combination(self, call: ast.Call, name: str, operands: list[ast.expr]) -> None:
        uses = self.uses
        if name in DOTS and len(operands) > DOTS[name][1]:
            left, right = (self.frame.shape(operands[place]) for place in DOTS[name])
            uses.products.append((left, right))
            for shape, at, side in ((left, -2, "m"), (left, -1, "k"), (right, -2, "k"), (right, -1, "n")):
                for constant in shape[at] if shape and len(shape) > 1 else ():
                    uses.axes[constant].add(side)
                    uses.note("combined", frozenset((constant,)) if side == "k" else NONE)
        elif name in REDUCTIONS | _SCANS and operands and "load" in self.frame.made_of(operands[0]):
            shape = self.frame.shape(operands[0]) or ()
            axis = self.frame.axis(call)
            is_all = axis is None and name in REDUCTIONS
            for constants in shape if is_all else shape[axis or 0 :][:1]:
                uses.note("combined", constants)

    def _visit_operation(self, node: ast.BinOp) -> None:
        left, right, uses = self.frame.constants(node.left), self.frame.constants(node.right), self.uses
        if (left is None) == (right is None):
            if isinstance(node.op, ast.Mult):
                self._note_products(node)
            return
        constants, other = (left, node.right) if left is not None else (right, node.left)
        made_of, shape = self.frame.made_of(other), self.frame.shape(other)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right is not None:
            if "range" in made_of or (shape and "load" in made_of):
                uses.note("parts", constants or NONE)
            elif "program" in made_of or "loop" in made_of:
                uses.note("heads", constants or NONE)
            else:
                self._note_cover(other, node.right)
        elif isinstance(node.op, ast.Mult):
            self._note_products(node)
        if shape and "load" in made_of and self._is_data(other) and not isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            uses.note("value", constants or NONE)

    def _is_data(self, node: ast.expr) -> bool:
        """Tell whether a block is no index: whether nothing that is loaded or stored is addressed by it."""
        return not any(atom.kind == "range" for term in self.frame.terms(node) for atom in term)

    def _note_products(self, node: ast.BinOp) -> None:
        for term in self.frame.terms(node):
            constants = NONE.union(*(atom.constants for atom in term if atom.kind == "constant"))
            others = [atom for atom in term if atom.kind != "constant"]
            moving = [atom for atom in others if atom.made_of & {"program", "loop"} and "range" not in atom.made_of]
            if any(atom.kind == "range" for atom in others):
                self.uses.note("stride", constants)
            elif moving:
                steps = any("program" not in atom.made_of for atom in moving)
                self.uses.note("stepped" if steps else "placed", constants)
                self.uses.note("looped", constants if any("loop" in atom.made_of for atom in moving) else NONE)
                for constant in constants if len(others) == len(moving) else ():
                    self.uses.numbers[constant].update(atom.key for atom in moving if atom.kind == "name")

    def _visit_step(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, (ast.Add, ast.Sub)):
            is_programs = self._is_program_number(node.target, self.frame.constants(node.value))
            for term in self.frame.terms(node.value):
                if not any(atom.kind == "range" or atom.made_of for atom in term):
                    constants = NONE.union(*(atom.constants for atom in term))
                    self.uses.note("programs" if is_programs else "stepped", constants)
                    self.uses.note("divided", constants if len(constants) > 1 else NONE)

    def _is_program_number(self, node: ast.expr, step: frozenset[str] | None) -> bool:
        """Tell whether an index begins with the number of the program itself, and a step is that of all programs."""
        first = self.frame.terms(node) if step is not None else []
        return any(len(term) == 1 and "program" in term[0].made_of for term in first)

    def _visit_comparison(self, node: ast.Compare) -> None:
        if len(node.ops) > 1:
            return
        sides = [node.left, node.comparators[0]]
        pure = [self.frame.constants(side) for side in sides]
        if None not in pure:
            self.uses.note("branch", NONE.union(*filter(None, pure)))
            return
        for side, constants, other in zip(sides, pure, reversed(sides), strict=True):
            ranges = [atom for term in self.frame.terms(other) for atom in term if atom.kind == "range"]
            if constants and ranges:
                self.uses.note("extent", constants)
            for sized in {constant for atom in ranges for constant in atom.constants}:
                self.uses.note("masked", frozenset((sized,)))
                for name in self._parameters(side):
                    self.uses.extents[sized][name] = None

    def _parameters(self, node: ast.expr) -> Iterator[str]:
        """The kernel's parameters that an extent is, or is counted down from."""
        for term in self.frame.terms(node):
            for atom in term[:1] if len(term) == 1 else ():
                name = atom.key.partition(".")[2] if atom.kind == "name" else atom.key
                if name.isidentifier():
                    yield name

    def _note_cover(self, extent: ast.expr, tile: ast.expr) -> None:
        for constant in (constants := self.frame.constants(tile) or NONE):
            self.uses.note("covers", constants)
            for name in self._parameters(extent):
                self.uses.extents[constant][name] = None

    def _visit_loop(self, node: ast.For) -> None:
        call, uses = node.iter, self.uses
        if not isinstance(call, ast.Call) or last_name(call) not in ("range", "static_range") or not call.args:
            return
        uses.loops |= any(isinstance(one, ast.Call) and last_name(one) == "load" for one in ast.walk(node))
        bounds, step = call.args[:2], call.args[2] if len(call.args) == 3 else None
        if len(call.args) < 3 and ast.unparse(call.args[-1]) in self.source.own_names:
            uses.note("turns", self.frame.constants(call.args[-1]) or NONE)
        if step is None:
            return
        constants = self.frame.constants(step) or NONE
        is_programs = len(bounds) > 1 and self._is_program_number(bounds[0], self.frame.constants(step))
        uses.note("programs" if is_programs else "stepped", constants)
        uses.note("divided", constants if len(constants) > 1 else NONE)
        for constant in constants:
            for extent in self._parameters(bounds[-1]):
                uses.extents[constant][extent] = None
            others = {
                one for bound in bounds for term in self.frame.terms(bound) for atom in term for one in atom.constants
            }
            uses.ties |= {(other, constant) for other in others if other != constant}


_HANDLERS: dict[type[ast.AST], Any] = {
    ast.Call: _Visit._visit_call, ast.BinOp: _Visit._visit_operation, ast.AugAssign: _Visit._visit_step,
    ast.Compare: _Visit._visit_comparison, ast.If: _Visit._visit_branch, ast.IfExp: _Visit._visit_branch,
    ast.While: _Visit._visit_branch, ast.For: _Visit._visit_loop,
}  # fmt: skip


@dataclass(frozen=True)
class SourceRoles:
    """The roles of a kernel's constants, with ties between them and what else of the source counts for a space."""

    roles: Mapping[str, ConstantRole]
    ties: frozenset[tuple[str, str]]
    asserts: tuple[ast.expr, ...]
    products: bool
    loops: bool

    @classmethod
    def of(cls, source: KernelSource) -> SourceRoles:
        """Read the source of a kernel; some milliseconds."""
        uses = _Uses()
        _Visit(CallFrame(source), uses).visit()
        roles = {name: _role(name, uses) for name in source.parameters if name in source.constants}
        return cls(roles, frozenset(uses.ties), tuple(uses.asserts), bool(uses.products), uses.loops)


def _role(name: str, uses: _Uses) -> ConstantRole:
    kinds, extents = uses.kinds[name], tuple(uses.extents[name])
    sized, moved = kinds & {"range", "block"}, kinds & {"stepped", "placed", "programs"}
    if _numbered(name, uses):
        kinds.add("numbering")
    if sized and {"combined", "placed"} <= kinds and not kinds & {"stepped", "programs"} and not uses.atomics:
        kinds.add("partial")
    if (reason := next((reason for kind, reason in MEANING.items() if kind in kinds), None)) is not None:
        return ConstantRole(name, "meaning", reason)
    axes, doubt = frozenset(uses.axes[name]), next((text for kind, text in _DOUBTS.items() if kind in kinds), "")
    if sized and moved:
        how = "steps the loop" if kinds & {"stepped", "programs"} else "steps from program to program"
        return ConstantRole(
            name, "tile", f"sizes blocks, and {how}", extents, axes, masked=bool(kinds & {"masked", "block"}),
            by_grid=not kinds & {"stepped", "looped", "programs"}, doubt=doubt,
        )  # fmt: skip
    if "flag" in kinds and not kinds & {"branch", "range"}:
        return ConstantRole(name, "flag", "the kernel branches on it", doubt="it may choose what is computed")
    if sized and "masked" in kinds and extents:
        return ConstantRole(
            name, "derived", f"one block covers {' and '.join(extents)}: nothing steps by it", extents, axes
        )
    if sized:
        return ConstantRole(
            name, "meaning", "it covers an extent whole: nothing steps by it, and no mask names the extent"
        )
    if (other := next((other for uses_of, *other in _OTHERS if uses_of <= kinds), None)) is not None:
        option = uses.options.get(name, "")
        return ConstantRole(name, other[0], other[1].format(option), extents, option=option)
    reason = next((text for kind, text in _FIXED.items() if kind in kinds), "what it does is not understood")
    return ConstantRole(name, "meaning", reason)


def _numbered(name: str, uses: _Uses) -> bool:
    """Tell whether an address has the number of a tile, or the count of tiles, without a size of such tiles."""
    return any(
        atom.key in uses.numbers[name] and not any(atom.key in uses.numbers[constant] for constant in sizes)
        for term in uses.addresses
        for atom, sizes in zip(term, [NONE.union(*(other.constants for other in term))] * len(term), strict=True)
    )
