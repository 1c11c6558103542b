"""What a config of another engine's table may be: its names, and the values of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops.space import LAUNCH_OPTIONS, Allowed, why_not_of_a_file

_BLOCK = re.compile(  # what people call a block of their kernels; others are flags and counts, such as `blocks_per_sm`
    r"(?i:(?:[a-z]|r\d_)?(?:block|tile)(?:_?(?:size|dim))?(?:_(?:[a-z0-9]{1,2}|dmodel))?)|B[A-Z]"
)
_SIZE = Allowed(1, 1 << 20)  # the most elements of a block in Triton
_TILE = Allowed(1, 1 << 20, powers=True)
_FLAG = Allowed(others=(False, True))
_NUMBER = Allowed(1, 1 << 31)  # of what a row is for
_OF_INTEL = ("default", "auto", "128", "256")  # files of registers
_AMD = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")


@dataclass(frozen=True)
class RowRule:
    """What a config needs, and what it may have beside that and the usual launch options; None for any names."""

    needed: Mapping[str, Allowed] | None = None
    others: Mapping[str, Allowed] | None = None

    def why_not(self, config: Mapping[str, Any], size: Any = 1) -> str:
        """The reason why a config for a size is none of the table, with the value and what is allowed; else empty."""
        if size not in _NUMBER:
            return f"its size is {size!r:.60}, and may be {_NUMBER}"
        if why := why_not_of_a_file(config):
            return why
        if self.needed is None:
            names = {name: _SIZE for name in config if _BLOCK.fullmatch(name)}
        else:
            names = {**_OPTIONS, **self.needed, **(self.others or {})}
            left = () if config.keys().isdisjoint(_AMD) else ("num_stages",)  # AMD's tables leave them to Triton
            if missing := [name for name in self.needed if name not in (*config, *left)]:
                return f"it has no {', '.join(missing)}"
            if strange := [name for name in config if name not in names]:
                return f"{strange[0]:.60} is no name of its table, which has {', '.join(names)}"
        wrong = (name for name in names if name in config and config[name] not in names[name])
        return next((f"{name} is {config[name]!r:.60}, and may be {names[name]}" for name in wrong), "")


_LAUNCH = {name: LAUNCH_OPTIONS[name] for name in ("num_warps", "num_stages")}
_OPTIONS = {name: LAUNCH_OPTIONS[name] for name in (*_LAUNCH, "num_ctas", "maxnreg", *_AMD)}
_TILES = {"BLOCK_SIZE_M": _TILE, "BLOCK_SIZE_N": _TILE, "BLOCK_SIZE_K": _TILE}
_GROUPED = {**_TILES, "GROUP_SIZE_M": _SIZE}
_FURTHER = {"SPLIT_K": _SIZE, "USE_TMA": _FLAG, "SWAP_AB": _FLAG, "grf_mode": Allowed(others=_OF_INTEL)}
_PRODUCTS = RowRule({**_GROUPED, **_LAUNCH}, _FURTHER)
ANY_ROW = RowRule()
ROWS: Mapping[str, RowRule] = {
    "vllm-moe": _PRODUCTS, "vllm-linear": _PRODUCTS, "sglang-linear": _PRODUCTS,
    "sglang-moe": RowRule(_GROUPED, _FURTHER),  # of whose rows some leave the options to Triton
    "vllm-mamba": RowRule(
        {"BLOCK_SIZE_M": _TILE, "num_warps": _LAUNCH["num_warps"]}, {**_TILES, "GROUP_SIZE_M": _SIZE}
    ),
    "sglang-channelwise": RowRule({**_TILES, **_LAUNCH}, {"GROUP_SIZE_M": _SIZE}),
    "sglang-lora": RowRule({"BLOCK_N": _TILE, "BLOCK_K": _TILE, **_LAUNCH}),
    "vllm-lora": RowRule(
        {"block_m": _TILE, "block_n": _TILE, "block_k": _TILE, **_LAUNCH, "num_ctas": LAUNCH_OPTIONS["num_ctas"]},
        {"split_k": _SIZE, "group_size_m": _SIZE},
    ),
}  # fmt: skip
"""The rules of the tables that have names of their own, by format."""
