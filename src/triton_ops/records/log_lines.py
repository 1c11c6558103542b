"""Lines of run logs and quarantines as typed values: a damaged line is ignored, and the others count."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from triton_ops.base import DamagedError, parsed, unsealed
from triton_ops.exceptions import SpaceError
from triton_ops.space import config_from_json

_log = logging.getLogger("triton_ops")
_MOST_BAD = 10_000  # damaged lines after which the rest of a file is not read: it is no file of this package


def converted(line: bytes, kind: Any) -> Any:
    """The value of a type, which may be a union, in a line that carries its checksum.

    Raises:
        DamagedError: The line is no JSON object, has not the checksum of its content, or a field is missing, has
            another type or is out of range.
    """
    try:
        return msgspec.convert(unsealed(parsed(line)), kind, dec_hook=config_from_json)
    except (msgspec.ValidationError, SpaceError, RecursionError) as error:
        raise DamagedError(str(error)) from error


def readable(path: Path, lines: Iterable[bytes], kind: Any, *, first: int = 1, loss: str) -> Iterator[Any]:
    """The values in the lines of a file that can be read; for all others together there is one warning.

    Args:
        path: The file, for the warning.
        lines: Its lines.
        kind: As for `converted`.
        first: The number of the first of the lines.
        loss: What the lines that are ignored cost, for the warning.
    """
    bad, reason = 0, ""
    for number, line in enumerate(lines, first):
        try:
            yield converted(line, kind)
        except DamagedError as error:  # noqa: PERF203 - a file has few lines that are bad
            bad, reason = bad + 1, reason or f"line {number}: {error}"
            if bad == _MOST_BAD:
                break
    if bad:
        count = "a line is" if bad == 1 else f"{bad} lines are" if bad < _MOST_BAD else f"{bad} lines and the rest are"
        _log.warning("%s: %s ignored, so that %s (%s)", path, count, loss, reason)
