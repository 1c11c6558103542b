"""The roles of a kernel's constants, by its source: which are tiles, and which are part of the meaning.

A constant that sizes a range of elements is a tile where programs or turns of a loop step by it. Where nothing steps,
one block covers an extent whole: the constant follows from the extent that its mask names. A constant is part of the
meaning, whatever else it does, where it lays a tensor out or enters the arithmetic on data; it may be, where the result
of one block is kept for itself. Names are followed to what they are given, and parameters of helpers to what the caller
gives: what a helper does with a constant counts as if it stood in the kernel.
"""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from triton_ops.backend.kernel_source import SAME_PLACE, KernelSource, last_name
from triton_ops.backend.origins import Layers

Names: TypeAlias = "frozenset[str]"

_NONE: Names = frozenset()
# Bounds of what is followed: a generated source could make terms without end.
_MOST_TERMS, _MOST_FACTORS, _DEEPEST, _MOST_CALLS, _MOST_STEPS = 64, 16, 24, 6, 100_000
_MARKS = {"program_id": {"program"}, "arange": {"range"}, "load": {"load"}}
_BOUNDS = {"min", "max", "minimum", "maximum"}
_ARITHMETIC = {"cdiv", "min", "max", "constexpr"}
_RANGES = ("range", "static_range")
_SEVERAL = (ast.Tuple, ast.List)
_USES = {
    "end": "range", "extents": "layout", "strides": "layout", "block": "block", "coordinates": "block",
    "steps": "stepped", "shape": "shape", "type": "type",
    **dict.fromkeys(("pointer", "base", "corner"), "address"),
}  # fmt: skip
"""The uses of constants as operands, by what those are."""
_KEYWORDS = {
    **dict.fromkeys(("num_stages", "warp_specialize", "flatten", "loop_unroll_factor"), "option"),
    **dict.fromkeys(("allow_tf32", "input_precision", "max_num_imprecise_acc", "out_dtype"), "rounding"),
    **dict.fromkeys(("dtype", "element_ty"), "type"),
}
_ROLES = (
    ("layout", "meaning", "it is an extent or a stride of a tensor"),
    ("stride", "meaning", "it is a stride: elements are numbered by it"),
    ("parts", "meaning", "it divides the elements of a tensor into groups"),
    ("value", "meaning", "it enters the arithmetic on data"),
    ("type", "meaning", "it is a type"),
    ("rounding", "meaning", "it decides how products are rounded"),
    ("sized stepped", "tile", "it sizes blocks, and steps the loop"),
    ("sized programs", "tile", "it sizes blocks, and steps the loop"),
    ("sized placed", "tile", "it sizes blocks, and steps from program to program"),
    ("flag", "flag", "the kernel branches on it"),
    ("sized shifted", "meaning", "its blocks begin at each number of a program or a turn, and overlap"),
    ("sized masked bounded", "derived", "one block covers {extents}: nothing steps by it"),
    ("sized", "meaning", "it covers an extent whole: nothing steps by it, and no mask names the extent"),
    ("option", "option", "it is the {option} of a loop"),
    ("group", "group", "it groups neighbouring programs, and moves no result"),
    ("programs", "programs", "it is the number of programs, which the grid decides"),
    ("divided", "split", "it divides a loop among programs"),
    ("turns placed", "count", "it counts what one program does in turn"),
    ("extent", "meaning", "it is an extent: a mask is compared with it"),
    ("heads", "meaning", "it divides the programs among the parts of a tensor"),
    ("turns", "meaning", "it counts the turns of a loop"),
    ("branch", "meaning", "the kernel branches on it"),
    ("", "meaning", "what it does is not understood"),
)
"""The uses that make a role, of which the first counts, with the role and the reason."""
NUMBERED = "its tiles are numbered in memory: a tensor is laid out by them"
_DOUBTS = {
    "numbering": NUMBERED,
    "unbounded": "no mask and no extent bounds it: it may be a width that each program has",
    "flag": "it may choose what is computed",
}


@dataclass(frozen=True, kw_only=True)
class ConstantRole:
    """The role of a constant, one of those in the table, with the reason.

    Attributes:
        extents: The parameters that its tiles cover, or of a derived constant the one that it must cover.
        option: Of an option, the argument of a loop that it is given as, such as `num_stages`.
        masked: Whether a mask or a descriptor guards the end of what it steps through.
        in_loop: Whether it is a tile by which turns of a loop step.
        joined: Whether a side of a block is the product of it and of others.
        by_grid: Whether the grid must have a program for each of its tiles.
        doubt: Why it may be a part of the meaning nevertheless, which only runs with other values tell.
    """

    name: str
    kind: str
    reason: str
    extents: tuple[str, ...] = ()
    option: str = ""
    masked: bool = True
    in_loop: bool = False
    joined: bool = False
    by_grid: bool = False
    doubt: str = ""


class _Atom(NamedTuple):
    """A factor in the sum of products that an index is: a constant, a range of one, or any other expression."""

    kind: str  # "constant", "range", "other"
    key: str
    constants: Names = _NONE
    made_of: Names = _NONE
    is_wrapped: bool = False  # a range whose elements beyond an end go on at the beginning, as columns of pixels do


_Terms: TypeAlias = "list[tuple[_Atom, ...]]"


class _Quotient(NamedTuple):
    """A number of parts of a tensor, such as groups with one scale each, whose extent is `part`.

    It is the number of the part that a tile is in, how many are in a tile, or one number for each of its elements.
    """

    kind: str  # "place", "count", "element"
    tile: str
    part: str  # a parameter, or a number


@dataclass
class SourceRoles:
    """The roles of a kernel's constants, with the uses that make them, and what else of the source counts for a space.

    Of `ties` the first is a multiple of the second. Of `within` a tile divides the extent of a part of a tensor, which
    is a parameter or a number; of `whole` it is a multiple of that. `products` is whether tiles are multiplied, `loops`
    whether a loop loads; `numbers` has for a constant the names that number or count tiles of its size.
    """

    roles: dict[str, ConstantRole] = field(default_factory=dict)
    kinds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    extents: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    numbers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    options: dict[str, str] = field(default_factory=dict)
    addresses: list[_Terms] = field(default_factory=list)
    steps_of: dict[str, Names] = field(default_factory=dict)
    quotients: dict[str, set[_Quotient]] = field(default_factory=lambda: defaultdict(set))
    bounds: set[str] = field(default_factory=set)  # of loops without a step
    ties: set[tuple[str, str]] = field(default_factory=set)
    within: set[tuple[str, str]] = field(default_factory=set)
    whole: set[tuple[str, str]] = field(default_factory=set)
    asserts: list[ast.expr] = field(default_factory=list)
    products: bool = False
    loops: bool = False
    steps: int = 0  # of following names, of which too many end the reading

    @classmethod
    def of(cls, source: KernelSource) -> SourceRoles:
        """Read the source of a kernel; some milliseconds."""
        uses = cls()
        try:
            _Frame(source, uses).visit()
            uses.find_parts()
        except RecursionError:  # names that follow from each other by the thousand: then nothing is understood
            uses = cls()
        uses.roles.update((name, _role(name, uses)) for name in source.parameters if name in source.constants)
        return uses

    @classmethod
    def numbered_by(cls, kernel: Any) -> set[str]:
        """The tiles of each of which a grid must have a program: programs are numbered by them, and go on to no other.

        With larger tiles than a grid was written for, programs have nothing to do; with smaller ones, a part stays
        undone. There are none where the source cannot be read.
        """
        source = KernelSource.of(Layers.of(kernel)[-1])
        roles = {} if source is None else cls.of(source).roles
        return {name for name, role in roles.items() if role.by_grid}

    def find_parts(self) -> None:
        """Find the tiles for which an address has one number of a part, so that all their elements must be in it.

        An address that moves on by the parts of a tile, and has no range of the tile, is of one part as well. Where
        elements of the tile have their own numbers, or a loop goes through its parts, it may have several.
        """
        known = {one for found in self.quotients.values() for one in found}
        self.whole, several = ({(o.tile, o.part) for o in known if o.kind == kind} for kind in ("count", "element"))
        several |= self.whole & {(one.tile, one.part) for key in self.bounds for one in self.quotients.get(key, ())}
        for terms in self.addresses:
            atoms = [atom for term in terms for atom in term]
            ranged = _NONE.union(*(atom.constants for atom in atoms if atom.kind == "range"))
            for kind, tile, part in {one for atom in atoms for one in self.quotients.get(atom.key, ())}:
                is_lone = tile not in ranged if kind == "count" else (tile, part) not in self.whole
                if is_lone and (tile, part) not in several:
                    self.within.add((tile, part))

    def note(self, kind: str, constants: Names | None) -> None:
        """Note a use of constants."""
        for name in constants or ():
            self.kinds[name].add(kind)


class _Frame:
    """One call of a function, with what its parameters are given in the frame of the caller."""

    def __init__(self, source: KernelSource, uses: SourceRoles, caller: tuple[ast.Call, _Frame] | None = None) -> None:
        self.source, self.uses = source, uses
        self.depth: int = 0 if caller is None else caller[1].depth + 1
        self._given = {} if caller is None else {name: (value, caller[1]) for name, value in source.bound(caller[0])}
        self._helpers: dict[int, _Frame | None] = {}
        fixed = source.constants - source.stores.keys() if caller is None else _NONE
        own_names = source.own_names if caller is None else source.own_names & source.stores.keys()
        self._constants = {name: frozenset((name,)) if name in fixed else None for name in own_names}
        self._terms: dict[str, _Terms] = {}
        self._made_of: dict[int, tuple[ast.expr, Names]] = {}  # with the node, so that no identity returns
        self._tests: dict[int, list[ast.expr]] = defaultdict(list)  # by nodes, the conditions and bounds around them

    def constants(self, node: ast.expr, depth: int = 0) -> Names | None:
        """The kernel's constants that an expression is made of; None if it is made of anything else."""
        if isinstance(node, ast.Name) and depth <= _DEEPEST:
            if node.id not in self._constants:
                self._constants[node.id] = None  # where it is made of itself
                values = self._values_of(node)
                if len(values) == 1:
                    self._constants[node.id] = values[0][1].constants(values[0][0], depth + 1)
                elif not values and node.id not in self.source.stores:  # a default, or a number of the module
                    self._constants[node.id] = _NONE
            return self._constants[node.id]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)):
            parts = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        elif isinstance(node, ast.Call) and last_name(node) in _ARITHMETIC:
            parts = node.args
        else:
            is_float = isinstance(node, ast.Attribute) and node.attr.startswith("float")
            return _NONE if is_float or isinstance(node, ast.Constant) else None
        sets = [self.constants(part, depth + 1) for part in parts]
        return None if None in sets else _NONE.union(*filter(None, sets))

    def _first_value(self, node: ast.expr) -> Names | None:
        """The kernel's constants that a name holds before it is stored anew."""
        if (name := ast.unparse(node)) in self._given:
            value, caller = self._given[name]
            return caller.constants(value)
        return self.source.constants & {name} if self.depth == 0 else None

    def _values_of(self, part: ast.Name | ast.Call) -> list[tuple[ast.expr, _Frame]]:
        """The expressions that a name is given here, or by the caller, or that a helper returns."""
        if isinstance(part, ast.Call):
            helper = self._helper(part)
            return [] if helper is None else [(value, helper) for value in helper.source.results]
        values = [(each, self) for each in self.source.assignments.get(part.id, ())]
        return values + ([self._given[part.id]] if part.id in self._given else [])

    def _helper(self, call: ast.Call) -> _Frame | None:
        """The frame of a call of another JIT function; None for any other call."""
        if id(call) not in self._helpers:
            callee = self.source.callee(call) if self.depth < _MOST_CALLS else None
            self._helpers[id(call)] = None if callee is None else _Frame(callee, self.uses, (call, self))
        return self._helpers[id(call)]

    def _marks(self, node: ast.expr) -> Names:
        """What an expression is made of, through names and helpers: `program`, `loop`, `range`, `load`."""
        if id(node) not in self._made_of:
            self._made_of[id(node)] = node, frozenset(self._marks_within(node, set()))
        return self._made_of[id(node)][1]

    def _marks_within(self, node: ast.expr, visited: set[tuple[int, str]]) -> set[str]:
        marks: set[str] = set()
        self.uses.steps += 1
        if self.uses.steps > _MOST_STEPS:
            raise RecursionError
        for inner in _parts(node):
            name = inner.id if isinstance(inner, ast.Name) else ""
            marks |= _MARKS.get(last_name(inner), _NONE) if isinstance(inner, ast.Call) else _NONE
            key = id(self if name else inner), name
            for value, frame in self._values_of(inner) if key not in visited else ():
                visited.add(key)
                begins = value.left if isinstance(value, ast.BinOp) else None
                marks |= {"loop"} if _is_loop(value) or (isinstance(begins, ast.Name) and begins.id == name) else set()
                parts = value.args[:-1][:1] if _is_loop(value) else [value]  # type: ignore[attr-defined]  # the begin
                marks = marks.union(*(frame._marks_within(part, visited) for part in parts))
        return marks

    def terms(self, node: ast.expr) -> _Terms:
        """An index as a sum of products; what is neither a sum nor a product is one factor."""
        if (constants := self.constants(node)) is not None:
            return [(_Atom("constant", ast.unparse(node), constants),)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            left, right = self.terms(node.left), self.terms(node.right)
            is_rest = isinstance(node.op, ast.Sub) and any("range" in atom.made_of for term in right for atom in term)
            return ((_wrapped(left) if is_rest else left) + right)[:_MOST_TERMS]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self.terms(node.left), self.terms(node.right)
            pairs = itertools.islice(itertools.product(left, right), _MOST_TERMS)
            return [(*a, *b)[:_MOST_FACTORS] for a, b in pairs]  # more have polynomials of data, which are no index
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "range" in self._marks(node.left):
            return _wrapped(self.terms(node.left))
        if isinstance(node, ast.Subscript):
            return self.terms(node.value)
        if isinstance(node, ast.Call) and last_name(node) == "arange":
            end = self.source.operand(node, 1, "end")
            return [(_Atom("range", ast.unparse(node), _NONE if end is None else self._within(end)),)]
        if isinstance(node, ast.Call) and last_name(node) in SAME_PLACE:
            operands = self.source.operands(node)[1 if last_name(node) == "where" else 0 :]
            return self.terms(operands[0]) if operands else []
        if isinstance(node, ast.Name):
            return self._terms_of_name(node)
        return [(_Atom("other", ast.unparse(node), made_of=self._marks(node)),)]

    def _terms_of_name(self, node: ast.Name) -> _Terms:
        name = node.id
        if name not in self._terms:
            itself: _Terms = [(_Atom("other", f"{id(self)}.{name}", made_of=self._marks(node)),)]
            self._terms[name] = itself  # where it is made of itself, as in a loop
            sums = (pair for pair in self._values_of(node) if _is_index(pair[0]))
            self._terms[name] = [term for value, frame in sums for term in frame.terms(value)][:_MOST_TERMS] or itself
        return self._terms[name]

    def _within(self, node: ast.expr) -> Names:
        """The constants in an index, or in one of several."""
        return _NONE.union(*(atom.constants for item in _items(node) for term in self.terms(item) for atom in term))

    def visit(self) -> None:
        """Note the uses of constants in this function, and in those that it calls."""
        for node in ast.walk(self.source.node):
            if isinstance(node, (ast.If, ast.IfExp)) or (isinstance(node, ast.Call) and last_name(node) in _BOUNDS):
                for one in ast.walk(node):
                    self._tests[id(one)].append(node if isinstance(node, ast.Call) else node.test)
            if (handler := _HANDLERS.get(type(node))) is not None:
                handler(self, node)
        for name, values in self.source.assignments.items():
            for divisor in (_quotient(value)[1] for value in values if self.constants(value) is None):
                for constant in (divisor is not None and self.constants(divisor)) or ():
                    self.uses.numbers[constant].add(f"{id(self)}.{name}")
            for value in values:
                self._note_parts(value, f"{id(self)}.{name}", name)

    def _visit_branch(self, node: ast.If | ast.IfExp | ast.While) -> None:
        for part in node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]:
            inner = part.operand if isinstance(part, ast.UnaryOp) else part
            self.uses.note("flag" if isinstance(inner, ast.Name) else "branch", self.constants(inner))

    def _visit_call(self, call: ast.Call) -> None:
        name, operands, uses = last_name(call), self.source.operands(call), self.uses
        if (frame := self._helper(call)) is not None:
            frame.visit()
            return
        self._visit_operands(call)
        uses.products |= name in ("dot", "dot_scaled")
        if name == "static_assert" and self.depth == 0:
            uses.asserts += operands[:1]
        elif name in ("min", "minimum", "swizzle2d"):  # of a constant and a number of programs: the size of a group
            others = [each for each in operands if self.constants(each) is None]
            is_group = bool(_NONE.union(*map(self._marks, others)) & {"program", "loop"})
            for each in operands[-1:] if name == "swizzle2d" else operands:
                uses.note("group", (self.constants(each) or self._first_value(each)) if is_group else None)
        self._visit_quotient(call)

    def _visit_operands(self, call: ast.Call) -> None:
        uses = self.uses
        for keyword in call.keywords:
            kind = _KEYWORDS.get(str(keyword.arg), "")
            uses.note(kind, constants := (self.constants(keyword.value) if kind else None))
            uses.options.update(dict.fromkeys(constants or (), str(keyword.arg)))
        for operand, node in self.source.known_operands(call):
            if (use := _USES.get(operand)) is None:
                continue
            if use == "address":
                uses.addresses.append([term for item in _items(node) for term in self.terms(item)])
            elif operand != "coordinates" or isinstance(node, _SEVERAL):
                uses.note(use, self._within(node))
                for side in _items(node) if use == "shape" else ():
                    uses.note("joined", self._joined(side))

    def _joined(self, side: ast.expr) -> Names:
        """The constants of which a side of a block is the product; none of a side that is one constant."""
        constants = self.constants(side) or _NONE
        values = self._values_of(side) if isinstance(side, ast.Name) and constants else []
        if len(values) == 1:
            return values[0][1]._joined(values[0][0])
        is_product = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult)
        return constants if is_product and len(constants) > 1 else _NONE

    def _visit_operation(self, node: ast.BinOp) -> None:
        left, right = self.constants(node.left), self.constants(node.right)
        if isinstance(node.op, ast.Mult):
            self._visit_product(node)
        self._visit_quotient(node)
        self._note_parts(node, ast.unparse(node))
        if (left is None) == (right is None):
            return
        other = node.right if left is not None else node.left
        marks = self._marks(other)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            kind = "parts" if "range" in marks else "heads" if marks & {"program", "loop"} else ""
            self.uses.note(kind, right if kind else None)
        elif {"load", "range"} <= marks and not any(one.kind == "range" for term in self.terms(other) for one in term):
            self.uses.note("value", left or right)

    def _visit_product(self, node: ast.BinOp) -> None:
        for term in self.terms(node):
            constants = _NONE.union(*(atom.constants for atom in term if atom.kind == "constant"))
            others = [atom for atom in term if atom.kind != "constant"]
            moving = [atom for atom in others if atom.made_of & {"program", "loop"} and "range" not in atom.made_of]
            if any(atom.kind == "range" for atom in others):
                self.uses.note("stride", constants)
            elif moving:
                marks = _NONE.union(*(atom.made_of for atom in moving))
                self.uses.note("placed" if all("program" in one.made_of for one in moving) else "stepped", constants)
                self.uses.note("looped", constants if "loop" in marks else _NONE)
                for constant in constants if len(others) == len(moving) else ():
                    self.uses.numbers[constant].update(atom.key for atom in moving)

    def _visit_quotient(self, node: ast.expr) -> None:
        """Note the extent that tiles of a constant cover, if it is no index itself."""
        extent, tile = _quotient(node)
        if extent is not None and tile is not None and not self._marks(extent) & {"range", "program", "loop"}:
            for constant in self.constants(tile) or ():
                self.uses.extents[constant].update(self._parameters(extent))

    def _note_parts(self, node: ast.expr, *keys: str) -> None:
        """Note under these keys which parts of a tensor a quotient numbers, or counts."""
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod))):
            return
        constants, place, marks = self.constants(node.right), node.left, self._marks(node.left)
        parts = [str(node.right.value)] if isinstance(node.right, ast.Constant) else [*self._parameters(node.right)]
        if len(parts) != 1 or (constants and constants != {parts[0]}):
            return
        if (tiles := self.constants(place)) is not None:
            is_count = isinstance(node.op, ast.FloorDiv) and isinstance(place, ast.Name)
            kind, tiles = "count", tiles if is_count else _NONE
        elif "range" in marks:
            ranges = (atom for term in self.terms(place) for atom in term if atom.kind == "range")
            kind, tiles = "element", _NONE.union(*(atom.constants for atom in ranges))
        else:
            kind, tiles = "place", _NONE.union(*map(self._placed, self.terms(place)))
        tests = (one for test in self._tests.get(id(node), ()) for one in ast.walk(test) if isinstance(one, ast.Name))
        tiles -= _NONE.union(*(self.constants(name) or () for name in tests))  # of other sizes something else is done
        for key in keys:
            self.uses.quotients[key].update(_Quotient(kind, tile, parts[0]) for tile in tiles)

    def _placed(self, term: tuple[_Atom, ...]) -> Names:
        """The constants by which a term moves on from program to program, or from turn to turn."""
        others = [atom for atom in term if atom.kind != "constant"]
        if not others or not all(atom.made_of & {"program", "loop"} for atom in others):
            return _NONE
        steps = self.uses.steps_of.get(others[0].key, _NONE) if len(term) == 1 else _NONE
        return steps.union(*(atom.constants for atom in term))

    def _visit_step(self, node: ast.AugAssign) -> None:
        for term in self.terms(node.value) if isinstance(node.op, (ast.Add, ast.Sub)) else ():
            if not any(atom.kind == "range" or atom.made_of for atom in term):
                self.uses.steps_of[f"{id(self)}.{ast.unparse(node.target)}"] = self.constants(node.value) or _NONE
                self._note_step(_NONE.union(*(atom.constants for atom in term)), node.target, node.value)

    def _note_step(self, constants: Names, begin: ast.expr | None, step: ast.expr) -> None:
        """Note a step; one that begins at the number of the program itself is that of all programs."""
        is_programs = begin is not None and self.constants(step) is not None and self._is_program_number(begin)
        self.uses.note("programs" if is_programs else "stepped", constants)
        self.uses.note("divided", constants if len(constants) > 1 else None)

    def _is_program_number(self, node: ast.expr) -> bool:
        """Tell whether steps go on from a number of the program, rather than from a place that is made of it."""
        values = self._values_of(node) if isinstance(node, ast.Name) else []
        is_number = any("program" in frame._marks(value) for value, frame in values if not _is_index(value))
        itself = f"{id(self)}.{node.id}" if isinstance(node, ast.Name) and not is_number else ""
        alone = [term[0] for term in self.terms(node) if len(term) == 1]
        return any("program" in atom.made_of and atom.key != itself for atom in alone)

    def _visit_comparison(self, node: ast.Compare) -> None:
        sides = [node.left, node.comparators[0]]
        pure = [self.constants(side) for side in sides]
        if None not in pure:
            self.uses.note("branch", _NONE.union(*filter(None, pure)))
            return
        for side, constants, other in zip(sides, pure, reversed(sides), strict=True):
            ranges = [atom for term in self.terms(other) for atom in term if atom.kind == "range"]
            self.uses.note("extent", constants if ranges else None)
            shifts = any(len(term) == 1 and term[0].made_of & {"program", "loop"} for term in self.terms(other))
            # A mask of what is wrapped round guards no end of a tile: it is the column of a pixel, of a tile of pixels.
            for sized in (constant for atom in ranges if not atom.is_wrapped for constant in atom.constants):
                self.uses.kinds[sized] |= {"masked", "shifted"} if shifts else {"masked"}
                self.uses.extents[sized].update(self._parameters(side))

    def _parameters(self, node: ast.expr) -> dict[str, None]:
        """The kernel's parameters that an extent is, or is counted down from."""
        names = (term[0].key.rpartition(".")[2] for term in self.terms(node) if len(term) == 1)
        return dict.fromkeys(name for name in names if name.isidentifier())

    def _visit_loop(self, node: ast.For) -> None:
        if not _is_loop(node.iter):
            return
        *bounds, last = node.iter.args  # type: ignore[attr-defined]
        self.uses.loops |= any(KernelSource.calls_in(node, "load"))
        if len(bounds) < 2:  # without a step
            names = (one for one in ast.walk(last) if isinstance(one, (ast.Name, ast.BinOp)))
            self.uses.bounds.update(ast.unparse(one) for one in names)
            self.uses.note("turns", self.constants(last) if ast.unparse(last) in self.source.own_names else None)
            return
        constants = self.constants(last) or _NONE
        self.uses.steps_of[f"{id(self)}.{ast.unparse(node.target)}"] = constants
        self._note_step(constants, bounds[0], last)
        for constant in constants:
            self.uses.extents[constant].update(self._parameters(bounds[1]))
            self.uses.ties |= {(other, constant) for other in self._within(ast.Tuple(bounds)) - {constant}}


_HANDLERS: dict[type[ast.AST], Any] = {
    ast.Call: _Frame._visit_call, ast.BinOp: _Frame._visit_operation, ast.AugAssign: _Frame._visit_step,
    ast.Compare: _Frame._visit_comparison, ast.For: _Frame._visit_loop,
    **dict.fromkeys((ast.If, ast.IfExp, ast.While), _Frame._visit_branch),
}  # fmt: skip


@lru_cache(maxsize=8192)
def _parts(node: ast.expr) -> tuple[ast.Name | ast.Call, ...]:
    """The names and the calls in an expression."""
    return tuple(one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Call)))


def _wrapped(terms: _Terms) -> _Terms:
    return [tuple(atom._replace(is_wrapped=True) for atom in term) for term in terms]


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, _SEVERAL) else [node]


def _is_loop(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node) in _RANGES and bool(node.args)


def _is_index(node: ast.expr) -> bool:
    """Tell whether an index is made here, so that its parts are what it is made of."""
    if isinstance(node, ast.Call):
        return last_name(node) in SAME_PLACE or last_name(node) == "arange"
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Mod))
    return is_sum or isinstance(node, (ast.Subscript, ast.Name, ast.Constant))


def _quotient(node: ast.expr) -> tuple[ast.expr | None, ast.expr | None]:
    """The two sides of a whole division; None for both of anything else."""
    if isinstance(node, ast.Call) and last_name(node) == "cdiv" and len(node.args) == 2:
        return node.args[0], node.args[1]
    is_whole = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod))
    return (node.left, node.right) if is_whole else (None, None)  # type: ignore[attr-defined]


def _role(name: str, uses: SourceRoles) -> ConstantRole:
    kinds, extents, option = {*uses.kinds[name]}, tuple(uses.extents[name]), uses.options.get(name, "")
    goes_on = bool(kinds & {"stepped", "programs"})
    kinds |= {"sized"} if kinds & {"range", "block", "shape"} else set()
    kinds |= {"bounded"} if extents else set()
    kinds |= {"numbering"} if any(_numbered(name, uses)) else set()
    is_bounded = goes_on or kinds & {"masked", "block", "bounded"}
    kinds |= {"unbounded"} if {"sized", "placed"} <= kinds and not is_bounded else set()
    kinds -= {"flag"} if kinds & {"branch", "range"} else set()
    kind, reason = next((kind, text) for needed, kind, text in _ROLES if kinds.issuperset(needed.split()))
    is_doubted, is_persistent = kind in ("tile", "flag"), "programs" in _NONE.union(*uses.kinds.values())
    return ConstantRole(
        name=name, kind=kind, reason=reason.format(extents=" and ".join(extents), option=option), extents=extents,
        option=option, masked=bool(kinds & {"masked", "block"}), in_loop=kind == "tile" and goes_on,
        joined="joined" in kinds,
        by_grid=kind == "tile" and not (goes_on or "looped" in kinds or is_persistent),
        doubt=next((text for doubt, text in _DOUBTS.items() if doubt in kinds and is_doubted), ""),
    )  # fmt: skip


def _numbered(name: str, uses: SourceRoles) -> Iterator[bool]:
    """Tell of each address whether it has the number or the count of tiles, without a size of such tiles."""
    for term in itertools.chain(*uses.addresses):
        sizes = _NONE.union(*(atom.constants for atom in term))
        for atom in term:
            yield atom.key in uses.numbers[name] and not any(atom.key in uses.numbers[size] for size in sizes)
