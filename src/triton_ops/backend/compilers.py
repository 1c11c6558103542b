"""The role of a compiler: configs of one kernel are compiled in processes that have no device, before they are tried.

A kernel that has a compiler makes it for one kind of arguments. It is packed, and made again in each process of the
compile pool; what it leaves there on the disk is found by the kernel's `compile` in the process that launches. The
pool, the feed of compiled proposals, the models of costs and the cures of spills ask this role, and know no front end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from triton_ops import kernel_ir
from triton_ops.backend.portable import Packed
from triton_ops.backend.roles import Arguments, Kernel
from triton_ops.base import CodeFolder, require
from triton_ops.device import Target
from triton_ops.exceptions import KernelTypeError, MissingDependencyError, TargetError
from triton_ops.processes import import_heavy
from triton_ops.space import Config, Members
from triton_ops.values import Compiled


@dataclass(frozen=True)
class CompilerNeeds:
    """The needs of processes that compile: those of equal needs are forked from one server, which has them ready."""

    imports: tuple[str, ...] = ()

    def __ge__(self, others: CompilerNeeds) -> bool:
        """Tell whether a server with these needs has all that is ready for others."""
        return replace(self, imports=others.imports) == others and {*self.imports} >= {*others.imports}

    def ready(self) -> None:
        """Import what every compilation needs, in the fork server, which has one thread again afterwards."""
        import_heavy(self.imports, "compiling")
        with contextlib.suppress(MissingDependencyError):  # without NumPy no work is read
            # Naming it imports its module, and NumPy with it, once for all processes that are forked later.
            _ = kernel_ir.KernelWork

    @staticmethod
    def environment() -> dict[str, str]:
        """The environment of a process that compiles for this one's disk cache, with every GPU hidden from it.

        To be set before it imports torch or Triton.
        """
        # One thread of OpenMP: each CPU has a process, and a fork server must have no second thread when it forks.
        hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
        variables = {**dict.fromkeys(hidden, ""), "OMP_NUM_THREADS": "1"}
        if "triton" in sys.modules:  # which may have been told of another folder than the environment names
            folder = Path(require("triton.knobs", "compiling").cache.dir)
            variables["TRITON_CACHE_DIR"] = str(CodeFolder(folder).trusted("triton"))
        return variables


@dataclass(frozen=True)
class PackedCompiler:
    """A compiler as bytes, code of the user's by value: another process imports no module of the user's to load it."""

    name: str
    needs: CompilerNeeds
    content: bytes

    def load(self) -> Compiler:
        """The compiler, made again in this process; raises `TargetError` where it cannot be."""
        with TargetError.when(self.name, "", KernelTypeError):
            compiler: Compiler = Packed.loaded(self.content)
        return compiler


class Compiler(Protocol):
    """Compiles configs of one kernel with arguments of one kind, and launches nothing.

    A front end subclasses it with `name` and `compile`, and with what else it can answer. It holds plain values and
    functions, so that it can be sent to another process.
    """

    @property
    def name(self) -> str:
        """The kernel's name, for errors."""

    @property
    def needs(self) -> CompilerNeeds:
        """The needs of a process that compiles."""
        return CompilerNeeds()

    @property
    def kind(self) -> Hashable:
        """Equal for compilers whose configs become equal programs."""
        return self.pack().content

    def pack(self) -> PackedCompiler:
        """The compiler as it is sent; `TargetError` where it cannot be, `KernelTypeError` if nothing is to compile."""
        with TargetError.when(self.name, "", KernelTypeError):
            return PackedCompiler(self.name, self.needs, Packed.of(self, by_value=True).content)

    def compile(self, config: Config) -> Compiled:
        """The resources and the launch key of a config, whose program is then on the disk.

        The config's own failure is the status of the result; so is what else is raised, as a failed compilation.
        Raises `CacheError` where the disk cannot be written, and `TargetError` where no config of this kernel can be
        compiled without being launched.
        """

    def objection(self, config: Config) -> Compiled | None:  # noqa: ARG002 - nothing is known of any
        """The refusal of a config that is known to fail, or to be slow, before it is compiled; some microseconds."""
        return None

    def grid_objection(self, config: Config) -> Compiled | None:  # noqa: ARG002 - nothing is known of any
        """The refusal of a config that has more blocks than the device takes; code of the kernel's author may run."""
        return None

    def recalled(self, config: Config) -> Compiled | None:  # noqa: ARG002 - nothing is remembered
        """The result of a config whose program this process has compiled before, for arguments of this kind."""
        return None

    def remember(self, compiled: Compiled) -> None:
        """Keep the result of a config that can be launched for `recalled`, of this compiler or of an equal one."""

    def work(self, config: Config, contents: Mapping[str, Sequence[int]]) -> kernel_ir.KernelWork:  # noqa: ARG002
        """The work of a config's launches; why it cannot be told is part of it, and never an error.

        `contents` has elements of tensors of whole numbers that are known, by the parameter's name.
        """
        return kernel_ir.KernelWork(silent=f"what the launches of {self.name} do is not read from its code")

    def bit_class(self, config: Config) -> kernel_ir.BitClass:  # noqa: ARG002
        """The class of a compiled config, whose members give the same bits; why it cannot be told is part of it."""
        return kernel_ir.BitClass(silent=f"how {self.name} adds up is not read from its code")

    def machine_code(self, config: Config) -> Sequence[str | None]:  # noqa: ARG002
        """The machine code of each launch of a compiled config as text; None for one that cannot be shown."""
        return (None,)

    def ready_launch(self, config: Config) -> bool:  # noqa: ARG002
        """Build what launches of a compiled config need beside their program, if anything; it may raise anything."""
        return False

    @staticmethod
    def of(kernel: Kernel, arguments: Arguments, target: Target | None, members: Members) -> Compiler | None:
        """The compiler of a kernel; None for one that is not compiled ahead."""
        return kernel.compiler(arguments, target, members) if isinstance(kernel, CompilesAhead) else None


@runtime_checkable
class CompilesAhead(Protocol):
    """A kernel whose configs can be compiled by processes that have no device."""

    @property
    def compile_imports(self) -> str:
        """The module that a process imports before it compiles; empty if there is none."""

    def compiler(self, arguments: Arguments, target: Target | None, members: Members) -> Compiler | None:
        """The compiler for these arguments, which may be specs in place of tensors; None if nothing is to compile.

        `target` None is the CPU of this machine. `members` are those of an `Enum` that the kernel is given in place of
        their names.
        """
