"""SGLang's tables of the fused mixture of experts.

Facts used, of SGLang 0.5: `configs/triton_X_Y_Z/E=…,N=…,device_name=…[,dtype=…][,block_shape=[n, k]]
[,per_channel_quant=True][_down].json` below `SGLANG_MOE_CONFIG_DIR`, with a space in the block shape; the table of
another version of Triton, the newest first, is taken where the own one has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.exchange.by_batch import ByBatch, block_shape
from triton_ops.exchange.table import needed


def _name(facts: Mapping[str, Any]) -> str:
    experts, width, device = needed(facts, "E", "N", "device_name")
    dtype = f",dtype={facts['dtype']}" if facts.get("dtype") else ""
    block = block_shape(facts)
    shape = f",block_shape={block}" if block else ""
    quant = ",per_channel_quant=True" if _true(facts.get("per_channel_quant")) else ""
    down = "_down" if _true(facts.get("down")) else ""
    return f"E={experts},N={width},device_name={str(device).replace(' ', '_')}{dtype}{shape}{quant}{down}.json"


def _place(facts: Mapping[str, Any]) -> str:
    (version,) = needed(facts, "triton_version")
    return f"configs/triton_{str(version).replace('.', '_')}/{_name(facts)}"


def _other_versions(folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
    versions = (path for path in (folder / "configs").glob("triton_*") if _version(path) is not None)
    return [path / _name(facts) for path in sorted(versions, key=lambda path: _version(path) or [], reverse=True)]


def _version(path: Path) -> list[int] | None:
    parts = path.name.split("_")[1:]
    return [int(part) for part in parts] if parts and all(part.isdecimal() for part in parts) else None


def _true(value: Any) -> bool:
    return value in (True, 1, "1", "true", "True")


SGLANG_MOE = ByBatch(_place, ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"), _other_versions)
