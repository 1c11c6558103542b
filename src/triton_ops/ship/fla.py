"""flash-linear-attention's tables: one file for each kernel and device, with a config for each of Triton's keys.

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
from triton_ops.ship.table import Row, Table, config_in, flat, needed, nested, read_object, triton_key, write_object
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
            return Table(facts, (Row((), config_in(flat(content), path)),))
        rows = [_row(entry, path) for entry in _entries(content, path).values()]
        if content.get("default_config"):
            rows.append(Row((), config_in(flat(content["default_config"]), path)))
        return Table({**facts, "triton_version": content.get("triton_version")}, tuple(rows))

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> Config | None:
        """The entry with the MD5 of the key, else the default config; see `Format`."""
        kernel, device = needed(facts, "kernel_name", "device_name")
        path = folder / _device(str(device)) / f"{kernel}.json"
        if not path.is_file():
            return None
        content = read_object(path)
        entry = _entries(content, path).get(_digest(at))
        config = _row(entry, path).config if entry else content.get("default_config")
        return None if config is None else config_in(flat(config), path)


def _entries(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    entries = content.get("autotune_entries")
    if not isinstance(entries, dict):
        raise CacheError(f"{path} has no autotune_entries", hint="name a file of flash-linear-attention")
    return entries


def _row(entry: Any, path: Path) -> Row:
    if not isinstance(entry, dict) or not isinstance(entry.get("autotune_key"), list):
        raise CacheError(f"{path} has an entry without autotune_key", hint="name a file of flash-linear-attention")
    return Row(tuple(entry["autotune_key"]), config_in(flat(entry.get("config")), path))


def _digest(key: Sequence[Any]) -> str:
    text = json.dumps(list(triton_key(key)), sort_keys=True, separators=(",", ":"))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _device(name: str) -> str:
    return re.sub(r"[ ()-]", "_", name)
