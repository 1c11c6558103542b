"""`triton-ops misses`: list the problems that no record answered while something was serving."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from triton_ops.base import check_home
from triton_ops.records.command_show import ID_SHOWN
from triton_ops.records.misses import Miss, clear_misses, read_misses
from triton_ops.terminal import CacheDir, Json, folder_of, headed_table, say, say_json, tell, width

_HEADER = ("id", "count", "expected ms", "kernel", "device", "last", "problem")
_NUMBERS = ("count", "expected ms")


def misses_command(
    clear: Annotated[bool, typer.Option("--clear", help="Empty the list.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """List the problems that nothing answered, those first that cost most; `tune --from-misses` tunes them."""
    folder = folder_of(cache_dir)
    check_home(folder)
    misses = clear_misses(folder) if clear and folder.is_dir() else read_misses(folder)
    if as_json:
        say_json([miss_json(miss) for miss in misses])
    elif not misses:
        tell(f"there are no misses in {folder}")
    else:
        say(*headed_table(_HEADER, [_row(miss) for miss in misses], width(), _NUMBERS))
    if clear:
        tell(f"{len(misses)} removed")


def miss_json(miss: Miss) -> dict[str, Any]:
    """A miss as JSON values."""
    return {
        "id": miss.key.id, "key": msgspec.to_builtins(miss.key), "count": miss.count,
        "expected_ms": miss.expected_ms, "first": miss.first, "last": miss.last,
        "call": None if miss.call is None else msgspec.to_builtins(miss.call),
    }  # fmt: skip


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
