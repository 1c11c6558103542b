"""What the documents of `many_problems` say: their figures in short, one document of several, and the winners.

`benchmarks.many.many_problems` measures and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WITHIN = 1.0  # percent
_PARTS = {"many", "single", "fresh", "gpus"}


def merged(*paths: Path) -> dict[str, Any]:
    """One document of several: the parts of all, the latest of each, and of `graded` the rows of all.

    Each part says when and at which commit it was measured.
    """
    whole: dict[str, Any] = {}
    for path in paths:
        document = json.loads(path.read_text())
        for part in _PARTS & document.keys():
            document[part] = {"date": document["date"], "commit": document["commit"], **document[part]}
        rows = {**whole.get("graded", {}).get("rows", {}), **document.get("graded", {}).get("rows", {})}
        whole |= document
        if rows:
            whole["graded"] = grades_of(rows, len(document["problems"]))
    return whole


def winners_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What one run on one GPU has found, by problem."""
    if "many" in document:
        return dict(document["many"]["rows"])
    return dict(document["gpus"]["rows"]["1 GPUs"]["problems"])


def grades_of(rows: Mapping[str, Any], of: int) -> dict[str, Any]:
    """How many winners are within 1 % of the best of all configs, with the rows."""
    within = sum(row["behind_percent"] <= _WITHIN for row in rows.values())
    return {"graded": len(rows), "of": of, "within": within, "rows": dict(rows)}


def told_of(document: Mapping[str, Any]) -> list[str]:
    """The figures in short."""
    lines = [
        f"{part}: {document[part]['wall_s']:.1f} s for {len(document[part]['rows'])} problems"
        for part in ("many", "single", "fresh")
        if "wall_s" in document.get(part, {})
    ]
    graded = document.get("graded", {})
    if graded:
        rows = graded["rows"].values()
        within = sum(row["behind_percent"] <= _WITHIN for row in rows)
        lines.append(f"graded: {within} of {len(rows)} winners within 1 % of the best of all configs")
    if "speedup" in document.get("gpus", {}):
        lines.append(f"gpus: {document['gpus']['speedup']:.2f} times as fast")
    return lines
