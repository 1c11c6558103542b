"""Triton as a compiler: the tiers by which configs of a kernel are judged and compiled before a launch.

Free rules need only the config and the kernel's source; the shared memory is known from the TTGIR; registers and stack
from the full compile. A tier refuses a config that cannot be launched, and defers one that can be launched but is of a
kind that has always been slow: such a config is run only if no other config works. Every refusal gives its reason with
the numbers. All tiers work without a GPU and without a driver.

A process without torch has compiled its first config half a second earlier. It takes torch where Triton's backend asks
torch for a tensor's size, as AMD's does; where code of the user's may ask a tensor anything, as heuristics, hooks and
launchers do; and where the kernel, its grid or an argument refers to something of torch's. Otherwise stand-ins without
torch are passed in place of tensors.

Facts used, of Triton 3.6 to 3.9: the wheel has `backends/nvidia/bin/nvdisasm`; `TRITON_NVDISASM_PATH` names another.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_ops import kernel_ir
from triton_ops.backend import offline
from triton_ops.backend.callables import own_program
from triton_ops.backend.compilers import Compiler, CompilerNeeds, PackedCompiler
from triton_ops.backend.kernel_source import Blocks, blocks_of
from triton_ops.backend.portable import Packed
from triton_ops.backend.roles import Arguments, CandidateError, CompiledByTriton, StandIn
from triton_ops.backend.rules import RULES, RuleInput
from triton_ops.backend.triton_process import TritonProcess, binary_digest, together
from triton_ops.base import BoundedDict, cached_property, require
from triton_ops.device import VENDORS, Target
from triton_ops.exceptions import CacheError, KernelTypeError, TargetError
from triton_ops.settings import triton_program, users_environment
from triton_ops.space import Config, Members
from triton_ops.values import Compiled, IntegerClass, Resources, Status, is_power_of_two

HEAVY_SPILL_BYTES = 256
"""A config that spills more bytes than this per thread is deferred.

Source: seven recorded spaces on an H200 (Triton 3.6.0): no config with more than 64 bytes reached 0.51 of the best
config's speed, and none with more than 256 bytes reached 0.31.
"""
_PAIRS = 3, 8  # of Triton: its threads add up pairs of elements first from this release on
_TENSOR_MEMORY_COLUMNS = 512  # columns of Blackwell's tensor memory; Triton refuses to load a kernel that needs more
_WARP_REGISTERS = 256  # a warp gets registers in units of this many
# Without first letters, which ptxas writes large at the beginning of a sentence, and small elsewhere.
_PTXAS_TROUBLE = ("error", "fatal", "nsufficient", "nresolved")
_TORCH = "torch"
_DEFAULT_WARPS = 4  # Triton's default
_DISASSEMBLER = "nvdisasm"
_DISASSEMBLY_S = 60.0  # very large kernels take seconds
_compiled = BoundedDict[Hashable, Compiled](4096)  # what this process has compiled, by program and config


@dataclass(frozen=True)
class Built:
    """The product of the compiler, as Triton keeps it.

    The binary is a cubin or hsaco, the assembly PTX or amdgcn text; the metadata are Triton's own, and the key names
    the entry in Triton's disk cache. `stages` has what each stage made, such as `ttgir`, by Triton's names.
    """

    binary: bytes
    assembly: str
    metadata: Mapping[str, Any]
    key: str
    stages: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: Any, target: Target) -> Built:
        """A compiled kernel of Triton's."""
        vendor = target.vendor
        stages = kernel.asm
        return cls(stages[vendor.binary], stages[vendor.assembly], kernel.metadata._asdict(), kernel.hash, stages)

    def resources(self, target: Target) -> Resources:
        """The resources and the features of the code."""
        facts = kernel_ir.binary_facts(target.vendor.assembly, self.binary, self.assembly)
        return Resources(shared_bytes=self.metadata["shared"], binary=binary_digest(self.binary), **facts)

    @property
    def ptx(self) -> kernel_ir.PtxText:
        """The assembly of one for NVIDIA."""
        return kernel_ir.PtxText(self.assembly)

    def machine_code(self, target: Target) -> str | None:
        """The machine code as text; None without a disassembler."""
        return self.assembly if target.vendor.allots_registers else disassembled(self.binary)


class _OverLimitError(Exception):
    """A config needs more than the target has."""

    def __init__(self, text: str, shared_bytes: int | None = None) -> None:
        super().__init__(text)
        self.shared_bytes = shared_bytes


def _nothing(x):  # type: ignore[no-untyped-def]
    pass


@dataclass(frozen=True)
class TritonNeeds(CompilerNeeds):
    """The needs of processes that compile for one target: Triton, and torch or a module of it where it is named."""

    target: Target | None = None

    def ready(self) -> None:
        """Import Triton and what is named, and have done what Triton does once in a process."""
        warming = TritonProcess.warm_up(launches=False)
        super().ready()
        warming.join()  # a process of one thread can be forked safely, and what two need at once is made twice
        with contextlib.suppress(Exception):  # if Triton does not work, the first config says why
            self.rehearse()

    def rehearse(self) -> None:
        """Compile a kernel that does nothing, so that what Triton does once in a process is done; it takes 0.2 s.

        A process that has not imported torch needs none afterwards: Triton looks for it once, and does without.
        """
        assert self.target is not None
        triton, absent, target = require("triton", "compiling"), _TORCH not in sys.modules, self.target
        if absent:
            sys.modules[_TORCH] = None  # type: ignore[assignment]  # Python's way to say that there is none
        try:
            tensor = StandIn("float32", (16,), (1,), offset_bytes=0, storage_bytes=64)
            with (
                offline.pretending(target, f"{target.arch}, rehearsed"), offline.with_judge(target, _stop),
                offline.never_cached(), contextlib.suppress(offline.LoweredError),
            ):  # fmt: skip
                triton.jit(_nothing).warmup(tensor, grid=(1,))
        finally:
            if absent:
                del sys.modules[_TORCH]


def kind_of(value: object, exact: bool) -> object:
    """Equal for arguments for which a kernel is compiled to the same code; with `exact` numbers count by value."""
    if isinstance(value, StandIn):
        # AMD's backend makes other code for tensors below 2 GiB (`tt.pointer_range`).
        layout = (value.shape, value.strides) if exact else value.storage_bytes >= 1 << 31
        return value.dtype, value.offset_bytes, layout
    if isinstance(value, int) and not isinstance(value, bool) and not exact:
        return "int", IntegerClass.of(value)
    return type(value).__name__, value if exact or not isinstance(value, float) else None


@dataclass(frozen=True)
class PackedTritonCompiler(PackedCompiler):
    """A kernel that another process can compile; its grid is left out if it cannot be sent.

    `cache_key` is what Triton calls the source here; there it must be the same, or a launch finds no binary. The
    arguments have stand-ins for tensors, and the members of an `Enum` that the kernel is given.
    """

    arguments: bytes
    cache_key: str
    target: Target

    def load(self) -> TritonCompiler:
        """The compiler, made again; raises `TargetError` where it cannot be, or the kernel would not be the same."""
        with TargetError.when(self.name, "", KernelTypeError):
            kernel, (arguments, members) = Packed.loaded(self.content), Packed.loaded(self.arguments)
        if kernel.cache_key != self.cache_key:
            raise TargetError(f"{self.name} is not the same kernel in another process", hint="report the kernel")
        return TritonCompiler(kernel, arguments.described(light=len(self.needs.imports) == 1), self.target, members)


def _packed(kernel: CompiledByTriton) -> Packed:
    """The kernel by value; without its grid, which only tells which configs are launched alike, if it cannot go so."""
    with contextlib.suppress(KernelTypeError):
        return Packed.of(kernel, by_value=True)
    with TargetError.when(kernel.name, "", KernelTypeError):
        return Packed.of(kernel.without_grid, by_value=True)


@dataclass(frozen=True)
class TritonCompiler(Compiler):
    """Triton's compiler of a kernel, for a target that need not be here.

    The arguments are of its launches, described or the caller's own; to compile in another process, specs in place of
    tensors are enough. `members` are those of an `Enum` that the kernel is given in place of their names.
    """

    kernel: CompiledByTriton
    arguments: Arguments
    target: Target
    members: Members = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def kind(self) -> Hashable:
        """The kernel with what Triton specialises on, and the arguments that are constants of the code."""
        parsed, values = self.kernel.parsed, self.arguments.keyword
        exact = bool(self.kernel.compile_imports) or parsed is None
        constants = {param.name for param in getattr(parsed, "params", ()) if param.is_constexpr}
        fixed = tuple((name, value) for name, value in values.items() if name in constants)
        return self.name, tuple((name, kind_of(value, exact)) for name, value in values.items()), fixed

    def pack(self) -> PackedTritonCompiler:
        """The kernel and its arguments, by value."""
        kernel, target = self.kernel, self.target
        if kernel.interpreted:
            message = f"{kernel.name} is interpreted, so there is nothing to compile"
            raise KernelTypeError(message, hint="unset TRITON_INTERPRET")
        packed = _packed(kernel)
        with TargetError.when(f"the arguments of {kernel.name}", "", KernelTypeError):
            arguments = Packed.of((self.arguments, self.members), by_value=True)
        torch = _TORCH if _TORCH in packed.imports | arguments.imports else ""
        needs = self.needs_on(target, kernel.compile_imports or torch)
        return PackedTritonCompiler(kernel.name, needs, packed.content, arguments.content, kernel.cache_key, target)

    @staticmethod
    def needs_on(target: Target, imports: str = "") -> TritonNeeds:
        """The needs of processes that compile for a target, where the kernel needs no further imports than these."""
        imports = imports or (_TORCH if target.vendor.lowers_with_torch else "")
        return TritonNeeds(("triton", *filter(None, (imports,))), target)

    def objection(self, config: Config) -> Compiled | None:
        """The first objection of the free rules to a config.

        The kernel's source is read, and scalars among the arguments are used as dimensions. 20 microseconds, and 70 for
        a kernel with many helpers.
        """
        values: dict[str, Any] = {**self.arguments.by_name(self.kernel).keyword, **config}
        warps = config.get("num_warps", values.get("num_warps", _DEFAULT_WARPS))
        for name, number in (("num_warps", warps), ("num_ctas", config.get("num_ctas", 1))):
            if isinstance(number, bool) or not isinstance(number, int):
                message = f"{name} is {number!r} of type {type(number).__name__}; it must be an int, such as 4"
                return Compiled(config, Status.CONSTRAINT, message)
            if not is_power_of_two(number):
                return Compiled(config, Status.CONSTRAINT, f"{name} is {number}; it must be a power of two")
        parsed = self.kernel.parsed
        blocks = blocks_of(parsed, values) if parsed is not None else Blocks()
        stages = config.get("num_stages")
        facts = RuleInput(self.target, blocks, warps, stages if isinstance(stages, int) else 0)
        objections = (rule(facts) for rule in RULES)
        return next((Compiled(config, *objection) for objection in objections if objection is not None), None)

    def grid_objection(self, config: Config) -> Compiled | None:
        """The refusal of a config with more blocks than the device takes; a cluster's blocks lie along axis 0.

        It runs the kernel's own grid function, which may end the process.
        """
        across, *others = self.kernel.extents(config.with_members(self.members), self.arguments) or (0,)
        clusters = config.get("num_ctas")
        refusal = self.target.grid_refusal((across * (clusters if isinstance(clusters, int) else 1), *others))
        return Compiled(config, Status.GRID, refusal) if refusal else None

    @cached_property
    def _program(self) -> Hashable | None:
        """What all programs of this compiler have in common; None where an argument has no value to tell it by."""
        named = self.arguments.described(light=True).by_name(self.kernel)
        plain = (StandIn, bool, int, float, str, type(None))
        if named.positional or not all(isinstance(value, plain) for value in named.keyword.values()):
            return None
        return self.kernel.cache_key, replace(self, arguments=named).kind, self.target, users_environment()

    def recalled(self, config: Config) -> Compiled | None:
        """The result, with the launch key of these arguments; the binary is on the disk unless somebody removed it."""
        compiled = None if self._program is None else _compiled.get((self._program, config))
        if compiled is None or self.grid_objection(config):
            return None
        launch = self.kernel.program_key(config.with_members(self.members), self.arguments, compiled.resources)
        return replace(compiled, compile_s=0.0, launch=launch)

    def remember(self, compiled: Compiled) -> None:
        """Keep the result; 4,096 of them at most."""
        if self._program is not None and compiled.launchable:
            _compiled[self._program, compiled.config] = compiled

    def compile(self, config: Config) -> Compiled:
        """Compile a config into Triton's disk cache, and judge it; its own failure becomes the status of the result.

        45 ms for a config over the limit of shared memory, else 0.1 to some seconds; 1 ms from the disk cache.
        """
        target = self.target
        if strange := self.unknown_names(config):
            reason = f"{', '.join(strange)} is no parameter of {self.name} and no launch option for {target.arch}"
            return Compiled(config, Status.CONSTRAINT, reason)
        if objection := self.grid_objection(config):
            return objection
        start = time.perf_counter()
        try:
            kernels = self.built(config, lambda shared, _: _check_shared(shared, target))
            parts = [one.resources(target) for one in kernels]
            for part, one in zip(parts, kernels, strict=True):
                _check(part, one.metadata, target)
            resources = together(parts)
        except TargetError:
            raise
        except _OverLimitError as error:
            resources = Resources(shared_bytes=error.shared_bytes)
            return Compiled(config, Status.RESOURCES, str(error), resources, compile_s=time.perf_counter() - start)
        except Exception as error:
            if isinstance(failure := _failure(error), CacheError):
                raise failure from error
            taken_s = time.perf_counter() - start
            trace = CandidateError.trace_of(error)
            return Compiled(config, failure.status, str(failure), compile_s=taken_s, trace=trace)
        taken_s, spilled = time.perf_counter() - start, resources.spill_bytes or 0
        status, reason = Status.OK, ""
        if spilled > HEAVY_SPILL_BYTES:
            status = Status.DEFERRED
            reason = f"spills {spilled:,} bytes per thread; over {HEAVY_SPILL_BYTES} has always been slow"
        launch = self.kernel.program_key(config.with_members(self.members), self.arguments, resources)
        return Compiled(config, status, reason, resources, compile_s=taken_s, launch=launch)

    def work(self, config: Config, contents: Mapping[str, Sequence[int]]) -> kernel_ir.KernelWork:
        """The work of a config's launches, from what Triton's front end makes of them; 20 to 50 ms for each."""
        whole = config.with_members(self.members)
        return offline.kernel_work(self.kernel, whole, self.arguments, self.target, contents)

    def bit_class(self, config: Config) -> kernel_ir.BitClass:
        """The class of all launches of a config, from the disk cache; 10 to 60 ms for each."""
        with offline.launches_seen() as launches:
            built = self._described.built(config)
        if len(built) != len(launches):
            return kernel_ir.BitClass(silent="it compiles kernels that it does not launch at once")
        alone = len(built) == 1 and self.kernel.parsed is not None  # its arguments are those of the problem
        found, pairs = [], _release() >= _PAIRS
        for one, launch in zip(built, launches, strict=True):
            own = kernel_ir.BitClass.of(one.stages, pairs=pairs)
            asked = {*own.bounds}.intersection([kernel_ir.PROGRAMS] if alone else own.bounds)
            try:
                found.append(own.bounded(launch.numbers(asked)))
            except kernel_ir.UntoldError as error:
                return kernel_ir.BitClass(silent=str(error))
        return kernel_ir.BitClass.joined(found)

    @property
    def _described(self) -> TritonCompiler:
        return replace(self, arguments=self.arguments.described(light=not self.kernel.compile_imports))

    def machine_code(self, config: Config) -> tuple[str | None, ...]:
        """The machine code of each launch, from the disk cache; a third of a second for a matrix product."""
        return tuple(one.machine_code(self.target) for one in self._described.built(config))

    def ready_launch(self, config: Config) -> bool:
        """Have the C compiler build what launches kernels of these signatures, for all configs, into the disk cache.

        Without it the first launch in a process waits a third of a second for it, with Triton 3.6. Raises whatever
        Triton raises, as where there is no driver.
        """
        if (vendor := VENDORS.get(self.target.kind)) is None:
            return False
        with offline.pretending(self.target):
            kernels = self._lower(config)
        for kernel in kernels:
            getattr(importlib.import_module(vendor.triton.driver), vendor.triton.launcher)(kernel.src, kernel.metadata)
        return True

    def built(self, config: Config, judge: offline.Judge | None = None) -> tuple[Built, ...]:
        """Compile into Triton's disk cache, or find the config there; one result for each launch of the kernel.

        `judge` is called with the exact shared memory in bytes and the TTGIR's text before LLVM and the assembler run,
        unless the disk cache has the kernel; what it raises ends the compilation. `TargetError` if the kernel cannot be
        compiled without being launched.
        """
        with offline.pretending(self.target), offline.with_judge(self.target, judge):
            kernels = self._lower(config)
        return tuple(Built.of(one, self.target) for one in kernels)

    def unknown_names(self, config: Config) -> list[str]:
        """The names in a config that the target's compiler does not know; Triton itself ignores some silently."""
        if self.kernel.parsed is None:  # a launcher's tunables are keywords of its own
            return []
        known_names = offline.option_names(self.target).union(name for name in self.kernel.parameter_names if name)
        return [name for name in config if name not in known_names]

    def _lower(self, config: Config) -> Sequence[Any]:
        return self.kernel.lowered(config.with_members(self.members), self.arguments)


def _release() -> tuple[int, ...]:
    """The first two numbers of Triton's version."""
    return tuple(map(int, require("triton", "compiling").__version__.split(".")[:2]))


def _stop(_shared_bytes: int, _text: str) -> None:
    raise offline.LoweredError


def _check_limit(needed: int, limit: int | None, what: str, target: Target, shared_bytes: int) -> None:
    if limit is not None and needed > limit:
        raise _OverLimitError(f"needs {needed:,} {what}; {target.arch} has {limit:,}", shared_bytes)


def _check_shared(shared_bytes: int, target: Target) -> None:
    _check_limit(shared_bytes, target.shared_bytes_per_block, "bytes of shared memory per block", target, shared_bytes)


def _check(resources: Resources, metadata: Mapping[str, Any], target: Target) -> None:
    """Check the limits of the compiled kernel, shared memory included for a kernel from the disk cache."""
    shared, warps = resources.shared_bytes or 0, metadata["num_warps"]
    columns = metadata.get("tmem_size") or 0
    per_warp = -(-(resources.registers or 0) * target.warp_size // _WARP_REGISTERS) * _WARP_REGISTERS
    _check_shared(shared, target)
    _check_limit(warps * target.warp_size, target.threads_per_block, "threads per block", target, shared)
    _check_limit(columns, _TENSOR_MEMORY_COLUMNS, "columns of tensor memory", target, shared)
    _check_limit(per_warp * warps, target.registers_per_block, "registers per block", target, shared)


def _failure(error: Exception) -> CandidateError | CacheError:
    """The typed failure of a compiler; of ptxas' output, the line with the cause and not the command."""
    if type(error).__name__ != "PTXASError":
        return CandidateError.of_compiler(error)
    lines = str(error).strip().splitlines()
    messages = [line.partition(":")[2].strip() for line in lines if line.startswith("ptxas")]
    line = next((text for text in messages if any(word in text for word in _PTXAS_TROUBLE)), (messages or lines)[0])
    return CandidateError(Status.RESOURCES if "nsufficient registers" in line else Status.COMPILE, f"ptxas: {line}")


def disassembled(cubin: bytes) -> str | None:
    """The machine code of a cubin as text; None where no nvdisasm can be run, or it does not know the architecture.

    Cost: a third of a second for a matrix product.
    """
    override = triton_program(_DISASSEMBLER)
    for path in [*([Path(override)] if override else []), *own_program(_DISASSEMBLER)]:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            try:
                words = [str(path), "-c", file.name]
                process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_DISASSEMBLY_S)
            except (OSError, subprocess.TimeoutExpired):
                continue
        if process.returncode == 0:
            return process.stdout
    return None
