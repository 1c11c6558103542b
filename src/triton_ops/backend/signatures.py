"""The parameters of functions, which are kept: `inspect.signature` takes as long as reading a record.

An argument counts if pointers that are computed from it are stored to, and nothing else is done with them: whatever is
also loaded, updated atomically, or handed to another function may be read, and does not count.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from triton_ops.backend.roles import Arguments
from triton_ops.backend.stand_in import described
from triton_ops.backend.unwrapping import unwrap
from triton_ops.space import Tunable

# Whose result points to where their first argument does, or are values of no pointer.
_PASS_ON = {"make_block_ptr", "advance", "make_tensor_descriptor", "multiple_of", "max_contiguous", "to", "cast"}
_VALUES = {"arange", "program_id", "num_programs", "cdiv", "zeros", "full", "static_assert", "static_range", "range"}
_STORE, _MOST_ROUNDS = "store", 8


@lru_cache(maxsize=512)
def written_only(function: Any) -> tuple[str, ...]:
    """The parameters that a kernel only writes, in order; empty where its source cannot be read.

    Cost: parses the source, a millisecond.
    """
    inner = unwrap(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inner))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ()
    if not isinstance(tree, ast.FunctionDef):
        return ()
    names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
    flow = _Flow(tree, names)
    return tuple(name for name in names if name in flow.targets and name not in flow.uses)


class _Flow:
    """The ways of the pointers of a kernel's arguments.

    Attributes:
        targets: Arguments to which something is stored.
        uses: Arguments whose pointers are loaded from, or go where that is not known.
    """

    def __init__(self, tree: ast.FunctionDef, names: Collection[str]) -> None:
        self._origins: dict[str, set[str]] = {name: {name} for name in names}
        self.targets: set[str] = set()
        self.uses: set[str] = set()
        for _ in range(_MOST_ROUNDS):  # loops carry pointers around: until nothing is added
            before = {name: set(origins) for name, origins in self._origins.items()}
            for node in ast.walk(tree):
                self._assign(node)
            if before == self._origins:
                break
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._call(node)

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets = [node.target]
        else:
            return
        value = node.value
        if value is None:
            return
        origins = self._of(value)
        for target in targets:
            for name in _names(target):
                self._origins.setdefault(name, set()).update(origins)

    def _of(self, node: ast.AST) -> set[str]:
        """The arguments whose pointers an expression may hold."""
        if isinstance(node, ast.Name):
            return self._origins.get(node.id, set())
        if isinstance(node, ast.Call) and _called(node) not in _PASS_ON:
            return set()  # values that were loaded or computed; what was handed over is looked at where it is called
        children = [node.func, *node.args[:1]] if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        return set().union(*map(self._of, children))

    def _call(self, node: ast.Call) -> None:
        name, arguments = _called(node), [*node.args, *(keyword.value for keyword in node.keywords)]
        on = self._of(node.func.value) if isinstance(node.func, ast.Attribute) else set()
        if name == _STORE:
            target = on or (self._of(arguments[0]) if arguments else set())
            self.targets |= target
            others = arguments if on else arguments[1:]
            self.uses |= self._read(others)
        elif name not in _PASS_ON:
            self.uses |= set() if name in _VALUES else on.union(*map(self._of, arguments))

    def _read(self, arguments: list[ast.expr]) -> set[str]:
        """The arguments of a store that are pointers themselves: numbers that are added to one are not."""
        return {name for each in arguments if isinstance(each, ast.Name) for name in self._origins.get(each.id, set())}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


_Parameters = Mapping[str, inspect.Parameter]
_signatures: WeakKeyDictionary[FunctionType, tuple[Any, Any, Any, _Parameters]] = WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name.

    Raises:
        TypeError, ValueError: It is a builtin that does not tell them, or no function.
    """
    if not isinstance(function, FunctionType) or vars(function):  # a wrapper's attributes say what it wraps
        return inspect.signature(function).parameters
    code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
    entry = _signatures.get(function)
    if entry is not None and entry[0] is code and entry[1] is defaults and entry[2] is keyword_defaults:
        return entry[3]
    parameters = inspect.signature(function).parameters
    _signatures[function] = (code, defaults, keyword_defaults, parameters)
    return parameters


def layers(function: Any) -> list[Any]:
    """A kernel with the kernels below its decorators, the innermost last."""
    layers = [function]
    while hasattr(inner := getattr(layers[-1], "fn", None), "run"):
        layers.append(inner)
    return layers


def without_autotune(function: Any) -> Any:
    """A kernel with its other decorators, which see the values of the config too."""
    if hasattr(function, "configs"):
        return without_autotune(function.fn)
    inner = getattr(function, "fn", None)
    if not hasattr(inner, "run") or (below := without_autotune(inner)) is inner:
        return function
    duplicate = copy.copy(function)
    duplicate.fn = below
    return duplicate


def heuristics(function: Any) -> set[str]:
    """The parameters that `@triton.heuristics` gives their values."""
    return {name for layer in layers(function)[:-1] for name in getattr(layer, "values", ())}


def required(function: Any) -> list[str]:
    """The parameters that must be given."""
    parameters = parameters_of(unwrap(function)).values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def is_gluon(function: Any) -> bool:
    """Tell whether it is a kernel of Gluon."""
    innermost = layers(function)[-1]
    return bool(hasattr(innermost, "is_gluon") and innermost.is_gluon())


Made = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_OF_RUN = {"self", "grid", "warmup"}  # the names of Triton's `run` itself


def defaults_of(function: Any) -> dict[str, Any]:
    """The values of a kernel's parameters that need not be given, by name."""
    parameters = parameters_of(unwrap(function)).values()
    return {param.name: param.default for param in parameters if param.default is not param.empty}


def placed(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place and by name as Triton's `run` of a kernel takes them.

    What is called like a parameter of `run` itself is given by its place, with all that stands before it.
    """
    names, rest, positional = function.arg_names, dict(keywords), list(args)
    while _OF_RUN & rest.keys() & {*names[len(positional) :]}:
        name = names[len(positional)]
        positional.append(rest.pop(name) if name in rest else defaults_of(function)[name])
    return positional, rest


def unfilled(function: Any, tunables: Iterable[str], values: Mapping[str, Any], maker: Made | None) -> list[str]:
    """The parameters that get a value from nowhere.

    Args:
        function: The kernel.
        tunables: A config, the tunables of a space by name, or names alone.
        values: The arguments by name: tensors, specs, or anything else.
        maker: Makes further arguments from arguments and config. It is asked only if something is missing, about
            tensors without memory, and the first value of each tunable. Where it cannot answer, every parameter may
            be its own but the constexpr ones.
    """
    filled = {*values, *tunables, *heuristics(function)}
    missing = [name for name in required(function) if name not in filled]
    if not missing or maker is None:
        return missing
    try:
        own = set(maker({**defaults_of(function), **_without_memory(values), **_first_config(tunables)}))
    except Exception as error:  # noqa: BLE001 - the user's own function; a launch will say why
        if isinstance(error, KeyError) and error.args[:1] and error.args[0] in missing:
            return [error.args[0]]
        own = {param.name for param in layers(function)[-1].params if not param.is_constexpr}
    return [name for name in missing if name not in own]


def _without_memory(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return described(Arguments(keyword=dict(values)), light=True).keyword


def _first_config(tunables: Iterable[str]) -> dict[str, Any]:
    """The config, or the first value of each tunable; empty where only names are known."""
    if not isinstance(tunables, Mapping):
        return {}
    return {name: next(iter(each)) if isinstance(each, Tunable) else each for name, each in tunables.items()}
