"""What a replay of another package's search needs beside that package.

Recordings as tables that answer a search, its runs summed up, and recorded tunables as what a user of Helion would
declare them to be. Of these kinds of tunables the first rule that fits counts:

1. one value: a constant of the kernel, not declared;
2. 0 and 1: a flag;
3. numbers that name a method: a choice;
4. all powers of two from the least to the largest: a power of two, as a block size where the name says so;
5. all whole numbers from the least to the largest: an integer range;
6. anything else, multiples of 16 among it: a choice.

Every default is Helion's own for a user who gives none: off, the least value, the first choice.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

INFINITE = float("inf")
_METHODS = frozenset({"between_method", "use_method"})  # point in polygon: which of several algorithms
_BLOCKS = frozenset({"BM", "BN", "BK", "BLOCK", "ROWS", "MWG", "NWG"})  # extents of a tile, beside block_size_…


def read_cache(path: Path) -> dict[str, Any]:
    """A recording in Kernel Tuner's cache form; the H200 recordings are brought into it."""
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return _as_cache(content) if "rows" in content else content


def _as_cache(content: Mapping[str, Any]) -> dict[str, Any]:
    names = list(content["space"])
    cache = {}
    for row in content["rows"]:
        values = [row["config"][name] for name in names]
        cache[",".join(map(str, values))] = {**dict(zip(names, values, strict=True)), "time": _time(row)}
    return {
        "device_name": content["gpu"], "kernel_name": content["family"], "problem_size": content["shape"],
        "tune_params_keys": names, "tune_params": content["space"], "cache": cache,
    }  # fmt: skip


def _time(row: Mapping[str, Any]) -> Any:
    if row["status"] != "ok":
        return "RuntimeFailedConfig"
    if row.get("final"):
        return statistics.median(quantiles[2] for quantiles in row["final"])
    return min(quantiles[2] for quantiles in row["ms"])


def milliseconds(value: Any) -> float:
    """The time of a row; infinite for one that failed, where the recording has the failure's name."""
    return INFINITE if isinstance(value, str) else float(value)


def best_ms(content: Mapping[str, Any]) -> float:
    """The fastest config's milliseconds."""
    return min(milliseconds(row["time"]) for row in content["cache"].values())


def fraction(best: float, times: Sequence[float]) -> float:
    """Best time of the recording over the best of `times`; 0 where none of them ran."""
    return best / min(times, default=INFINITE)


def share(fractions: Sequence[float]) -> dict[str, float]:
    """Mean, median and lowest tenth of the fractions that the seeds reached."""
    values = {"mean": np.mean(fractions), "median": np.median(fractions), "p10": np.quantile(fractions, 0.1)}
    return {name: round(float(value), 4) for name, value in values.items()}


def first_within(best: float, margin: float, times: Sequence[float]) -> float:
    """The number of evaluations until one is within `margin` of the best; infinite if none is."""
    return next((n for n, time_ms in enumerate(times, 1) if time_ms <= best * (1 + margin)), INFINITE)


def reach(counts: Sequence[float]) -> dict[str, int | None]:
    """Median and nine tenths of the seeds' numbers of evaluations; none where that many seeds did not get there."""
    ordered = sorted(counts)
    places = {"median": ordered[-(-len(ordered) // 2) - 1], "p90": ordered[-(-9 * len(ordered) // 10) - 1]}
    return {name: int(count) if count < INFINITE else None for name, count in places.items()}


class Enough(BaseException):
    """As many configs were evaluated as are asked about; not an Exception, for a search may survive those."""


@dataclass
class Table:
    """A recording that answers a search and notes what it was asked.

    Attributes:
        content: The recording, in Kernel Tuner's cache form.
        most: Evaluations it answers.
        asked: Key to milliseconds of the configs evaluated, in order; infinite for those that failed.
        refused: Keys that the recording does not have.
    """

    content: Mapping[str, Any]
    most: int
    asked: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Whether the recording has the config; noted where not."""
        inside = key in self.content["cache"]
        if not inside:
            self.refused.add(key)
        return inside

    def look_up(self, key: str) -> float:
        """Milliseconds of a config; what is asked for again is no new evaluation.

        Raises:
            Enough: It would be one more than `most`.
        """
        if key not in self.asked:
            if len(self.asked) == self.most:
                raise Enough
            self.asked[key] = milliseconds(self.content["cache"][key]["time"])
        return self.asked[key]


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
