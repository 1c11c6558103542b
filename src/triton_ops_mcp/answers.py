"""Documents of commands as answers that an agent can read: small, and whole JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST = 8_000  # characters of an answer
_ITEMS = (1000, 100, 50, 20, 10, 5, 2, 1, 0)  # of each list, until the answer fits
_TEXT, _PER_ITEM = 200, 40  # characters of each text


def text_of(document: Any) -> str:
    """The document as JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def trimmed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document in at most `MOST` characters; its member `left_out` says what is missing.

    Long lists end after their first items, long texts after their first characters. Where that is not enough, the
    largest members are left out whole.
    """
    for items in _ITEMS:
        left_out: dict[str, str] = {}
        answer = _cut(document, "", items, left_out)
        if left_out:
            answer["left_out"] = left_out
        if len(text_of(answer)) <= MOST:
            return dict(answer)
    while len(text_of(answer)) > MOST:
        largest = max(answer, key=lambda name: len(text_of(answer[name])))
        del answer[largest]
        answer["left_out"] = {largest: "all", **answer.get("left_out", {})}
    return dict(answer)


def _cut(value: Any, path: str, items: int, left_out: dict[str, str]) -> Any:
    """A value with lists of at most so many items; the first cut of each path is told."""
    if isinstance(value, Mapping):
        return {name: _cut(each, f"{path}.{name}".lstrip("."), items, left_out) for name, each in value.items()}
    if not isinstance(value, (list, str)):
        return value
    length, unit = (items, "items") if isinstance(value, list) else (_TEXT + _PER_ITEM * items, "characters")
    if len(value) > length:
        left_out.setdefault(path, f"all but {length} of {len(value)} {unit}")
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}…"
    return [_cut(each, path, items, left_out) for each in value[:length]]
