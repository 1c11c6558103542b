"""Functions as the user wrote them, inside of their decorators: their origin, their parameters, and their text.

A package is installed where an installer puts packages, or where the folder or archive of the search path that holds it
has an installer's list of its files, as `pip install --target`, a PEX file and a wheel have. A project that is
installed to be edited is the user's: its files lie beside no such list.

The text of a function that counts for its fingerprint is its syntax, without parts that do not change the result:
comments, docstrings, formatting, the line it stands on, the version of Python, and the space that a tuning decorator
names. Signatures are kept: `inspect.signature` takes as long as reading a record.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import os
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import accumulate
from pathlib import Path, PurePath
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from triton_ops import settings
from triton_ops.backend.roles import Arguments
from triton_ops.base import BoundedDict
from triton_ops.exceptions import PACKAGES
from triton_ops.space import Tunable

_TUNING_DECORATORS = {"autotune", "operation"}  # they name what may be tried, not what is computed
_SILENT_FIELDS = {"ctx", "kind", "type_comment"}
_CHANGING_METHODS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """The syntax of one function as text, or its bytecode where there is no source.

    `mutations` are names of variables from outside that it gives other values, or whose containers it changes.
    """

    syntax: str
    mutations: frozenset[str] = frozenset()


_texts = BoundedDict[int, tuple[CodeType, Text]](4096)
"""The texts of functions by the identity of their code: equal code may stand below different annotations."""


def text_of(code: CodeType) -> Text:
    """The content of the source of a function with this code, parsed once in a process: 1 ms for 50 lines."""
    if (entry := _texts.get(id(code))) is None:
        entry = _texts[id(code)] = (code, _parse(code))
    return entry[1]


def _parse(code: CodeType) -> Text:
    if code.co_name == "<lambda>":  # its source is the whole statement around it
        return Text(_bytecode(code))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return Text(_bytecode(code))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.decorator_list = [d for d in node.decorator_list if _name_of(d) not in _TUNING_DECORATORS]
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return Text(_tree(tree), frozenset(_mutations(tree)))


def _mutations(tree: ast.AST) -> Iterator[str]:
    """Names that are declared global or nonlocal, and names of containers whose content the code changes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and _changes(node) and isinstance(node.value, ast.Name):
            yield node.value.id


def _changes(node: ast.Subscript | ast.Attribute) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _CHANGING_METHODS
    return not isinstance(node.ctx, ast.Load)


def _tree(node: object) -> str:
    """A syntax tree as text that is the same in every version of Python, which `ast.dump` and `ast.unparse` are not."""
    if isinstance(node, list):
        return f"[{', '.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty pieces to f-strings
        node.values = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
    fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _SILENT_FIELDS]
    content = ", ".join(f"{name}={_tree(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({content})"


def _name_of(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _bytecode(code: CodeType) -> str:
    # Bytecode is another one in each version of Python: what has no source is not found again under another version.
    constants = [_bytecode(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars))


def _constant(value: object) -> str:
    # The order of a set literal's members changes with the process.
    return f"set of {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)


INTERPRETED = "InterpretedFunction"  # the class of a kernel that runs as Python
_MOST_LAYERS = 16
_KINDS = {"JITFunction", INTERPRETED}
_AUTOTUNER = "triton.runtime.autotuner"
_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")


def function_layers(function: Any) -> Iterator[Any]:
    """A function with the functions inside it, the innermost last."""
    layer = function
    yield layer
    for _ in range(_MOST_LAYERS):
        if isinstance(layer, (FunctionType, type)) and "__wrapped__" not in vars(layer):
            return
        inner = getattr(layer, "__wrapped__", None) or getattr(layer, "__func__", None)
        if inner is None and is_triton(layer):
            inner = layer.fn
        if inner is None:
            return
        layer = inner
        yield layer


class Layers:
    """A function or a kernel inside of its decorators."""

    @staticmethod
    def unwrap(function: object) -> Any:
        """The plain function inside `@triton.jit`, `functools.wraps` and bound methods; else the object itself."""
        *_, innermost = function_layers(function)
        return innermost

    @staticmethod
    def is_jit(value: object) -> bool:
        """Tell whether `value` is a JIT function of Triton or Gluon, told without importing Triton."""
        return hasattr(value, "fn") and not _KINDS.isdisjoint(cls.__name__ for cls in type(value).__mro__)

    @staticmethod
    def parameters_of(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
        """The parameters by name; `TypeError` or `ValueError` for a builtin that does not tell them, or no function."""
        if not isinstance(function, FunctionType) or vars(function):  # a wrapper's attributes say what it wraps
            return inspect.signature(function).parameters
        code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
        entry = _signatures.get(function)
        if entry is not None and entry[0] is code and entry[1] is defaults and entry[2] is keyword_defaults:
            return entry[3]
        parameters = inspect.signature(function).parameters
        _signatures[function] = (code, defaults, keyword_defaults, parameters)
        return parameters

    @staticmethod
    def of(function: Any) -> list[Any]:
        """A kernel with the kernels below its decorators, the innermost last."""
        layers = [function]
        while hasattr(inner := getattr(layers[-1], "fn", None), "run"):
            layers.append(inner)
        return layers

    @staticmethod
    def defaults_of(function: object) -> dict[str, Any]:
        """The values of a kernel's parameters that need not be given, by name."""
        parameters = Layers.parameters_of(Layers.unwrap(function)).values()
        return {param.name: param.default for param in parameters if param.default is not param.empty}

    @staticmethod
    def heuristics(function: object) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """The functions of `@triton.heuristics` by the parameters to which they give values, in their order."""
        return {name: give for layer in Layers.of(function)[:-1] for name, give in getattr(layer, "values", {}).items()}

    @staticmethod
    def prunes(tuner: object) -> bool:
        """Tell whether a decorator that tunes may leave out configs of a call: by a caller's function, or a subclass.

        This package's decorator has an `early_config_prune` in any case, and the caller's as `own_pruning`.
        """
        own = "own_pruning" if hasattr(tuner, "own_pruning") else "early_config_prune"
        if any(getattr(tuner, name, None) is not None for name in (own, "perf_model")):
            return True
        return getattr(getattr(tuner, "prune_configs", None), "__module__", _AUTOTUNER) != _AUTOTUNER

    @staticmethod
    def placed(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by place and by name as Triton's `run` of a kernel takes them.

        What is called like a parameter of `run` itself is given by its place, with all that stands before it.
        """
        names, rest, positional = function.arg_names, dict(keywords), list(args)
        while _OF_RUN & rest.keys() & {*names[len(positional) :]}:
            name = names[len(positional)]
            positional.append(rest.pop(name) if name in rest else Layers.defaults_of(function)[name])
        return positional, rest


def is_triton(value: object) -> bool:
    """Tell whether a value is a Triton kernel, or a decorator of Triton's around one."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("fn", "run", "arg_names"))


def compile_options(kernel: object) -> Iterator[tuple[str, str]]:
    """The options of `triton.jit` that change what is compiled, as text; those that were left out do not appear."""
    for name in _JIT_OPTIONS:
        if value := getattr(kernel, name, None):
            yield name, repr(value)


_STDLIB = tuple({  # where Python is installed, and where it was loaded from, which may be an archive
    f"{folder}/"
    for folder in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), PurePath(functools.__file__).parent)
})  # fmt: skip
_SITE_FOLDERS = {"site-packages", "dist-packages"}
_BY_CONTENT = "KNOWN_BY_CONTENT"
_VERSIONED = {"torch", "triton"}  # part of a kernel's identity by version, so their code need not be read
NEEDS = frozenset({
    *_VERSIONED, "cloudpickle", "msgspec", "numpy", "platformdirs", "rich", "scipy", "threadpoolctl", "typer",
})  # fmt: skip
"""What this package imports of others, which every process that it starts finds by name, wherever it is."""
_NAMED = NEEDS.union(PACKAGES)


@dataclass(frozen=True)
class Home:
    """The package of a kernel: which code is part of the kernel, and how values are named in its identity.

    A package that sets `KNOWN_BY_CONTENT` has kernels that are known by their content alone. Whatever lies in the
    package is part of them, under the name that it has in its file, whatever that file is called. What is of another
    package counts by the name that the code calls it, and so is the same in every version of that package.

    The kernels of any other package are known by their modules too.
    """

    package: str
    by_content: bool = False

    @classmethod
    def of(cls, function: Any) -> Home:
        """The home of a function, or of a kernel inside of its decorators."""
        module = str(getattr(Layers.unwrap(function), "__module__", ""))
        package = _package_by_content(module)
        return cls(package or module.partition(".")[0], package is not None)

    def holds(self, module: str, path: str | None = None) -> bool:
        """Tell whether code is read, and not told by its name or by the version of its package.

        `path` is the file it was compiled from; None takes the module's. Installed or not, a package's own helpers are
        part of its kernels.
        """
        if self.by_content:
            return f"{module}.".startswith(f"{self.package}.")
        if module.partition(".")[0] in PACKAGES and _package_by_content(module) is None:
            return False  # what this package does around a function is no part of it, also in a checkout of its source
        top = module.partition(".")[0]
        if self.package not in _VERSIONED and top == self.package and top != "builtins":
            return True
        if path is None or path.startswith("<"):  # code that `exec` made belongs where its module does
            path = _file_of(module) or path
        if path is None:  # the module has no file: it is `__main__` of a prompt, or one of the interpreter's
            return top not in sys.stdlib_module_names or top == "__main__"
        return is_users_path(path)

    def only_names(self, module: str) -> bool:
        """Tell whether values of a module count only by the name by which the kernel's code calls them."""
        return self.by_content and module != "" and not self.holds(module)

    def label(self, value: object) -> str:
        """The name of a function or class; the type's of another object."""
        if not isinstance(name := getattr(value, "__qualname__", None), str):
            value, name = type(value), type(value).__qualname__
        module = str(getattr(value, "__module__", ""))
        return name if self.by_content or _package_by_content(module) is not None else f"{module}.{name}"

    def version_of(self, module: str) -> str | None:
        """The version that the package of a module tells of itself; None of Python's, the user's and our own."""
        top = module.partition(".")[0]
        if self.by_content and (self.holds(module) or top in PACKAGES):
            return None
        if (package := sys.modules.get(top)) is None or top in sys.stdlib_module_names or Home("").holds(top):
            return None
        version = vars(package).get("__version__")
        return str(version) if isinstance(version, str) else None


def _package_by_content(module: str) -> str | None:
    """The package around a module whose kernels are known by their content; None if there is none."""
    names = accumulate(module.split("."), "{}.{}".format)
    return next((name for name in names if getattr(sys.modules.get(name), "__dict__", {}).get(_BY_CONTENT)), None)


def _file_of(module: str) -> str | None:
    """The file of a loaded module, or of what it is a part of: modules in a compiled one may have no file."""
    while module:
        file: str | None = getattr(sys.modules.get(module), "__file__", None)
        if file is not None:
            return file
        module = module.rpartition(".")[0]
    return None


class Origin:
    """The origin of a module, told by its name."""

    @staticmethod
    def is_installed(module: str) -> bool:
        """Tell whether a module belongs to Python, to this package or what it needs, or to an installed package."""
        if module.partition(".")[0] in _NAMED:
            return True
        if (package := sys.modules.get(module)) is None or module == "__main__":
            return False
        if (file := getattr(package, "__file__", None)) is None:
            return getattr(getattr(package, "__spec__", None), "origin", None) in ("built-in", "frozen")
        return not is_users_path(file)

    @staticmethod
    def is_carried(module: str, file: str) -> bool:
        """Tell whether other hosts may lack a package: the user's, or one of a folder that is no Python's own."""
        return module not in {*_NAMED, "__main__"} and (is_listed(file) or not Origin.is_installed(module))

    @staticmethod
    def is_found_again(module: str) -> bool:
        """Tell whether another process that imports a module by its name finds the same file as this one has.

        What is looked for is the outermost package that has a file, which brings its modules with it.
        """
        top, *inner = module.split(".")
        names = accumulate(inner, "{}.{}".format, initial=top)
        files = ((name, getattr(sys.modules.get(name), "__file__", None)) for name in names)
        name, file = next(((name, file) for name, file in files if file is not None), (top, None))
        if module not in sys.modules or file is None or top in {*_NAMED, "__main__"}:
            return True
        if top in sys.stdlib_module_names and not is_users_path(file):
            return True
        place = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)  # of a package without a file
        # Not `importlib.util.find_spec`, which gives the spec of a module that is loaded, and looks no further.
        specs = (finder.find_spec(name, place) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()


@lru_cache(maxsize=4096)
def is_users_path(path: str) -> bool:
    """Tell whether a file belongs neither to Python nor to an installed package."""
    # What this package needs may be a checkout of its source, or lie in any other place.
    origins = [getattr(sys.modules.get(name), "__file__", None) for name in NEEDS]
    files = [PurePath(file) for file in origins if file]
    needs = [f"{file.parent}/" if file.stem == "__init__" else str(file) for file in files]
    places = (*_STDLIB, "<frozen", *needs)
    return not (path.startswith(places) or _SITE_FOLDERS.intersection(PurePath(path).parts) or is_listed(path))


def is_listed(path: str) -> bool:
    """Tell whether the folder or archive of the search path that holds a file lists it among those of a package."""
    here = settings.current_folder() or "/"
    file, *entries = (os.path.normpath(os.path.join(here, str(each))) for each in (path, *sys.path))  # noqa: PTH118
    file = file.removesuffix("c") if file.endswith(".pyc") else file
    return any(file[len(entry) + 1 :] in _listed_in(entry) for entry in entries if file.startswith(f"{entry}/"))


@lru_cache(maxsize=256)
def _listed_in(entry: str) -> frozenset[str]:
    """The modules that installers list in a folder or an archive of the search path, as relative paths."""
    lines = (line.partition(",")[0] for record in _records(entry) for line in record.splitlines())
    return frozenset(line for line in lines if line.endswith((".py", *EXTENSION_SUFFIXES)))


def _records(entry: str) -> Iterator[str]:
    import zipfile  # these two take 12 ms, and only what imports another package is asked who brought that
    from importlib.metadata import distributions

    for package in distributions(path=[entry]):
        try:
            yield package.read_text("RECORD") or ""
        except (OSError, ValueError, zipfile.BadZipFile):  # noqa: PERF203 - each is read by itself
            continue


_Parameters = Mapping[str, inspect.Parameter]
_signatures: WeakKeyDictionary[FunctionType, tuple[Any, Any, Any, _Parameters]] = WeakKeyDictionary()


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


def is_gluon(function: object) -> bool:
    """Tell whether it is a kernel of Gluon."""
    innermost = Layers.of(function)[-1]
    return bool(hasattr(innermost, "is_gluon") and innermost.is_gluon())


Made = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_OF_RUN = {"self", "grid", "warmup"}  # the names of Triton's `run` itself


def missing_parameters(
    function: object, tunables: Iterable[str], values: Mapping[str, object], maker: Made | None
) -> list[str]:
    """The parameters that get a value from nowhere.

    `tunables` are a config, the tunables of a space by name, or names alone. `maker` makes further arguments from
    arguments and config. It is asked only if something is missing, about tensors without memory, and the first value of
    each tunable. Where it cannot answer, every parameter may be its own but the constexpr ones.
    """
    filled = {*values, *tunables, *Layers.heuristics(function)}
    parameters = Layers.parameters_of(Layers.unwrap(function)).values()
    missing = [each.name for each in parameters if each.default is each.empty and each.name not in filled]
    if not missing or maker is None:
        return missing
    config = tunables if isinstance(tunables, Mapping) else {}
    try:
        light = Arguments(keyword=dict(values)).described(light=True).keyword
        first = {name: next(iter(each)) if isinstance(each, Tunable) else each for name, each in config.items()}
        own = set(maker({**Layers.defaults_of(function), **light, **first}))
    except Exception as error:  # noqa: BLE001 - the user's own function; a launch will say why
        if isinstance(error, KeyError) and error.args[:1] and error.args[0] in missing:
            return [error.args[0]]
        own = {param.name for param in Layers.of(function)[-1].params if not param.is_constexpr}
    return [name for name in missing if name not in own]
