"""The formats by name: a new one is a file beside this one, and a line here."""

from __future__ import annotations

from triton_ops.exceptions import SettingsError
from triton_ops.ship.by_batch import SGLANG_MOE, VLLM_MAMBA, VLLM_MOE
from triton_ops.ship.kernel_tuner import T4Results
from triton_ops.ship.table import Format
from triton_ops.ship.triton_tables import FlaTables, TritonCache

FORMATS: dict[str, Format] = {
    "vllm-moe": VLLM_MOE,
    "vllm-mamba": VLLM_MAMBA,
    "sglang-moe": SGLANG_MOE,
    "fla": FlaTables(),
    "triton-cache": TritonCache(),
    "t4": T4Results(),
}


def format_named(name: str) -> Format:
    """The format of this name.

    Raises:
        SettingsError: There is none.
    """
    if name not in FORMATS:
        raise SettingsError(f"there is no format {name!r}; there are {', '.join(FORMATS)}", hint="use one of these")
    return FORMATS[name]
