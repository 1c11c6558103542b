"""The order in which a kernel's TTIR is walked through, whatever is said of its values: blocks, operations, calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from triton_ops.kernel_ir.scope import Scope, V
from triton_ops.kernel_ir.syntax import Function, Module, TtirBlock, TtirOperation, UntoldError

_MOST_CALLS = 8  # calls within calls
S = TypeVar("S", bound=Scope[Any])


class TtirWalk(ABC, Generic[S, V]):
    """One walk through a kernel, which ends when it has taken too many steps.

    Args:
        module: The kernel with the functions that it calls.
        most_operations: Walked in all; an operation in a loop counts at each turn that is walked.
    """

    def __init__(self, module: Module, most_operations: int) -> None:
        self._module = module
        self._budget = most_operations

    def call(self, function: Function, arguments: Sequence[V], here: S) -> list[V]:
        """The values that a function returns to those that call it.

        Raises:
            UntoldError: The function cannot be walked through, with the reason.
        """
        if here.depth > _MOST_CALLS:
            raise UntoldError("its functions call each other without end")
        values = dict(zip((name for name, _ in function.arguments), arguments, strict=False))
        return self._through(function.blocks, replace(here, values=values))

    def _block(self, block: TtirBlock, here: S) -> TtirOperation | None:
        """Walk through a block; its last operation, which says where to go on."""
        last: TtirOperation | None = None
        for operation in block.operations:
            last = operation
            self._budget -= 1
            if self._budget < 0:
                raise UntoldError("its loops within loops are too many to walk through")
            here.values.update(zip(operation.results, self._results(operation, here), strict=False))
        return last

    def _results(self, operation: TtirOperation, here: S) -> Sequence[V]:
        if operation.name == "scf.for":
            return self._for(operation, here)
        if operation.name == "scf.while":
            return self._while(operation, here)
        if operation.name == "scf.if":
            return self._if(operation, here)
        if operation.name == "tt.call":
            return self._call(operation, here)
        return self._other(operation, here)

    def _call(self, operation: TtirOperation, here: S) -> list[V]:
        function = self._module.called(operation)
        if function is None:
            raise UntoldError(f"it calls a function that is not in the text: {operation.text.strip()}")
        return self.call(function, here.all(operation.operands), replace(here, depth=here.depth + 1))

    @abstractmethod
    def _through(self, blocks: Sequence[TtirBlock], here: S) -> list[V]:
        """The values that a function returns, from the blocks that its jumps reach."""

    @abstractmethod
    def _for(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _while(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _if(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _other(self, operation: TtirOperation, here: S) -> Sequence[V]:
        """The results of an operation that neither branches nor calls."""
