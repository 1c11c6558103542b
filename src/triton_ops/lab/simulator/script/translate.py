"""A script of functions that work as their Python originals do.

What both languages mean alike becomes an operator; the rest becomes a call of a function in `runtime.js`, whose names
begin with `$`. Whole numbers and fractions are one type in JavaScript, so quotients of whole numbers are rounded there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops.base import read_file
from triton_ops.lab.simulator.script.sources import (
    Definition,
    UntranslatableError,
    definition_of,
    is_hook,
    needed,
    root_of,
)

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


def definition_script(found: Definition, needed: Sequence[Definition]) -> str:
    """The script of a definition.

    Raises:
        UntranslatableError: It has a form that is not translated.
    """
    scope, node = Scope(found.module, needed), found.node
    if isinstance(node, ast.FunctionDef):
        return _function(node, scope, f"function {found.script_name}")
    if isinstance(node, ast.ClassDef):
        return _class(node, scope, found.script_name)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        return f"const {found.script_name} = {Expressions(scope)(node.value)};"
    raise Expressions(scope).unknown(node)


def _function(node: ast.FunctionDef, scope: Scope, head: str, *, method: bool = False) -> str:
    """A function after its head, which is the script before its parameters."""
    arguments = [*node.args.args, *node.args.kwonlyargs]
    defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + node.args.defaults + node.args.kw_defaults
    inner = scope.inner({one.arg for one in arguments} | _assigned(node))
    if method:
        inner.receiver = arguments[0].arg
        arguments, defaults = arguments[1:], defaults[1:]
    translate = Expressions(inner)
    parameters = [
        local_name(one.arg) + (f" = {translate(default)}" if default is not None else "")
        for one, default in zip(arguments, defaults, strict=True)
    ]
    star = "*" if head.startswith("function") and _yields(node) else ""
    own = sorted(map(local_name, _assigned(node) - {one.arg for one in arguments} - {"_"}))
    lines = [f"let {', '.join(own)};"] if own else []
    lines += _block(node.body, translate)
    arrow = " =>" if head.endswith("= ") else ""
    return f"{head.replace('function ', f'function{star} ')}({', '.join(parameters)}){arrow} {{\n{_indented(lines)}\n}}"


def _yields(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Yield) for one in ast.walk(node))


def _assigned(node: ast.FunctionDef) -> set[str]:
    """Names to which a function assigns, functions in it left out."""
    return {
        one.id
        for statement in node.body
        for one in _own(statement)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    } | {one.name for one in node.body if isinstance(one, ast.FunctionDef)}


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it; what comprehensions and inner functions assign is theirs."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _own(child)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for text in lines for line in text.split("\n"))


def _block(body: Sequence[ast.stmt], translate: Expressions) -> list[str]:
    return [line for statement in body if (line := _statement(statement, translate))]


def _braced(body: Sequence[ast.stmt], translate: Expressions) -> str:
    return f"{{\n{_indented(_block(body, translate))}\n}}"


def _statement(node: ast.stmt, translate: Expressions) -> str:
    """The script of a statement; empty for what says something to readers or type checkers alone."""
    if isinstance(node, ast.Expr):
        return _alone(node.value, translate)
    if isinstance(node, (ast.Pass, ast.Assert)):
        return ""
    if isinstance(node, ast.Return):
        return f"return {translate(node.value) if node.value else ''};"
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return _assignment(node, translate)
    if isinstance(node, ast.FunctionDef):
        return _function(node, translate.scope, f"{local_name(node.name)} = ") + ";"
    return _compound(node, translate)


def _alone(node: ast.expr, translate: Expressions) -> str:
    if isinstance(node, ast.Constant):
        return ""
    if isinstance(node, ast.Yield) and node.value is not None:
        return f"yield {translate(node.value)};"
    return f"{translate(node)};"


def _assignment(node: ast.Assign | ast.AnnAssign | ast.AugAssign, translate: Expressions) -> str:
    if node.value is None:
        return ""
    value = translate(node.value)
    if isinstance(node, ast.AugAssign):
        joined = translate(ast.BinOp(left=_read(node.target), op=node.op, right=node.value))
        return f"{translate.target(node.target)} = {joined};"
    for target in reversed(node.targets if isinstance(node, ast.Assign) else [node.target]):
        value = f"{translate.target(target)} = {value}"
    return f"{value};"


def _read(target: ast.expr) -> ast.expr:
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


def _compound(node: ast.stmt, translate: Expressions) -> str:
    """Statements that hold others, and those that leave them."""
    if isinstance(node, ast.If):
        rest = f" else {_braced(node.orelse, translate)}" if node.orelse else ""
        return f"if ({translate.test(node.test)}) {_braced(node.body, translate)}{rest}"
    if isinstance(node, ast.While) and not node.orelse:
        return f"while ({translate.test(node.test)}) {_braced(node.body, translate)}"
    if isinstance(node, ast.For) and not node.orelse:
        head = f"for ({translate.target(node.target)} of $list({translate(node.iter)}))"
        return f"{head} {_braced(node.body, translate)}"
    if isinstance(node, ast.Raise) and node.exc is not None:
        return f"throw {translate(node.exc)};"
    if isinstance(node, ast.Try) and len(node.handlers) == 1 and not node.orelse and not node.finalbody:
        return _try(node, node.handlers[0], translate)
    if isinstance(node, (ast.Break, ast.Continue)):
        return f"{type(node).__name__.lower()};"
    raise translate.unknown(node)


def _try(node: ast.Try, handler: ast.ExceptHandler, translate: Expressions) -> str:
    if handler.type is None:
        raise translate.unknown(node)
    inner = Expressions(translate.scope.inner({handler.name} if handler.name else set()))
    lines = [f"if (!($error instanceof {translate(handler.type)})) throw $error;"]
    lines += [f"const {local_name(handler.name)} = $error;"] if handler.name else []
    lines += _block(handler.body, inner)
    return f"try {_braced(node.body, translate)} catch ($error) {{\n{_indented(lines)}\n}}"


def _class(node: ast.ClassDef, scope: Scope, name: str) -> str:
    if node.name.endswith("Error"):
        return f"class {name} extends Error {{}}"
    translate = Expressions(scope)
    fields = [(field, _default(default, translate)) for field, default in fields_of(node)]
    parameters = ", ".join(local_name(field) + default for field, default in fields)
    lines = [f"constructor({parameters}) {{\n{_indented([f'this.{f} = {local_name(f)};' for f, _ in fields])}\n}}"]
    if any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases):
        lines.append(f"*[Symbol.iterator]() {{\n{_indented([f'yield this.{field};' for field, _ in fields])}\n}}")
    lines += [_method(one, scope) for one in node.body if isinstance(one, ast.FunctionDef) and not is_hook(one)]
    return f"class {name} {{\n{_indented(lines)}\n}}"


def _method(method: ast.FunctionDef, scope: Scope) -> str:
    asked = any(ast.unparse(one) in ("property", "cached_property") for one in method.decorator_list)
    return _function(method, scope, f"{'get ' if asked else ''}{method.name}", method=True)


def _default(node: ast.expr | None, translate: Expressions) -> str:
    """What a field is if it is not given, as the script of a parameter's default."""
    if node is None:
        return ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        named = {one.arg: one.value for one in node.keywords}
        if "default_factory" in named:
            return " = []" if ast.unparse(named["default_factory"]) == "list" else " = {}"
        return f" = {translate(named['default'])}" if "default" in named else ""
    return f" = {translate(node)}"


_LARGEST_BYTES = 1 << 20


def script_of(roots: Mapping[str, Callable[..., Any] | type], name: str) -> str:
    """JavaScript that defines one object, whose members are functions and classes translated from Python.

    Arguments are given by position. Dicts become objects, lists and tuples arrays, None null, and dataclasses classes
    whose constructors take the fields in order.

    Args:
        roots: Functions and classes of this package by the names of the object's members; what they use comes with
            them.
        name: Name of the object.

    Raises:
        UntranslatableError: Some of the code has a form that is not translated.

    Cost: a tenth of a second.
    """
    found = needed([root_of(root) for root in roots.values()])
    runtime = read_file(Path(__file__).with_name("runtime.js"), _LARGEST_BYTES).decode()
    members = ", ".join(f"{member}: {_script_name(root)}" for member, root in roots.items())
    parts = [runtime, *(definition_script(one, found) for one in found), f"return {{ {members} }};"]
    body = "\n".join(parts)
    return f'const {name} = (() => {{\n"use strict";\n{body}\n}})();\n'


def _script_name(root: Callable[..., Any] | type) -> str:
    found = definition_of(*root_of(root))
    assert not isinstance(found, str)
    return found.script_name
