"""Formats of other engines' tables, by name.

Facts used: the file is a JSON object whose keys are whole numbers as text; `triton_version` may stand beside them and
is not used; the config of the batch size that is nearest by difference is taken, however far away it is. vLLM looks in
the folder of `VLLM_TUNED_CONFIG_FOLDER` first.

Facts used, of vLLM 0.10 to the main branch of September 2026. Experts: `E=…,N=…,device_name=…[,dtype=…]
[,block_shape=[n,k]].json`, spaces in the device's name as underlines and none in the block shape; a device with the
word H200 is `NVIDIA_H200`. Mamba: `headdim=…,dstate=…,device_name=…,cache_dtype=….json`, where blanks, slashes and
hyphens of the device's name are underlines and bfloat16 is float16; the batch size is that of sequences times heads.

Facts used, of SGLang 0.5: `configs/triton_X_Y_Z/E=…,N=…,device_name=…[,dtype=…][,block_shape=[n, k]]
[,per_channel_quant=True][_down].json` below `SGLANG_MOE_CONFIG_DIR`, with a space in the block shape; the table of
another version of Triton, the newest first, is taken where the own one has none.

Facts used, of the schema T4 1.0.0: `results`, each with `configuration`, `times`, `invalidity` (`correct`, or how it
failed), `correctness` and `measurements`, of which `time` is in milliseconds; `compilation_time` is in seconds.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.ship.table import (
    Format,
    Table,
    TableRow,
    check_values,
    config_in,
    flat,
    milliseconds_in,
    needed,
    nested,
    read_object,
    triton_key,
    write_object,
)
from triton_ops.values import Status

_FACT = re.compile(r"(\w+)=(\[[^\]]*\]|[^,]*)")
_SIZE = re.compile(r"[0-9]{1,18}")
_VERSION = "triton_version"


@dataclass(frozen=True)
class ByBatch(Format):
    """Tables by batch size; the `fallbacks` are further files, in the order in which the engine looks at them."""

    facts: tuple[str, ...]
    place: Callable[[Mapping[str, Any]], str]  # the path of the file below the engine's folder
    tunables: tuple[str, ...]  # that a config must have
    fallbacks: Callable[[Path, Mapping[str, Any]], Sequence[Path]] = lambda _folder, _facts: ()
    row: tuple[str, ...] = ("M",)

    def write(self, table: Table, folder: Path) -> Path:
        """Write the fastest config of each batch size; see `Format`."""
        check_values(table, *self.tunables)
        if any(len(row.at) != 1 or not isinstance(row.at[0], int) for row in table.rows):
            raise SettingsError("a table by batch size has one whole number for each row", hint="name it: --row M")
        rows = sorted(table.best(), key=lambda row: int(row.at[0]))
        return write_object(folder, self.place(table.facts), {str(int(row.at[0])): dict(row.config) for row in rows})

    def read(self, path: Path) -> Table:
        """The table, with the facts in the file's name; see `Format`."""
        content = read_object(path)
        sizes = [name for name in content if _SIZE.fullmatch(name)]
        rows = [TableRow((int(name),), config_in(content[name], path)) for name in sizes]
        if not rows or content.keys() - {*sizes, _VERSION}:
            raise CacheError(f"{path} is no table by batch size", hint="its names are whole numbers, such as 16")
        facts = facts_in(path.name)
        unknown = [name for name in facts if name not in self.facts]
        remarks = (f"{path.name} names {', '.join(unknown)}, which this format has not",) if unknown else ()
        return Table(facts, tuple(rows), remarks=remarks)

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The table itself, then those in its place; see `Format`."""
        return (folder / self.place(facts), *self.fallbacks(folder, facts))

    def choose(self, table: Table, _facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The row of the nearest batch size; see `Format`."""
        return min(table.rows, key=lambda row: abs(row.at[0] - int(at[0])))


def facts_in(name: str) -> dict[str, Any]:
    """The facts in a file's name, whole numbers as such."""
    facts = dict(_FACT.findall(name.removesuffix(".json").removesuffix("_down")))
    return {key: int(text) if _SIZE.fullmatch(text) else text for key, text in facts.items()}


def block_shape(facts: Mapping[str, Any]) -> list[int]:
    """The extents of a quantisation block; empty if there is none."""
    extents = facts.get("block_shape") or []
    if isinstance(extents, str):
        extents = [int(text) for text in re.findall(r"\d+", extents)]
    return [int(extent) for extent in extents] if all(extents) else []


def _vllm_experts(facts: Mapping[str, Any]) -> str:
    experts, width, device = needed(facts, "E", "N", "device_name")
    name = str(device).replace(" ", "_")
    name = "NVIDIA_H200" if "H200" in name.split("_") else name
    dtype = f",dtype={facts['dtype']}" if facts.get("dtype") else ""
    block = block_shape(facts)
    shape = f",block_shape=[{','.join(map(str, block))}]" if block else ""
    return f"E={experts},N={width},device_name={name}{dtype}{shape}.json"


def _vllm_mamba(facts: Mapping[str, Any]) -> str:
    head, state, device, dtype = needed(facts, "headdim", "dstate", "device_name", "cache_dtype")
    name = re.sub(r"[\s/-]+", "_", str(device))
    cache_dtype = "float16" if dtype == "bfloat16" else dtype
    return f"headdim={head},dstate={state},device_name={name},cache_dtype={cache_dtype}.json"


VLLM_MOE = ByBatch(
    ("E", "N", "device_name", "dtype", "block_shape"),
    _vllm_experts,
    ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"),
)
VLLM_MAMBA = ByBatch(("headdim", "dstate", "device_name", "cache_dtype"), _vllm_mamba, ("BLOCK_SIZE_M", "num_warps"))


def _sglang_name(facts: Mapping[str, Any]) -> str:
    experts, width, device = needed(facts, "E", "N", "device_name")
    dtype = f",dtype={facts['dtype']}" if facts.get("dtype") else ""
    block = block_shape(facts)
    shape = f",block_shape={block}" if block else ""
    quant = ",per_channel_quant=True" if _true(facts.get("per_channel_quant")) else ""
    down = "_down" if _true(facts.get("down")) else ""
    return f"E={experts},N={width},device_name={str(device).replace(' ', '_')}{dtype}{shape}{quant}{down}.json"


def _sglang_place(facts: Mapping[str, Any]) -> str:
    (version,) = needed(facts, "triton_version")
    return f"configs/triton_{str(version).replace('.', '_')}/{_sglang_name(facts)}"


def _other_versions(folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
    versions = (path for path in (folder / "configs").glob("triton_*") if _version(path) is not None)
    return [
        path / _sglang_name(facts) for path in sorted(versions, key=lambda path: _version(path) or [], reverse=True)
    ]


def _version(path: Path) -> list[int] | None:
    parts = path.name.split("_")[1:]
    return [int(part) for part in parts] if parts and all(part.isdecimal() for part in parts) else None


def _true(value: Any) -> bool:
    return value in (True, 1, "1", "true", "True")


SGLANG_MOE = ByBatch(
    ("E", "N", "device_name", "dtype", "block_shape", "per_channel_quant", "down", "triton_version"),
    _sglang_place,
    ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"),
    _other_versions,
)


_NAME = "results.json"
_TIME = "time"


class T4Results(Format):
    """Files of results in the format T4."""

    facts, row = ("file",), ()

    def write(self, table: Table, folder: Path) -> Path:
        """Write every config, failed ones included; see `Format`."""
        content = {"schema_version": "1.0.0", "results": [_t4_result(row) for row in table.rows]}
        return write_object(folder, str(table.facts.get("file", _NAME)), content)

    def read(self, path: Path) -> Table:
        """Every config of the file; see `Format`."""
        results = read_object(path).get("results")
        if not isinstance(results, list):
            raise CacheError(f"{path} has no results in the format T4", hint="its results stand under `results`")
        return Table({"file": path.name}, tuple(_t4_row(result, path) for result in results), tried=True)

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file; see `Format`."""
        return (folder / str(facts.get("file", _NAME)),)

    def choose(self, table: Table, _facts: Mapping[str, Any], _at: Sequence[Any]) -> TableRow | None:
        """The fastest config of the file; see `Format`."""
        return next(iter(table.best()), None)


def _t4_result(row: TableRow) -> dict[str, Any]:
    correct = not row.failure
    times = [] if row.median_ms is None else [row.median_ms]
    return {
        "configuration": dict(row.config),
        "objectives": [_TIME],
        "times": {"compilation_time": 0.0, "runtimes": times},
        "invalidity": _t4_word(row.failure),
        "correctness": int(correct),
        "measurements": [{"name": _TIME, "value": each, "unit": "ms"} for each in times],
    }


def _t4_word(failure: str) -> str:
    """The word for a row's status, which another engine may have named."""
    return next((status.facts.t4 for status in Status if status.value == (failure or "ok")), "runtime")


def _t4_row(result: Any, path: Path) -> TableRow:
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise CacheError(f"{path} has a result without a configuration", hint="name a file in the format T4")
    word = str(result.get("invalidity", "correct"))
    measurements = result.get("measurements")
    values = [
        each.get("value") for each in (measurements if isinstance(measurements, list) else [])
        if isinstance(each, dict) and each.get("name") == _TIME and each.get("unit", "ms") in ("ms", "milliseconds")
    ]  # fmt: skip
    median = next((milliseconds_in(value, path) for value in values if isinstance(value, (int, float))), None)
    failure = "" if word == "correct" else Status.of_t4(word)
    return TableRow((), config_in(result["configuration"], path), median_ms=median, failure=failure)


class FlaTables(Format):
    """The tables of flash-linear-attention."""

    facts, row = ("kernel_name", "device_name", "triton_version"), ()

    def write(self, table: Table, folder: Path) -> Path:
        """Write the fastest config of each key; see `Format`."""
        kernel, device = needed(table.facts, "kernel_name", "device_name")
        entries = {
            _fla_digest(row.at): {"autotune_key": list(triton_key(row.at)), "config": nested(row.config)}
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
        return write_object(folder, f"{_fla_device(str(device))}/{kernel}.json", content)

    def read(self, path: Path) -> Table:
        """The table; the default config has an empty `at`; see `Format`."""
        content = read_object(path)
        facts = {"kernel_name": content.get("kernel_name", path.stem), "device_name": path.parent.name}
        if "kwargs" in content:  # earlier versions
            return Table(facts, (TableRow((), config_in(flat(content), path)),))
        rows = [_fla_row(entry, path) for entry in _fla_entries(content, path).values()]
        if content.get("default_config"):
            rows.append(TableRow((), config_in(flat(content["default_config"]), path)))
        return Table({**facts, "triton_version": content.get("triton_version")}, tuple(rows))

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file of the kernel; see `Format`."""
        kernel, device = needed(facts, "kernel_name", "device_name")
        return (folder / _fla_device(str(device)) / f"{kernel}.json",)

    def choose(self, table: Table, _facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The entry with the MD5 of the key, else the default config; see `Format`."""
        rows = {_fla_digest(row.at): row for row in reversed(table.rows)}
        return rows.get(_fla_digest(at)) or rows.get(_fla_digest(()))


def _fla_entries(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    entries = content.get("autotune_entries")
    if not isinstance(entries, dict):
        raise CacheError(f"{path} has no autotune_entries", hint="name a file of flash-linear-attention")
    return entries


def _fla_row(entry: Any, path: Path) -> TableRow:
    if not isinstance(entry, dict) or not isinstance(entry.get("autotune_key"), list):
        raise CacheError(f"{path} has an entry without autotune_key", hint="name a file of flash-linear-attention")
    return TableRow(tuple(entry["autotune_key"]), config_in(flat(entry.get("config")), path))


def _fla_digest(key: Sequence[Any]) -> str:
    text = json.dumps(list(triton_key(key)), sort_keys=True, separators=(",", ":"))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _fla_device(name: str) -> str:
    return re.sub(r"[ ()-]", "_", name)


_ENDING = ".autotune.json"
_LONGEST = 150  # characters of the kernel's name


class TritonCache(Format):
    """The files of Triton's cache of autotuning."""

    facts, row = ("kernel_name", "folder"), ()

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
        return Table(facts, tuple(_triton_row(tuple(key), pair, path) for pair in timings), tried=True)

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file of the kernel and key; see `Format`."""
        kernel, hashed = needed(facts, "kernel_name", "folder")
        return (folder / str(hashed) / f"{str(kernel)[:_LONGEST]}{_ENDING}",)

    def choose(self, table: Table, _facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The config with the least times in the file of the key; see `Format`."""
        return next((row for row in table.best() if row.at == triton_key(at)), None)


def _triton_row(at: tuple[Any, ...], pair: Any, path: Path) -> TableRow:
    if not isinstance(pair, list) or len(pair) != 2:
        raise CacheError(f"{path} has a config without times", hint="name a file that Triton has written")
    config, times = pair
    median = times[0] if isinstance(times, list) and times else times
    return TableRow(at, config_in(flat(config), path), median_ms=milliseconds_in(median, path))


FORMATS: dict[str, Format] = {
    "vllm-moe": VLLM_MOE,
    "vllm-mamba": VLLM_MAMBA,
    "sglang-moe": SGLANG_MOE,
    "fla": FlaTables(),
    "triton-cache": TritonCache(),
    "t4": T4Results(),
}


def format_named(name: str) -> Format:
    """The format of this name; SettingsError if there is none."""
    if name not in FORMATS:
        raise SettingsError(f"there is no format {name!r}; there are {', '.join(FORMATS)}", hint="use one of these")
    return FORMATS[name]
