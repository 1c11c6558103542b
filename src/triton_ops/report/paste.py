"""The lines that bring a winner into somebody's source: a `triton.Config`, a decorator, a lockfile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.cache import Record, lock_of
from triton_ops.cache.lockfile import dumps
from triton_ops.exchange.triton_config import OPTIONS
from triton_ops.space import Config, source_of


def paste_lines(config: Config, record: Record | None) -> dict[str, str]:
    """Texts to paste, by where they go; the lockfile only where the run left a record that a lockfile takes."""
    call = _config_call(config.plain)
    found = {
        "triton.Config": call,
        "decorator": f"@triton_ops.autotune(configs=[{call}])",
        "plain values": _source(dict(config.plain)),
    }
    if record is not None:
        lock, left = lock_of([record])
        if not left:
            found["lockfile"] = dumps(lock)
    return found


def _config_call(config: Mapping[str, Any]) -> str:
    """The call that makes the `triton.Config`; options at their place after the tunables, and none that is null."""
    tunables = {name: value for name, value in config.items() if name not in OPTIONS}
    options = [f"{name}={config[name]!r}" for name in OPTIONS if config.get(name) is not None]
    return f"triton.Config({', '.join([_source(tunables), *options])})"


def _source(values: Mapping[str, Any]) -> str:
    """Values as Python's source, with members of an `Enum` and dtypes in place of the names that a config has."""
    return f"{{{', '.join(f'{name!r}: {source_of(value)}' for name, value in values.items())}}}"
