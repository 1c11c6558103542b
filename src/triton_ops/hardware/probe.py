"""The spec of a device of this machine, read through the vendor's driver, torch or the operating system.

No setting of the device is changed. Torch is imported only if a GPU is asked for and no vendor's driver can answer in
torch's place.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops._cpus import affinity_cpus
from triton_ops._files import read_file
from triton_ops._optional import available, require
from triton_ops.exceptions import DeviceError, MissingDependencyError
from triton_ops.hardware.spec import DeviceSpec
from triton_ops.hardware.table import datasheet_of
from triton_ops.hardware.vendors import gpus_of, gpus_without_torch

_CPU_VERSION = re.compile(rb"^__version__ = '([^'\n]+\+cpu)'$", re.MULTILINE)  # in torch/version.py
_VERSION_BYTES = 1 << 16


@lru_cache(maxsize=1)
def gpu_missing() -> str | None:
    """Why no GPU can be used here; None if the driver or torch finds one.

    Cost: imports torch if it is installed, unless a vendor's driver finds a GPU that torch can use, or torch's version
    says that it is a build for CPUs alone.
    """
    if not available("torch"):
        return "torch is not installed"
    try:
        if _by_driver():
            return None
        version = _version_for_cpus()
        return _cpu_build(version) if version else _missing_for_torch(require("torch", "finding the GPU"))
    except MissingDependencyError as error:
        return error.message
    except AttributeError as error:  # what is installed as torch is not whole, or is something else
        return f"torch cannot be used: {error}"


def _missing_for_torch(torch: Any) -> str | None:
    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None and torch.version.hip is None:
        return _cpu_build(torch.__version__)
    return "torch finds no GPU (is the driver loaded, and is CUDA_VISIBLE_DEVICES right?)"


def _cpu_build(version: str) -> str:
    return f"torch {version} is a CPU build"


def _version_for_cpus() -> str | None:
    """The version of the torch that would be imported, if its file says that it is a build for CPUs alone."""
    spec = None if "torch" in sys.modules else find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        found = _CPU_VERSION.search(read_file(Path(spec.origin).with_name("version.py"), _VERSION_BYTES))
    except OSError:  # another torch, which has no such file
        return None
    return found.group(1).decode() if found else None


def device_named(given: Any) -> str | None:
    """The torch name of a device that a caller gave as a text or a `torch.device`; None stays None.

    Raises:
        DeviceError: `given` is neither.
    """
    if given is None or isinstance(given, str):
        return given
    if (type(given).__module__, type(given).__name__) == ("torch", "device"):
        return str(given)
    raise DeviceError(f"device {given!r} is not known", "cpu, cuda or cuda:N", given, hint="use 'cpu' or 'cuda'")


def probe(device: str | None = None) -> DeviceSpec:
    """The spec of `device`: `cpu`, `cuda`, `cuda:N`, or None for the current GPU, else the CPU.

    Raises:
        DeviceError: There is no GPU, or none with this index, or `device` is another word.
    """
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise DeviceError(f"device {device!r} is not known", "cpu, cuda or cuda:N", device, hint="use cpu or cuda")
    if device == "cpu" or (device is None and gpu_missing()):
        return _cpu()
    if missing := gpu_missing():
        raise DeviceError(f"device {device} cannot be used: {missing}", device, "cpu", hint="use the device cpu")
    unasked = _by_driver()
    torch = None if unasked else require("torch", "finding the GPU")
    _, colon, number = (device or "").partition(":")
    index = int(number) if colon else 0 if torch is None else torch.cuda.current_device()
    count = len(unasked) if torch is None else torch.cuda.device_count()
    if index >= count:
        raise DeviceError(
            f"there is no GPU {index}; this process sees {count}",
            f"cuda:{index}",
            hint="use a smaller index, or check CUDA_VISIBLE_DEVICES",
        )
    return _with_peaks((unasked if torch is None else _by_torch(torch))[index])


def gpus_here() -> tuple[DeviceSpec, ...]:
    """The GPUs that this process sees, in the order of torch's indices.

    Raises:
        DeviceError: There is none.
    """
    if missing := gpu_missing():
        raise DeviceError(f"no GPU can be used: {missing}", hint="`triton-ops doctor` says what works here")
    return _by_driver() or _by_torch(require("torch", "finding the GPUs"))


def _by_driver() -> tuple[DeviceSpec, ...]:
    """The GPUs as the driver describes them; empty if only torch can tell, or torch already uses a GPU here.

    The driver is asked first because torch describes a device by making a context on it, which takes device memory and
    a fifth of a second.
    """
    if "torch" in sys.modules:
        torch = require("torch", "finding the GPU")  # waits for another thread that is still importing torch
        used = getattr(getattr(torch, "cuda", None), "is_initialized", None)
        if used is None or used():
            return ()
    return gpus_without_torch()


@lru_cache(maxsize=1)
def _by_torch(torch: Any) -> tuple[DeviceSpec, ...]:
    return gpus_of(torch)


@lru_cache(maxsize=16)
def _with_peaks(found: DeviceSpec) -> DeviceSpec:
    """The spec `found`, completed by the figures of the device's datasheet."""
    row = datasheet_of(found.name)
    if row is None:
        return found
    return replace(found, bandwidth_gbps=row.bandwidth_gbps, tflops=dict(row.tflops))


@lru_cache(maxsize=1)
def _cpu() -> DeviceSpec:
    return DeviceSpec(kind="cpu", name=_cpu_name(), arch=platform.machine(), units=affinity_cpus())


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
