"""The text of a lockfile: JSON in which every entry takes the same few lines, and the settling of merged texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from triton_ops._sealed import CHECKSUM
from triton_ops.exceptions import LockfileError

_LINES = (
    ("kernel", "device", "label"), ("config",), ("default",), ("measured",), ("problem",), ("ranges",), ("ignored",),
    ("identity",), ("origin",), ("call",), (CHECKSUM,),
)  # fmt: skip
_MARK = re.compile(r"^(<<<<<<< [^\n]*\n|>>>>>>> ?[^\n]*\n)", re.MULTILINE)
_BETWEEN = re.compile(r"^(?:=======|\|\|\|\|\|\|\| [^\n]*|\|\|\|\|\|\|\|)\n", re.MULTILINE)
_SEAL = re.compile(rf'\s*"{CHECKSUM}": "[0-9a-f]*"\s*')


def text_of(content: Mapping[str, Any]) -> str:
    """The JSON text of a lockfile's content, with the fields of each entry in the same lines."""
    lines = ["{", *(f"  {_pair(content, name)}," for name in ("kind", "schema_version"))]
    lines += _block("devices", [f"    {_json(device)}" for device in content["devices"]])
    lines += _block("entries", [_entry(entry) for entry in content["entries"]])
    return "\n".join([*lines, f"  {_pair(content, CHECKSUM)}", "}"]) + "\n"


def has_conflicts(text: str | bytes) -> bool:
    """Whether a line begins with the mark of a conflict. No value does that: in JSON's texts line ends are escaped."""
    if isinstance(text, bytes):
        return re.search(rb"^<<<<<<< ", text, re.MULTILINE) is not None
    return re.search(r"^<<<<<<< ", text, re.MULTILINE) is not None


def without_conflicts(text: str) -> str:
    """The text in which conflicts that are only about the checksum of the whole are settled, whatever it was.

    Raises:
        LockfileError: Another conflict is left.
    """
    outside, *rest = _MARK.split(text)
    parts = [outside]
    conflict: list[str] = []  # what has come of one, from its first mark on
    for mark, after in zip(rest[::2], rest[1::2], strict=True):
        if conflict and mark.startswith(">"):
            parts += [_settled("".join(conflict[1:])), after]
            conflict = []
        elif conflict or mark.startswith("<"):
            conflict += [mark, after]
        else:
            parts += [mark, after]
    return "".join([*parts, *conflict])


def _settled(conflict: str) -> str:
    sides = _BETWEEN.split(conflict)
    if not all(_SEAL.fullmatch(side) for side in sides):
        raise LockfileError(
            "a merge left a conflict between entries",
            hint="keep the entries that you want, remove the marks, then run this again",
        )
    return sides[0]


def _block(name: str, items: list[str]) -> list[str]:
    return [f'  "{name}": [', ",\n".join(items), "  ],"] if items else [f'  "{name}": [],']


def _entry(entry: Mapping[str, Any]) -> str:
    rows = [", ".join(_pair(entry, name) for name in names) for names in _LINES if names[0] in entry]
    return "    {" + ",\n     ".join(rows) + "}"


def _pair(content: Mapping[str, Any], name: str) -> str:
    return f"{_json(name)}: {_json(content[name])}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
