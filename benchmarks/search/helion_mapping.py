"""Recorded tunables as what a user of Helion would declare them to be; needs no Helion.

The first rule that fits:

1. one value: a constant of the kernel, not declared;
2. 0 and 1: a flag;
3. numbers that name a method: a choice;
4. all powers of two from the least to the largest: a power of two, as a block size where the name says so;
5. all whole numbers from the least to the largest: an integer range;
6. anything else, multiples of 16 among it: a choice.

Every default is Helion's own for a user who gives none: off, the least value, the first choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_METHODS = frozenset({"between_method", "use_method"})  # point in polygon: which of several algorithms
_BLOCKS = frozenset({"BM", "BN", "BK", "BLOCK", "ROWS", "MWG", "NWG"})  # extents of a tile, beside block_size_…


@dataclass(frozen=True)
class Kind:
    """How one tunable is declared.

    Attributes:
        name: constant, flag, choice, power, block or range.
        values: What the recording has, in its order.
    """

    name: str
    values: tuple[Any, ...]

    def recorded(self, value: Any) -> Any:
        """The recording's value for the one that a search chose: it writes flags as numbers."""
        return int(value) if self.name == "flag" else value


def kind_of(name: str, values: Sequence[Any]) -> Kind:
    """The kind of the tunable `name` that takes `values`, all of them numbers."""
    ordered = sorted(values)
    least = ordered[0]
    if len(ordered) == 1:
        kind = "constant"
    elif ordered == [0, 1]:
        kind = "flag"
    elif name in _METHODS:
        kind = "choice"
    elif least > 0 and not least & least - 1 and ordered == [least << n for n in range(len(ordered))]:
        kind = "block" if name in _BLOCKS or name.startswith("block_size") else "power"
    elif ordered == list(range(least, ordered[-1] + 1)):
        kind = "range"
    else:
        kind = "choice"
    return Kind(kind, tuple(values))


def kinds_of(tunables: Mapping[str, Sequence[Any]]) -> dict[str, Kind]:
    """The kind of every tunable, in the recording's order."""
    return {name: kind_of(name, values) for name, values in tunables.items()}


def key_of(kinds: Mapping[str, Kind], config: Mapping[str, Any]) -> str:
    """The recording's key of a config that a search chose; constants are filled in."""
    values = (
        kind.values[0] if kind.name == "constant" else kind.recorded(config[name]) for name, kind in kinds.items()
    )
    return ",".join(map(str, values))
