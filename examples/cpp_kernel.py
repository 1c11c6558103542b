"""C++ kernels as a front end: template values and compiler flags are tunables, torch's `load_inline` is the compiler.

    triton-ops tune examples/cpp_kernel.py:product --shape 256x256x256     # on a CPU; needs g++ and ninja

`CppKernel` has the members of `Kernel`, so that it is checked, timed, isolated and remembered. `CppCompiler` is its
`Compiler`, so that the compile pool compiles its configs while others are measured. Nothing else knows of C++.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops import Choice, ConfigSpace, MissingDependencyError, Operation, TensorSpec
from triton_ops.backend import Arguments, CandidateError, Compiler, CompilerNeeds, Executable
from triton_ops.exceptions import CacheError, ConfigCollisionError, KernelTypeError, UnknownTunableError
from triton_ops.space import Config
from triton_ops.values import Compiled, Resources, Status

BUILDER = "torch.utils.cpp_extension"
TYPES: dict[str, tuple[Any, str | None]] = {
    "float*": (ctypes.c_void_p, "float32"), "double*": (ctypes.c_void_p, "float64"), "int64_t": (ctypes.c_int64, None),
    "float": (ctypes.c_float, None),
}  # fmt: skip
"""The types of C++ that a parameter can have: the one that `ctypes` passes, and of a tensor the dtype."""


@dataclass(frozen=True)
class CppKernel:
    """A function template of C++.

    Attributes:
        function: The template's name.
        source: The text that defines it, with headers of the system alone: a winner holds as long as it is equal.
        parameters: The type in C++ of each parameter, in calling order; a `const` counts for C++ alone.
        template: The tunables that are the template's values, in order.
        flags: The tunables that are flags of the compiler, each with the flag for a value, such as `-O{}`.
        outputs: Names of the arguments that a call writes.
    """

    function: str
    source: str
    parameters: Mapping[str, str] = field(hash=False)
    template: tuple[str, ...]
    flags: Mapping[str, str] = field(hash=False)
    outputs: tuple[str, ...]

    compile_imports = BUILDER
    process_imports = ("torch",)  # compiled code may end its process: `isolate` tries it in another one

    def __post_init__(self) -> None:
        if strange := [kind for kind in map(_bare, self.parameters.values()) if kind not in TYPES]:
            raise KernelTypeError(f"{self.name} has parameters of type {', '.join(strange)}; known are {[*TYPES]}")
        if re.search(r'^\s*#\s*include\s*"', self.source, re.MULTILINE):
            raise KernelTypeError(f"{self.name} includes a file, whose text its identity has not", hint="copy it in")

    @property
    def name(self) -> str:
        """The template's name, with its language."""
        return f"c++:{self.function}"

    @property
    def parameter_names(self) -> list[str]:
        """The parameters in calling order, by which arguments without names are known."""
        return [*self.parameters]

    @property
    def identity(self) -> Mapping[str, str]:
        """The source with its signature, and what compiles it for which machine."""
        content = [self.source, self.function, [*self.parameters.items()], self.template, [*self.flags.items()]]
        return {"source": _digest(content), "compiler": _version_of(_program()), "machine": platform.machine()}

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless each tunable is a template value or a flag, and the arguments are what the parameters take.

        `MissingDependencyError` where no compiler is installed, before anything is tried.
        """
        _program()
        names, values = list(tunables), self._by_name(arguments)
        if unknown := [name for name in names if name not in (*self.template, *self.flags)]:
            raise UnknownTunableError(f"{self.name} has no template value or flag {', '.join(unknown)}")
        if both := [name for name in names if name in values]:
            raise ConfigCollisionError(f"{', '.join(both)} is both a tunable and an argument of {self.name}")
        needed = {"a tunable": (*self.template, *self.flags), "an argument": (*self.parameters,)}
        for what, needs in needed.items():
            if missing := [name for name in needs if name not in names and name not in values]:
                raise KernelTypeError(f"{self.name} needs {what} for {', '.join(missing)}")
        if strange := [name for name in values if name not in self.parameters]:
            raise KernelTypeError(f"{self.name} has no parameter {', '.join(strange)}")
        for name, kind in self.parameters.items():
            _check(f"{name} of {self.name}", _bare(kind), values[name])

    def compiler(self, arguments: Arguments, target: Any, members: Mapping[str, Any]) -> CppCompiler | None:  # noqa: ARG002
        """The compiler for the CPU, whose code depends on the config alone; there is none for a GPU."""
        return CppCompiler(self) if target is None else None

    def compile(self, config: Config, arguments: Arguments) -> Executable:  # noqa: ARG002 - the types are in C++
        """Load the library of a config, and compile it first if no process has done so."""
        start = time.perf_counter()
        library = self.library(config)
        loaded = ctypes.CDLL(str(library)).launch
        loaded.argtypes, loaded.restype = [TYPES[_bare(kind)][0] for kind in self.parameters.values()], None

        def bind(given: Arguments) -> Callable[[], Any]:
            values = self._by_name(given)
            passed = [_passed(values[name]) for name in self.parameters]
            return lambda: _call(loaded, passed, values)

        digest = hashlib.sha256(library.read_bytes()).hexdigest()[:32]
        return Executable(
            config=config, bind=bind, outputs=self.outputs, resources=Resources(binary=digest), key=digest,
            compile_s=time.perf_counter() - start,
        )  # fmt: skip

    def library(self, config: Config) -> Path:
        """The library of a config, which is compiled unless it is on the disk.

        `CandidateError` if it cannot be compiled, `CacheError` if the disk cannot be written.
        """
        text, flags = self._text(config), [form.format(config[name]) for name, form in self.flags.items()]
        digest = _digest([text, flags, dict(self.identity)])
        builder = importlib.import_module(BUILDER)
        home = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or builder.get_default_build_root(), "triton_ops_cpp")
        library = home / f"{digest}.so"
        if not library.exists():
            try:
                home.mkdir(parents=True, exist_ok=True)
                self._build(builder, text, flags, library)
            except OSError as error:
                raise CacheError(f"{home} cannot be written: {error}", hint="set TORCH_EXTENSIONS_DIR") from error
        return library

    def _build(self, builder: Any, text: str, flags: list[str], library: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="cpp_") as folder:  # a worker's own, gone with it
            name = Path(folder).name  # a new one each time: torch numbers the libraries of a name that it has built
            try:
                builder.load_inline(
                    name, text, functions=None, extra_cflags=flags, build_directory=folder,
                    no_implicit_headers=True, is_python_module=False,
                )  # fmt: skip
            except (RuntimeError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise CandidateError(Status.COMPILE, f"c++: {_reason(error)}") from error
            part = shutil.copy(Path(folder, f"{name}.so"), library.with_name(name))
            Path(part).replace(library)  # others find it whole, or not at all

    def _text(self, config: Config) -> str:
        """The source with a function of C that calls the template with the values of a config."""
        values = ", ".join(str(config[name]).lower() for name in self.template)
        declared = ", ".join(f"{kind} {name}" for name, kind in self.parameters.items())
        call = f"{self.function}<{values}>({', '.join(self.parameters)});"
        return f'#include <cstdint>\n{self.source}\nextern "C" void launch({declared}) {{ {call} }}\n'

    def _by_name(self, arguments: Arguments) -> dict[str, Any]:
        return {**dict(zip(self.parameters, arguments.positional, strict=False)), **arguments.keyword}


@dataclass(frozen=True)
class CppCompiler(Compiler):
    """The compiler of a C++ kernel, as processes of the compile pool load it."""

    kernel: CppKernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def needs(self) -> CompilerNeeds:
        """Torch's builder, imported once for all processes."""
        return CompilerNeeds((BUILDER,))

    def compile(self, config: Config) -> Compiled:
        """Compile a config's library onto the disk, where the process that measures finds it."""
        try:
            built = self.kernel.compile(config, Arguments())
        except CandidateError as error:
            return Compiled(config, error.status, str(error))
        return Compiled(config, Status.OK, resources=built.resources, compile_s=built.compile_s, launch=built.key)


def _reason(error: Exception) -> str:
    """The first error that the compiler has told, or why the library cannot be loaded."""
    text = str(error if isinstance(error, RuntimeError) else error.__cause__ or error)
    lines = [line for line in text.splitlines() if "error: " in line]
    return lines[0].partition("error: ")[2] if lines else text.splitlines()[-1].partition(".so: ")[2] or text


def _check(what: str, kind: str, value: Any) -> None:
    passed, dtype = TYPES[kind]
    if dtype is None:
        if not isinstance(value, (int, float) if passed is ctypes.c_float else int):
            raise KernelTypeError(f"{what} must be a number for {kind}")
    elif isinstance(value, TensorSpec):
        if value.dtype != dtype:
            raise KernelTypeError(f"{what} must be a tensor of {dtype}")
    elif str(getattr(value, "dtype", "")) != f"torch.{dtype}" or value.device.type != "cpu":
        raise KernelTypeError(f"{what} must be a tensor of {dtype} on the CPU")
    elif not value.is_contiguous():
        raise KernelTypeError(f"{what} must be contiguous", hint="pass it as .contiguous()")


def _call(function: Any, passed: list[Any], _alive: Mapping[str, Any]) -> None:
    function(*passed)


def _passed(value: Any) -> Any:
    return value.data_ptr() if hasattr(value, "data_ptr") else value


def _bare(kind: str) -> str:
    return kind.removeprefix("const ").replace(" ", "")


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _program() -> str:
    """The C++ compiler that torch calls; `MissingDependencyError` where it or ninja is not installed."""
    named = os.environ.get("CXX", "c++")
    compiler, ninja = shutil.which(named), shutil.which("ninja")
    missing = [name for name, path in ((f"a C++ compiler, here {named}", compiler), ("ninja", ninja)) if path is None]
    if compiler is None or missing:
        raise MissingDependencyError(
            f"C++ kernels are compiled by torch, which needs {' and '.join(missing)}",
            hint="install g++ or clang, and ninja: apt install g++ ninja-build; CXX names another compiler",
        )
    return compiler


@functools.lru_cache(maxsize=4)
def _version_of(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]


SOURCE = """
template <int64_t TILE>
void multiply(float* out, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m * n; i++) out[i] = 0;
    for (int64_t first = 0; first < k; first += TILE)
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = first; l < first + TILE && l < k; l++)
                for (int64_t j = 0; j < n; j++) out[i * n + j] += a[i * k + l] * b[l * n + j];
}
"""


def arguments(m: int = 256, n: int = 256, k: int = 256) -> dict[str, Any]:
    """The arguments of a product of a[m, k] and b[k, n], by name, in the order of the parameters."""
    shapes = {"out": (m, n), "a": (m, k), "b": (k, n)}
    tensors = {name: TensorSpec(shape, "float32") for name, shape in shapes.items()}
    return {**tensors, "m": m, "n": n, "k": k}


product = Operation(
    "cpp_product",
    CppKernel(
        function="multiply", source=SOURCE, template=("TILE",), flags={"OPT": "-O{}"}, outputs=("out",),
        parameters={"out": "float*", "a": "const float*", "b": "const float*"} | dict.fromkeys("mnk", "int64_t"),
    ),
    ConfigSpace({"TILE": Choice([8, 32, 128]), "OPT": Choice([1, 2, 3])}),
    arguments,
    reference=lambda a, b, **_: a @ b,
    device="cpu",
)  # fmt: skip
