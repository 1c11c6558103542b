"""A watched run of some kernels: its request and its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from triton_ops.processes import Surroundings

OUTSIDE, UNWRITTEN, CONFLICT = "outside", "unwritten", "conflict"
_LOCKS = "it has atomic operations by which programs may wait for each other"
PATIENCE = 6
"""Seconds of the clock for each second of a CPU that a run may take: on a machine that is busy, and for what sleeps."""


@dataclass(frozen=True)
class WatchRequest:
    """A run that is asked for.

    Attributes:
        packed: An operation, or a function without parameters, packed.
        surroundings: Of the process that asks.
        limit_s: Seconds of a CPU that launches may take.
    """

    packed: bytes
    surroundings: Surroundings
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One thing that a run has shown.

    Attributes:
        kind: `outside`, `unwritten` or `conflict`.
    """

    kind: str
    kernel: str
    file: str
    line: int
    evidence: str


@dataclass(frozen=True)
class RunRecord:
    """The observations of one watched run of some kernels.

    Attributes:
        kernels: Names of the kernels whose launches have ended.
        whole: Why the run did not end, or did not begin; empty if it ended.
        locked: Kernels whose programs may wait for each other, so that nothing is known of their conflicts.
    """

    observations: tuple[Observation, ...] = ()
    kernels: frozenset[str] = frozenset()
    whole: str = ""
    locked: frozenset[str] = frozenset()

    def of(self, kind: str, kernel: str) -> Iterator[Observation]:
        """The observations of a kind in a kernel."""
        return (one for one in self.observations if (one.kind, one.kernel) == (kind, kernel))

    def why_open(self, kind: str, kernel: str) -> str:
        """The reason why a kind stays undecided of a kernel in which it was not seen; empty if it was decided."""
        if kind == CONFLICT and kernel in self.locked:
            return _LOCKS
        if self.whole:
            return self.whole
        return "" if kernel in self.kernels else "the run does not launch it"
