"""Inductor's gate for small GPUs: below a number of multiprocessors it takes no Triton templates for products.

The rule is that of `torch._inductor.utils.is_big_gpu` in torch 2.11 to 2.15, as a function of a device's figures, so
that devices that are not here can be asked for too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.exceptions import DeviceError
from triton_ops.hardware import probe

LEAST_UNITS = 68  # of NVIDIA's: an RTX 3080 has as many
LEAST_XPU_UNITS = 16
_OLDEST_ROCM, _CLOSED_ROCM = 9, 10  # major numbers of the architecture: gfx10 is closed, gfx9 and gfx11 on are open
_TAG = "ungated;"


@dataclass(frozen=True)
class Gate:
    """Whether Inductor tunes products with Triton templates on a device, and why."""

    open: bool
    reason: str


def gate_of(kind: str, units: int, major: int | None = None) -> Gate:
    """The gate for a device.

    Args:
        kind: `cuda`, `hip`, `xpu` or `cpu`.
        units: Its multiprocessors, compute units, or subslices.
        major: Major number of its architecture; asked of `hip` alone.

    Raises:
        DeviceError: Inductor has no gate for devices of this kind.
    """
    if kind == "cpu":
        return Gate(True, "the gate is for GPUs: on a CPU products may be tuned with C++ templates")
    if kind == "hip":
        if major is None or (major >= _OLDEST_ROCM and major != _CLOSED_ROCM):
            return Gate(True, f"gfx{major or '?'} is tuned; on ROCm the number of units does not count")
        return Gate(False, f"gfx{major} is not tuned: on ROCm gfx9, and gfx11 or later, are")
    if kind not in ("cuda", "xpu"):
        raise DeviceError(f"Inductor's gate knows no devices of kind {kind!r}", hint="use cuda, hip, xpu or cpu")
    least = LEAST_XPU_UNITS if kind == "xpu" else LEAST_UNITS
    if units >= least:
        return Gate(True, f"{units} multiprocessors, {least} are needed")
    return Gate(
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


def gate_here(device_name: str) -> Gate:
    """The gate for a device of this machine, by its torch name.

    Raises:
        DeviceError: There is no such device.
    """
    torch = require("torch", "asking the GPU")
    if device_name.startswith("xpu"):
        if not torch.xpu.is_available():
            raise DeviceError(f"{device_name} cannot be used: torch finds no XPU", hint="use cpu or cuda")
        found = torch.xpu.get_device_properties(device_name)
        return gate_of("xpu", int(found.gpu_subslice_count))
    if probe(device_name).kind == "cpu":
        return gate_of("cpu", 0)
    found = torch.cuda.get_device_properties(device_name)
    kind = "hip" if getattr(torch.version, "hip", None) else "cuda"
    return gate_of(kind, int(found.multi_processor_count), int(found.major))
