"""Python statements, functions and classes as JavaScript."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from triton_ops.simulator.script.expressions import Expressions, Scope, fields_of, local_name
from triton_ops.simulator.script.sources import Definition, is_hook


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
