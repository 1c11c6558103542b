"""Triton's own cache of autotuning: `KERNEL.autotune.json`, one file for each key, with the times of all configs.

Facts used, of Triton 3.6 to 3.9 with `cache_results` or `TRITON_CACHE_AUTOTUNING=1`: the file stands in a folder of
Triton's disk cache that is named by a hash of the compiler, the target, the kernel's source, the environment, the key
and all configs; it holds `key` and `configs_timings`, pairs of a config's fields and of its times; the least pair of
times wins. The name of the folder needs the kernel itself, and is given as `folder`: that of a file which Triton has
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError
from triton_ops.ship.table import (
    Row,
    Table,
    config_in,
    flat,
    milliseconds_in,
    needed,
    nested,
    read_object,
    triton_key,
    write_object,
)
from triton_ops.space import Config

_ENDING = ".autotune.json"
_LONGEST = 150  # characters of the kernel's name


class TritonCache:
    """The files of Triton's cache of autotuning."""

    def write(self, table: Table, folder: Path) -> Path:
        """Write the configs of one key; one without a time counts as the fastest; see `Format`."""
        kernel, hashed = needed(table.facts, "kernel_name", "folder")
        if len({row.at for row in table.rows}) > 1:
            raise CacheError("a file of Triton's cache is of one key", hint="export one problem at a time")
        at = table.rows[0].at if table.rows else ()
        timings = [[nested(row.config), [row.median_ms or 0.0] * 3] for row in table.rows if not row.failure]
        content = {"key": list(triton_key(at)), "configs_timings": timings}
        return write_object(folder, f"{hashed}/{str(kernel)[:_LONGEST]}{_ENDING}", content)

    def read(self, path: Path) -> Table:
        """The configs of one key with their times; see `Format`."""
        content = read_object(path)
        timings, key = content.get("configs_timings"), content.get("key")
        if not path.name.endswith(_ENDING) or not isinstance(timings, list) or not isinstance(key, list):
            raise CacheError(f"{path} is no file of Triton's cache of autotuning", hint=f"its name ends in {_ENDING}")
        facts = {"kernel_name": path.name.removesuffix(_ENDING), "folder": path.parent.name}
        return Table(facts, tuple(_row(tuple(key), pair, path) for pair in timings))

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> Config | None:
        """The config with the least times in the file of the key; see `Format`."""
        kernel, hashed = needed(facts, "kernel_name", "folder")
        path = folder / str(hashed) / f"{str(kernel)[:_LONGEST]}{_ENDING}"
        best = self.read(path).best() if path.is_file() else ()
        return best[0].config if best and best[0].at == triton_key(at) else None


def _row(at: tuple[Any, ...], pair: Any, path: Path) -> Row:
    if not isinstance(pair, list) or len(pair) != 2:
        raise CacheError(f"{path} has a config without times", hint="name a file that Triton has written")
    config, times = pair
    median = times[0] if isinstance(times, list) and times else times
    return Row(at, config_in(flat(config), path), median_ms=milliseconds_in(median, path))
