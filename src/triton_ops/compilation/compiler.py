"""The compiling processes: each loads one kernel once, then turns its configs into `Compiled`, one after another.

They are forked from a fork server, whose program is `main` here and which sees no GPU. What compilers print to stdout
is discarded.

A process without torch has compiled its first config half a second earlier. It takes torch where Triton's backend asks
torch for a tensor's size, as AMD's does; where code of the user's may ask a tensor anything, as heuristics, hooks and
launchers do; and where the kernel, its grid or an argument refers to something of torch's. Otherwise stand-ins without
torch are passed in place of tensors.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triton_ops.backend import AheadOfTime, Compilable, described, pack, unpack, warm_up
from triton_ops.compilation.tiers import examine
from triton_ops.device import Target
from triton_ops.exceptions import CacheError, KernelTypeError, TargetError, TritonKernelError
from triton_ops.processes import ChildsEnd, ForkRequests, Surroundings, import_heavy
from triton_ops.space import Config

_TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class PackedKernel:
    """A kernel that another process can compile, packed by value; its grid is left out if it cannot be sent.

    `cache_key` is what Triton calls the source here; there it must be the same, or a launch finds no binary. The
    arguments have stand-ins for tensors, and the members of an `Enum` that the kernel is given. `imports` is what the
    process imports beside Triton: nothing, or torch or a module of it, where it must have torch.
    """

    name: str
    kernel: bytes
    cache_key: str
    arguments: bytes
    target: Target
    imports: str

    @classmethod
    def of(cls, ahead: AheadOfTime) -> PackedKernel:
        """A kernel with the arguments of its launches, which may be specs in place of tensors.

        Raises `KernelTypeError` where there is nothing to compile, as under `TRITON_INTERPRET`, and `TargetError` where
        the kernel or an argument exists in this process only.
        """
        kernel, target = ahead.kernel, ahead.target
        if kernel.interpreted:
            raise KernelTypeError(
                f"{kernel.name} is interpreted, so there is nothing to compile", hint="unset TRITON_INTERPRET"
            )
        content, packages = _packed(kernel)
        try:
            packed_arguments = pack((ahead.arguments, ahead.members), by_value=True)
        except KernelTypeError as error:
            raise TargetError(f"the arguments of {kernel.name}: {error.message}", hint=error.hint) from error
        needs_torch = target.vendor.lowers_with_torch or _TORCH in packages | packed_arguments.imports
        return cls(
            name=kernel.name,
            kernel=content,
            cache_key=kernel.cache_key,
            arguments=packed_arguments.content,
            target=target,
            imports=kernel.compile_imports or (_TORCH if needs_torch else ""),
        )

    def load(self) -> AheadOfTime:
        """The kernel and its arguments, made again in this process.

        Raises `TargetError` where they cannot be, or the kernel would not be the same to Triton.
        """
        try:
            kernel, (arguments, members) = unpack(self.kernel), unpack(self.arguments)
        except KernelTypeError as error:
            raise TargetError(f"{self.name}: {error.message}", hint=error.hint) from error
        if kernel.cache_key != self.cache_key:
            raise TargetError(f"{self.name} is not the same kernel in another process", hint="report the kernel")
        return AheadOfTime(kernel, described(arguments, light=not self.imports), self.target, members)


def _packed(kernel: Compilable) -> tuple[bytes, frozenset[str]]:
    """The kernel by value; without its grid, which only tells which configs are launched alike, if it cannot go so."""
    with contextlib.suppress(KernelTypeError):
        packed = pack(kernel, by_value=True)
        return packed.content, packed.imports
    try:
        packed = pack(kernel.without_grid, by_value=True)
    except KernelTypeError as error:
        raise TargetError(f"{kernel.name}: {error.message}", hint=error.hint) from error
    return packed.content, packed.imports


compiles_for: list[int] = []
"""The id of the process for which this process compiles; empty in a process that does not compile for another one."""

_READER = "triton_ops.backend.front_end"
_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True, kw_only=True)
class Start:
    """The first message to a compiling process, which imports its own modules before it takes over the surroundings."""

    packed: PackedKernel
    surroundings: Surroundings


@dataclass(frozen=True)
class LauncherRequest:
    """The question to build the launcher, the C module with which Triton launches a kernel.

    All configs of a kernel have the same launcher; `config` is one that was compiled.
    """

    config: Config


@dataclass(frozen=True)
class WorkRequest:
    """The question for the work of a config's launches, as of `CompilePool.read`."""

    config: Config
    contents: Mapping[str, Sequence[int]]


def main() -> None:
    """The program of the fork server: import what compilers need, then answer questions until the socket is closed."""
    requests = ForkRequests()
    imports, arch = sys.argv[4:6]
    compiles_for.append(requests.parent)
    os.nice(_NICENESS)
    warming = warm_up(launches=False)
    import_heavy(filter(None, ("triton", imports)), "compiling")
    warming.join()  # a process with one thread can be forked safely, and what two threads need at once is made twice
    with contextlib.suppress(Exception):  # if Triton does not work, the first config says why
        AheadOfTime.rehearse(Target.named(arch))
    gc.freeze()  # forked processes then do not copy the imported objects
    requests.answer(serve)


def serve(connection: ChildsEnd) -> None:
    """Load the kernel, then answer questions until the connection is closed.

    The first answer says how the loading ended: None, or the error because of which no question can be answered.
    """
    start: Start = connection.receive()
    start.surroundings.take()
    try:
        ahead = start.packed.load()
    except TritonKernelError as error:
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    while True:
        try:
            question = connection.receive()
        except EOFError:
            return
        connection.send(_answer(question, ahead))


def _answer(question: Config | LauncherRequest | WorkRequest, ahead: AheadOfTime) -> Any:
    if isinstance(question, WorkRequest):
        reader = importlib.import_module(_READER)  # takes NumPy along, which compiling does not need
        config = question.config.with_members(ahead.members)
        return reader.kernel_work(ahead.kernel, config, ahead.arguments, ahead.target, question.contents)
    if isinstance(question, LauncherRequest):
        with contextlib.suppress(Exception):  # the process that launches meets the same error, and reports it
            ahead.build_launcher(question.config)
        return None
    try:
        compiled = examine(ahead, question)
        return replace(
            compiled, launch=ahead.program_key(compiled.config, compiled.resources if compiled.launchable else None)
        )
    except (CacheError, TargetError) as error:
        return error
