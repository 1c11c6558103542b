"""What NVIDIA's driver says of a GPU, without torch, whose import takes seconds, and without a context on the device.

Facts used: numbers of `CUdevice_attribute` in cuda.h, which never change; a build of torch names the CUDA version that
it was made for in `torch/version.py`.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops.hardware.spec import DeviceSpec

_UNITS, _L2_BYTES, _MAJOR, _MINOR, _REGISTERS, _SHARED_OPTIN = 16, 38, 75, 76, 82, 97
_NAME_BYTES = 256
_CUDA_BUILD = re.compile(r"^cuda\b.*= *['\"](\d+)", re.MULTILINE)
_MAJOR_VERSION = 1000  # the driver tells CUDA 13.0 as 13000; it serves what was made for this major version or older


@lru_cache(maxsize=1)
def gpus_of_torch() -> tuple[DeviceSpec, ...]:
    """The GPUs that torch would find, by index; empty where that is not sure, and torch must be asked.

    It is sure for a build of torch for CUDA, and a driver that answers every question. What only a datasheet or NVML
    tells is left out.

    Cost: a fifth of a second on an H200, for the driver's initialisation, which torch then has for nothing.
    """
    wanted = _cuda_of_torch()
    if wanted is None:
        return ()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        _checked(driver.cuInit(0))
        version, count = ctypes.c_int(), ctypes.c_int()
        _checked(driver.cuDriverGetVersion(ctypes.byref(version)))
        _checked(driver.cuDeviceGetCount(ctypes.byref(count)))
        return tuple(_found(driver, index) for index in range(count.value if version.value >= wanted else 0))
    except OSError:
        return ()


def _cuda_of_torch() -> int | None:
    """The oldest driver that serves the installed torch; None if it is no build for CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        found = _CUDA_BUILD.search(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if found is None else int(found[1]) * _MAJOR_VERSION


def _found(driver: Any, index: int) -> DeviceSpec:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
    _checked(driver.cuDeviceGet(ctypes.byref(device), index))
    _checked(driver.cuDeviceGetName(name, _NAME_BYTES, device))
    _checked(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device))

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _checked(driver.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    return DeviceSpec(
        kind="cuda",
        name=name.value.decode(),
        arch=f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        units=attribute(_UNITS),
        memory_bytes=memory.value,
        l2_bytes=attribute(_L2_BYTES),
        shared_bytes_per_block=attribute(_SHARED_OPTIN),
        registers_per_unit=attribute(_REGISTERS),
    )


def _checked(result: int) -> None:
    """Raise `OSError` for any result but success."""
    if result:
        raise OSError(result, "the CUDA driver refuses")
