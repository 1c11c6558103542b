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
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.ship.table import Format, Table, TableRow, check_values, config_in, needed, read_object, write_object
from triton_ops.ship.tuner_files import FlaTables, T4Results, TritonCache

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
