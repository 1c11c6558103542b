"""What one watched run of a kernel has shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

OUTSIDE, UNWRITTEN, CONFLICT = "outside", "unwritten", "conflict"
KINDS = (OUTSIDE, UNWRITTEN, CONFLICT)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One thing that a run has shown.

    Attributes:
        kind: `outside`, `unwritten` or `conflict`.
        kernel: The kernel's name.
        file: Path of the file.
        line: Line in it.
        evidence: What happened, with its numbers.
    """

    kind: str
    kernel: str
    file: str
    line: int
    evidence: str


@dataclass(frozen=True)
class RunRecord:
    """What one watched run of some kernels has shown.

    Attributes:
        seen: In the order in which it happened.
        kernels: Names of the kernels whose launches have ended.
        whole: Why the run did not end, or did not begin; empty if it ended.
        open: Why a kind could not be decided of a kernel, by kind and name.
    """

    seen: tuple[Seen, ...] = ()
    kernels: frozenset[str] = frozenset()
    whole: str = ""
    open: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, kind: str, kernel: str) -> Iterator[Seen]:
        """What was seen of a kind in a kernel."""
        return (one for one in self.seen if (one.kind, one.kernel) == (kind, kernel))

    def why_open(self, kind: str, kernel: str) -> str:
        """Why a kind stays undecided of a kernel in which it was not seen; empty if it was decided."""
        if reason := self.open.get((kind, kernel)):
            return reason
        if self.whole:
            return self.whole
        return "" if kernel in self.kernels else "the run does not launch it"
