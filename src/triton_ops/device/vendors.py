"""The vendors of GPUs, whose own software this package asks.

Facts used: the numbers of `CUdevice_attribute` in cuda.h, which never change; the CUDA version of a build of torch,
which stands in `torch/version.py`; NVML's bits of `NvmlClocksEventReasons`, and `nvmlDeviceGetProcessUtilization`,
whose samples have `pid`, `smUtil` in percent and `timeStamp` in microseconds since 1970 (NVML API reference).

All other modules ask through `VENDORS`, in which a new vendor needs a line, with a class like `Nvidia`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops.base import NamedFile, available, require
from triton_ops.device.specs import DeviceSpec
from triton_ops.device.vendor_facts import VENDOR_FACTS
from triton_ops.exceptions import DeviceError

CLOCK_REASONS = (
    "idle",
    "app_clocks",  # held at a clock that someone set
    "power_cap",
    "hw_slowdown",  # clocks at half or less: too hot, too much power, or the power supply asked for it
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "power_brake",
    "display_clocks",
    "board_limit",
    "reliability",
)
"""Reasons why clocks are held back, in the order in which they are listed. A vendor may add words of its own."""

_SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Reasons that make the times measured meanwhile worthless. The power cap is none: matrix products always run at it."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values of a GPU's sensors at one moment; None for a value that the GPU does not tell.

    Attributes:
        reasons: Why the clocks are held back: words of `CLOCK_REASONS`, or the vendor's own. The GPU is idle right
            after a round, so `idle` carries no information.
    """

    reasons: tuple[str, ...]
    clock_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None  # power in watts; most NVIDIA GPUs since Ampere give the average of the last second
    temperature_c: int | None = None

    @property
    def slowdowns(self) -> frozenset[str]:
        """The reasons that make the times measured meanwhile worthless."""
        return _SLOWED.intersection(self.reasons)

    @staticmethod
    def regimes(readings: Iterable[Reading]) -> tuple[str, ...]:
        """The reasons of some readings, except `idle`; in the order of `CLOCK_REASONS`, a vendor's own words last."""
        words = {word for reading in readings for word in reading.reasons} - {"idle"}
        return (*(word for word in CLOCK_REASONS if word in words), *sorted(words.difference(CLOCK_REASONS)))


@dataclass(frozen=True)
class ProcessUse:
    """The use of a GPU by one process in one sample.

    `share` is that of the sample's time in which the process had work on the multiprocessors; `at_us` is since 1970.
    """

    pid: int
    share: float
    at_us: int


@lru_cache(maxsize=1)
def described_by_torch(torch: Any) -> tuple[DeviceSpec, ...]:
    """The GPUs that torch finds, in torch's order, even of a vendor that is not in `VENDORS`."""
    kind, each = kind_of(torch), map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    driver = driver_version() if kind == "cuda" else None
    return tuple(_vendor_spec_of(properties, kind, driver) for properties in each)


def _vendor_spec_of(properties: Any, kind: str, driver: str | None) -> DeviceSpec:
    arch = f"sm_{properties.major}{properties.minor}" if kind == "cuda" else properties.gcnArchName.partition(":")[0]
    return DeviceSpec(
        kind=kind, name=properties.name, arch=arch, units=properties.multi_processor_count,
        memory_bytes=properties.total_memory, l2_bytes=getattr(properties, "L2_cache_size", None),
        shared_bytes_per_block=getattr(properties, "shared_memory_per_block_optin", None),
        registers_per_unit=getattr(properties, "regs_per_multiprocessor", None), driver=driver,
    )  # fmt: skip


# Functions are called by libcuda's own symbols: cuda.h names those with `_v2`, whose sizes have 64 bits, without it.
_LIBCUDA = "libcuda.so.1"
_UNITS, _L2_BYTES, _MAJOR, _MINOR, _REGISTERS, _SHARED_OPTIN = 16, 38, 75, 76, 82, 97
_NAME_BYTES = 256
_LAZY_PEERS = 1  # the one flag that libcuda knows for mapped memory
_CUDA_BUILD = re.compile(r"^cuda\b.*= *['\"](\d+)", re.MULTILINE)
_VERSION_BYTES = 1 << 16
_MAJOR_VERSION = 1000  # the driver reports CUDA 13.0 as 13000, and serves builds for its major version or an older one


class _MemoryHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class Nvidia:
    """NVIDIA's GPUs through libcuda and NVML."""

    triton = VENDOR_FACTS["cuda"].backend

    @staticmethod
    @lru_cache(maxsize=1)
    def describe() -> tuple[DeviceSpec, ...]:
        """The GPUs that torch would find, in torch's order, each with the driver's version; empty where it might not.

        Libcuda is asked, without the seconds of torch's import; that needs an installed torch for CUDA, and a driver
        that answers all.

        Cost: a fifth of a second on an H200, for the driver's initialisation, which torch then need not do again.
        """
        if (oldest := _oldest_driver_for_torch()) is None:
            return ()
        try:
            libcuda = ctypes.CDLL(_LIBCUDA)
            # A child that is forked after this cannot use the driver: a CUDA context does not survive a fork.
            _check(libcuda.cuInit(0))
            version, count = ctypes.c_int(), ctypes.c_int()
            _check(libcuda.cuDriverGetVersion(ctypes.byref(version)))
            _check(libcuda.cuDeviceGetCount(ctypes.byref(count)))
            indices = range(count.value if version.value >= oldest else 0)
            return tuple(_spec_of(libcuda, index, driver_version()) for index in indices)
        except OSError:
            return ()

    def make_ready(self, device_name: str) -> None:
        """Initialise libcuda for `cuda` or `cuda:N`, and retain the primary context, which torch will use.

        Nothing happens without a driver.
        """
        libcuda, device, context = _libcuda(), ctypes.c_int(), ctypes.c_void_p()
        index = int(device_name.partition(":")[2] or 0)
        if libcuda and libcuda.cuInit(0) == 0 and libcuda.cuDeviceGet(ctypes.byref(device), index) == 0:
            libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)  # torch will report a failure

    def sensors(self, device_name: str) -> Sensors:
        """The open sensors of the GPU that torch calls `cuda` or `cuda:N`; an error if they cannot be read.

        Cost: loads NVML the first time, and asks the driver for some ten values.
        """
        properties = require("torch", "finding the GPU").cuda.get_device_properties(device_name)
        return open_sensors(require("pynvml", "reading the GPU's clocks"), device_name, properties)

    def graph_nodes(self, graph_address: int) -> int | None:
        """Number of nodes of the graph at `graph_address`, by libcuda; None if it does not say, or is not there."""
        libcuda, count = _libcuda(), ctypes.c_size_t(0)
        failed = not libcuda or libcuda.cuGraphGetNodes(ctypes.c_void_p(graph_address), None, ctypes.byref(count))
        return None if failed else count.value

    def handle(self, address: int) -> tuple[bytes, int] | None:
        """The handle of the allocation around `address`, and the place in it in bytes; None if there is none.

        Libcuda has none for memory of expandable segments, of pools, or of a host without support.
        """
        libcuda, base, handle = _libcuda(), ctypes.c_void_p(), _MemoryHandle()
        failed = not libcuda or libcuda.cuMemGetAddressRange_v2(ctypes.byref(base), None, ctypes.c_void_p(address))
        if failed or base.value is None or libcuda.cuIpcGetMemHandle(ctypes.byref(handle), base):
            return None
        return bytes(handle), address - base.value

    def copy_mapped(self, handle: tuple[bytes, int], address: int, count: int) -> None:
        """Copy `count` bytes that another process has given a handle of to `address`; an `OSError` if refused.

        The allocation is mapped for the time of the copy, after which the other process may free it.
        """
        libcuda, source = ctypes.CDLL(_LIBCUDA), self.opened(handle)
        try:
            _check(libcuda.cuMemcpyDtoD_v2(ctypes.c_void_p(address), ctypes.c_void_p(source), ctypes.c_size_t(count)))
            # A copy within devices may go on after the call returns, and the mapping must last as long.
            _check(libcuda.cuCtxSynchronize())
        finally:
            libcuda.cuIpcCloseMemHandle(ctypes.c_void_p(source - handle[1]))

    def opened(self, handle: tuple[bytes, int]) -> int:
        """The address here of memory that another process has given a handle of; an `OSError` if refused."""
        libcuda, base, (content, offset) = ctypes.CDLL(_LIBCUDA), ctypes.c_void_p(), handle
        _check(libcuda.cuIpcOpenMemHandle_v2(ctypes.byref(base), _MemoryHandle.from_buffer_copy(content), _LAZY_PEERS))
        return (base.value or 0) + offset

    def allocated(self, count: int) -> int:
        """The address of new memory, which is alone in its allocation; an `OSError` if refused."""
        address = ctypes.c_void_p()
        _check(ctypes.CDLL(_LIBCUDA).cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count)))
        return address.value or 0

    def free(self, address: int) -> None:
        """Free memory that was `allocated`."""
        ctypes.CDLL(_LIBCUDA).cuMemFree_v2(ctypes.c_void_p(address))

    def copier(self) -> Callable[[int, int, int], None]:
        """A function that copies on the default stream, to one address from another so many bytes, without waiting."""
        copy = ctypes.CDLL(_LIBCUDA).cuMemcpyDtoDAsync_v2
        copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        return lambda target, source, count: _check(copy(target, source, count, None)) if count else None

    def waiter(self) -> Callable[[], int]:
        """A function that waits for all work on the current GPU, and gives the driver's error, 0 if there is none."""
        return ctypes.CDLL(_LIBCUDA).cuCtxSynchronize


# Devices, through libcuda


def _libcuda() -> Any:
    """The driver's library; None where there is none."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL(_LIBCUDA)
    return None


def _oldest_driver_for_torch() -> int | None:
    """The oldest CUDA version of a driver that serves the installed torch; None if torch is no build for CUDA."""
    major = in_version_of_torch(_CUDA_BUILD)
    return None if major is None else int(major) * _MAJOR_VERSION


def in_version_of_torch(pattern: re.Pattern[str]) -> str | None:
    """What a pattern finds in the version file of the torch that would be imported; None without such a file."""
    if (spec := find_spec("torch")) is None or spec.origin is None:
        return None
    try:
        content = NamedFile(Path(spec.origin).with_name("version.py")).read(_VERSION_BYTES)
    except OSError:  # another torch, which has no such file
        return None
    match = pattern.search(content.decode("utf-8", "replace"))
    return None if match is None else match[1]


def _spec_of(libcuda: Any, index: int, driver: str | None) -> DeviceSpec:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
    _check(libcuda.cuDeviceGet(ctypes.byref(device), index))
    _check(libcuda.cuDeviceGetName(name, _NAME_BYTES, device))
    _check(libcuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device))

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(libcuda.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    return DeviceSpec(
        kind="cuda", name=name.value.decode(), arch=f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        units=attribute(_UNITS), memory_bytes=memory.value, l2_bytes=attribute(_L2_BYTES),
        shared_bytes_per_block=attribute(_SHARED_OPTIN), registers_per_unit=attribute(_REGISTERS), driver=driver,
    )  # fmt: skip


def _check(result: int) -> None:
    if result:
        raise OSError(result, "the CUDA driver refuses")


# Sensors, through NVML


@lru_cache(maxsize=1)
def driver_version() -> str | None:
    """The kernel driver's version, which NVML reports without touching a device; None where it is unknown."""
    if not available("pynvml"):
        return None
    nvml = require("pynvml", "reading the driver's version")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()


class Sensors:
    """The sensors of one GPU through NVML, which are only read, and closed once by their opener.

    A value that the GPU does not support is never asked for again.

    NVML gives the reasons of the moment, so a slowdown that begins and ends between two readings is missed. NVML also
    counts the time spent in each reason, but its numbers for those counters changed between versions (251 became 269):
    a driver of another version would answer with another quantity. The initialised module is shut down once, when the
    sensors are closed or garbage-collected. A GPU that does not tell why its clocks are held back is a `DeviceError`.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._reasons: Callable[[], int] = lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        if failure := _failure(nvml, self._reasons):
            raise DeviceError(f"NVML does not tell why this GPU's clocks are held back: {failure}")
        # NVML tells milliwatts.
        sources: dict[str, Callable[[], Any]] = {
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        }
        self._sources = {name: source for name, source in sources.items() if not _failure(nvml, source)}
        self.close = weakref.finalize(self, _shut_down, nvml)
        """Shut NVML down, unless that was done before; never raises."""

    def read(self) -> Reading:
        """Read all supported values; a `DeviceError` if the GPU no longer answers.

        Cost: about 2 ms on an H200 in a virtual machine, and no work on the GPU.
        """
        with DeviceError.when("NVML failed", "", self._nvml.NVMLError):
            # The reasons are read first, since they change soonest after work ends. NVML's bits are in this order.
            mask = self._reasons()
            bits = [number for number in range(mask.bit_length()) if mask >> number & 1]
            reasons = tuple(CLOCK_REASONS[bit] if bit < len(CLOCK_REASONS) else f"bit_{bit}" for bit in bits)
            return Reading(reasons=reasons, **{name: source() for name, source in self._sources.items()})

    def used_by(self, since_us: int) -> tuple[ProcessUse, ...]:
        """The processes that had work on the GPU in the samples after `since_us`, microseconds since 1970.

        NVML takes one to six samples a second. A `DeviceError` where it does not tell, as of the parts of a GPU (MIG).
        """
        nvml = self._nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_FOUND:  # no sample is that late
                return ()
            raise DeviceError(f"NVML does not tell which processes use the GPU: {error}") from error
        return tuple(ProcessUse(sample.pid, sample.smUtil / 100, sample.timeStamp) for sample in samples)

    @contextlib.contextmanager
    def locked_clocks(self, mhz: int) -> Iterator[None]:
        """Hold the SM clock at so many MHz while the block runs, for which nothing in this package asks by itself.

        A lock holds for every user of the GPU. Where NVML does not name this process, which has used the GPU before, as
        the only one on it, nothing is locked: the GPU is shared, or that cannot be told. It takes root.
        """
        nvml, handle = self._nvml, self._handle
        with DeviceError.when(f"the clock cannot be locked at {mhz} MHz", "", nvml.NVMLError):
            pids = sorted(each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
            if pids != [os.getpid()]:
                raise DeviceError(f"the clock is not locked: of the processes on the GPU NVML names {pids or 'none'}")
            nvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
        try:
            yield
        finally:
            nvml.nvmlDeviceResetGpuLockedClocks(handle)


def open_sensors(nvml: Any, device_name: str, torch_properties: Any) -> Sensors:
    """The sensors of a CUDA device; a `DeviceError` if NVML cannot be used, or does not know the device.

    The device is found by its UUID, or else by its place on the PCI bus, never by its number: CUDA_VISIBLE_DEVICES and
    CUDA_DEVICE_ORDER renumber CUDA's devices and not NVML's. A slice of a GPU (MIG) is found by its place, and has the
    sensors of the whole GPU.
    """
    with DeviceError.when("NVML cannot be used", "it is part of NVIDIA's driver", nvml.NVMLError):
        nvml.nvmlInit()
    try:
        return Sensors(nvml, find_handle(nvml, device_name, torch_properties))
    except BaseException:
        _shut_down(nvml)
        raise


def find_handle(nvml: Any, device_name: str, torch_properties: Any) -> Any:
    """NVML's handle of the GPU with these properties; NVML must be initialised."""
    lookups: list[tuple[Callable[[str], Any], str]] = []
    if uuid := str(getattr(torch_properties, "uuid", "")):
        lookups.append((nvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid.removeprefix('GPU-')}"))
    if (bus := getattr(torch_properties, "pci_bus_id", None)) is not None:
        place = f"{torch_properties.pci_domain_id:08x}:{bus:02x}:{torch_properties.pci_device_id:02x}.0"
        lookups.append((nvml.nvmlDeviceGetHandleByPciBusId, place))
    for look_up, name in lookups:
        with contextlib.suppress(nvml.NVMLError):
            return look_up(name)
    names = " or ".join(name for _, name in lookups) or "anything, since this torch tells neither UUID nor bus"
    raise DeviceError(f"NVML does not find {device_name} as {names}", actual_device=device_name)


def _failure(nvml: Any, source: Callable[[], Any]) -> str:
    """The reason why a value cannot be read; empty if it can be."""
    try:
        source()
    except nvml.NVMLError as error:
        return str(error) or type(error).__name__
    return ""


def _shut_down(nvml: Any) -> None:
    with contextlib.suppress(nvml.NVMLError):  # NVML counts its users, and is freed with the process at the latest
        nvml.nvmlShutdown()


VENDORS = {"cuda": Nvidia()}
"""The vendors by `DeviceSpec.kind`."""


def gpus_without_torch() -> tuple[DeviceSpec, ...]:
    """The GPUs that torch would find, by the first vendor whose driver can tell; empty if none can."""
    return next((specs for vendor in VENDORS.values() if (specs := vendor.describe())), ())


def kind_of(torch: Any) -> str:
    """The kind of the vendor that a build of torch is for."""
    return "cuda" if torch.version.hip is None else "hip"
