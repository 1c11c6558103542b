"""Canonical JSON and its fingerprint, with which this package names a value by its content."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False
)  # made once, since `json.dumps` would make an encoder at each call


def canonical_json(value: Any) -> str:
    """`value` as JSON text that depends on its content only: sorted keys, no spaces, no NaN.

    Tuples and lists give the same text.

    Raises:
        TypeError: A part of `value` has no JSON form.
        ValueError: A float is NaN or infinite.
    """
    return _ENCODER.encode(value)


def fingerprint(value: Any, length: int = 32) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
