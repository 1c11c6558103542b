"""Small wrong changes of Python source: comparisons, bounds, calls, arguments, numbers off by one, and conditions.

Texts, types, defaults, messages and logs stay as they are, and so does what only a module's import runs.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

Form = tuple[str, ast.AST, str]  # a kind of change, what is replaced, and by which text

NEGATED = {ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Is: ast.IsNot, ast.In: ast.NotIn}
NEGATED |= {after: before for before, after in NEGATED.items()}
BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXTREMES = {"min": "max", "max": "min"}
WRAPPERS = {"sorted": "list", "reversed": "list", "abs": "", "round": ""}  # around one argument
EITHER_ORDER = {
    "min",
    "max",
    "minimum",
    "maximum",
    "gcd",
    "lcm",
    "isclose",
    "suppress",
}  # exchanged, nothing changes
NOT_EXCHANGED = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "require"}  # nothing would run
LOGS = {"debug", "info", "warning", "error", "exception", "log"}


@dataclass(frozen=True)
class Change:
    """A wrong change: in which function of a file `before` becomes `after`; `nth` of the equal ones there."""

    file: str
    function: str
    kind: str
    before: str
    after: str
    nth: int

    def rank(self, seed: int) -> bytes:
        """Where a seed puts it among all changes, in which no other function has a say."""
        own = (seed, self.file, self.function, self.kind, self.before, self.after, self.nth)
        return hashlib.sha256(repr(own).encode()).digest()


@dataclass(frozen=True)
class Changed:
    """The line of a change, and the whole file after it."""

    line: int
    text: str


def changes_in(source: bytes, file: str) -> dict[Change, Changed]:
    """Every change of a file's source."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counts: Counter[tuple[str, ...]] = Counter()
    changes = {}
    for function, node in _running(ast.parse(source)):
        for kind, place, after in _forms(node):
            first = starts[place.lineno - 1] + place.col_offset
            last = starts[place.end_lineno - 1] + place.end_col_offset
            own = (function, kind, " ".join(source[first:last].decode().split()), after)
            new = after if after == "pass" else f"({after})"
            text = (source[:first] + new.encode() + source[last:]).decode()
            changes[Change(file, *own, counts[own])] = Changed(place.lineno, text)
            counts[own] += 1
    return changes


def _running(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """What runs below a node when functions are called, with the function's name."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child.name != "__repr__":
                    yield from _running(child, f"{function}.{child.name}".lstrip("."))
            elif isinstance(child, ast.AST) and not _is_said(child):
                if function and not isinstance(node, ast.ClassDef):
                    yield function, child
                yield from _running(child, function)


def _is_said(node: ast.AST) -> bool:
    """Check whether a node is a text, an error or a line of a log."""
    logs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value) in LOGS
    return logs or isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert))


def _forms(node: ast.AST) -> Iterator[Form]:
    """The wrong forms of a node."""
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call", node, "pass"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _off_by_one(node.left, node.right)
    elif isinstance(node, ast.Slice):
        yield from _off_by_one(node.lower, node.upper)
    elif isinstance(node, ast.Subscript):
        yield from _off_by_one(node.slice)
    else:
        yield from (("condition", *form) for form in _without_condition(node))


def _of_comparison(node: ast.Compare) -> Iterator[Form]:
    for at, operator in enumerate(node.ops):
        for kind, table in (("comparison", NEGATED), ("bound", BOUNDS)):
            if type(operator) in table:
                yield kind, node, _with(node, "ops", at, table[type(operator)]())
    yield from _off_by_one(*node.comparators)


def _of_call(node: ast.Call) -> Iterator[Form]:
    name, pair = _name(node), node.args[:2]
    if name in EXTREMES and isinstance(node.func, ast.Name):
        yield "bound", node.func, EXTREMES[name]
    if name in WRAPPERS and len(node.args) == 1:
        yield "call", node, f"{WRAPPERS[name]}({ast.unparse(node.args[0])})"
    if name == "range":
        yield from _off_by_one(*node.args)
    plain = len(pair) == 2 and not any(isinstance(value, ast.Starred) for value in pair)
    if plain and name not in EITHER_ORDER | NOT_EXCHANGED and ast.dump(pair[0]) != ast.dump(pair[1]):
        exchanged = copy.copy(node)
        exchanged.args = [pair[1], pair[0], *node.args[2:]]
        yield "arguments", node, ast.unparse(exchanged)


def _off_by_one(*nodes: ast.AST | None) -> Iterator[Form]:
    for node in nodes:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield "off by one", node, str(node.value + 1)


def _without_condition(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            values = node.values[:at] + node.values[at + 1 :]
            yield node, ast.unparse(ast.BoolOp(node.op, values) if len(values) > 1 else values[0])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield from ((node, ast.unparse(value)) for value in (node.body, node.orelse))
    elif isinstance(node, ast.If) and not node.orelse:
        yield node.test, "False"
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for at, part in enumerate(node.generators):
            if part.ifs:
                yield node, _with(node, "generators", at, ast.comprehension(part.target, part.iter, [], part.is_async))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _with(node: ast.AST, field: str, at: int, value: ast.AST) -> str:
    """The node's text where one of its parts is another."""
    other, parts = copy.copy(node), list(getattr(node, field))
    parts[at] = value
    setattr(other, field, parts)
    return ast.unparse(other)
