"""The source of a JIT function: its syntax, the ways of its pointers, and the sizes of its blocks for a config.

Of the sizes, what the config compiles counts: statements outside of an `if`, those inside where arguments and config
decide its condition, and those of helpers, which get what they are called with. A size or a condition that cannot be
evaluated is left out, and never guessed.

A statement inside an `if` is kept with its condition, and a call of another JIT function with its arguments: the values
of a config tell later which of them it compiles. An unrolled loop is left out, since its body may be compiled never.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypeAlias

from triton_ops.backend.origins import Layers
from triton_ops.base import BoundedDict, cached_property

_ATOMICS = tuple(f"atomic_{how}" for how in ("add", "max", "min", "and", "or", "xor", "xchg", "cas"))
_STORED = (("pointer", 0, "pointer"), ("coordinates", 1, "offsets"), ("mask", 2, "mask"))
_LAID_OUT = (("extents", 1, "shape"), ("strides", 2, "strides"))
_OPERANDS: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "load": (("pointer", 0, "pointer"), ("coordinates", 1, "offsets"), ("mask", 1, "mask")),
    **dict.fromkeys(("store", *_ATOMICS), _STORED),
    "advance": (("block pointer", 0, "base"), ("steps", 1, "offsets")),
    "make_block_ptr": (("base", 0, "base"), *_LAID_OUT, ("corner", 3, "offsets"), ("block", 4, "block_shape")),
    "make_tensor_descriptor": (("described", 0, "base"), *_LAID_OUT, ("block", 3, "block_shape")),
    "zeros": (("shape", 0, "shape"), ("type", 1, "dtype")), "full": (("shape", 0, "shape"), ("type", 2, "dtype")),
    "arange": (("start", 0, "start"), ("end", 1, "end")),
    **dict.fromkeys(("broadcast_to", "reshape", "view"), (("shape", 1, "shape"),)),
    **dict.fromkeys(("to", "cast"), (("type", 1, "dtype"),)),
    **dict.fromkeys(("rand", "randn", "randint", "rand4x", "randn4x", "randint4x", "philox"), (("seed", 0, "seed"),)),
}  # fmt: skip
"""The operands of Triton's language: what each is, with its place and name. The value of a method is its first operand.

A pointer is loaded from or stored to; coordinates are those of a block below a descriptor, which methods take.
"""
SAME_PLACE = {"to", "cast", "multiple_of", "max_contiguous", "broadcast_to", "expand_dims", "reshape", "where"}
"""Functions whose result has at each place what is made of their first operand there; `where` has two such."""
# Whose result points where their first operand does, or one of those that `where` chooses from.
_PASS_ON = SAME_PLACE | {"make_block_ptr", "advance", "make_tensor_descriptor", "trans"}
_VALUES = {"arange", "program_id", "num_programs", "cdiv", "zeros", "full", "static_assert", "static_range", "range"}
_FILLED = ("zeros", "full")


def last_name(call: ast.Call) -> str:
    """The last part of the name that is called, such as `load`; `?` for what has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else "?"


_sources = BoundedDict[int, "tuple[Any, KernelSource | None]"](512)  # by identity: a JIT function's hash reads globals


class KernelSource:
    """A JIT function with its syntax, whose lines are those of its file; made by `of` or `read`."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._plain = Layers.unwrap(function)
        lines, first = inspect.getsourcelines(self._plain)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        node = next((one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)), None)
        if node is None:
            raise SyntaxError("it is defined by no `def`")
        ast.increment_lineno(tree, first - 1)
        node.decorator_list = []  # names in a list of configs are none of its own
        self.node = node
        self.outside: Mapping[str, Any] = getattr(self._plain, "__globals__", {})
        self._returned: tuple[str, ...] | None = None
        self._codes: dict[ast.expr, CodeType] = {}

    @classmethod
    def of(cls, function: Any) -> KernelSource | None:
        """The source of a function, parsed once; None where there is none, as of one that was built at run time."""
        if (entry := _sources.get(id(function))) is None:
            source = None
            with contextlib.suppress(OSError, TypeError, SyntaxError):
                source = cls(function)
            entry = _sources[id(function)] = function, source
        return entry[1]

    @classmethod
    def read(cls, function: object) -> KernelSource:
        """As `of`; raises OSError, TypeError or SyntaxError where the source cannot be read."""
        return cls.of(function) or cls(function)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters, in order."""
        arguments = self.node.args
        return tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Names of its parameters, to be asked quickly."""
        return frozenset(self.parameters)

    @cached_property
    def constants(self) -> frozenset[str]:
        """Parameters that are annotated as `tl.constexpr`."""
        # As text: under `from __future__ import annotations` an annotation is one already.
        return frozenset(name for name, kind in self._plain.__annotations__.items() if "constexpr" in str(kind))

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of its parameters."""
        return Layers.defaults_of(self._plain)

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """All calls in it."""
        return tuple(self.calls_in(self.node))

    @cached_property
    def stores(self) -> Mapping[str, int]:
        """The names that it gives a value, each with how often."""
        nodes = (node for node in ast.walk(self.node) if isinstance(node, ast.Name))
        return Counter(node.id for node in nodes if isinstance(node.ctx, ast.Store))

    @cached_property
    def assignments(self) -> dict[str, list[ast.expr]]:
        """The expressions that each local name is given, wherever that is."""
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.node):
            for target, value in _bindings(node):
                values.setdefault(target, []).append(value)
        return values

    def callee(self, call: ast.Call) -> KernelSource | None:
        """The JIT function of the user's that a call in this function runs; None for any other call."""
        function = self._look_up(call.func)
        is_own = Layers.is_jit(function) and not _of_triton(Layers.unwrap(function))
        return KernelSource.of(function) if is_own else None

    def bound(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """The parameters that a call of this function gives, each with what it is given."""
        yield from zip(self.parameters, (one for one in call.args if not isinstance(one, ast.Starred)), strict=False)
        yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None)

    def operands(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call by place; of a method of a value, the value itself comes first."""
        root: ast.expr = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        is_outside = isinstance(root, ast.Name) and root.id not in self.stores and root.id not in self.own_names
        return [call.func.value, *call.args] if isinstance(call.func, ast.Attribute) and not is_outside else call.args

    def operand(self, call: ast.Call, place: int, name: str) -> ast.expr | None:
        """An operand of a call, by its name, or by its place among `operands`; None if it is not given."""
        operands = self.operands(call)
        own_operand = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        return operands[place] if own_operand is None and place < len(operands) else own_operand

    def known_operands(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """The operands of a call of Triton's language about which it says something, each with what it is."""
        absent = "mask" if len(self.operands(call)) > len(call.args) else "coordinates"  # methods have no mask
        several = ((what, self.operand(call, place, name)) for what, place, name in _OPERANDS.get(last_name(call), ()))
        return ((what, node) for what, node in several if node is not None and what != absent)

    @staticmethod
    def calls_in(node: ast.AST, *names: str) -> Iterator[ast.Call]:
        """The calls in a part of the syntax: all of them, or those of functions with these last names."""
        calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
        return (one for one in calls if not names or last_name(one) in names)

    @staticmethod
    def loads_in(node: ast.expr) -> Iterator[ast.Call]:
        """The calls in an expression that give what memory holds: loads and atomic operations."""
        return KernelSource.calls_in(node, "load", *_ATOMICS)

    @staticmethod
    def argument(call: ast.Call, place: int, *names: str) -> ast.expr | None:
        """An argument of a call, by its place or by one of its names; None if it is not given."""
        for keyword in call.keywords:
            if keyword.arg in names:
                return keyword.value
        return call.args[place] if 0 <= place < len(call.args) else None

    def is_language(self, call: ast.Call) -> bool:
        """Check whether a call is of Triton's language, or a method of one of its values."""
        value = self._look_up(call.func)
        return isinstance(call.func, ast.Attribute) if value is None else _of_triton(value)

    def _look_up(self, node: ast.expr) -> Any:
        """What a name or an attribute is in the function's module; None for what the function names itself."""
        if isinstance(node, ast.Name):
            return None if node.id in self.stores or node.id in self.own_names else self.outside.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._look_up(node.value)
            return None if owner is None else getattr(owner, node.attr, None)
        return None

    def followed(self, node: ast.expr, parts: Callable[[ast.expr], Sequence[ast.expr]]) -> Iterator[ast.expr]:
        """An expression with these parts of it, and of what the names among them are given, the leftmost first."""
        names, queue = set[str](), [node]
        while queue:
            one = queue.pop()
            if isinstance(one, ast.Name) and one.id in names:
                continue
            yield one
            names |= {one.id} if isinstance(one, ast.Name) else set()
            queue += reversed(self.assignments.get(one.id, ()) if isinstance(one, ast.Name) else parts(one))

    def pointers(self, node: ast.expr) -> list[str]:
        """The parameters that a pointer, or a sum with one, may be made of, the leftmost first."""
        names = (one.id for one in self.followed(node, self._carriers) if isinstance(one, ast.Name))
        return [name for name in names if name in self.own_names]

    def _carriers(self, node: ast.expr) -> Sequence[ast.expr]:
        """The expressions of which one has the pointer that an expression is."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return node.left, node.right
        if isinstance(node, ast.IfExp):
            return node.body, node.orelse
        if isinstance(node, (ast.Subscript, ast.NamedExpr, ast.Starred)):
            return (node.value,)
        if isinstance(node, (ast.Tuple, ast.List)):
            return node.elts
        return self._carriers_of_call(node) if isinstance(node, ast.Call) else ()

    def _carriers_of_call(self, call: ast.Call) -> Sequence[ast.expr]:
        if (callee := self.callee(call)) is not None:
            return [value for name, value in callee.bound(call) if name in callee.returned]
        if last_name(call) not in _PASS_ON:
            return ()
        if last_name(call) == "where":
            return call.args[1:]
        base = [keyword.value for keyword in call.keywords if keyword.arg in ("base", "input")]
        return (self.operands(call) or base)[:1]

    @cached_property
    def results(self) -> list[ast.expr]:
        """What it returns."""
        return [node.value for node in ast.walk(self.node) if isinstance(node, ast.Return) and node.value is not None]

    @property
    def returned(self) -> tuple[str, ...]:
        """The parameters to which a pointer that it returns may point."""
        if self._returned is None:
            self._returned = ()  # what a function that calls itself returns is what it returns anyway
            self._returned = tuple(dict.fromkeys(name for value in self.results for name in self.pointers(value)))
        return self._returned

    @cached_property
    def written_only(self) -> tuple[str, ...]:
        """The parameters that it only writes, in order: pointers made of them are stored to, and no more is done.

        Whatever is also loaded, updated atomically, or handed to another function may be read, and does not count.
        """
        targets, uses = set[str](), set[str]()
        for call in self.calls:
            name, arguments = last_name(call), [*call.args, *(keyword.value for keyword in call.keywords)]
            on = self.pointers(call.func.value) if isinstance(call.func, ast.Attribute) else []
            if name == "store":
                targets.update(on or (self.pointers(arguments[0]) if arguments else ()))
                others = arguments if on else arguments[1:]  # that are pointers, and not numbers that are added to one
                uses.update(name for one in others if isinstance(one, ast.Name) for name in self.pointers(one))
            elif name not in _PASS_ON and name not in _VALUES:
                uses.update(on, *map(self.pointers, arguments))
        return tuple(name for name in self.parameters if name in targets and name not in uses)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Its content, as far as it decides about blocks."""
        return tuple(item for node in self.node.body for item in _items_in(self, node))

    @cached_property
    def accumulators(self) -> frozenset[ast.Call]:
        """The calls of `zeros` or `full` that make a block to which a `dot` adds.

        A name that is made with different shapes is left out: which of them a `dot` adds to is not told.
        """
        accumulators: set[ast.Call] = set()
        for name, values in self.assignments.items():
            calls = (value for value in values if isinstance(value, ast.Call) and last_name(value) in _FILLED)
            blocks = [call for call in calls if len(_extents(call)) > 1]  # a vector is a row's sum, which is beside it
            if len({ast.dump(call.args[0]) for call in blocks}) == 1 and any(_adds(self, name, v) for v in values):
                accumulators.update(blocks)
        return frozenset(accumulators)

    def compiled(self, node: ast.expr) -> CodeType:
        """The code of an expression in it; ValueError if that calls anything: what is read must not run code."""
        if any(isinstance(part, ast.Call) for part in ast.walk(node)):
            raise ValueError("it calls a function")
        if node not in self._codes:
            self._codes[node] = compile(ast.Expression(node), "<expression>", "eval")
        return self._codes[node]

    @cached_property
    def locals(self) -> Mapping[str, ast.expr]:
        """The names that are given a value exactly once, and are no parameters."""
        once = (name for name, count in self.stores.items() if count == 1 and name not in self.parameters)
        return {name: self.assignments[name][0] for name in once if len(self.assignments.get(name, ())) == 1}


def _of_triton(value: object) -> bool:
    return (getattr(value, "__module__", "") or "").partition(".")[0] == "triton"


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _pairs(node.target, node.value)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        yield node.target.id, ast.copy_location(value, node)
    elif isinstance(node, ast.For):
        yield from _pairs(node.target, node.iter)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
        for at, inner in enumerate(target.elts):
            yield from _pairs(inner, parts[at] if parts else value)


_Conditions: TypeAlias = "tuple[tuple[ast.expr, bool], ...]"


@dataclass(frozen=True)
class Item:
    """A part of the source that decides about blocks, with the conditions under which it is compiled.

    An `extent` is that of a `tl.arange` that begins at 0. An `accumulator` is the shape of a block that a `tl.dot` adds
    to, here or in a helper that the block is given to. A `tile` is a dimension and its tile, of a `cdiv` or a stepped
    `range`. `specialized` is the value that a loop is given as `warp_specialize`. A `call` is of the JIT function
    `helper` with `arguments` by parameter; None are those of a call with stars, where defaults say nothing. After a
    `return` nothing is compiled.
    """

    kind: Literal["extent", "accumulator", "tile", "specialized", "call", "return"]
    conditions: _Conditions
    parts: tuple[ast.expr, ...] = ()
    helper: KernelSource | None = None
    arguments: Mapping[str, ast.expr] | None = None


def _items_in(source: KernelSource, node: ast.AST, conditions: _Conditions = ()) -> Iterator[Item]:
    """The items of a part of a function, under the conditions of the way to it."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.BoolOp)):
        return
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and last_name(node.iter) == "static_range":
        return
    if isinstance(node, (ast.If, ast.IfExp)):
        for branch, holds in ((node.body, True), (node.orelse, False)):
            for one in branch if isinstance(branch, list) else [branch]:
                yield from _items_in(source, one, (*conditions, (node.test, holds)))
        return
    if isinstance(node, ast.Call):
        yield from _items_of_call(source, node, conditions)
    for child in ast.iter_child_nodes(node):
        yield from _items_in(source, child, conditions)
    if isinstance(node, ast.Return):
        yield Item("return", conditions)


def _items_of_call(source: KernelSource, call: ast.Call, conditions: _Conditions) -> Iterator[Item]:
    name, arguments = last_name(call), tuple(call.args)
    if name == "arange" and len(arguments) == 2 and isinstance(arguments[0], ast.Constant):
        if arguments[0].value == 0:
            yield Item("extent", conditions, arguments[1:])
    elif name == "cdiv" and len(arguments) == 2:
        yield Item("tile", conditions, arguments)
    elif name == "range" and len(arguments) == 3:
        yield Item("tile", conditions, arguments[1:])
    elif call in source.accumulators:
        yield Item("accumulator", conditions, tuple(_extents(call)))
    elif (helper := source.callee(call)) is not None:
        is_starred = any(isinstance(one, ast.Starred) for one in arguments) or None in [it.arg for it in call.keywords]
        yield Item("call", conditions, helper=helper, arguments=None if is_starred else dict(helper.bound(call)))
    for keyword in call.keywords:
        if keyword.arg == "warp_specialize":
            yield Item("specialized", conditions, (keyword.value,))


def _adds(source: KernelSource, name: str, value: ast.expr) -> bool:
    for node in KernelSource.calls_in(value):
        if last_name(node) == "dot":
            return True
        helper = source.callee(node)
        is_given = any(isinstance(one, ast.Name) and one.id == name for one in node.args)
        if helper is not None and is_given and any(last_name(call) == "dot" for call in helper.calls):
            return True
    return False


def _extents(call: ast.Call) -> list[ast.expr]:
    shape = call.args[0] if call.args else None
    return list(shape.elts) if isinstance(shape, (ast.Tuple, ast.List)) else []


_PLAIN = (bool, int, float, str, type(None))
_DEPTH = 16  # most names that are followed from name to name
_CALLS = 8  # most helpers that are followed from helper to helper
_UNKNOWN = object()


@dataclass(frozen=True)
class SteppedDimension:
    """A dimension through which the kernel steps in tiles; `extent` and `tile_name` are names in the source."""

    extent: str
    size: int
    tile_name: str
    tile: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config. Names are those of the kernel's parameters where a helper is given these.

    `ranges` are of every `tl.arange`, `accumulators` the blocks that a `tl.dot` adds to; `warp_specialized` is whether
    a loop is, or may be, divided among groups of warps.
    """

    ranges: tuple[tuple[str, int], ...] = ()
    accumulators: tuple[tuple[int, ...], ...] = ()
    stepped: tuple[SteppedDimension, ...] = ()
    warp_specialized: bool = False


def blocks_of(function: object, values: Mapping[str, object]) -> Blocks:
    """The blocks of a JIT function with these arguments and config values by name; some microseconds once parsed."""
    if (source := KernelSource.of(function)) is None:
        return Blocks()
    sizes: dict[str, dict[Any, None]] = {"extent": {}, "accumulator": {}, "tile": {}, "specialized": {}}
    _Scope(source, {**source.defaults, **values}).measure(sizes)
    ranges, accumulators, stepped, specialized = map(tuple, sizes.values())
    return Blocks(ranges, accumulators, stepped, bool(specialized))


def is_false(source: KernelSource, node: ast.expr, values: Mapping[str, object]) -> bool:
    """Tell whether a condition in a function is false with these values, as far as they decide it."""
    return _Scope(source, {**source.defaults, **values}).truth(node) is False


class _Scope(dict[str, Any]):
    """The names inside one call of a function, with their values where these are plain; others raise KeyError.

    Of a helper, `arguments` are what it is called with by `caller`, and `values` has what the call leaves out.
    """

    def __init__(
        self, source: KernelSource, values: Mapping[str, Any], arguments: Mapping[str, ast.expr] | None = None,
        caller: _Scope | None = None,
    ) -> None:  # fmt: skip
        # `eval` adds Python's builtins to globals that have none, and what is read must not reach them.
        super().__init__(__builtins__={})
        self.source, self._values, self._arguments = source, values, arguments or {}
        self._caller = self if caller is None else caller
        self.calls: int = 0 if caller is None else caller.calls + 1
        self._depth = 0

    def __missing__(self, name: str) -> Any:
        source = self.source
        if name in source.locals or name in source.stores:
            value = self.value(source.locals[name]) if name in source.locals else _UNKNOWN
        elif name in self._arguments:
            value = self._caller.value(self._arguments[name])
        else:
            value = (self._values if name in source.own_names else source.outside).get(name, _UNKNOWN)
            value = value.value if type(value).__name__ == "constexpr" else value
        if not isinstance(value, _PLAIN):
            raise KeyError(name)
        self[name] = value
        return value

    def value(self, node: ast.expr) -> Any:
        """The value of an expression over plain ones; `_UNKNOWN` if it has another."""
        if isinstance(node, ast.Constant):
            return node.value
        if self._depth > _DEPTH:
            return _UNKNOWN
        self._depth += 1
        try:
            if isinstance(node, ast.Name):
                return self[node.id]
            return eval(self.source.compiled(node), self)  # all names are plain values
        except Exception:  # noqa: BLE001 - a name is not known, or plain values do not go together
            return _UNKNOWN
        finally:
            self._depth -= 1

    def truth(self, node: ast.expr) -> bool | None:
        """Whether a condition holds; `and` is false, and `or` true, as soon as one part is, whatever the others are."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            truths, decisive = [self.truth(part) for part in node.values], isinstance(node.op, ast.Or)
            return decisive if decisive in truths else None if None in truths else not decisive
        value = self.value(node)
        return None if value is _UNKNOWN else bool(value)

    def measure(self, sizes: dict[str, dict[Any, None]]) -> None:
        """Add what the items say, up to a `return`; dictionaries, since a helper may be called twice."""
        for item in self.source.items:
            if not all(self.truth(test) is holds for test, holds in item.conditions):
                continue
            if item.kind == "return":
                return
            if item.helper is not None:
                values = {} if item.arguments is None else item.helper.defaults
                inside = _Scope(item.helper, values, item.arguments, self)
                if inside.calls <= _CALLS:
                    inside.measure(sizes)
            elif item.kind == "specialized":
                sizes[item.kind].update({} if self.truth(item.parts[0]) is False else {True: None})
            elif (size := self._size(item)) is not None:
                sizes[item.kind][size] = None

    def _size(self, item: Item) -> Any:
        numbers = tuple(map(self.value, item.parts))
        if not all(type(number) is int for number in numbers):
            return None
        if item.kind == "accumulator":
            return numbers
        names = tuple(map(self.name, item.parts))
        if item.kind == "extent":
            return names[0], numbers[0]
        return SteppedDimension(names[0], numbers[0], names[1], numbers[1]) if numbers[1] else None

    def name(self, node: ast.expr) -> str:
        """The name of an expression: of a parameter that of its value, where it comes from."""
        if not isinstance(node, ast.Name):
            return ast.unparse(node)
        argument = self._arguments.get(node.id)
        return self._caller.name(argument) if isinstance(argument, ast.Name) else node.id
