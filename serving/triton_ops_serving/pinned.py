"""The rows of a lockfile for one table of an engine; importing it needs nothing beside what a launch needs.

A lockfile's kernel is named as the format of the table, and its problems have the facts of the table's name and a size.
Entries that were imported from a table have the facts of that file's name too.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from triton_ops.records import LockEntry, Lockfile
from triton_ops.ship import ROWS

_SIZES = ("M", "batch", "chunk")  # the names of sizes
_BETWEEN = re.compile(r",(?=\w+=)")  # the facts in a table's name
_SHOWN = 80  # characters of a label
_log = logging.getLogger("triton_ops")


def variable(name: str) -> str:
    """The text of an environment variable; empty if it is not set."""
    return os.environ.get(name, "").strip()


def label_of(facts: Mapping[str, Any]) -> str:
    """The facts of a table in one line, as vLLM writes them in names."""
    texts = {name: _plain(name, value) for name, value in facts.items()}
    texts = {name: f"[{text}]" if name == "block_shape" else text for name, text in texts.items() if text}
    return ",".join(f"{name}={text}" for name, text in texts.items())


def rows_of(lock: Lockfile, form: str, facts: Mapping[str, Any], device: str) -> dict[int, LockEntry]:
    """The entries for a table of this format, by size; `facts` are those of the table's name, without the device.

    Of the device only the name is known, and the rest is taken as it should be.
    """
    plain_facts = {name: _plain(name, value) for name, value in facts.items()}
    called = {each.alias for each in lock.devices if each.why_not({**vars(each), "name": device}) is None}
    rows: dict[int, LockEntry] = {}
    for entry in lock.entries:
        size: Any = next((entry.problem[name] for name in _SIZES if name in entry.problem), None)
        if entry.kernel != form or entry.device not in called:
            continue
        own = {**(_facts_of_file(entry.origin.detail) if entry.origin.form == form else {}), **entry.problem}
        plain = {name: _plain(name, value) for name, value in own.items() if name not in (*_SIZES, "device_name")}
        same = all(plain.get(name, "") == plain_facts.get(name, "") for name in {*plain, *plain_facts})
        if same and (why := ROWS[form].why_not(entry.config, size)):
            _log.warning("triton_ops: a row of %s for %s is left out: %s", form, entry.label[:_SHOWN] or size, why)
        elif same and (size not in rows or len(entry.problem) > len(rows[size].problem)):  # with its own facts first
            rows[size] = entry
    return rows


def voted(locks: Sequence[Lockfile]) -> Lockfile:
    """What most of some lockfiles, such as those of ranks, pin for each problem; of as many, what the first does."""
    votes = Counter((entry.place, entry.config) for lock in locks for entry in lock.entries)
    most = {place: count for (place, _), count in reversed(votes.most_common())}
    return Lockfile.merged(
        lock.without(lambda entry: votes[entry.place, entry.config] < most[entry.place]) for lock in locks
    )


def _facts_of_file(name: str) -> dict[str, Any]:
    stem = name.removesuffix(".gz").removesuffix(".json")
    facts = (piece.split("=", 1) for piece in _BETWEEN.split(stem.removesuffix("_down")) if "=" in piece)
    return {**dict(facts), "down": "True" if stem.endswith("_down") else ""}


def _plain(name: str, value: Any) -> str:
    """A fact in one spelling, whatever a file, a person or a config.json writes; empty for none."""
    if name == "block_shape":
        extents = re.findall(r"\d+", str(value))
        return ",".join(extents) if any(map(int, extents)) else ""
    if (name, value) == ("cache_dtype", "bfloat16"):  # one table for both, by their width
        return "float16"
    return "" if value in (None, "", False, "False") else str(value)
