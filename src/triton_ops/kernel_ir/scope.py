"""The scope of an operation on the way through a kernel: the programs that come there, the values they bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.syntax import TtirOperation, UntoldError
from triton_ops.kernel_ir.trace import Trace, Weights
from triton_ops.kernel_ir.values import Value, Vector

V = TypeVar("V")


@dataclass(frozen=True)
class Programs:
    """The programs of a launch that are looked at.

    Attributes:
        ids: Their numbers, counted along x first.
        whole: Whether tensors are looked at whole; otherwise at their first element alone.
        contents: The data of arguments that is known, by the argument's place.
    """

    ids: Vector
    grid: tuple[int, int, int]
    whole: bool = True
    contents: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scope(Generic[V]):
    """The surroundings of an operation, and the values by name that it finds there.

    Attributes:
        values: The values by name; grows.
    """

    values: dict[str, V]
    loops: tuple[int, ...] = ()
    depth: int = 0

    def value(self, name: str) -> V:
        """The value of this name.

        Raises:
            UntoldError: There is none.
        """
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
    """The place of an operation on the way of many programs; values, loops and calls around are those of `Scope`.

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

    def see(self, number: int, pointer: Value) -> None:
        """Keep where the access of this number goes when a turn of a loop first reaches it."""
        for pointers in self.first_pointers:
            pointers.setdefault(number, pointer)
