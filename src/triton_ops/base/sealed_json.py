"""JSON in a canonical form, whose digest is a fingerprint or a file's own checksum.

A file that was damaged, cut, mixed up or edited does not have the checksum of its content, and is not believed. The
checksum protects from accidents: whoever means to deceive can compute it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False
)  # made once, since `json.dumps` would make an encoder at each call


def canonical_json(value: Any) -> str:
    """`value` as JSON text that depends on its content only: sorted keys, no spaces, no NaN; tuples as lists."""
    return _ENCODER.encode(value)


def fingerprint(value: Any, length: int = 32) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


CHECKSUM = "checksum"
_MOST_CONTAINERS = 2_000_000  # lists and objects in one text, which take about 200 MB; a record has ten


class DamagedError(ValueError):
    """A text is no JSON object, or not the one that was written."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its checksum: its `fingerprint`, whose errors are those of `canonical_json`."""
    return {**content, CHECKSUM: fingerprint(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content without its checksum; DamagedError if there is none, or it is that of another content."""
    rest = {name: value for name, value in content.items() if name != CHECKSUM}
    try:
        actual = fingerprint(rest)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"it has no canonical form: {error}") from error
    if CHECKSUM not in content:
        raise DamagedError("it has no checksum")
    if content[CHECKSUM] != actual:
        raise DamagedError("its checksum is not that of its content: it was damaged, or edited by hand")
    return rest


def parsed(text: bytes | str) -> dict[str, Any]:
    """The JSON object in a text that is valid Unicode, and has finite numbers only; DamagedError for all else."""
    import msgspec

    encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    bounded(encoded)
    try:
        content = msgspec.json.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedError(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DamagedError(f"it holds a {type(content).__name__} instead of a JSON object")
    return content


def bounded(text: bytes) -> None:
    """Refuse, as damaged, a JSON text of over two million lists and objects, which would take hundreds of MB."""
    if text.count(b"[") + text.count(b"{") > _MOST_CONTAINERS:
        raise DamagedError(f"it has more than {_MOST_CONTAINERS} lists and objects")


def storable(value: Any) -> Any:
    """The value with what JSON cannot hold replaced: a lone surrogate by `?`, a number that is not finite by null."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable(name): storable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    return value
