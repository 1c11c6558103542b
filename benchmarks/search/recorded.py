"""What a replay of another package's search needs beside that package: recordings as tables, and its runs summed up."""

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
