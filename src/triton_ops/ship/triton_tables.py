"""Tables by Triton's keys: its own cache of autotuning, flash-linear-attention's files.

Facts used, of Triton 3.6 to 3.9 with `cache_results` or `TRITON_CACHE_AUTOTUNING=1`: the file stands in a folder of
Triton's disk cache that is named by a hash of the compiler, the target, the kernel's source, the environment, the key
and all configs; it holds `key` and `configs_timings`, pairs of a config's fields and of its times; the least pair of
times wins. The name of the folder needs the kernel itself, and is given as `folder`: that of a file which Triton has
written.

Facts used, of flash-linear-attention 0.4 and 0.5: `GPU/kernel.json` below `FLA_CONFIG_DIR`; blanks, parentheses and
hyphens of the device's name are underlines; an entry is found by the MD5 of its key as compact JSON with sorted names;
a key holds the values of the decorator's key and then the tensors' dtypes, such as `torch.bfloat16`; a config has
`kwargs`, `num_warps`, `num_stages` and more; `default_config` serves keys without an entry. Files of earlier versions
are one config.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError
from triton_ops.ship.table import (
    Table,
    TableRow,
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


class FlaTables:
    """The tables of flash-linear-attention."""

    def write(self, table: Table, folder: Path) -> Path:
        """Write the fastest config of each key; see `Format`."""
        kernel, device = needed(table.facts, "kernel_name", "device_name")
        entries = {
            _digest(row.at): {"autotune_key": list(triton_key(row.at)), "config": nested(row.config)}
            for row in table.best()
            if row.at
        }
        default = next((nested(row.config) for row in table.best() if not row.at), None)
        content = {
            "kernel_name": kernel,
            "triton_version": table.facts.get("triton_version"),
            "autotune_entries": entries,
            "default_config": default,
        }
        return write_object(folder, f"{_device(str(device))}/{kernel}.json", content)

    def read(self, path: Path) -> Table:
        """The table; the default config has an empty `at`; see `Format`."""
        content = read_object(path)
        facts = {"kernel_name": content.get("kernel_name", path.stem), "device_name": path.parent.name}
        if "kwargs" in content:  # earlier versions
            return Table(facts, (TableRow((), config_in(flat(content), path)),))
        rows = [_fla_row(entry, path) for entry in _entries(content, path).values()]
        if content.get("default_config"):
            rows.append(TableRow((), config_in(flat(content["default_config"]), path)))
        return Table({**facts, "triton_version": content.get("triton_version")}, tuple(rows))

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> Config | None:
        """The entry with the MD5 of the key, else the default config; see `Format`."""
        kernel, device = needed(facts, "kernel_name", "device_name")
        path = folder / _device(str(device)) / f"{kernel}.json"
        if not path.is_file():
            return None
        content = read_object(path)
        entry = _entries(content, path).get(_digest(at))
        config = _fla_row(entry, path).config if entry else content.get("default_config")
        return None if config is None else config_in(flat(config), path)


def _entries(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    entries = content.get("autotune_entries")
    if not isinstance(entries, dict):
        raise CacheError(f"{path} has no autotune_entries", hint="name a file of flash-linear-attention")
    return entries


def _fla_row(entry: Any, path: Path) -> TableRow:
    if not isinstance(entry, dict) or not isinstance(entry.get("autotune_key"), list):
        raise CacheError(f"{path} has an entry without autotune_key", hint="name a file of flash-linear-attention")
    return TableRow(tuple(entry["autotune_key"]), config_in(flat(entry.get("config")), path))


def _digest(key: Sequence[Any]) -> str:
    text = json.dumps(list(triton_key(key)), sort_keys=True, separators=(",", ":"))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _device(name: str) -> str:
    return re.sub(r"[ ()-]", "_", name)


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


def _row(at: tuple[Any, ...], pair: Any, path: Path) -> TableRow:
    if not isinstance(pair, list) or len(pair) != 2:
        raise CacheError(f"{path} has a config without times", hint="name a file that Triton has written")
    config, times = pair
    median = times[0] if isinstance(times, list) and times else times
    return TableRow(at, config_in(flat(config), path), median_ms=milliseconds_in(median, path))
