"""Files that list problems, one in a line: what is to be tuned, in words or as a JSON object.

    # the shapes of one model
    matmul shape=4096x4096x4096 dtype=float16 weight=32
    softmax problem=logits
    {"target": "kernels.py:attend", "shape": [8, 1024, 64], "space": {"BLOCK": [64, 128]}}

Empty lines, and what follows a `#` at the start of a line or after a space, are left out.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops._files import read_named
from triton_ops.exceptions import SettingsError

_LARGEST_BYTES = 16 << 20
_FORM = "write TARGET shape=MxN dtype=NAME weight=N, or a JSON object with these"
_FIELDS = ("target", "shape", "dtype", "problem", "device", "space", "warm", "weight")
_TEXTS = ("target", "dtype", "problem", "device")
_JSON_ONLY = ("space",)
_COMMENT = re.compile(r"""(?P<kept>"(?:\\.|[^"\\])*"|'[^']*'|\\.)|\s\#.*""")  # quotes are kept


@dataclass(frozen=True, kw_only=True)
class Line:
    """One problem of a file.

    Attributes:
        where: The file and the number of the line, for errors.
        target: What is tuned, as on the command line.
        shape: Its extents; None if not given.
        dtype: Its dtype; None if not given.
        problem: The name of one of the operation's problems; None if not given.
        device: Where it is tuned; None if not given.
        space: What may be tried; None takes the operation's.
        warm: Whether it is timed with its data in L2.
        weight: How much it counts.
    """

    where: str
    target: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    problem: str | None = None
    device: str | None = None
    space: dict[str, list[Any]] | None = None
    warm: bool = False
    weight: float = 1.0


def read_problems(path: Path) -> list[Line]:
    """The problems in a file.

    Raises:
        SettingsError: The file cannot be read, has no problem, or has a line that is none; the message has its number.
    """
    try:
        text = read_named(path, _LARGEST_BYTES).decode("utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except ValueError as error:
        raise SettingsError(f"{path} is no text: {error}", hint=_FORM) from error
    found = list(problems_in(text.splitlines(), str(path)))
    if not found:
        raise SettingsError(f"{path} has no problem", hint=_FORM)
    return found


def problems_in(lines: Iterable[str], name: str) -> Iterator[Line]:
    """The problems in some lines of a file of that name.

    Raises:
        SettingsError: A line is no problem; the message begins with the file's name and the line's number.
    """
    for number, text in enumerate(lines, 1):
        where = f"{name}, line {number}"
        stripped = text.strip().removeprefix("\ufeff").strip()
        if stripped and not stripped.startswith("#"):
            given = _object(stripped, where) if stripped.startswith("{") else _words(stripped, where)
            yield _checked(given, where)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _each_once(pairs, where))
    except SettingsError:
        raise
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where}: this is no JSON object: {error}", hint=_FORM) from error
    if not isinstance(found, dict):
        raise SettingsError(f"{where}: this is no JSON object", hint=_FORM)
    return found


def _each_once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """The fields of a JSON object, of which JSON would keep the last one of each name."""
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsError(f"{where}: {twice} stands twice", hint=_FORM)
    return dict(pairs)


def _words(text: str, where: str) -> dict[str, Any]:
    """The fields in `TARGET name=value …`, with values as texts."""
    try:
        words = shlex.split(_COMMENT.sub(lambda found: found["kept"] or "", text))
    except ValueError as error:
        raise SettingsError(f"{where}: {error}", hint=_FORM) from error
    found: dict[str, Any] = {"target": words[0]} if words else {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if word == "warm":
            value, equals = "true", "="
        if not equals or name in _JSON_ONLY:
            hint = f"write the whole line as a JSON object for {name}" if name in _JSON_ONLY else _FORM
            raise SettingsError(f"{where}: {word!r} is not name=value", hint=hint)
        if name in found:
            raise SettingsError(f"{where}: {name} stands twice", hint=_FORM)
        found[name] = value
    return found


def _checked(given: Mapping[str, Any], where: str) -> Line:
    if unknown := [name for name in given if name not in _FIELDS]:
        raise SettingsError(
            f"{where}: there is no field {', '.join(map(str, unknown))}; there are {', '.join(_FIELDS)}", hint=_FORM
        )
    texts = {name: _text(given[name], name, where) for name in _TEXTS if name in given}
    if "target" not in texts:
        raise SettingsError(f"{where}: there is no target", hint=_FORM)
    if "problem" in texts and ({"shape", "dtype"} & given.keys()):
        raise SettingsError(f"{where}: a problem by its name has its shape and dtype", hint="leave one of them out")
    return Line(
        where=where,
        **texts,
        shape=_shape(given["shape"], where) if "shape" in given else None,
        space=_space(given["space"], where) if "space" in given else None,
        warm=_flag(given.get("warm", False), where),
        weight=_weight(given.get("weight", 1.0), where),
    )


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{where}: {name} is {value!r}; it must be a word", hint=_FORM)
    return value


def _shape(value: Any, where: str) -> tuple[int, ...]:
    parts = value.lower().split("x") if isinstance(value, str) else value
    try:
        extents = [int(part) for part in parts] if all(type(part) in (int, str) for part in parts) else []
    except (TypeError, ValueError):
        extents = []
    if not extents or min(extents) < 1:
        raise SettingsError(f"{where}: shape {value!r} is not made of whole numbers of 1 or more", hint=_FORM)
    return tuple(extents)


def _space(value: Any, where: str) -> dict[str, list[Any]]:
    if not isinstance(value, dict) or not value or not all(isinstance(values, list) for values in value.values()):
        raise SettingsError(f"{where}: space is {value!r}; it must be an object of lists", hint=_FORM)
    return value


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise SettingsError(f"{where}: warm is {value!r}; it must be true or false", hint=_FORM)


def _weight(value: Any, where: str) -> float:
    try:
        weight = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not 0 < weight < math.inf:
        raise SettingsError(f"{where}: weight is {value!r}; it must be a positive number", hint=_FORM)
    return weight
