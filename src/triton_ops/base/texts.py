"""Texts and plain values as files, logs and terminals can hold them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def storable(value: Any, digits: int = 17) -> Any:
    """The value as JSON can hold it: a struct is an object, a lone surrogate `?`, a number not finite null.

    A value with a property `in_file` is written as that says. Numbers that are not whole have so many significant
    digits: 17 change none.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable(name): storable(item, digits) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item, digits) for item in value]
    if (own := getattr(value, "in_file", None)) is not None:
        return storable(own, digits)
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", ())
    return {name: storable(getattr(value, name), digits) for name in names} if names else value


# All control characters but the tab, separators of lines and paragraphs, and marks and changes of direction.
_CONTROLS = "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def gain_text(ratio: float | None, interval: tuple[float, float] | None = None, unproven: str = "") -> str:
    """A gain as text, such as `1.25x (1.22 to 1.28)`, with its 95 % interval where that is known.

    It is `unproven` where a text says why, and `-` where there is no gain.
    """
    if unproven or ratio is None:
        return "unproven" if unproven else "-"
    low, high = ("", "") if interval is None else (f"{interval[0]:.2f}", f"{interval[1]:.2f}")
    return f"{ratio:.2f}x" if low == high else f"{ratio:.2f}x ({low} to {high})"


def excerpt(value: Any) -> str:
    """The `repr` of a value, for an error; a very long one is cut."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def counted(count: int, noun: str) -> str:
    """A number of things, such as `1 kernel`, `2 entries` and `2,000 launches`."""
    if count == 1:
        return f"{count:,} {noun}"
    ending = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}{ending}"


def escaped(text: str) -> str:
    """`text` without what a terminal would obey: control characters and changes of direction, shown as escapes.

    Records, logs and messages come from candidates, other machines and people; one could retitle a window, or draw
    lines that were never said.
    """
    return re.sub(_CONTROLS, lambda match: ascii(match[0])[1:-1], text)


def warn(text: str, *values: object, exc_info: BaseException | None = None) -> None:
    """Warn in the log of this package."""
    import logging  # it takes 4 ms, and a launch from a record warns of nothing

    logging.getLogger("triton_ops").warning(text, *values, exc_info=exc_info, stacklevel=2)


def inform(text: str, *values: object) -> None:
    """Write to the log of this package what is no warning."""
    import logging

    logging.getLogger("triton_ops").info(text, *values, stacklevel=2)


@lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Warn in the log, of the same only once in a process."""
    warn("%s", message)
