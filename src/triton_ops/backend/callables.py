"""Python callables as kernels, with the identity by which stored winners of any kernel are found.

A callable takes the values of a config as keywords beside the caller's own arguments. The identity of a kernel is its
source with everything that it refers to, and the versions of what compiles it. A stored winner holds as long as the
identity is equal.

The fingerprint changes when the code's meaning can change. What counts:

- the function, its wrappers, its defaults, and the functions and classes that it refers to, by their syntax;
- the values of globals, closures, defaults, partials and bound objects: plain values by value, containers and objects
  by what they hold, to any depth; functions in them are read like any other;
- tensors and arrays by shape, dtype, strides and kind of device, as arguments are. What they contain does not count;
- what `torch.compile` was asked for: backend, mode, options, dynamic shapes, and the settings of Inductor that differ
  from their defaults;
- other packages by the names that are used of them, and by their versions.

What does not count: comments, docstrings, formatting, the line it stands on, the version of Python, the space that a
tuning decorator names, the state of locks, loggers and random generators, and a global or closed-over container that
the code itself changes (`CALLS.append(…)`, `CACHE[key] = …`), which is its working memory.

What is not seen: what the code looks up by name while it runs (`globals()[name]`, `sys.modules`, an import inside a
function), and settings of the process beside those of Inductor, such as torch's precision of float32 products.

Of a package that sets `KNOWN_BY_CONTENT`, as that of the shipped kernels, only content counts: no module's name, and of
another package the name alone that the code calls a thing. All parts of such a kernel have one fingerprint.

What cannot be told apart makes the whole unknown, with the reason: an object of a C type that gives no account of its
state, such as an open file, or more than 20,000 values.

Triton calls the ptxas that `TRITON_PTXAS_PATH` names, else its own, and another one for Blackwell. torch's compiler
names the one that came with torch when it compiles its first kernel, in the middle of a process: a winner that was
found before is to be found after it too. So that one is not told from Triton's own, and processes that this one starts
use Triton's own.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops.backend.origins import Home, Layers
from triton_ops.backend.reader import Reader, ReadValue
from triton_ops.backend.roles import Arguments, Executable, Kernel
from triton_ops.base import BoundedDict, NamedFile, fingerprint, installed_version, is_as_published
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError, UnknownTunableError
from triton_ops.settings import triton_options, triton_program
from triton_ops.space import Config
from triton_ops.values import Key

_MOST_KEPT = 256  # callables, which live as long as they are kept


@dataclass(frozen=True)
class Source:
    """The meaning of a callable, as far as it is known.

    `unknown` is what of it cannot be told apart, and why; `packages` are the installed ones that it uses, with their
    versions; `interpreted` is whether it refers to a Triton kernel that runs as Python; `by_content` is whether its
    package has kernels that are known by their content alone.
    """

    fingerprint: str
    unknown: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    interpreted: bool = False
    by_content: bool = False

    @staticmethod
    def of(function: Any) -> Source:
        """The meaning of `function`, everything it refers to included.

        Parses the source of every reached function once in a process, a millisecond for a typical kernel. After that it
        takes a few microseconds, if nothing that can change in place is among what it refers to; else every value is
        read again.
        """
        entry = _sources.get(id(function))
        if entry is not None and entry[0] is function and all(value.holds() for value in entry[2]):
            return entry[1]
        reader = Reader(home := Home.of(function))
        reader.read("root", function)
        source = Source(fingerprint(reader.parts), reader.unknown, reader.packages, reader.interpreted, home.by_content)
        if reader.fixed and reader.unknown is None:
            _sources[id(function)] = (function, source, reader.values_read)
        return source

    @staticmethod
    def is_kept(function: object) -> bool:
        """Tell whether `of` answers for this very function in microseconds: nothing in it can change in place."""
        entry = _sources.get(id(function))
        return entry is not None and entry[0] is function

    @classmethod
    def joined(cls, sources: Mapping[str, Source], *more: object) -> Source:
        """The meaning of several named callables and of plain values as one; it is known by content if the first is."""
        every, digests = [*sources.values()], sorted([name, source.fingerprint] for name, source in sources.items())
        reasons = [f"{name}: {source.unknown}" for name, source in sources.items() if source.unknown is not None]
        packages = {name: version for source in every for name, version in source.packages.items()}
        interpreted, unknown = any(source.interpreted for source in every), "; ".join(reasons) or None
        return cls(fingerprint([digests, *more]), unknown, packages, interpreted, every[0].by_content)

    @staticmethod
    def named(sources: Mapping[str, Source]) -> dict[str, str]:
        """The parts of a kernel in its identity, with what is unknown of them.

        They are fingerprints by name. A kernel that is known by its content has one fingerprint for all its parts.
        """
        whole = Source.joined(sources)
        texts = {name: source.fingerprint for name, source in sources.items()}
        unknown = {} if whole.unknown is None else {"unknown": whole.unknown}
        return {**({"source": whole.fingerprint} if whole.by_content else texts), **unknown}

    @staticmethod
    def of_forms(forms: Mapping[str, Source]) -> dict[str, str]:
        """The parts that the forms of a kernel have in its identity, by the names of the forms."""
        return {f"{Key.FORM}{name}": source.fingerprint for name, source in forms.items()}


# By identity, with the callable itself: as long as an entry is kept, no other object gets this identity.
_sources = BoundedDict[int, tuple[Any, Source, list[ReadValue]]](_MOST_KEPT)


_PTXAS = ("ptxas", "ptxas-blackwell")
_ANSWER_S = 30  # a ptxas that says nothing for so long never will


def toolchain() -> dict[str, str]:
    """Versions of Triton and ptxas, and the variables of the environment that change what Triton generates.

    A build of Triton that is no release as it was published is named beside the version.

    25 ms at first, most of it for two programs that tell their version, then 15 µs.
    """
    library = importlib.import_module("triton._C.libtriton")
    counted_by_cache: Mapping[str, str] = library.get_cache_invalidating_env_vars()
    steered = " ".join(f"{name}={text}" for name, text in sorted({**triton_options(), **counted_by_cache}.items()))
    version = installed_version("triton") or str(importlib.import_module("triton").__version__)
    overrides = tuple(map(triton_program, _PTXAS))
    further = {"triton build": _build(), "environment": steered}
    return {"triton": version, "ptxas": _ptxas(overrides), **{name: text for name, text in further.items() if text}}


@lru_cache(maxsize=1)
def _build() -> str:
    """A name for this build of Triton; empty for a release as it was published, which the version names."""
    # A build from source may have the version of a release: only the content of its files tells it apart.
    if is_as_published("triton"):
        return ""
    modules = map(importlib.import_module, ("triton.runtime.cache", "triton.compiler.compiler"))  # 3.7 and 3.6
    return next((fingerprint(module.triton_key()) for module in modules if hasattr(module, "triton_key")), "unknown")


@lru_cache(maxsize=16)
def _ptxas(overrides: tuple[str | None, ...]) -> str:
    """The versions of the programs that Triton would call, each once; `none` where there is none, as on AMD's GPUs."""
    versions: list[str] = []
    for name, path in zip(_PTXAS, overrides, strict=True):
        candidates = [*([Path(path)] if path else []), *own_program(name)]
        versions += [version for version in map(ptxas_version, candidates) if version][:1]
    return ", ".join(dict.fromkeys(versions)) or "none"


def own_program(name: str) -> list[Path]:
    """The program of a name that is installed with Triton: it serves if the one that is named cannot be run."""
    # The wheels of Triton 3.6 to 3.9 have their programs there.
    spec = find_spec("triton")
    return [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "backends/nvidia/bin" / name]


def ptxas_version(path: Path) -> str | None:
    """The version that a ptxas tells; None if the program is not there, or tells none."""
    try:
        process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release [\d.]+, V([\d.]+)", process.stdout) or re.search(r"release ([\d.]+)", process.stdout)
    return match.group(1) if match else None


def triton_identity(sources: Mapping[str, Source], *, interpreted: bool, files: Iterable[str] = ()) -> dict[str, str]:
    """The identity of a Triton kernel: its `source` and what else decides what a launch does, and what compiles it.

    `files` take the place of what the compiler makes, and count by their content.
    """
    contents = {f"file {path}": _content(path) for path in files}
    packages = {name: version for name, version in sources["source"].packages.items() if name != "triton"}
    return {**Source.named(sources), **contents, **packages, **toolchain(), **_as_python(interpreted)}


def _as_python(interpreted: bool) -> dict[str, str]:
    """The entry of a kernel that runs as Python, whose times say nothing of a GPU; no entry for any other."""
    return {"interpreted": "yes"} if interpreted else {}


def _content(path: str) -> str:
    try:
        return fingerprint(NamedFile(Path(path)).read().decode(errors="replace"))
    except OSError:
        return "missing"


OVERRIDE = "ir_override"
_KERNEL_PARTS = ("outputs", "check", "compile")  # not `identity`: computing it takes time


@dataclass(frozen=True)
class FunctionKernel:
    """A callable that takes the values of a config as keywords.

    Attributes:
        function: Called as `function(*args, **kwargs, **config)`.
        label: Its name in records; None takes `module:qualified_name`.
        outputs: Arguments that a call writes; empty if it returns its result.

    Raises:
        KernelTypeError: `function` is not callable, or only makes a coroutine or a generator when it is called.
    """

    function: Callable[..., Any]
    label: str | None = None
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise KernelTypeError(
                f"{self.function!r} of type {type(self.function).__name__} is not callable",
                hint="give a function that takes the config values as keywords",
            )
        if (substitute := _substitute(self.function)) is not None:
            what, way = substitute
            message = f"{self.name} only makes {what} when it is called: its work would not be timed"
            hint = f"write a function around it that does the work: lambda *args, **config: {way}"
            raise KernelTypeError(message, hint=hint)

    @property
    def name(self) -> str:
        """`module:qualified_name`, unless labelled."""
        if self.label:
            return self.label
        inner = Layers.unwrap(self.function)
        if isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__qualname__", type(inner).__qualname__)
        return f"{getattr(inner, '__module__', '__main__')}:{name}"

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprint of the source and all it refers to, and versions of the packages that it uses."""
        source = Source.of(self.function)
        facts = {**Source.named({"source": source}), "python": platform.python_version(), **source.packages}
        if version := installed_version("torch"):
            facts["torch"] = version
        return {**facts, **(toolchain() if "triton" in source.packages else {}), **_as_python(source.interpreted)}

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless every tunable can be passed as a keyword beside the arguments.

        Raises:
            ConfigCollisionError: A tunable has the name of an argument that is passed as well.
            UnknownTunableError: The callable takes no keyword of that name.
        """
        names = list(tunables)
        argument_names = set(arguments.keyword)
        if (parameters := _parameters(self.function)) is not None:
            order = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            argument_names.update(order[: len(arguments.positional)])
        if clash := [name for name in names if name in argument_names]:
            message = f"{', '.join(map(repr, clash))} is both a tunable and an argument of this call"
            raise ConfigCollisionError(message, hint="rename the tunable, or leave the argument to the tuner")
        if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        keywords = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if unknown := [name for name in names if name not in keywords]:
            strange, known = ", ".join(map(repr, unknown)), ", ".join(keywords) or "none"
            hint = "correct the tunable's name, or add the parameter to the function"
            raise UnknownTunableError(f"{self.name} takes no keyword {strange}; it takes {known}", hint=hint)

    @property
    def parameter_names(self) -> list[str | None]:
        """The names in calling order; None for a parameter that cannot be passed by name. Empty without a signature."""
        parameters = (_parameters(self.function) or {}).values()
        return [p.name if p.kind is p.POSITIONAL_OR_KEYWORD else None for p in parameters]

    def compile(self, config: Config, arguments: Arguments) -> Executable:  # noqa: ARG002 - the role's signature
        """The callable with the config's values as keywords; there is nothing to compile."""

        def bind(inputs: Arguments) -> Callable[[], object]:
            return functools.partial(self.function, *inputs.positional, **{**inputs.keyword, **config})

        return Executable(config=config, bind=bind, outputs=self.outputs)

    @staticmethod
    def kernel_and_space(kernel: Any, space: Any) -> tuple[Any, Any]:
        """A kernel with the hooks and files that the configs of a space bring, and the space without hooks.

        Without a space, what a decorator of the kernel offers is the space. A space that is no list of
        `triton.Config`s and overrides no compiled code is given back as it is, with the kernel. `KernelTypeError` if
        the configs have hooks, and the kernel takes none.
        """
        if offered := getattr(kernel, "offered", ()):
            kernel, space = replace(kernel, offered=()), offered if space is None else space
        if isinstance(space, Mapping):
            values = space.get(OVERRIDE)
            configs: list[Any] = [{OVERRIDE: value} for value in (values if isinstance(values, (list, tuple)) else ())]
            plain: Any = space
        elif isinstance(space, (list, tuple)):
            configs = [one for one in space if is_triton_config(one) or (isinstance(one, Mapping) and OVERRIDE in one)]
            plain = [_without_hook(one) for one in space]
        else:
            return kernel, space
        if not configs or not hasattr(kernel, "with_configs"):
            if any(getattr(one, "pre_hook", None) for one in configs):
                message = f"the configs have a pre_hook, and {kernel.name} is no Triton kernel"
                raise KernelTypeError(message, hint="call it in the function")
            return kernel, plain
        return kernel.with_configs(configs), plain

    @staticmethod
    def as_kernel(target: Any) -> Kernel:
        """`target` itself if it is a kernel, else a kernel that calls it.

        Raises `KernelTypeError` if it is neither a kernel nor callable, or a Triton kernel without a grid.
        """
        if all(hasattr(target, name) for name in _KERNEL_PARTS):
            kernel: Kernel = target
            return kernel
        if hasattr(target, "arg_names") and hasattr(target, "run"):
            inner = Layers.unwrap(target)
            below = f"{inner.__name__}{'.fn' if hasattr(target, 'configs') else ''}"
            alternative = ', or call it inside of `with triton_ops.on_miss("tune"):`' if below.endswith(".fn") else ""
            hint = f"wrap it: TritonKernel({below}, grid=lambda meta: (...,), outputs=(...,)){alternative}"
            raise KernelTypeError(f"{inner.__module__}:{inner.__name__} is a Triton kernel without a grid", hint=hint)
        return FunctionKernel(target)


def _substitute(function: Callable[..., object]) -> tuple[str, str] | None:
    """The object that a call makes instead of doing the work, and the way to do it; None for an ordinary callable."""
    inner = Layers.unwrap(function)
    inner = inner.func if isinstance(inner, functools.partial) else inner
    call = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        return "a coroutine", "asyncio.run(f(*args, **config))"
    return ("a generator", "list(f(*args, **config))") if inspect.isgeneratorfunction(call) else None


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return Layers.parameters_of(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return None


def is_triton_config(value: object) -> bool:
    """Tell whether a value is a `triton.Config`, told without importing Triton."""
    return hasattr(value, "all_kwargs") and hasattr(value, "pre_hook")


def _without_hook(config: Any) -> Any:
    if not is_triton_config(config) or config.pre_hook is None:
        return config
    plain = copy.copy(config)
    plain.pre_hook = None
    return plain
