"""vLLM's tables: of the fused mixture of experts, and of Mamba's selective state update.

Facts used, of vLLM 0.10 to the main branch of September 2026. Experts: `E=…,N=…,device_name=…[,dtype=…]
[,block_shape=[n,k]].json`, spaces in the device's name as underlines and none in the block shape; a device with the
word H200 is `NVIDIA_H200`. Mamba: `headdim=…,dstate=…,device_name=…,cache_dtype=….json`, where blanks, slashes and
hyphens of the device's name are underlines and bfloat16 is float16; the batch size is that of sequences times heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from triton_ops.exchange.by_batch import ByBatch, block_shape
from triton_ops.exchange.table import needed


def _experts(facts: Mapping[str, Any]) -> str:
    experts, width, device = needed(facts, "E", "N", "device_name")
    name = str(device).replace(" ", "_")
    name = "NVIDIA_H200" if "H200" in name.split("_") else name
    dtype = f",dtype={facts['dtype']}" if facts.get("dtype") else ""
    block = block_shape(facts)
    shape = f",block_shape=[{','.join(map(str, block))}]" if block else ""
    return f"E={experts},N={width},device_name={name}{dtype}{shape}.json"


def _mamba(facts: Mapping[str, Any]) -> str:
    head, state, device, dtype = needed(facts, "headdim", "dstate", "device_name", "cache_dtype")
    name = re.sub(r"[\s/-]+", "_", str(device))
    stored = "float16" if dtype == "bfloat16" else dtype
    return f"headdim={head},dstate={state},device_name={name},cache_dtype={stored}.json"


VLLM_MOE = ByBatch(_experts, ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"))
VLLM_MAMBA = ByBatch(_mamba, ("BLOCK_SIZE_M", "num_warps"))
