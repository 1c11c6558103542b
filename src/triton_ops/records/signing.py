"""Signatures of JSON objects by Ed25519, with keys in PEM files as OpenSSL writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from triton_ops.base import NamedFile, Sealed, canonical_json, require
from triton_ops.exceptions import SettingsError
from triton_ops.settings import expanded, trusted_keys

_MEANT = "triton-ops, version 1\n"  # so that a signature of other texts by the same key says nothing here
_LARGEST_KEY_BYTES = 1 << 16
_MAKE = (
    "`openssl genpkey -algorithm ed25519 -out KEY.pem` makes one, and `openssl pkey -in KEY.pem -pubout` its public key"
)


def signed(content: Mapping[str, Any], key: str | os.PathLike[str] | None) -> Mapping[str, Any]:
    """A JSON object with the signature of a file's private key; as it is for None.

    SettingsError: the file has no such key. MissingDependencyError: `cryptography` is not installed.
    """
    if key is None:
        return content
    return {**content, Sealed.SIGNATURE: _key(key, "load_pem_private_key", password=None).sign(_text(content)).hex()}


def why_untrusted(content: Mapping[str, Any]) -> str:
    """The reason not to believe a JSON object; empty if a key of `TRITON_OPS_TRUSTED_KEYS` has signed it.

    SettingsError: a file that the variable names has no public key.
    """
    if not isinstance(signature := content.get(Sealed.SIGNATURE), str):
        return "it is not signed"
    if not (paths := trusted_keys()):
        return "TRITON_OPS_TRUSTED_KEYS names no key"
    invalid = require("cryptography.exceptions", "signatures").InvalidSignature
    for key in [_key(path, "load_pem_public_key") for path in paths]:
        with suppress(ValueError, invalid):
            key.verify(bytes.fromhex(signature), _text(content))
            return ""
    return "no key of TRITON_OPS_TRUSTED_KEYS has signed it as it is"


def _text(content: Mapping[str, Any]) -> bytes:
    rest = {name: value for name, value in content.items() if name not in (Sealed.SIGNATURE, Sealed.CHECKSUM)}
    return f"{_MEANT}{canonical_json(rest)}".encode()


def _key(path: str | os.PathLike[str], loader: str, **options: Any) -> Any:
    keys = require("cryptography.hazmat.primitives.serialization", "signatures")
    with SettingsError.when(f"{path} has no Ed25519 key for this", _MAKE, OSError, ValueError, TypeError):
        key = getattr(keys, loader)(NamedFile(expanded(path)).read(_LARGEST_KEY_BYTES), **options)
        if "Ed25519" not in type(key).__name__:
            raise ValueError(f"it is a key of another kind, {type(key).__name__}")
    return key
