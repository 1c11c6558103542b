"""`triton-ops misses`: list the problems that no record answered while something was serving."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from triton_ops.base import check_home
from triton_ops.cli.console import CacheDir, Json, Verbose, bold, say, say_json, table, tell, width
from triton_ops.cli.record_selection import ID_SHOWN, folder_of
from triton_ops.records import Miss, Misses

_HEADER = ("id", "count", "expected ms", "kernel", "device", "last", "problem")
_NUMBERS = ("count", "expected ms")


def misses_command(
    clear: Annotated[bool, typer.Option("--clear", help="Empty the list.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """List the problems that nothing answered, those first that cost most; `tune --from-misses` tunes them."""
    folder = folder_of(cache_dir)
    check_home(folder)
    found = Misses(folder).clear() if clear and folder.is_dir() else Misses(folder).read()
    if as_json:
        say_json([miss_json(miss) for miss in found])
    elif not found:
        tell(f"there are no misses in {folder}")
    else:
        header, *lines = table(_HEADER, [_row(miss) for miss in found], width(), _NUMBERS)
        say(bold(header), *lines)
    if clear:
        tell(f"{len(found)} removed")


def miss_json(miss: Miss) -> dict[str, Any]:
    """A miss as JSON values."""
    return {
        "id": miss.key.id,
        "key": msgspec.to_builtins(miss.key),
        "count": miss.count,
        "expected_ms": miss.expected_ms,
        "first": miss.first,
        "last": miss.last,
        "call": None if miss.call is None else msgspec.to_builtins(miss.call),
    }


def _row(miss: Miss) -> list[str]:
    return [
        miss.key.id[:ID_SHOWN],
        str(miss.count),
        "-" if miss.expected_ms is None else f"{miss.expected_ms:.4g}",
        miss.key.kernel,
        str(miss.key.device.get("name", "-")),
        miss.last.replace("+00:00", "Z"),
        miss.key.label or "-",
    ]
