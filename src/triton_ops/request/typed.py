"""Texts of the command line as what is tuned: TARGETs, spaces, configs, shapes, dtypes.

Looking up a TARGET, `package.module:object` or `path/file.py:object`, imports the module, as Python would.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from triton_ops import settings
from triton_ops.backend import FunctionKernel, Operation
from triton_ops.base import NamedFile, fingerprint
from triton_ops.exceptions import (
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    TritonKernelError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import TensorSpec, dtype_name

T = TypeVar("T")

_WORDS = {"true": True, "false": False, "none": None}
_SPACE_HINT = "for example --space BM=64,128"
_LARGEST_BYTES = 64 << 20
_LONGEST_SHOWN = 200  # characters of a text that was typed
_JSON_HINT = 'write {"BM": [64, 128]}'


def parse_space(texts: list[str] | None) -> dict[str, Any] | None:
    """The space typed: `NAME=v1,v2` for every tunable, a JSON object, or a JSON file; None if not given."""
    if not texts:
        return None
    if any(_is_json(item) for item in texts):
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


@dataclass(frozen=True)
class TypedProblem:
    """A problem as it is typed for a TARGET: its shapes, one for each argument of a function, dtype, and space."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    dtype: str | None = None
    space: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, shape: str | None, dtype: str | None = None, space: list[str] | None = None) -> TypedProblem:
        """The problem of `--shape`, `--dtype` and `--space`; None where one is not given."""
        return cls(parse_shapes(shape), dtype, parse_space(space))

    config = staticmethod(parse_config)
    pairs = staticmethod(parse_pairs)

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
        if len(self.shapes) > 1:
            raise ShapeMismatchError(
                f"{target.name} takes one shape, {'x'.join(target.extents)}, not {len(self.shapes)}",
                hint="write it without commas",
            )
        problem = _own_result(target.name, "arguments", lambda: target.problem(self.shape, self.dtype))
        whole = _own_result(target.name, "space", lambda: target.space_for(problem))
        if target.work is not None:
            _own_result(target.name, "work", lambda: target.work(problem))  # type: ignore[misc]
        space = None if self.space is None else _narrowed(target.name, whole, self.space)
        return target, space, self.shape, self.dtype

    def _of_function(self, function: Callable[..., Any]) -> Operation:
        kernel = FunctionKernel(function)
        if self.space is None:
            raise SpaceError(
                f"{kernel.name} is a plain function, so its space must be given",
                hint="add --space NAME=v1,v2 for every tunable",
            )
        specs = self.tensors(kernel, self.space)
        return Operation(kernel.name, kernel, ConfigSpace.from_user(dict(self.space)), lambda: specs)

    def tensors(self, kernel: FunctionKernel, tunables: Collection[str]) -> dict[str, TensorSpec]:
        """A function's tensors by name: its parameters without a default that are no tunables, in their order."""
        names = [name for name in _required(kernel) if name not in tunables]
        if len(names) != len(self.shapes):
            raise _wrong_number(kernel.name, names, self.shapes)
        if self.dtype is not None and not names:
            raise UnsupportedDtypeError(
                f"{kernel.name} has no tensor argument to be of {self.dtype}", self.dtype, [], hint="leave --dtype out"
            )
        element = dtype_name(self.dtype or "float32")
        return {name: TensorSpec(shape, element) for name, shape in zip(names, self.shapes, strict=True)}


def _own_result(name: str, what: str, ask: Callable[[], T]) -> T:
    """The result of one of an operation's own functions; its exception is reported as an error of the target."""
    try:
        return ask()
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(
            f"the {what} of {name} raised {type(error).__name__}: {error}",
            hint="check --shape and --dtype; -v shows the trace",
        ) from error


def _narrowed(name: str, space: ConfigSpace, values: Mapping[str, Any]) -> ConfigSpace:
    if unknown := [tunable for tunable in values if tunable not in space.tunables]:
        raise UnknownTunableError(
            f"{name} has no tunable {', '.join(unknown)}; it has {', '.join(space.tunables)}",
            hint="correct the name in --space",
        )
    return space.with_values(values)


def _required(kernel: FunctionKernel) -> list[str]:
    try:
        parameters = inspect.signature(kernel.function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TargetError(
            f"{kernel.name} does not tell its parameters", hint="write a Python function around it, and tune that"
        ) from error
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
        hint = "give one shape per argument, separated by commas: --shape 64x128,128"
    word = "argument" if len(arguments) == 1 else "arguments"
    return ShapeMismatchError(
        f"{name} needs {len(arguments)} {word} ({', '.join(arguments) or 'none'}); --shape gives {len(shapes)}",
        arguments,
        shapes,
        hint=hint,
    )


def _is_json(item: str) -> bool:
    return item.lstrip().startswith("{") or ("=" not in item and item.endswith(".json"))


def _json_space(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text if text.lstrip().startswith("{") else NamedFile(Path(text)).read(_LARGEST_BYTES))
    except OSError as error:
        raise SpaceError(f"--space {text} cannot be read: {error.strerror}", hint="check the path") from error
    except (ValueError, RecursionError) as error:
        raise SpaceError(f"--space {_short(text)} cannot be read as JSON: {error}", hint=_JSON_HINT) from error
    if not isinstance(content, dict) or not all(isinstance(values, list) for values in content.values()):
        raise SpaceError(f"--space {_short(text)} is no object of lists", hint=_JSON_HINT)
    try:
        return {name: [_tuples(value) for value in values] for name, values in content.items()}
    except RecursionError as error:
        raise SpaceError(f"--space {_short(text)} is nested too deep", hint=_JSON_HINT) from error


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


def _named_values(item: str) -> tuple[str, list[Any]]:
    name, equals, values = item.partition("=")
    if not equals or not name.strip() or not values.strip():
        raise SpaceError(f"--space {item!r} is not NAME=value,value", hint=_SPACE_HINT)
    if not all(value.strip() for value in values.split(",")):
        raise SpaceError(f"--space {item!r} has an empty value", hint=_SPACE_HINT)
    return name.strip(), [_value(value.strip()) for value in values.split(",")]


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _tuples(value: Any) -> Any:
    """The value with tuples in place of lists, since JSON has no tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def named_object(text: str) -> Any:
    """The object that a text names after its last colon; a `TargetError` if it is not to be had."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise TargetError(
            f"TARGET {text!r} lacks what stands {'after' if place else 'before'} the colon", hint=TargetError.FORMS
        )
    if place == "__main__":  # as records and misses name what a script or a notebook has defined
        raise TargetError(
            f"{name} was defined in the script or notebook that a program began with, and is not found by that name",
            hint="define it in a module that the program imports",
        )
    module = module_at(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise TargetError(
                f"{place} has no {name!r}; it has {_offers(module)}", hint="correct the name after the colon"
            )
        value = getattr(value, part)
    return value


def module_at(place: str) -> ModuleType:
    """The imported module of a name, or of a file whose name ends in `.py`; a `TargetError` if it cannot be."""
    return _from_file(Path(place)) if place.endswith(".py") else _from_module(place)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}", hint=TargetError.FORMS)
    _importable_from(path.resolve().parent)
    name = _free_name(path.resolve())
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be loaded as Python", hint=TargetError.FORMS)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _imported(str(path), lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _free_name(path: Path) -> str:
    """A name for the file's module: its own, unless another module has that, as the standard library's `json`."""
    namesake = sys.modules.get(path.stem)
    free = namesake is None and path.stem not in sys.stdlib_module_names
    same = namesake is not None and getattr(namesake, "__file__", None) == str(path)
    return path.stem if free or same else f"{path.stem}_{fingerprint(str(path))[:8]}"


def _from_module(name: str) -> ModuleType:
    if (folder := settings.current_folder()) is not None:
        _importable_from(Path(folder))
    module: ModuleType = _imported(name, lambda: importlib.import_module(name))
    return module


def _importable_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script, so that its own imports work


def _imported(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except TritonKernelError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise TargetError(f"there is no module {missing}", hint=TargetError.FORMS) from error
        raise TargetError(f"{name} needs {missing}, which is not installed", hint=f"install {missing}") from error
    except (Exception, SystemExit) as error:
        package = _in_package(Path(name)) if "no known parent package" in str(error) else None
        raise TargetError(
            f"{name} cannot be imported: {type(error).__name__}: {error}",
            hint=f"name it as a part of its package: {package}"
            if package
            else "import it in Python to try; -v shows the trace",
        ) from error


def _in_package(path: Path) -> str:
    """The name of a file of a package: its module, and the folder from which that is found."""
    path = path.resolve()
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return f"{'.'.join(path.relative_to(root).with_suffix('').parts)}:NAME, in {root}"


def _offers(module: ModuleType) -> str:
    own = [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]
    operations = [n for n, v in vars(module).items() if isinstance(v, Operation)]
    return ", ".join(dict.fromkeys([*operations, *own])) or "nothing of its own"
