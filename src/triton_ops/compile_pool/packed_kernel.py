"""What a compiling process is sent: one kernel, its arguments and its target, and whether it takes torch to use them.

A process without torch has compiled its first config half a second earlier. It takes torch where Triton's backend asks
torch for a tensor's size, as AMD's does; where code of the user's may ask a tensor anything, as heuristics, hooks and
launchers do; and where the kernel, its grid or an argument refers to something of torch's. Otherwise stand-ins without
torch are passed in place of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.backend import Compilable, Packed, pack, unpack
from triton_ops.backend.offline import AheadOfTime, described
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.hardware import Target

_TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class PackedKernel:
    """A kernel that another process can compile.

    Attributes:
        name: The kernel's, for errors.
        kernel: The kernel, packed by value; its grid is left out if it cannot be sent.
        cache_key: What Triton calls the source here; there it must be the same, or a launch finds no binary.
        arguments: Packed, tensors as stand-ins, with the members of an `Enum` that the kernel is given.
        target: What to compile for.
        imports: What the process imports beside Triton: nothing, or torch or a module of it, where it must have torch.
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

        Raises:
            KernelTypeError: There is nothing to compile, as under `TRITON_INTERPRET`.
            TargetError: The kernel or an argument exists in this process only.
        """
        kernel, target = ahead.kernel, ahead.target
        if kernel.interpreted:
            raise KernelTypeError(
                f"{kernel.name} is interpreted, so there is nothing to compile", hint="unset TRITON_INTERPRET"
            )
        packed = _packed(kernel)
        try:
            given = pack((ahead.arguments, ahead.members), by_value=True)
        except KernelTypeError as error:
            raise TargetError(f"the arguments of {kernel.name}: {error.message}", hint=error.hint) from error
        refers = target.kind != "cuda" or _TORCH in packed.imports | given.imports
        return cls(
            name=kernel.name,
            kernel=packed.content,
            cache_key=kernel.cache_key,
            arguments=given.content,
            target=target,
            imports=kernel.compile_imports or (_TORCH if refers else ""),
        )

    def load(self) -> AheadOfTime:
        """The kernel and its arguments, made again in this process.

        Raises:
            TargetError: They cannot be, or the kernel would not be the same to Triton.
        """
        try:
            kernel, (arguments, members) = unpack(self.kernel), unpack(self.arguments)
        except KernelTypeError as error:
            raise TargetError(f"{self.name}: {error.message}", hint=error.hint) from error
        if kernel.cache_key != self.cache_key:
            raise TargetError(f"{self.name} is not the same kernel in another process", hint="report the kernel")
        return AheadOfTime(kernel, described(arguments, light=not self.imports), self.target, members)


def _packed(kernel: Compilable) -> Packed:
    """The kernel by value; without its grid, which only tells which configs are launched alike, if it cannot go so."""
    try:
        return pack(kernel, by_value=True)
    except KernelTypeError:
        pass
    try:
        return pack(kernel.without_grid, by_value=True)
    except KernelTypeError as error:
        raise TargetError(f"{kernel.name}: {error.message}", hint=error.hint) from error
