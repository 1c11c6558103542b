"""Python expressions as JavaScript expressions.

What both languages mean alike becomes an operator; the rest becomes a call of a function in `runtime.js`, whose names
begin with `$`. Whole numbers and fractions are one type in JavaScript, so quotients of whole numbers are rounded there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_ops.simulator.script.sources import Definition, UntranslatableError, definition_of

_BINARY = {ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARED = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "===", ast.NotEq: "!==", ast.Is: "===",
    ast.IsNot: "!==",
}  # fmt: skip
_VALUES = {"math.inf": "Infinity", "math.nan": "NaN"}
_PLAIN = {
    "math.ceil": "Math.ceil", "math.floor": "Math.floor", "math.exp": "Math.exp", "math.log": "Math.log",
    "math.log2": "Math.log2", "math.sqrt": "Math.sqrt", "math.isfinite": "Number.isFinite",
    "math.isnan": "Number.isNaN", "abs": "Math.abs", "int": "Math.trunc", "float": "Number",
}  # fmt: skip
_HELPED = (
    "divmod", "round", "zip", "sum", "list", "tuple", "str", "bool", "len", "range", "enumerate", "getattr", "any",
    "all", "reversed", "dict",
)  # fmt: skip
_METHODS = {"items": "$items", "values": "$values", "keys": "$keys", "get": "$get", "startswith": "$startswith"}
_RENAMED = {"append": "push", "index": "indexOf", "upper": "toUpperCase"}
_RESERVED = ("default", "function", "new", "this", "var", "const", "let", "switch", "case", "delete", "arguments")


@dataclass
class Scope:
    """What names mean in one function.

    Attributes:
        module: Name of the module.
        needed: All definitions of the script.
        local: Names of parameters and variables, those of functions around included.
        receiver: What the method calls itself; empty outside of methods.
    """

    module: str
    needed: Sequence[Definition]
    local: set[str] = field(default_factory=set)
    receiver: str = ""

    def inner(self, names: set[str]) -> Scope:
        """The scope of a function or comprehension in this one."""
        return Scope(self.module, self.needed, self.local | names, self.receiver)

    def has_method(self, name: str) -> bool:
        """Whether a class of the script has a method or a field of that name; other objects' methods are unknown."""
        bodies = [one.node.body for one in self.needed if isinstance(one.node, ast.ClassDef)]
        return any(_names_member(statement, name) for body in bodies for statement in body)

    def meaning(self, name: str) -> Definition | str:
        """The definition that a name stands for, or a full name of another package or of Python."""
        return definition_of(self.module, name)


def _names_member(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.AnnAssign):
        return isinstance(statement.target, ast.Name) and statement.target.id == name
    return isinstance(statement, ast.FunctionDef) and statement.name == name


def local_name(name: str) -> str:
    """A variable's name, which JavaScript must not keep for itself."""
    return f"{name}_" if name in _RESERVED else name


class Expressions:
    """The translation of expressions in one scope.

    Args:
        scope: What names mean.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(self, node: ast.expr) -> str:
        """The script of an expression.

        Raises:
            UntranslatableError: The expression has a form that is not translated.
        """
        translate: Callable[[ast.expr], str] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if translate is None:
            raise self.unknown(node)
        return translate(node)

    def unknown(self, node: ast.AST) -> UntranslatableError:
        """The error for code that is not translated."""
        return UntranslatableError(f"{self.scope.module}: {ast.unparse(node)!r} has no translation to JavaScript")

    def test(self, node: ast.expr) -> str:
        """The script of a condition: true or false as Python would have it."""
        if isinstance(node, ast.BoolOp):
            sign = " && " if isinstance(node.op, ast.And) else " || "
            return f"({sign.join(map(self.test, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        return self(node) if isinstance(node, ast.Compare) else f"$bool({self(node)})"

    def target(self, node: ast.expr) -> str:
        """The script of what is assigned to; a name that is not read leaves a gap."""
        if isinstance(node, ast.Tuple):
            return f"[{', '.join(map(self.target, node.elts))}]"
        if isinstance(node, ast.Name):
            return "" if node.id == "_" else local_name(node.id)
        if isinstance(node, ast.Starred):
            rest = self.target(node.value)
            return f"...{rest}" if rest else ""
        return self(node)

    def _constant(self, node: ast.Constant) -> str:
        return json.dumps(node.value)

    def _name(self, node: ast.Name) -> str:
        if node.id == self.scope.receiver:
            return "this"
        if node.id in self.scope.local:
            return local_name(node.id)
        found = self.scope.meaning(node.id)
        if isinstance(found, Definition):
            return found.script_name
        known = _VALUES.get(found) or _PLAIN.get(found) or (f"${found}" if found in _HELPED else None)
        if known is None:
            raise self.unknown(node)
        return known

    def _attribute(self, node: ast.Attribute) -> str:
        return _VALUES.get(ast.unparse(node)) or f"{self(node.value)}.{node.attr}"

    def _binop(self, node: ast.BinOp) -> str:
        left, right = self(node.left), self(node.right)
        if isinstance(node.op, ast.FloorDiv):
            return f"Math.floor({left} / {right})"
        if isinstance(node.op, ast.Mod):
            return f"$divmod({left}, {right})[1]"
        if isinstance(node.op, ast.Add):
            return f"$add({left}, {right})"
        if isinstance(node.op, ast.BitOr):
            return f"({{...{left}, ...{right}}})"
        sign = _BINARY.get(type(node.op))
        if sign is None:
            raise self.unknown(node)
        return f"(({left}) {sign} {right})" if sign == "**" else f"({left} {sign} {right})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.USub):
            return f"(-{self(node.operand)})"
        if isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        raise self.unknown(node)

    def _boolop(self, node: ast.BoolOp) -> str:
        helper = "$and" if isinstance(node.op, ast.And) else "$or"
        return f"{helper}({', '.join(f'() => ({self(value)})' for value in node.values)})"

    def _compare(self, node: ast.Compare) -> str:
        sides = [node.left, *node.comparators]
        parts = [self._pair(op, *sides[at : at + 2]) for at, op in enumerate(node.ops)]
        return f"({' && '.join(parts)})"

    def _pair(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        if isinstance(op, (ast.In, ast.NotIn)):
            return f"{'' if isinstance(op, ast.In) else '!'}$in({self(left)}, {self(right)})"
        return f"{self(left)} {_COMPARED[type(op)]} {self(right)}"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self.test(node.test)} ? {self(node.body)} : {self(node.orelse)})"

    def _lambda(self, node: ast.Lambda) -> str:
        names = [one.arg for one in node.args.args]
        inner = Expressions(self.scope.inner(set(names)))
        return f"(({', '.join(map(local_name, names))}) => ({inner(node.body)}))"

    def _dict(self, node: ast.Dict) -> str:
        pairs = zip(node.keys, node.values, strict=True)
        parts = [f"...{self(value)}" if key is None else f"[{self(key)}]: {self(value)}" for key, value in pairs]
        return f"({{{', '.join(parts)}}})"

    def _list(self, node: ast.List) -> str:
        return f"[{', '.join(map(self, node.elts))}]"

    def _tuple(self, node: ast.Tuple) -> str:
        return f"[{', '.join(map(self, node.elts))}]"

    def _starred(self, node: ast.Starred) -> str:
        return f"...$list({self(node.value)})"

    def _subscript(self, node: ast.Subscript) -> str:
        value = self(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [node.slice.lower or ast.Constant(0), *([node.slice.upper] if node.slice.upper else [])]
            return f"{value}.slice({', '.join(map(self, bounds))})"
        last = isinstance(node.slice, ast.UnaryOp)
        return f"{value}.at({self(node.slice)})" if last else f"{value}[{self(node.slice)}]"

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        return f"({' + '.join(self._part(part) for part in node.values) or repr('')})"

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return json.dumps(node.value)
        assert isinstance(node, ast.FormattedValue)
        spec = node.format_spec.values[0] if isinstance(node.format_spec, ast.JoinedStr) else ast.Constant("")
        shape = "r" if node.conversion == ord("r") else getattr(spec, "value", "")
        return f"$format({self(node.value)}, {json.dumps(shape)})"

    def _listcomp(self, node: ast.ListComp) -> str:
        return self._comprehension(node.generators, lambda inner: inner(node.elt))

    def _generatorexp(self, node: ast.GeneratorExp) -> str:
        return self._comprehension(node.generators, lambda inner: inner(node.elt))

    def _dictcomp(self, node: ast.DictComp) -> str:
        made = self._comprehension(node.generators, lambda inner: f"[{inner(node.key)}, {inner(node.value)}]")
        return f"Object.fromEntries({made})"

    def _comprehension(self, generators: list[ast.comprehension], element: Callable[[Expressions], str]) -> str:
        first, *rest = generators
        names = {one.id for one in ast.walk(first.target) if isinstance(one, ast.Name)}
        inner = Expressions(self.scope.inner(names))
        target = inner.target(first.target) or "_"
        found = f"$list({self(first.iter)})"
        for condition in first.ifs:
            found += f".filter(({target}) => {inner.test(condition)})"
        if rest:
            return f"{found}.flatMap(({target}) => {inner._comprehension(rest, element)})"
        return f"{found}.map(({target}) => ({element(inner)}))"

    def _call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node, node.func)
        if not isinstance(node.func, ast.Name) or node.func.id in self.scope.local:
            return self._plain_call(self(node.func), node)
        found = self.scope.meaning(node.func.id)
        if isinstance(found, Definition):
            new = "new " if isinstance(found.node, ast.ClassDef) else ""
            return f"{new}{found.script_name}({', '.join(self._in_order(node, _parameters(found.node)))})"
        return self._known_call(found, node)

    def _method_call(self, node: ast.Call, function: ast.Attribute) -> str:
        name = ast.unparse(function)
        if name in _PLAIN:
            return self._plain_call(_PLAIN[name], node)
        given = list(map(self, node.args))
        if function.attr in _METHODS:
            return f"{_METHODS[function.attr]}({', '.join([self(function.value), *given])})"
        if function.attr == "join":
            return f"$list({given[0]}).join({self(function.value)})"
        if node.keywords or not (function.attr in _RENAMED or self.scope.has_method(function.attr)):
            raise self.unknown(node)
        return f"{self(function.value)}.{_RENAMED.get(function.attr, function.attr)}({', '.join(given)})"

    def _plain_call(self, function: str, node: ast.Call) -> str:
        if node.keywords:
            raise self.unknown(node)
        return f"{function}({', '.join(map(self, node.args))})"

    def _known_call(self, name: str, node: ast.Call) -> str:
        """A call of what Python itself has."""
        given = list(map(self, node.args))
        named = {str(one.arg): self(one.value) for one in node.keywords}
        if name in ("max", "min"):
            if len(given) > 1 and not named:
                return f"Math.{name}({', '.join(given)})"
            return f"${name}({given[0]}, {named.get('key', 'null')}, {named.get('default', 'undefined')})"
        if name == "sorted":
            return f"$sorted({given[0]}, {named.get('key', 'null')})"
        if name == "map":
            return f"$list({given[1]}).map((one) => {given[0]}(one))"
        if name == "dataclasses.replace":
            return f"$replace({given[0]}, {{{', '.join(f'{key}: {value}' for key, value in named.items())}}})"
        if name == "isinstance":
            return f"$isinstance({given[0]}, {json.dumps(ast.unparse(node.args[1]))})"
        if name in _HELPED:
            return f"${name}({', '.join(given)})"
        if name in _PLAIN:
            return self._plain_call(_PLAIN[name], node)
        raise self.unknown(node)

    def _in_order(self, node: ast.Call, parameters: list[str]) -> list[str]:
        """The arguments of a call in the order of the parameters; one that is left out is `undefined`."""
        given = list(map(self, node.args))
        named = {str(one.arg): self(one.value) for one in node.keywords}
        if unknown := set(named) - set(parameters):
            raise UntranslatableError(f"{ast.unparse(node)} names {', '.join(sorted(unknown))}, which is no parameter")
        rest = [named.get(name, "undefined") for name in parameters[len(given) :]] if named else []
        while rest and rest[-1] == "undefined":
            rest.pop()
        return given + rest


def _parameters(node: ast.stmt) -> list[str]:
    """Names of a function's parameters, or of a class's fields, in order."""
    if isinstance(node, ast.FunctionDef):
        return [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
    assert isinstance(node, ast.ClassDef)
    return [name for name, _ in fields_of(node)]


def fields_of(node: ast.ClassDef) -> list[tuple[str, ast.expr | None]]:
    """The fields of a dataclass or named tuple in order, with their defaults."""
    found = [
        (statement.target.id, statement.value)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]
    return [(name, default) for name, default in found if name != "_"]
