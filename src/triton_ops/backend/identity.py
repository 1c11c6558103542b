"""The identity of a kernel: its source with everything that it refers to, and the versions of what compiles it.

A stored winner holds as long as the identity is equal.

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

What cannot be told apart makes the whole unknown, with the reason: an object of a C type that gives no account of its
state, such as an open file, or more than 20,000 values.

Triton calls the ptxas that `TRITON_PTXAS_PATH` names, else its own, and another one for Blackwell. torch's compiler
names the one that came with torch when it compiles its first kernel, in the middle of a process: a winner that was
found before is to be found after it too. So that one is not told from Triton's own, and processes that this one starts
use Triton's own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from triton_ops.backend.origins import Layers
from triton_ops.backend.reader import Reader, ReadValue
from triton_ops.base import NamedFile, fingerprint
from triton_ops.settings import triton_options, triton_program

_MOST_KEPT = 256  # callables, which live as long as they are kept


@dataclass(frozen=True)
class Source:
    """The meaning of a callable, as far as it is known.

    `unknown` is what of it cannot be told apart, and why; `packages` are the installed ones that it uses, with their
    versions; `interpreted` is whether it refers to a Triton kernel that runs as Python.
    """

    fingerprint: str
    unknown: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    interpreted: bool = False

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
        reader = Reader(str(getattr(Layers.unwrap(function), "__module__", "")).partition(".")[0])
        reader.read("root", function)
        source = Source(fingerprint(reader.parts), reader.unknown, reader.packages, reader.interpreted)
        if reader.fixed and reader.unknown is None:
            _sources[id(function)] = (function, source, reader.values_read)
            if len(_sources) > _MOST_KEPT:
                _sources.popitem(last=False)
        return source

    @staticmethod
    def is_kept(function: Any) -> bool:
        """Tell whether `of` answers for this very function in microseconds: nothing in it can change in place."""
        entry = _sources.get(id(function))
        return entry is not None and entry[0] is function


_sources: OrderedDict[int, tuple[Any, Source, list[ReadValue]]] = OrderedDict()


_PTXAS = ("ptxas", "ptxas-blackwell")
_ANSWER_S = 30  # a ptxas that says nothing for so long never will


def toolchain() -> dict[str, str]:
    """Versions of Triton and ptxas, and the variables of the environment that change what Triton generates.

    10 ms at first, most of it for two programs that tell their version, then 15 µs.
    """
    steered = _environment()
    overrides = tuple(map(triton_program, _PTXAS))
    return {"triton": _version(), "ptxas": _ptxas(overrides), **({"environment": steered} if steered else {})}


def _environment() -> str:
    """The variables that Triton itself counts when it looks for a kernel in its cache, and others, as text."""
    library = importlib.import_module("triton._C.libtriton")
    variables: Mapping[str, str] = library.get_cache_invalidating_env_vars()
    return " ".join(f"{name}={value}" for name, value in sorted({**triton_options(), **variables}.items()))


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # a copy that no installer has made
        return str(importlib.import_module("triton").__version__)


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


def function_identity(function: Callable[..., Any]) -> dict[str, str]:
    """The identity of a Python callable: source, Python, torch, packages, and the compiler if it uses Triton."""
    source = Source.of(function)
    facts = {"source": source.fingerprint, "python": platform.python_version(), **source.packages, **_torch()}
    compiler = toolchain() if "triton" in source.packages else {}
    return {**facts, **compiler, **_as_python(source.interpreted), **_unknown({"source": source.unknown})}


def triton_identity(
    function: Any,
    grid: Callable[..., Any] | None,
    *,
    interpreted: bool,
    parts: Mapping[str, Any] = MappingProxyType({}),
    files: Iterable[str] = (),
) -> dict[str, str]:
    """The identity of a Triton kernel: its source, the source of its grid, and the versions of what compiles it.

    `grid` is None if it does not count. `parts` are what else decides what a launch does, such as hooks, by name;
    `files` take the place of what the compiler makes, and count by their content.
    """
    sources = {**parts, **({} if grid is None else {"grid": grid})}
    source, others = Source.of(function), {name: Source.of(part) for name, part in sources.items()}
    contents = {f"file {path}": _content(path) for path in files}
    packages = {name: version for name, version in source.packages.items() if name != "triton"}
    return {
        "source": source.fingerprint,
        **{name: other.fingerprint for name, other in others.items()},
        **contents,
        **packages,
        **toolchain(),
        **_as_python(interpreted),
        **_unknown({"source": source.unknown, **{n: o.unknown for n, o in others.items()}}),
    }


def _as_python(interpreted: bool) -> dict[str, str]:
    """The entry of a kernel that runs as Python, whose times say nothing of a GPU; no entry for any other."""
    return {"interpreted": "yes"} if interpreted else {}


def _unknown(reasons_by_part: Mapping[str, str | None]) -> dict[str, str]:
    reasons = [f"{name}: {why}" for name, why in reasons_by_part.items() if why is not None]
    return {"unknown": "; ".join(reasons)} if reasons else {}


def _content(path: str) -> str:
    try:
        return fingerprint(NamedFile(Path(path)).read().decode(errors="replace"))
    except OSError:
        return "missing"


@lru_cache(maxsize=1)
def _torch() -> Mapping[str, str]:
    try:
        return {"torch": importlib.metadata.version("torch")}
    except importlib.metadata.PackageNotFoundError:
        return {}
