"""Where in the source the operations of a text of TTIR come from.

Facts used, of the text that Triton 3.6 to 3.9 write with debug information: a place is `#loc3 = loc("file.py":12:5)`;
one with a name is `loc("x"(#loc3))`; one inside of a function that was called is `loc(callsite(#loc3 at #loc7))`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PLACE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)$')
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"\((#loc\d*)\)$')
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)$")
_DEEPEST = 64


@dataclass(frozen=True)
class Place:
    """A place in the source.

    Attributes:
        file: Path of the file.
        line: Its line, counted from 1.
    """

    file: str
    line: int


def places(text: str) -> dict[str, str]:
    """What each name of a place in a text of TTIR stands for, as the text says it."""
    found = (_PLACE.match(line) for line in text.splitlines() if line.startswith("#loc"))
    return {one[1]: one[2] for one in found if one is not None}


def frames(name: str, known: Mapping[str, str]) -> tuple[Place, ...]:
    """The places that a name stands for: the innermost function first, its callers after it.

    Empty where the text does not say.
    """
    found: list[Place] = []
    _follow(name, known, found, _DEEPEST)
    return tuple(found)


def _follow(name: str, known: Mapping[str, str], found: list[Place], left: int) -> None:
    said = known.get(name, "")
    if left == 0:
        return
    if (file := _FILE.match(said)) is not None:
        found.append(Place(file[1], int(file[2])))
    elif (named := _NAMED.match(said)) is not None:
        _follow(named[1], known, found, left - 1)
    elif (call := _CALL.match(said)) is not None:
        _follow(call[1], known, found, left - 1)
        _follow(call[2], known, found, left - 1)
