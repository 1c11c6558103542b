"""Inductor's lists of backends: those for products, apart from them those for convolutions.

Facts used, of torch 2.11 to 2.15: an option such as `max_autotune_gemm_backends` holds names with commas between them,
in any case and with any spaces. Each backend asks whether its own name is in the list; a name that no backend has is
passed over without a word. A convolution of 1 × 1 filters may become a product, which follows the list for products.

The rule is that of `torch._inductor.utils.is_big_gpu` in torch 2.11 to 2.15, as a function of a device's figures, so
that devices that are not here can be asked for too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from triton_ops.base import require
from triton_ops.compile_modes.inductor.sources import torch_sources
from triton_ops.device import probe
from triton_ops.exceptions import DeviceError

LEAST_UNITS = 68  # of NVIDIA's: an RTX 3080 has as many
LEAST_XPU_UNITS = 16
_OLDEST_ROCM, _CLOSED_ROCM = 9, 10  # major numbers of the architecture: gfx10 is closed, gfx9 and gfx11 on are open
_TAG = "ungated;"


@dataclass(frozen=True)
class TemplateGate:
    """The gate before Triton templates for products on a device: open or closed, and why."""

    open: bool
    reason: str


def gate_of(kind: str, units: int, major: int | None = None) -> TemplateGate:
    """The gate for a device.

    Args:
        kind: `cuda`, `hip`, `xpu` or `cpu`.
        units: Its multiprocessors, compute units, or subslices.
        major: Major number of its architecture; asked of `hip` alone.

    Raises:
        DeviceError: Inductor has no gate for devices of this kind.
    """
    if kind == "cpu":
        return TemplateGate(True, "the gate is for GPUs: on a CPU products may be tuned with C++ templates")
    if kind == "hip":
        if major is None or (major >= _OLDEST_ROCM and major != _CLOSED_ROCM):
            return TemplateGate(True, f"gfx{major or '?'} is tuned; on ROCm the number of units does not count")
        return TemplateGate(False, f"gfx{major} is not tuned: on ROCm gfx9, and gfx11 or later, are")
    if kind not in ("cuda", "xpu"):
        raise DeviceError(f"Inductor's gate knows no devices of kind {kind!r}", hint="use cuda, hip, xpu or cpu")
    least = LEAST_XPU_UNITS if kind == "xpu" else LEAST_UNITS
    if units >= least:
        return TemplateGate(True, f"{units} multiprocessors, {least} are needed")
    return TemplateGate(
        False,
        f"{units} multiprocessors, {least} are needed: max-autotune takes no Triton templates for products here, and "
        "says so only in its log; TRITON kernels of your own and this package's matmul are not gated",
    )


def open_gate() -> None:
    """Have Inductor take every GPU of this process for a big one, from now on; there is no option for it.

    What is compiled with the gate open has entries of its own in the compiler's caches, which else would not know.
    """
    utils: Any = require("torch._inductor.utils", "opening Inductor's gate")
    settings: Any = require("torch.compiler.config", "opening Inductor's gate")
    utils.is_big_gpu = _always
    if _TAG not in settings.cache_key_tag:
        settings.cache_key_tag = f"{_TAG}{settings.cache_key_tag}"


def _always(_: Any = 0) -> bool:
    return True


def gate_here(device_name: str) -> TemplateGate:
    """The gate for a device of this machine, by its torch name.

    Raises:
        DeviceError: There is no such device.
    """
    torch = require("torch", "asking the GPU")
    if device_name.startswith("xpu"):
        if not torch.xpu.is_available():
            raise DeviceError(f"{device_name} cannot be used: torch finds no XPU", hint="use cpu or cuda")
        properties = torch.xpu.get_device_properties(device_name)
        return gate_of("xpu", int(properties.gpu_subslice_count))
    if probe(device_name).kind == "cpu":
        return gate_of("cpu", 0)
    properties = torch.cuda.get_device_properties(device_name)
    kind = "hip" if getattr(torch.version, "hip", None) else "cuda"
    return gate_of(kind, int(properties.multi_processor_count), int(properties.major))


LISTS: Mapping[str, str] = {"mm": "max_autotune_gemm_backends", "conv": "max_autotune_conv_backends"}
"""The option with the list, for products and for the forward pass of convolutions."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "mm": ("ATEN", "TRITON", "CPP", "CUTLASS", "NVGEMM", "CUTEDSL", "CK", "CKTILE"),
    "conv": ("ATEN", "TRITON", "CK"),
}
_OPTION = re.compile(r"max_autotune_(?P<kind>gemm|conv)\w*_backends")
_ASKED = re.compile(rb"_use(?P<conv>_conv\w*?)?_autotune_backend\(\s*\"(?P<name>\w+)\"")
_SOURCES = ("_inductor/utils.py", "_inductor/choices.py", "_inductor/kernel/*.py")


def names_in(listed: str) -> tuple[str, ...]:
    """The names of a list as torch reads it: in capitals, without spaces, each once."""
    words = (word.strip().upper() for word in listed.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def kind_of_list(option: str) -> str | None:
    """The kind of operation for which an option lists backends; None for any other option."""
    match = _OPTION.fullmatch(option)
    if match is None:
        return None
    return "mm" if match["kind"] == "gemm" else "conv"


def known_backends(kind: str) -> tuple[str, ...]:
    """The backends that this torch asks for, and those that this package knows.

    Cost: reads a few megabytes of torch's sources the first time.
    """
    return tuple(dict.fromkeys((*KNOWN[kind], *sorted(_names_in_torch()[kind]))))


def wrong_list(option: str, value: Any) -> str:
    """The fault of a list of backends; empty if nothing is, or if the option is no such list."""
    if (kind := kind_of_list(option)) is None:
        return ""
    if not isinstance(value, str):
        return f"{option} is {value!r}; it is a text with commas between names, such as 'ATEN,TRITON'"
    backends = known_backends(kind)
    if not names_in(value):
        return f"{option} is empty; there are {', '.join(backends)}"
    return "; ".join(_unknown(option, name, backends) for name in names_in(value) if name not in backends)


def wrong_lists(environment: Mapping[str, str], variables: Mapping[str, Collection[str]]) -> list[str]:
    """Faults of lists of backends in the environment, one text for each variable.

    Args:
        environment: Variables with their values.
        variables: The variables that set each option, by the option's name.
    """
    texts = [
        (variable, wrong_list(option, environment[variable]).replace(option, variable))
        for option, names in variables.items()
        for variable in names
        if variable in environment
    ]
    return [text for _, text in texts if text]


def _unknown(option: str, name: str, backends: Collection[str]) -> str:
    near = difflib.get_close_matches(name, backends, n=1, cutoff=0.5)
    advice = f"{near[0]} is probably meant" if near else f"there are {', '.join(backends)}"
    return f"{option} has {name!r}, which is no backend, and which torch passes over without a word; {advice}"


@lru_cache(maxsize=1)
def _names_in_torch() -> dict[str, set[str]]:
    names: dict[str, set[str]] = {"mm": set(), "conv": set()}
    for source in torch_sources(_SOURCES):
        for match in _ASKED.finditer(source):
            names["conv" if match["conv"] else "mm"].add(match["name"].decode())
    return names
