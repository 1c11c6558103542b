"""Texts of the command line as what is tuned: TARGETs, spaces, configs, shapes, dtypes, example arguments.

Looking up a TARGET, `package.module:object` or `path/file.py:object`, imports the module. A file is run statement by
statement: one that fails is told and left out, so that it hides nothing but what needs it.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import gc
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn, TypeVar

from triton_ops import settings
from triton_ops.backend import Arguments, CandidateError, FunctionKernel, Operation
from triton_ops.base import NamedFile, counted, excerpt, fingerprint, require
from triton_ops.exceptions import (
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    TritonKernelError,
    UnsupportedDtypeError,
    alternatives,
)
from triton_ops.space import Config, ConfigSpace, as_tuples
from triton_ops.terminal import only_data_on_stdout, tell
from triton_ops.values import TensorSpec, dtype_name

T = TypeVar("T")

_WORDS = {"true": True, "false": False, "none": None}
_SPACE_HINT = "for example --space BM=64,128"
_LARGEST_BYTES = 64 << 20
_LONGEST_SHOWN = 200  # characters of a text that was typed
_JSON_HINT = 'write {"BM": [64, 128]}'
_ARG = "--arg"
_ARG_HINT = "such as x=4096x1024:bf16, ends=[0,16,64]:int32, table=pages.npy, eps=1e-5, or mask=FILE.py:function"
_SPAN = re.compile(r"(\d+) ?(?:\.\.+|:|-) ?(\d+)")  # as people write a range
_EXTENTS = re.compile(r"\d+(?:x\d+)*")
_FUTURE = __future__.annotations.compiler_flag
_DTYPES = {"torch": "torch", "tl": "triton.language"}


def parse_space(texts: list[str] | None) -> dict[str, Any] | None:
    """The space typed: `NAME=v1,v2` for every tunable, a JSON object, or a JSON file; None if not given."""
    if not texts:
        return None
    if any(item.lstrip().startswith("{") or ("=" not in item and item.endswith(".json")) for item in texts):
        if len(texts) > 1:
            raise SpaceError("a JSON --space stands alone", hint="put every tunable into it")
        return _json_space(texts[0])
    space: dict[str, Any] = {}
    for item in texts:
        name, values = _named_values(item)
        if name in space:
            raise SpaceError(f"--space names {name} twice", hint=f"write one --space {name}=value,value")
        space[name] = values
    return space


def parse_pairs(texts: list[str] | None, option: str, example: str) -> dict[str, str]:
    """The values of an option that is NAME=VALUE; `SettingsError` if one is not, or names a name again."""
    values: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()) or name.strip() in values:
            raise SettingsError(f"{option} {text!r} is not NAME=VALUE with each name once", hint=f"{option} {example}")
        values[name.strip()] = value.strip()
    return values


def parse_config(texts: list[str] | None, option: str) -> dict[str, Any] | None:
    """The config typed: `NAME=V,NAME=V`, the option repeated, or a JSON object; None if not given."""
    if not texts:
        return None
    try:
        if len(texts) == 1 and texts[0].lstrip().startswith("{"):
            return dict(Config.from_json(json.loads(texts[0])))
        parts = [part for item in texts for part in item.split(",")]
        if not all("=" in part for part in parts):
            raise ValueError("a part without a value")
        return {name: values[0] for name, values in (parse_space(parts) or {}).items()}
    except (SpaceError, ValueError, RecursionError) as error:
        typed = " ".join(f"{option} {_short(item)}" for item in texts)
        raise SpaceError(
            f"{typed} is not NAME=value,NAME=value with each name once",
            hint=f"for example {option} BM=64,num_warps=4, or {option} BM=64 {option} num_warps=4",
        ) from error


def parse_shapes(text: str | None) -> list[tuple[int, ...]]:
    """The shapes in `4096x4096` or, with one shape per argument, in `64x128,128`; empty if not given."""
    if text is None:
        return []
    try:
        shapes = [tuple(int(part) for part in shape.lower().split("x")) for shape in text.split(",")]
    except ValueError:
        shapes = []
    if not shapes or any(extent < 1 for shape in shapes for extent in shape):
        raise ShapeMismatchError(
            f"--shape {text!r} is not made of whole numbers of 1 or more",
            "MxN",
            text,
            hint="for example --shape 4096x4096",
        )
    return shapes


def _argument(typed: str, text: str, dtype: str | None) -> Any:
    """A tensor's shape and dtype, numbers in brackets, a file of numbers, a dtype, a function's result, or a scalar."""
    if text.startswith("["):
        numbers, _, element = text.rpartition(":") if not text.endswith("]") else (text, "", "")
        with SettingsError.when(f"{typed} is no list of numbers", _ARG_HINT, ValueError):
            return TensorSpec.from_values(json.loads(numbers), element or None)
    form, _, rest = text.partition(":")
    if re.fullmatch(TensorSpec.FILE, form):
        return TensorSpec.from_values(Path(form), rest or None)
    # A number alone, without a dtype, is a scalar.
    if _EXTENTS.fullmatch(form) and (rest or "x" in form):
        return _shaped(typed, form, rest, dtype)
    if rest:
        value = named_object(text)
        if inspect.isroutine(value):
            with CandidateError.as_error(TargetError, f"{typed}: the function raised", "-v shows the trace", Exception):
                value = value()
        if Arguments.is_array(value):
            return TensorSpec.from_values(value)
        return replace(TensorSpec.of(value), fill=value) if Arguments.is_tensor(value) else value
    owner, _, name = text.partition(".")
    if owner in _DTYPES and name:
        value = getattr(require(_DTYPES[owner], typed), name, None)
        if value is None:
            raise SettingsError(f"{typed}: {_DTYPES[owner]} has no {name}", hint=_ARG_HINT)
        return value
    return _value(text)


def _shaped(typed: str, extents: str, rest: str, dtype: str | None) -> TensorSpec:
    """The spec of `4096x1024:DTYPE:FILL:TOTAL`, of which what follows the extents may be missing."""
    element, _, fill = rest.partition(":")
    word, _, total = fill.partition(":")
    if total and not total.isdecimal():
        raise SettingsError(f"{typed}: the total {total!r} is no whole number", hint="ends=9:int32:offsets:4096")
    shape = tuple(map(int, extents.split("x")))
    return TensorSpec(shape, element or dtype or "float32", fill=word or "uniform", total=int(total or 0))


@dataclass(frozen=True)
class TypedProblem:
    """A problem as it is typed for a TARGET: its shapes, one for each argument of a function, dtype, space, arguments.

    `arguments` are those of `--arg` by name: specs of tensors, and any other values.
    """

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    dtype: str | None = None
    space: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        shape: str | None = None,
        dtype: str | None = None,
        space: list[str] | None = None,
        arg: list[str] | None = None,
    ) -> TypedProblem:
        """The problem of `--shape`, `--dtype`, `--space` and `--arg`; None where one is not given.

        Tensors among the arguments have that dtype, or float32, where they name none.
        """
        if dtype is not None:
            dtype_name(dtype)  # which refuses a wrong one before any work
        texts = parse_pairs(arg, _ARG, "x=4096x1024:bf16")
        arguments = {name: _argument(f"{_ARG} {name}={text}", text, dtype) for name, text in texts.items()}
        return cls(parse_shapes(shape), dtype, parse_space(space), arguments)

    @staticmethod
    def parameters(kernel: FunctionKernel) -> Mapping[str, inspect.Parameter]:
        """A function's parameters by name; `TargetError` if it does not tell them."""
        hint = "write a Python function around it, and name that"
        with TargetError.when(f"{kernel.name} does not tell its parameters", hint, TypeError, ValueError):
            return inspect.signature(kernel.function).parameters

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The first shape; None if none is given."""
        return next(iter(self.shapes), None)

    def operation(
        self, target: Operation | Callable[..., Any]
    ) -> tuple[Operation, Any, tuple[int, ...] | None, str | None]:
        """The arguments of `tune`: operation, the space that replaces its own if any, shape and dtype."""
        if not isinstance(target, Operation):
            return self._of_function(target), None, None, None
        target = self._with_arguments(target)
        if len(self.shapes) > 1:
            raise ShapeMismatchError(
                f"{target.name} takes one shape, {'x'.join(target.extents)}, not {len(self.shapes)}",
                hint="write it without commas",
            )
        problem = _own_result(target.name, "arguments", lambda: target.problem(self.shape, self.dtype))
        whole = _own_result(target.name, "space", lambda: target.space_for(problem))
        if target.work is not None:
            # Asked for its error alone, which is told before the tune begins.
            _own_result(target.name, "work", lambda: target.work(problem))  # type: ignore[misc]
        space = None if self.space is None else _narrowed(target.name, whole, self.space)
        return target, space, self.shape, self.dtype

    def _with_arguments(self, operation: Operation) -> Operation:
        """The operation with the typed arguments in the place of its own."""
        if not self.arguments:
            return operation

        @functools.wraps(operation.arguments)
        def arguments(*extents: int, **keywords: Any) -> Mapping[str, Any]:
            own = operation.arguments(*extents, **keywords)
            _check_typed(operation.name, self.arguments, own)
            return {**own, **self.arguments}

        return replace(operation, arguments=arguments)

    def _of_function(self, function: Callable[..., Any]) -> Operation:
        kernel = FunctionKernel(function)
        if self.space is None:
            raise SpaceError(
                f"{kernel.name} is a plain function, so its space must be given",
                hint="add --space NAME=v1,v2 for every tunable",
            )
        specs = self.tensors(kernel, self.space)
        return Operation(kernel.name, kernel, ConfigSpace.from_user(dict(self.space)), lambda: specs)

    def tensors(self, kernel: FunctionKernel, tunables: Collection[str]) -> dict[str, Any]:
        """A function's arguments by name: a tensor for each parameter without a default, and those that were typed."""
        parameters = self.parameters(kernel)
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        _check_typed(kernel.name, () if takes_any else self.arguments, parameters)
        names = [name for name in _required(kernel) if name not in tunables and name not in self.arguments]
        if len(names) != len(self.shapes):
            raise _wrong_number(kernel.name, names, self.shapes)
        if self.dtype is not None and not names and not self.arguments:
            raise UnsupportedDtypeError(
                f"{kernel.name} has no tensor argument to be of {self.dtype}", self.dtype, [], hint="leave --dtype out"
            )
        element = dtype_name(self.dtype or "float32")
        shaped = {name: TensorSpec(shape, element) for name, shape in zip(names, self.shapes, strict=True)}
        return {**shaped, **self.arguments}


def _own_result(name: str, what: str, ask: Callable[[], T]) -> T:
    """The result of one of an operation's own functions; its exception is reported as an error of the target."""
    hint = "check --shape and --dtype; -v shows the trace"
    with CandidateError.as_error(TargetError, f"the {what} of {name} raised", hint, Exception):
        return ask()


def _narrowed(name: str, space: ConfigSpace, values: Mapping[str, Any]) -> ConfigSpace:
    SpaceError.check_tunables(name, values, space.tunables)
    return space.with_values(values)


def _check_typed(name: str, arguments: Collection[str], known_names: Collection[str]) -> None:
    if unknown := [argument for argument in arguments if argument not in known_names]:
        raise KernelTypeError(
            f"{name} has no argument {', '.join(unknown)}; it has {', '.join(known_names) or 'none'}",
            hint=f"correct the name in {_ARG}",
        )


def _required(kernel: FunctionKernel) -> list[str]:
    parameters = TypedProblem.parameters(kernel).values()
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if positional := [p.name for p in required if p.kind is p.POSITIONAL_ONLY]:
        raise TargetError(
            f"{kernel.name} takes {', '.join(positional)} by position only, and is called by keywords",
            hint="write a Python function around it, and tune that",
        )
    return [p.name for p in required]


def _wrong_number(name: str, arguments: list[str], shapes: list[tuple[int, ...]]) -> ShapeMismatchError:
    if not arguments:
        hint = "leave --shape out"
    elif len(arguments) == 1:
        hint = f"give the extents of {arguments[0]}: --shape 64x128"
    else:
        hint = "give one shape per argument, separated by commas: --shape 64x128,128; --arg NAME=VALUE is for others"
    needed = f"{counted(len(arguments), 'argument')} ({', '.join(arguments) or 'none'})"
    return ShapeMismatchError(f"{name} needs {needed}; --shape gives {len(shapes)}", arguments, shapes, hint=hint)


def _json_space(text: str) -> dict[str, Any]:
    with SpaceError.when(f"--space {text} cannot be read", "check the path"):
        source = text if text.lstrip().startswith("{") else NamedFile(Path(text)).read(_LARGEST_BYTES)
    with SpaceError.when(f"--space {_short(text)} cannot be read as JSON", _JSON_HINT, ValueError, RecursionError):
        content = json.loads(source)
    if not isinstance(content, dict) or not all(isinstance(values, list) for values in content.values()):
        raise SpaceError(f"--space {_short(text)} is no object of lists", hint=_JSON_HINT)
    with SpaceError.when(f"--space {_short(text)} is nested too deep", _JSON_HINT, RecursionError):
        return {name: [as_tuples(value) for value in values] for name, values in content.items()}


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


def _named_values(item: str) -> tuple[str, list[Any]]:
    name, equals, values = item.partition("=")
    if not equals or not name.strip() or not values.strip():
        raise SpaceError(f"--space {item!r} is not NAME=value,value", hint=_SPACE_HINT)
    if not all(value.strip() for value in values.split(",")):
        raise SpaceError(f"--space {item!r} has an empty value", hint=_SPACE_HINT)
    if span := _SPAN.fullmatch(values.strip()):
        powers = ",".join(str(1 << n) for n in range(64) if int(span[1]) <= 1 << n <= int(span[2]))
        what = f"for powers of two --space {name}={powers}" if powers else f"such as --space {name}={span[1]},{span[2]}"
        raise SpaceError(f"--space {item!r} is a range; each value must be written out", hint=what)
    return name.strip(), [_value(value.strip()) for value in values.split(",")]


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def named_object(text: str) -> Any:
    """The object that a text names after its last colon; a `TargetError` if it is not to be had."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise TargetError(
            f"TARGET {text!r} has nothing {'after' if place else 'before'} the colon", hint=TargetError.FORMS
        )
    if place == "__main__":  # as records and misses name what a script or a notebook has defined
        raise TargetError(
            f"{name} was defined in a script or notebook, which no other program can import",
            hint="define it in a module that the program imports",
        )
    module, failures = _loaded(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            if failures:
                failure = _first_cause(name.split(".")[0], failures)
                raise failure.error from failure.cause
            raise TargetError(
                f"{place} has no {name!r}; {_offers(module, name)}", hint="correct the name after the colon"
            )
        value = getattr(value, part)
    _tell(failures)
    return value


def named_function(what: str, text: str, hint: str) -> Callable[..., Any]:
    """The object of a text as `named_object`; a `TargetError` if it cannot be called, with what it is and the hint."""
    function = named_object(text)
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise TargetError(f"{what} is {text}, which is {excerpt(function)} and cannot be called", hint=hint)


def module_at(place: str) -> ModuleType:
    """The imported module of a name, or of a file whose name ends in `.py`; a `TargetError` if it cannot be.

    Statements of a file that fail are told and left out.
    """
    module, failures = _loaded(place)
    _tell(failures)
    return module


@dataclass(frozen=True)
class _Failure:
    """A statement of a file that failed: its place, the names that it would have bound, and the error of a TARGET."""

    place: str
    names: frozenset[str]
    cause: BaseException

    @property
    def error(self) -> TritonKernelError:
        return self.cause if isinstance(self.cause, TritonKernelError) else _import_error(self.place, self.cause)


def _first_cause(name: str, failures: list[_Failure]) -> _Failure:
    """The failure that left a name out; where that lacked a name itself, the one that had left out this one."""
    failure = next((one for one in failures if name in one.names), failures[0])
    lacked = str(failure.cause.name) if isinstance(failure.cause, NameError) else ""
    before = failures[: failures.index(failure)]
    return _first_cause(lacked, before) if any(lacked in one.names for one in before) else failure


def _tell(failures: list[_Failure]) -> None:
    for one in failures:
        what = ", ".join(sorted(one.names)) or "a statement"
        reason = next(iter(str(one.cause).splitlines()), "")
        tell(f"{one.place}: {what} is left out: {type(one.cause).__name__}: {reason}", "note", "yellow")


class _ExitError(BaseException):
    """A call of `os._exit`, which no `except Exception` of the user's may take."""


def _loaded(place: str) -> tuple[ModuleType, list[_Failure]]:
    only_data_on_stdout()
    leave, pid, collects = os._exit, os.getpid(), gc.isenabled()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != pid:  # a process that the user's code has forked
            leave(status)
        raise _ExitError(f"{place} ends every process that imports it, by os._exit({status})")

    os._exit = refuse  # with a code of 0 a command that did nothing would look like a success
    gc.disable()  # what imports leave behind lives on: a sixth of their time goes into looking for garbage in it
    try:
        return _from_file(Path(place)) if place.endswith(".py") else (_from_module(place), [])
    except _ExitError as error:
        raise TargetError(str(error), hint="call os._exit in a function, not at the top of the module") from error
    finally:
        os._exit = leave
        if collects:
            gc.freeze()  # later collections leave out what the imports have made
            gc.enable()


def _from_file(path: Path) -> tuple[ModuleType, list[_Failure]]:
    if not path.is_file():
        raise TargetError(f"there is no file {path}", hint=TargetError.FORMS)
    _importable_from(path.resolve().parent)
    name = _free_name(path.resolve())
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or not hasattr(spec.loader, "get_source"):
        raise TargetError(f"{path} cannot be loaded as Python", hint=TargetError.FORMS)
    module = importlib.util.module_from_spec(spec)
    try:
        source = spec.loader.get_source(name)  # type: ignore[union-attr]
        tree = ast.parse(source or "", str(path.resolve()))
    except (ImportError, SyntaxError, ValueError) as error:
        raise _import_error(str(path), error) from error
    # Before it runs, since a dataclass looks up its module there.
    sys.modules[name] = module
    return module, list(_run(module, tree.body, path))


def _run(module: ModuleType, statements: list[ast.stmt], path: Path) -> Iterator[_Failure]:
    """Run a file's statements in its module; what they raise becomes failures, and an exit ends the file."""
    flags = 0  # of `from __future__`, which counts for all that follows
    for statement in statements:
        try:
            code = compile(ast.Module([statement], []), str(path.resolve()), "exec", flags, dont_inherit=True)
            flags |= code.co_flags & _FUTURE
            _execute(code, module, path)
        except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203 - whatever the user's code raises
            yield _Failure(f"{path}, line {statement.lineno}", frozenset(_bound(statement)), error)
            if isinstance(error, SystemExit):
                return


def _execute(code: CodeType, module: ModuleType, path: Path) -> None:
    """Run a file's code; where an import fails, once more within its packages, of which an `__init__` may fail."""
    try:
        exec(code, vars(module))
    except ImportError:
        root = path.resolve().parent
        while (root / "__init__.py").is_file():
            root = root.parent
        names = path.resolve().parent.relative_to(root).parts
        if not names:
            raise
        _importable_from(root)
        for name in (".".join(names[:count]) for count in range(1, len(names) + 1)):
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - whatever the package's code raises
                sys.modules[name] = package = ModuleType(name)
                package.__path__ = [str(root.joinpath(*name.split(".")))]
                tell(f"{path}: the __init__ of {name} is left out, since it fails: {error}", "note", "yellow")
            # A relative import goes by the package; Python warns of a spec that names another one.
            module.__spec__, module.__package__ = None, name
        exec(code, vars(module))


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement would have bound at the top of its module."""
    for node in [statement] if hasattr(statement, "name") else ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif name := getattr(node, "asname", None) or getattr(node, "name", None):
            yield name.partition(".")[0]


def _free_name(path: Path) -> str:
    """A name for the file's module: its own, unless another module has that, as the standard library's `json`."""
    namesake = sys.modules.get(path.stem)
    free = namesake is None and path.stem not in sys.stdlib_module_names
    same = namesake is not None and getattr(namesake, "__file__", None) == str(path)
    return path.stem if free or same else f"{path.stem}_{fingerprint(str(path))[:8]}"


def _from_module(name: str) -> ModuleType:
    if (folder := settings.current_folder()) is not None:
        _importable_from(Path(folder))
    try:
        return importlib.import_module(name)
    except TritonKernelError:
        raise
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error


def _importable_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script, so that its own imports work


def _import_error(name: str, error: BaseException) -> TargetError:
    """The error of a module or file whose code has raised `error`."""
    if isinstance(error, ModuleNotFoundError):
        missing = error.name or ""
        # The module itself or a package that holds it is missing, and not one that it imports.
        if name == missing or name.startswith(f"{missing}."):
            return TargetError(f"there is no module {missing}", hint=TargetError.FORMS)
        return TargetError(f"{name} needs {missing}, which is not installed", hint=f"install {missing}")
    return TargetError(
        f"{name} cannot be imported: {type(error).__name__}: {error}",
        hint="import it in Python to try; -v shows the trace",
    )


def _offers(module: ModuleType, name: str) -> str:
    own = [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]
    operations = [n for n, v in vars(module).items() if isinstance(v, Operation)]
    names = dict.fromkeys([*operations, *own])
    return alternatives(name, names) if names else "it has nothing of its own"
