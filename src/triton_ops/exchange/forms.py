"""The forms by name: a new one is a file beside this one, and a line here."""

from __future__ import annotations

from triton_ops.exceptions import SettingsError
from triton_ops.exchange.fla import FlaTables
from triton_ops.exchange.kernel_tuner import T4Results
from triton_ops.exchange.sglang import SGLANG_MOE
from triton_ops.exchange.table import Form
from triton_ops.exchange.triton_cache import TritonCache
from triton_ops.exchange.vllm import VLLM_MAMBA, VLLM_MOE

FORMS: dict[str, Form] = {
    "vllm-moe": VLLM_MOE,
    "vllm-mamba": VLLM_MAMBA,
    "sglang-moe": SGLANG_MOE,
    "fla": FlaTables(),
    "triton-cache": TritonCache(),
    "t4": T4Results(),
}


def form_named(name: str) -> Form:
    """The form of this name.

    Raises:
        SettingsError: There is none.
    """
    if name not in FORMS:
        raise SettingsError(f"there is no form {name!r}; there are {', '.join(FORMS)}", hint="use one of these")
    return FORMS[name]
