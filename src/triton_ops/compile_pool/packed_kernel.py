"""What a compiling process is sent: one kernel, its arguments and its target, and whether it takes torch to use them.

A process without torch has compiled its first config half a second earlier. It takes torch where Triton's backend asks
torch for a tensor's size, as AMD's does; where heuristics may ask a tensor anything; and where the kernel, its grid
or an argument refers to something of torch's. Otherwise stand-ins without torch are passed in place of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Packed, TritonKernel, pack, unpack
from triton_ops.backend.offline import AheadOfTime, described
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.hardware import Target

_TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class PackedKernel:
    """A kernel that another process can compile.

    Attributes:
        name: The kernel's, for errors.
        function: The JIT function, packed by value.
        cache_key: What Triton calls the function here; there it must be the same, or a launch finds no binary.
        grid: Packed by value, to know which configs are launched alike; None if that is left open.
        arguments: Packed, tensors as stand-ins.
        target: What to compile for.
        needs_torch: Whether the process must have torch.
    """

    name: str
    function: bytes
    cache_key: str
    grid: bytes | None
    arguments: bytes
    target: Target
    needs_torch: bool

    @classmethod
    def of(cls, ahead: AheadOfTime) -> PackedKernel:
        """A kernel with the arguments of its launches, which may be specs in place of tensors.

        Raises:
            KernelTypeError: There is nothing to compile, as under `TRITON_INTERPRET`.
            TargetError: The function or an argument exists in this process only.
        """
        kernel, target = ahead.kernel, ahead.target
        if kernel.interpreted:
            raise KernelTypeError(
                f"{kernel.name} is interpreted, so there is nothing to compile", hint="unset TRITON_INTERPRET"
            )
        try:
            function = pack(kernel.function, by_value=True)
        except KernelTypeError as error:
            raise TargetError(f"{kernel.name}: {error.message}", hint=error.hint) from error
        try:
            given = pack(ahead.arguments, by_value=True)
        except KernelTypeError as error:
            raise TargetError(f"the arguments of {kernel.name}: {error.message}", hint=error.hint) from error
        plain = target.kind == "cuda" and type(kernel.function).__name__ == "JITFunction"
        grid = _packed_grid(kernel.grid)
        imports = function.imports | given.imports | (grid.imports if grid is not None else frozenset())
        return cls(
            name=kernel.name,
            function=function.content,
            cache_key=kernel.cache_key,
            grid=grid.content if grid is not None else None,
            arguments=given.content,
            target=target,
            needs_torch=not plain or _TORCH in imports,
        )

    def load(self) -> AheadOfTime:
        """The kernel and its arguments, made again in this process.

        Raises:
            TargetError: They cannot be, or the kernel would not be the same to Triton.
        """
        try:
            grid = _no_grid if self.grid is None else unpack(self.grid)
            kernel, arguments = TritonKernel(unpack(self.function), grid), unpack(self.arguments)
        except KernelTypeError as error:
            raise TargetError(f"{self.name}: {error.message}", hint=error.hint) from error
        if kernel.cache_key != self.cache_key:
            raise TargetError(f"{self.name} is not the same kernel in another process", hint="report the kernel")
        return AheadOfTime(kernel, described(arguments, light=not self.needs_torch), self.target)


def _packed_grid(grid: Any) -> Packed | None:
    """The grid, to be asked in another process, since it is the user's code; None if it cannot go there."""
    try:
        return pack(grid, by_value=True)
    except KernelTypeError:
        return None


def _no_grid(_meta: Mapping[str, Any]) -> tuple[int, ...]:
    raise LookupError("the grid is not known here")
