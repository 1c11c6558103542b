"""Compiling a Triton kernel for a target that need not be here, without a GPU context.

A stand-in for the driver answers Triton's one question, what the target is; everything else is the real path: the JIT
specialises the caller's arguments and compiles into the disk cache, under the very key that a launch on such a device
looks up. Tensors need no memory for that: only dtype, strides, alignment and the size of their storage count.

Facts used, of Triton 3.6 to 3.9: `driver.set_active`; `JITFunction.device_caches` is keyed by what the driver calls
the current device; a backend's `add_stages` fills a dictionary of stages, whose `llir` runs one pass manager that
allocates shared memory before `add_to_llvmir`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops.backend.compiled_kernel import binary_digest
from triton_ops.backend.roles import Arguments, Compilable, StandIn
from triton_ops.backend.triton_kernel import TritonKernel
from triton_ops.base import CodeFolder, require
from triton_ops.device import VENDORS, Target
from triton_ops.space import Config, Members
from triton_ops.values import Resources

_BACKENDS = {
    "cuda": ("triton.backends.nvidia.compiler", "CUDABackend", "CUDAOptions", "nvidia"),
    "hip": ("triton.backends.amd.compiler", "HIPBackend", "HIPOptions", "amd"),
}
Judge = Callable[[int, str], None]


def _nothing(x):  # type: ignore[no-untyped-def]
    pass


class TargetDriver:
    """A driver that knows its target, and has no device."""

    def __init__(self, target: Target, name: str) -> None:
        compiler = importlib.import_module("triton.backends.compiler")
        arch = target.capability if target.kind == "cuda" else target.arch
        self._target = compiler.GPUTarget(target.kind, arch, target.warp_size)
        self._name, self._units = name, target.units

    def get_current_target(self) -> Any:
        """The target to compile for."""
        return self._target

    def get_current_device(self) -> str:
        """A name: the kernels that a process holds for one target do not mix with those for another."""
        return self._name

    def get_current_stream(self, _device: Any) -> int:
        """Nothing is launched, so that any number serves."""
        return 0

    @property
    def units(self) -> int | None:
        """The number of multiprocessors; None if the target does not tell."""
        return self._units

    def get_active_torch_device(self) -> Any:
        """Triton allocates no memory on the device `meta`."""
        return require("torch", "naming a device").device("meta")

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Triton's launcher asks for C's name of a type; no launcher is used."""
        return ty


@contextlib.contextmanager
def pretending(target: Target, name: str = "") -> Iterator[None]:
    """Have Triton compile for `target` in the whole process, inside of the block, where nothing can be launched.

    What was compiled under another `name`, by default the target's, is not found again in this process's memory.
    """
    driver = require("triton", "compiling for a target").runtime.driver
    before = driver._active  # None until something asked for it: asking looks for a device, and fails where is none
    driver.set_active(TargetDriver(target, name or target.arch))
    try:
        yield
    finally:
        driver._active = before


def option_names(target: Target) -> frozenset[str]:
    """Every launch option that Triton's backend for `target` has."""
    module, _, options, _ = _BACKENDS[target.kind]
    return frozenset(getattr(importlib.import_module(module), options).__dataclass_fields__)


@dataclass(frozen=True)
class Built:
    """The product of the compiler, as Triton keeps it.

    The binary is a cubin or hsaco, the assembly PTX or amdgcn text; the metadata are Triton's own, and the key names
    the entry in Triton's disk cache.
    """

    binary: bytes
    assembly: str
    metadata: Mapping[str, Any]
    key: str

    @property
    def digest(self) -> str:
        """The fingerprint of the binary, as in `Resources.binary`."""
        return binary_digest(self.binary)


class _SharedKnownError(Exception):
    """Ends a compilation once shared memory is known."""

    def __init__(self, shared_bytes: int, text: str) -> None:
        super().__init__("lowered far enough")
        self.answer = shared_bytes, text


@dataclass(frozen=True)
class AheadOfTime:
    """A kernel that is compiled without being launched, for a target that need not be here.

    The arguments are of its launches: from `described`, or the caller's own. To compile in another process, specs in
    place of tensors are enough. `members` are those of an `Enum` that the kernel is given in place of their names.
    """

    kernel: Compilable
    arguments: Arguments
    target: Target
    members: Members = field(default_factory=dict)

    @staticmethod
    def rehearse(target: Target) -> None:
        """Compile a kernel that does nothing, so that what Triton does once in a process is done; it takes 0.2 s.

        A process that has not imported torch needs none afterwards: Triton looks for it once, and does without.
        """
        triton, absent = require("triton", "compiling"), "torch" not in sys.modules
        if absent:
            sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to say that there is none
        try:
            nothing = TritonKernel(triton.jit(_nothing), lambda _: (1,))
            arguments = Arguments((StandIn("float32", (16,), (1,), offset_bytes=0, storage_bytes=64),))
            AheadOfTime(nothing, arguments, target).lowered(Config())
        finally:
            if absent:
                del sys.modules["torch"]

    def build(self, config: Config) -> Built:
        """As `built`, of a kernel that is launched once."""
        (result,) = self.built(config)
        return result

    def built(self, config: Config, judge: Judge | None = None) -> tuple[Built, ...]:
        """Compile into Triton's disk cache, or find the config there; one result for each launch of the kernel.

        `judge` is called with the exact shared memory in bytes and the TTGIR's text before LLVM and the assembler run,
        unless the disk cache has the kernel; what it raises ends the compilation. `TargetError` if the kernel cannot be
        compiled without being launched.
        """
        with pretending(self.target), _with_judge(self.target, judge):
            kernels = self._lower(config)
        binary, assembly = ("cubin", "ptx") if self.target.kind == "cuda" else ("hsaco", "amdgcn")
        return tuple(Built(one.asm[binary], one.asm[assembly], one.metadata._asdict(), one.hash) for one in kernels)

    def lowered(self, config: Config) -> tuple[int, str]:
        """Exact shared memory per block in bytes, and the TTGIR's text, without LLVM and the assembler.

        Of a kernel that is launched several times, those of the first launch. 45 ms for a matmul; nothing is written to
        the cache but the kernel's first two stages.
        """

        def stop(shared_bytes: int, text: str) -> None:
            raise _SharedKnownError(shared_bytes, text)

        apart = f"{self.target.arch}, lowered"
        with pretending(self.target, apart), _with_judge(self.target, stop), never_cached():
            try:
                self._lower(config)
            except _SharedKnownError as enough:
                return enough.answer
        raise RuntimeError(f"Triton's backend for {self.target.arch} has no stage between TTGIR and LLVM")

    def build_launcher(self, config: Config) -> None:
        """Have the C compiler build what launches kernels of these signatures, for all configs, into the disk cache.

        Without it the first launch in a process waits a third of a second for it, with Triton 3.6. Raises whatever
        Triton raises, as where there is no driver.
        """
        vendor = VENDORS.get(self.target.kind)
        if vendor is None:
            return
        with pretending(self.target):
            kernels = self._lower(config)
        driver = vendor.triton_driver
        for kernel in kernels:
            getattr(importlib.import_module(driver.module), driver.launcher)(kernel.src, kernel.metadata)

    def program_key(self, config: Config, resources: Resources | None) -> str | None:
        """The kernel's name for the program of a compiled config with these arguments; None where it is not known."""
        return self.kernel.program_key(config.with_members(self.members), self.arguments, resources)

    def unknown_names(self, config: Config) -> list[str]:
        """The names in a config that the target's compiler does not know; Triton itself ignores some silently."""
        if self.kernel.parsed is None:  # a launcher's tunables are keywords of its own
            return []
        known_names = option_names(self.target).union(name for name in self.kernel.parameter_names if name)
        return [name for name in config if name not in known_names]

    def _lower(self, config: Config) -> Sequence[Any]:
        return self.kernel.lowered(config.with_members(self.members), self.arguments)


@contextlib.contextmanager
def never_cached() -> Iterator[None]:
    """Take nothing from the disk cache, inside of the block."""
    compilation = importlib.import_module("triton.knobs").compilation
    before = compilation.always_compile
    compilation.always_compile = True
    try:
        yield
    finally:
        compilation.always_compile = before


@contextlib.contextmanager
def _with_judge(target: Target, judge: Judge | None) -> Iterator[None]:
    """Ask `judge` between the TTGIR and LLVM. It is no part of the cache's key: the result is the same."""
    if judge is None:
        yield
        return
    module, _, _, passes = _BACKENDS[target.kind]
    native = getattr(importlib.import_module(module), passes).passes.ttgpuir

    def change(stages: dict[str, Any]) -> None:
        to_llvm = stages["llir"]

        def judged(source: Any, metadata: dict[str, Any]) -> Any:
            text = str(source)
            judge(_shared_bytes(text, lambda copy: to_llvm(copy, dict(metadata)), native, source.context), text)
            return to_llvm(source, metadata)

        stages["llir"] = judged

    with stages_changed(target, change):
        yield


@contextlib.contextmanager
def stages_changed(target: Target, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Let `change` replace stages of the target's backend, by name, before each compilation inside of the block."""
    module, name, _, _ = _BACKENDS[target.kind]
    backend = getattr(importlib.import_module(module), name)
    original = backend.add_stages

    def add_stages(self: Any, stages: dict[str, Any], options: Any, language: Any) -> None:
        original(self, stages, options, language)
        change(stages)

    backend.add_stages = add_stages
    try:
        yield
    finally:
        backend.add_stages = original


class _ReachedError(Exception):
    """The passes that allocate are in the pass manager it carries."""


def _shared_bytes(text: str, to_llvm: Callable[[Any], Any], native: Any, context: Any) -> int:
    """Runs on a copy what the backend runs before it translates to LLVM, whatever that is in this version."""
    ir = importlib.import_module("triton._C.libtriton").ir
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(text)
        file.flush()
        copy = ir.parse_mlir_module(file.name, context)
    copy.context = context
    translate = native.add_to_llvmir

    def reached(manager: Any, *_: Any) -> None:
        raise _ReachedError(manager)

    native.add_to_llvmir = reached
    try:
        to_llvm(copy)
    except _ReachedError as found:
        found.args[0].run(copy, "allocate_shared_memory")
    finally:
        native.add_to_llvmir = translate
    return int(copy.get_int_attr("ttg.shared") or 0)


def compiler_environment() -> dict[str, str]:
    """The environment of a process that compiles for this one's disk cache, with every GPU hidden from it.

    To be set before it imports torch or Triton.
    """
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    variables = {**dict.fromkeys(hidden, ""), "OMP_NUM_THREADS": "1"}
    if "triton" in sys.modules:  # which may have been told of another folder than the environment names
        folder = Path(require("triton.knobs", "compiling").cache.dir)
        variables["TRITON_CACHE_DIR"] = str(CodeFolder(folder).trusted("triton"))
    return variables
