"""The parameters of a kernel of which no launch is known, and what its TTIR can be made with.

What the source says comes first: annotations, defaults, the configs of `triton.autotune`, and what launches in the
file give. The rest is tried: a guess with which Triton's front end accepts the kernel serves, since the rules look at
symbols and not at numbers. Only what is done with a parameter counts, through local names and the functions that are
called; its own name does not.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import KernelSource, last_name
from triton_ops.base import cached_property, require
from triton_ops_lint.jit_functions import SourceLaunch, expressions

_SAYS = {
    **dict.fromkeys(("pointer", "base", "described", "block pointer"), ("pointer",)),
    **dict.fromkeys(("mask", "coordinates", "extents", "strides", "corner", "start", "seed"), ("number",)),
    **dict.fromkeys(("block", "shape"), ("tile",)), "end": ("number", "tile"), "type": ("type",),
}  # fmt: skip
"""What operands say of parameters, by what they are."""
_ALIKE = {
    "reshape": ("tile", 1), "view": ("tile", 1), "static_range": ("range", 0),
    **dict.fromkeys(("range", "cdiv", "program_id"), ("number", 0)),
}  # fmt: skip
"""Functions of which all operands from a place on say the same."""
_KEYWORDS = {"dtype": "type", "out_dtype": "type", "num_stages": "range"}
_WORDS = {"input_precision": "ieee", "padding_option": "zero", "cache_modifier": "", "eviction_policy": "",
          "sem": "relaxed"}  # fmt: skip
_WHOLE = re.compile(r"\w+\.u?int(32|64)")
_LONG = re.compile(r"(<<|\*\*) (3[2-9]|[4-6]\d)\b|\b\d{11,}\b(?!\.)")  # numbers that need 64 bits
_DEEPEST = 8
_TYPES = {bool: "i1", int: "i32", float: "fp32"}
_AXES = 2  # of a descriptor whose coordinates are not written as a list


@dataclass(kw_only=True)
class Uses:
    """The use of the parameters of a function."""

    pointers: dict[str, str] = field(default_factory=dict)
    """What an access begins from, with what it must hold: `float`, `int`, `atomic` for sums, `address` for pointers."""
    numbers: set[str] = field(default_factory=set)  # whole ones: in addresses, masks, ranges and whole divisions
    tiles: dict[str, int] = field(default_factory=dict)  # extents of blocks, which must be constants, with a line
    ranges: set[str] = field(default_factory=set)  # ends of loops that are unrolled, and stages of pipelined ones
    switches: set[str] = field(default_factory=set)  # asked for their truth, or compared with a text or None
    types: set[str] = field(default_factory=set)
    texts: dict[str, list[object]] = field(default_factory=dict)  # texts and numbers that it is compared with
    descriptors: dict[str, int] = field(default_factory=dict)  # made on the host, with the number of their axes
    callables: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)


_uses_by_function: dict[KernelSource, Uses] = {}


def uses_of(function: KernelSource, depth: int = 0) -> Uses:
    """The use of a kernel's parameters in it and in the functions that it calls."""
    if function not in _uses_by_function:
        _uses_by_function[function] = Uses()  # what a function that calls itself adds is what it adds anyway
        _uses_by_function[function] = _UsageReader(function, depth).read()
    return _uses_by_function[function]


class _UsageReader:
    def __init__(self, function: KernelSource, depth: int) -> None:
        self._function, self._depth = function, depth
        self._uses = Uses()
        self._accesses: list[tuple[ast.expr, str]] = []  # pointers, each with what it must hold
        self._counted: set[str] = set()  # names that are followed as whole numbers

    def read(self) -> Uses:
        if self._depth > _DEEPEST:
            return self._uses
        for node in ast.walk(self._function.node):
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
                self._switch(node.test)
            elif isinstance(node, ast.BinOp):
                self._operator(node)
            elif isinstance(node, ast.Compare):
                self._compare(node)
            elif isinstance(node, ast.Attribute) and node.attr == "element_ty":
                owner = node.value.value if isinstance(node.value, ast.Attribute) else node.value
                for base in self._function.pointers(owner):
                    self._uses.pointers.setdefault(base, "float")
        self._settle()
        return self._uses

    def _call(self, node: ast.Call) -> None:
        callee = self._function.callee(node)
        if callee is not None:
            self._passed(node, callee)
            return
        name = last_name(node)
        self._uses.callables.update(self._names(node.func))
        if isinstance(node.func, ast.Attribute) and name in ("load", "store", "gather", "scatter"):
            self._descriptor(node.func.value, KernelSource.argument(node, 0, "offsets"))
        operands = self._function.known_operands(node) if self._function.is_language(node) else ()
        for kind, one in ((kind, one) for what, one in operands for kind in _SAYS.get(what, ())):
            self._take(kind, one, name)
        kind, first = _ALIKE.get(name, ("number", len(node.args)))
        for one in node.args[first:]:
            self._take(kind, one, name)
        for keyword in node.keywords:
            if kind := _KEYWORDS.get(str(keyword.arg), ""):
                self._take(kind, keyword.value, name)
            for text_name in self._names(keyword.value) if keyword.arg in _WORDS else ():
                self._uses.texts.setdefault(text_name, []).append(_WORDS[str(keyword.arg)])
        self._loaded_by(node, name)

    def _take(self, kind: str, node: ast.expr, name: str) -> None:
        """Take what an operand of this function says of the parameters that it is made of."""
        if kind == "number":
            self._number(node)
        elif kind == "pointer":
            self._accesses.append((node, "atomic" if name.startswith("atomic") else "float"))
        elif kind == "type":
            self._uses.types.update(self._names(node))
        elif kind == "range":
            self._number(node)
            self._uses.ranges.update(self._reached(node))
        else:
            self._uses.tiles.update({one: node.lineno for one in self._reached(node) if one not in self._uses.tiles})

    def _loaded_by(self, node: ast.Call, name: str) -> None:
        """Take what is loaded for addresses or whole numbers, by what stands for it elsewhere or is made of it."""
        if name == "load" and _LONG.search(ast.unparse(KernelSource.argument(node, 2, "other") or node.func)):
            self._loaded(node, "address")
        if name != "to" or not node.args or not isinstance(node.func, ast.Attribute):
            return
        if any(self._is_pointer_type(one) for one in node.args):
            for load in (load for inner in self._expressions(node.func) for load in KernelSource.loads_in(inner)):
                self._loaded(load, "address")
        owner = node.func.value
        if _WHOLE.fullmatch(ast.unparse(node.args[0])) and isinstance(owner, ast.Call) and last_name(owner) == "load":
            self._loaded(owner, "int")

    def _is_pointer_type(self, node: ast.expr) -> bool:
        """Check whether a type is that of pointers: `tl.pointer_type(…)`, or the `dtype` of a parameter."""
        if isinstance(node, ast.Call):
            return last_name(node) == "pointer_type"
        return isinstance(node, ast.Attribute) and node.attr == "dtype" and bool(self._names(node.value))

    def _descriptor(self, owner: ast.expr, offsets: ast.expr | None) -> None:
        for name in self._names(owner):
            expressions = self._expressions(offsets) if offsets is not None else ()
            axes = next((len(one.elts) for one in expressions if isinstance(one, (ast.List, ast.Tuple))), _AXES)
            self._uses.descriptors.setdefault(name, axes)

    def _passed(self, node: ast.Call, callee: KernelSource) -> None:
        inner = uses_of(callee, self._depth + 1)
        for parameter, value in callee.bound(node):
            if parameter in inner.pointers:
                self._accesses.append((value, inner.pointers[parameter]))
            if parameter in inner.numbers:
                self._number(value)
            if parameter in inner.tiles:
                self._take("tile", value, "")
            axes = inner.descriptors.get(parameter)
            self._uses.descriptors.update(dict.fromkeys(self._names(value), axes) if axes is not None else {})
            for kind in ("ranges", "switches", "types", "callables", "optional"):
                if parameter in getattr(inner, kind):
                    getattr(self._uses, kind).update(self._names(value))
            for text in inner.texts.get(parameter, ()):
                for name in self._names(value):
                    self._uses.texts.setdefault(name, []).append(text)

    def _switch(self, test: ast.expr) -> None:
        self._uses.switches.update(self._names(test))
        parts = test.values if isinstance(test, ast.BoolOp) else [test.operand] if isinstance(test, ast.UnaryOp) else []
        for one in parts:
            self._switch(one)

    def _operator(self, node: ast.BinOp) -> None:
        if isinstance(node.op, (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.BitXor)):
            self._number(node.left)
            self._number(node.right)
        elif isinstance(node.op, (ast.BitAnd, ast.BitOr)) and isinstance(node.right, ast.Constant):
            self._number(node.left)

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for one, other in zip(sides, [*sides[1:], sides[0]], strict=True):
            names = self._names(one)
            if isinstance(other, ast.Constant) and other.value is None:
                self._uses.optional.update(names)
            elif isinstance(other, ast.Constant):
                for name in names:
                    self._uses.texts.setdefault(name, []).append(other.value)
        if any(self._is_place(one) for one in sides):
            for one in sides:
                self._number(one)

    def _is_place(self, node: ast.expr) -> bool:
        """Check whether an expression is made of places: of `arange`, `program_id`, or what is made of them."""
        calls = (one for one in self._function.followed(node, _parts) if isinstance(one, ast.Call))
        return any(last_name(one) in ("arange", "program_id") for one in calls)

    def _number(self, node: ast.expr) -> None:
        """Take the parameters that an expression is made of for whole numbers; loaded ones too."""
        for inner in expressions(node, self._function.assignments, self._counted):
            names = {one.id for one in ast.walk(inner) if isinstance(one, ast.Name)}
            self._uses.numbers.update(names & self._function.own_names)
            for load in KernelSource.loads_in(inner):
                self._loaded(load, "int")

    def _loaded(self, load: ast.Call, kind: str) -> None:
        """Take what a load begins from for a pointer to numbers of a kind; an `address` stays one."""
        pointer = KernelSource.argument(load, 0, "pointer", "ptr")
        for base in self._function.pointers(pointer) if pointer is not None else ():
            if self._uses.pointers.get(base) != "address":
                self._uses.pointers[base] = kind

    def _settle(self) -> None:
        """Choose the pointer of each access: what is used as a number elsewhere is none."""
        for pointer, _ in self._accesses:
            self._offsets(pointer)
        for pointer, kind in self._accesses:
            bases = self._function.pointers(pointer)
            first, *others = [one for one in bases if one not in self._uses.numbers] or bases or [""]
            if first and self._uses.pointers.get(first) not in ("int", "atomic", "address"):
                self._uses.pointers[first] = kind
            self._uses.numbers.update(others)
        self._uses.numbers -= set(self._uses.pointers)

    def _offsets(self, pointer: ast.expr) -> None:
        """Take the parts of an address that are no bare name for whole numbers."""
        for inner in self._expressions(pointer):
            first, *others = _summands(inner)
            based = others and isinstance(first, ast.Name) and first.id in self._function.own_names
            for part in (first, *others):
                local = isinstance(part, ast.Name) and part.id not in self._function.own_names
                offset = local and (based or not self._function.pointers(part))
                if offset or not isinstance(part, (ast.Name, ast.Call)):
                    self._number(part)
                elif isinstance(part, ast.Call):
                    self._offsets_of_call(part)

    def _offsets_of_call(self, node: ast.Call) -> None:
        """Take the numbers that a function adds to a pointer that it returns for whole numbers."""
        callee = self._function.callee(node)
        if callee is None or self._depth >= _DEEPEST:
            return
        reader = _UsageReader(callee, self._depth + 1)
        for one in ast.walk(callee.node):
            if isinstance(one, ast.Return) and one.value is not None:
                reader._offsets(one.value)
        for name, value in callee.bound(node):
            if name in reader._uses.numbers:
                self._number(value)

    def _names(self, node: ast.expr) -> list[str]:
        return [node.id] if isinstance(node, ast.Name) and node.id in self._function.own_names else []

    def _reached(self, node: ast.expr) -> list[str]:
        names = (one for inner in self._expressions(node) for one in ast.walk(inner) if isinstance(one, ast.Name))
        return [one.id for one in names if one.id in self._function.own_names]

    def _expressions(self, node: ast.expr) -> Iterator[ast.expr]:
        return expressions(node, self._function.assignments)


def _parts(node: ast.expr) -> list[ast.expr]:
    """The parts of arithmetic, of an element and of a choice; none of a call."""
    inner = ast.iter_child_nodes(node) if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.IfExp)) else ()
    return [one for one in inner if isinstance(one, ast.expr)]


def _summands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _summands(node.left)
        yield from _summands(node.right)
    else:
        yield node


_TILES = (64, 32, 16)  # of the first blocks: different ones, so that none is taken for another
LEAST_EXTENT, _APART = 104, 8  # of what is no tile: no power of two, so that nothing falls away for fitting a tile
_UNROLLED = 2  # turns of a loop that is written out
EVEN = 16  # of what pointers and whole numbers are compiled as multiples
FLOATS = ("fp16", "fp32", "bf16")


@dataclass(frozen=True)
class Guess:
    """Types, in the order of parameters, and values with which a kernel is lowered."""

    types: Mapping[str, str]
    constants: Mapping[str, Any]  # of those whose type is `constexpr`
    known_names: frozenset[str] = frozenset()  # those whose values the source says
    element: str = "fp16"  # what tensors of floating point hold
    options: Mapping[str, int] = field(default_factory=dict)
    ones: frozenset[str] = frozenset()  # numbers that launches give 1, which Triton then takes as a constant

    @property
    def specialised(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Types and constants as a launch would compile them, with the numbers that are 1 as constants."""
        types = {name: "constexpr" if name in self.ones else kind for name, kind in self.types.items()}
        return types, {**self.constants, **dict.fromkeys(self.ones, 1)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadSource:
    """A kernel with what its source and its file say of its parameters."""

    function: KernelSource
    configs: tuple[Mapping[str, Any], ...] = ()  # tunables and launch options of each config of a decorator
    heuristics: Mapping[str, Any] = field(default_factory=dict)  # functions from arguments to a value
    launches: tuple[SourceLaunch, ...] = ()

    @cached_property
    def ones(self) -> frozenset[str]:
        """The parameters that all launches give the stride of a tensor's last axis, which is 1 for contiguous ones."""
        several = [launch.inner_strides for launch in self.launches]
        return frozenset.intersection(*several) if several else frozenset()

    @cached_property
    def uses(self) -> Uses:
        """The use of its parameters, by its syntax."""
        return uses_of(self.function)


def guesses(kernel: ReadSource, extra: frozenset[str]) -> Iterator[Guess]:
    """Guesses in the order in which they should be tried, with the parameters in `extra` as constants too."""
    uses, parameters = kernel.uses, kernel.function.parameters
    constant = kernel.function.constants | extra
    values = {name: value for name, value in _constant_values(kernel).items() if name in constant}
    if uses.descriptors:  # their blocks are not known: with tiles of one size, each fits
        values = {name: value for name, value in values.items() if name not in uses.tiles}
    whole = _whole_literals(kernel)
    for (apart, tiles), element in itertools.product(_tile_guesses(uses), FLOATS):
        block = next(iter(tiles.values()), _TILES[0])
        constants: dict[str, Any] = {}
        for name in (one for one in parameters if one in constant):
            extent = LEAST_EXTENT + _APART * len(constants) if apart else LEAST_EXTENT
            constants[name] = values[name] if name in values else _constant(name, uses, tiles, (element, extent))
        constants.update(_rounded_up(kernel, constants, values))
        constants.update(_heuristics(kernel, constants, constant))
        types = {
            name: "constexpr" if name in constant else _type(name, kernel, (element, block), whole)
            for name in parameters
        }
        ones = frozenset(name for name in kernel.ones if types.get(name) in ("i32", "i64"))
        yield Guess(types, constants, frozenset(values), element, ones=ones)


def switches(kernel: ReadSource, guess: Guess) -> Iterator[Guess]:
    """The same guess with each switch in its other position, and with every text that a parameter is compared with."""
    texts = kernel.uses.texts
    free = {name: value for name, value in guess.constants.items() if name not in guess.known_names}
    changes: list[dict[str, Any]] = []
    for name, value in free.items():
        changes += [{name: not value}] if isinstance(value, bool) else []
        others = dict.fromkeys(texts.get(name, ()))
        changes += ({name: text} for text in others if type(text) is type(value) and text != value)
    off = {name: True for name, value in free.items() if value is False}
    changes += [off] if len(off) > 1 else []
    yield from (replace(guess, constants={**guess.constants, **change}) for change in changes)


def _rounded_up(kernel: ReadSource, constants: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, int]:
    """Blocks that launches make the next power of two of a size that is a constant too: one block holds all of it."""
    blocks: dict[str, int] = {}
    for launch in kernel.launches:
        sizes = {
            launch.text(name): constants[name]
            for name in launch.arguments
            if type(constants.get(name)) is int and name not in kernel.uses.tiles
        }
        for name, node in launch.arguments.items():
            size = sizes.get(launch.rounded(node), 0)
            if size > 0 and name in kernel.uses.tiles and name not in values:
                least = _TILES[-1] if launch.text(name).startswith("max(") else 1  # `max(16, next_power_of_2(n))`
                blocks.setdefault(name, max(least, 1 << (size - 1).bit_length()))
    return blocks


def _tile_guesses(uses: Uses) -> Iterator[tuple[bool, dict[str, int]]]:
    """Extents of blocks, and whether the other sizes are all different, so that none is taken for another."""
    names = list(uses.tiles)
    if not uses.descriptors:
        yield True, {name: _TILES[min(at, len(_TILES) - 1)] for at, name in enumerate(names)}
    for size in (32, 64, 16, 128):
        yield True, dict.fromkeys(names, size)
    yield False, dict.fromkeys(names, 64)


def _constant_values(kernel: ReadSource) -> dict[str, Any]:
    values = {name: getattr(value, "value", value) for name, value in kernel.function.defaults.items()}
    for launch in kernel.launches:
        for name, node in launch.arguments.items():
            value = launch.literal(node)
            if value is not None or (isinstance(node, ast.Constant) and node.value is None):
                values[name] = value
    for config in kernel.configs[:1]:
        values.update(config)
    return values


def _whole_literals(kernel: ReadSource) -> dict[str, str]:
    """The types of the plain parameters whose values launches and defaults show, and of tensors that they make."""
    types = {name: _TYPES.get(type(value), "") for name, value in kernel.function.defaults.items()}
    for launch in kernel.launches:
        kinds = {name: _TYPES.get(type(launch.literal(node)), "") for name, node in launch.arguments.items()}
        types.update({name: kind for name, kind in kinds.items() if kind})
    parameters = kernel.function.parameters
    several = ((name, {launch.element(name) for launch in kernel.launches} - {""}) for name in parameters)
    types.update({name: f"*{min(elements)}" for name, elements in several if len(elements) == 1})
    return {name: kind for name, kind in types.items() if kind}


def _constant(name: str, uses: Uses, tiles: Mapping[str, int], sizes: tuple[str, int]) -> Any:
    element, extent = sizes
    language = require("triton", "reading kernels").language
    if name in uses.types:
        return {"fp16": language.float16, "bf16": language.bfloat16, "fp32": language.float32}[element]
    texts = uses.texts.get(name, [])
    if words := [text for text in texts if isinstance(text, str)]:
        return words[0]
    if name in uses.callables or (name in uses.optional and name not in uses.tiles | dict.fromkeys(uses.numbers)):
        return None
    if name in uses.tiles:
        return tiles[name]
    if name in uses.ranges:
        return _UNROLLED
    numbers = [text for text in texts if type(text) is int]
    if (name in uses.switches and name not in uses.numbers) or any(type(text) is bool for text in texts):
        return False
    if numbers and name not in uses.numbers:
        return numbers[0]
    return extent


def _type(name: str, kernel: ReadSource, sizes: tuple[str, int], whole: Mapping[str, str]) -> str:
    (element, block), uses = sizes, kernel.uses
    annotated = next((one.annotation_type for one in kernel.function.function.params if one.name == name), "")
    if annotated:
        return str(annotated)
    if name in uses.descriptors:
        return f"tensordesc<{element}[{', '.join([str(block)] * uses.descriptors[name])}]>"
    if name in uses.pointers and not whole.get(name, "").startswith("*"):
        return {"int": "*i32", "address": "*i64", "atomic": "*fp32"}.get(uses.pointers[name], f"*{element}")
    if name in whole:
        return whole[name]
    if name in uses.optional and name not in uses.numbers:
        return f"*{element}"
    return "i32" if name in uses.numbers or name in uses.tiles or name in uses.switches else "fp32"


def _heuristics(kernel: ReadSource, constants: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Values of heuristics that need only constants; False for the rest, which is what most of them ask."""
    values: dict[str, Any] = {}
    for name, function in kernel.heuristics.items():
        if name not in names:
            continue
        try:
            values[name] = function({**constants, **values})
        except Exception:  # noqa: BLE001 - it asks for arguments that are not known
            values[name] = constants.get(name) if type(constants.get(name)) is int else False
    return values
