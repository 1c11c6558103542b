"""The order in which a kernel's TTIR is walked through, whatever is said of its values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.trace import Trace, Weights
from triton_ops.kernel_ir.ttir_syntax import Function, Module, TtirBlock, TtirOperation, UntoldError, parsed_module
from triton_ops.kernel_ir.values import Value, Vector

V = TypeVar("V")


@dataclass(frozen=True)
class Programs:
    """The programs of a launch that are looked at, by their numbers, counted along x first.

    Tensors are looked at `whole`, or at their first element alone; `contents` is known data by the argument's place.
    """

    ids: Vector
    grid: tuple[int, int, int]
    whole: bool = True
    contents: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scope(Generic[V]):
    """The surroundings of an operation, and the values by name that it finds there, which grow."""

    values: dict[str, V]
    loops: tuple[int, ...] = ()
    depth: int = 0

    def value(self, name: str) -> V:
        """The value of this name; raises UntoldError if there is none."""
        try:
            return self.values[name]
        except KeyError:
            raise UntoldError(f"it uses {name}, which nothing has made") from None

    def all(self, names: Sequence[str]) -> list[V]:
        """The values of these names; raises as `value` does."""
        return [self.value(name) for name in names]

    def yielded(self, last: TtirOperation | None) -> list[V]:
        """The values that a block hands on by its last operation; none where it ends without saying so."""
        return self.all(last.operands) if last is not None and last.name == "scf.yield" else []


@dataclass(frozen=True, kw_only=True)
class ProgramScope(Scope[Value]):
    """The place of an operation on the way of many programs.

    Attributes:
        first_pointers: For each loop around whose turns are compared: where its accesses went, by their number.
        weight: How often each program comes here.
        alive: The programs that come here.
    """

    programs: Programs
    trace: Trace
    first_pointers: list[dict[int, Value]]
    weight: Weights
    alive: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of programs that are looked at."""
        return len(self.programs.ids)

    @property
    def loop(self) -> int:
        """The loop around; 0 outside of loops."""
        return self.loops[-1] if self.loops else 0


_MOST_CALLS = 8  # calls within calls
S = TypeVar("S", bound=Scope[Any])


class TtirWalk(ABC, Generic[S, V]):
    """One walk through a kernel with the functions that it calls, which ends when it has taken too many steps.

    An operation in a loop counts at each turn that is walked.
    """

    def __init__(self, module: Module | str, most_operations: int) -> None:
        self.module = parsed_module(module) if isinstance(module, str) else module
        self._budget = most_operations

    def call(self, function: Function, arguments: Sequence[V], here: S) -> list[V]:
        """The values that a function returns; raises UntoldError, with the reason, if it cannot be walked through."""
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
        function = self.module.called(operation)
        if function is None:
            raise UntoldError(f"it calls a function that is not in the text: {operation.text.strip()}")
        return self.call(function, here.all(operation.operands), replace(here, depth=here.depth + 1))

    def _through(self, blocks: Sequence[TtirBlock], here: S) -> list[V]:
        """The values that a function returns, from the blocks that its jumps reach."""
        arrivals: dict[str, list[tuple[S, list[V]]]] = {block.label: [] for block in blocks}
        arrivals[blocks[0].label] = [(here, [])]
        returned: list[tuple[S, list[V]]] = []
        for block in blocks:
            if (arrived := self._joined(arrivals.pop(block.label))) is None:
                continue
            inside, values = arrived
            here.values.update(zip(block.arguments, values, strict=False))
            last = self._block(block, inside)
            if last is not None and last.name.startswith("cf."):
                for label, way, handed_on in self._jumps(last, inside):
                    if label not in arrivals:
                        raise UntoldError("it jumps back, which is no loop that is known here")
                    arrivals[label].append((way, handed_on))
            elif last is not None:
                returned.append((inside, inside.all(last.operands)))
        return self._merged(returned)

    @abstractmethod
    def _joined(self, ways: list[tuple[S, list[V]]]) -> tuple[S, list[V]] | None:
        """The place and the values of those who come to a block by one of these ways; None if nobody does."""

    @abstractmethod
    def _merged(self, ways: list[tuple[S, list[V]]]) -> list[V]: ...

    @abstractmethod
    def _jumps(self, last: TtirOperation, here: S) -> list[tuple[str, S, list[V]]]:
        """The jumps at the end of a block: label, who jumps, and the values that they bring."""

    @abstractmethod
    def _for(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _while(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _if(self, operation: TtirOperation, here: S) -> list[V]: ...

    @abstractmethod
    def _other(self, operation: TtirOperation, here: S) -> Sequence[V]:
        """The results of an operation that neither branches nor calls."""
