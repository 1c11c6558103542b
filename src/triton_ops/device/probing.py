"""The spec of a device of this machine, read through the vendor's driver, torch or the operating system.

No setting of the device is changed. Torch is imported only if a GPU is asked for and no vendor's driver can answer in
torch's place.

Triton loads and launches a kernel on the current GPU, whichever one its tensors are on, and then fails with "Pointer
argument cannot be accessed from Triton (cpu tensor?)". Torch makes streams, events and graphs on the current GPU, and
waits for that one. All that works on one GPU of several therefore runs with that GPU as the current one.

Facts used: each thread has a current GPU of its own, which is the first one until the thread chooses another. When
`torch.cuda.device` ends, torch goes back only to a GPU on which this process has a context, so that code which leaves
the choice out works until something makes a context on the first GPU, such as `torch.cuda.empty_cache()` does there.
That context also takes some 500 MB of the first GPU's memory.

The device itself is asked; no state is guessed from the text of an error.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops.base import Host, StoredFile, available, require
from triton_ops.device.datasheets import DeviceSpec, datasheet_of
from triton_ops.device.vendors import gpus_of, gpus_without_torch
from triton_ops.exceptions import DeviceError, MissingDependencyError, SettingsError


@contextlib.contextmanager
def current_device(device_name: str) -> Iterator[None]:
    """Make a GPU the current one of this thread inside the block; the one before is the current one again afterwards.

    `cuda` is the GPU that is the current one, and a CPU changes nothing. A GPU that cannot be used is a `DeviceError`.
    """
    if not device_name.startswith("cuda:"):
        yield
        return
    context = require("torch", "choosing the GPU").cuda.device(device_name)
    try:
        context.__enter__()
    except (RuntimeError, AssertionError) as error:
        raise _unusable(device_name, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # the GPU was lost in the block: whoever uses it next is told
            context.__exit__(None, None, None)


def stay_on(device_name: str) -> None:
    """Make a GPU the current one of this thread for good: for a process that works on this GPU alone.

    Nothing happens for a CPU, for `cuda`, which is the current one, and before torch is imported. A GPU that cannot be
    used is left to whoever uses it.
    """
    if device_name.startswith("cuda:") and "torch" in sys.modules:
        with contextlib.suppress(RuntimeError, AssertionError, AttributeError):  # the last from a torch without CUDA
            require("torch", "choosing the GPU").cuda.set_device(device_name)


def current_gpu() -> str:
    """Torch's name of this thread's current GPU: `cuda:N` where it has chosen one, and `cuda` for the first one.

    Another thread or process has a current GPU of its own, so that `cuda` may be another one there.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)  # None as long as torch uses no GPU
    index = cuda.current_device() if cuda is not None and cuda.is_initialized() else 0
    return f"cuda:{index}" if index else "cuda"


def _unusable(device_name: str, error: Exception) -> DeviceError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return DeviceError(
        f"{device_name} cannot be used: {reason}", device_name, hint="`triton-ops doctor` says what works here"
    )


_CPU_VERSION = re.compile(rb"^__version__ = '([^'\n]+\+cpu)'$", re.MULTILINE)  # in torch/version.py
_VERSION_BYTES = 1 << 16


@lru_cache(maxsize=1)
def gpu_missing() -> str | None:
    """The reason why no GPU can be used here; None if the driver or torch finds one.

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
        match = _CPU_VERSION.search(StoredFile(Path(spec.origin).with_name("version.py")).read(_VERSION_BYTES))
    except OSError:  # another torch, which has no such file
        return None
    return match.group(1).decode() if match else None


def device_named(device: Any) -> str | None:
    """The torch name of a device that a caller gave as a text or a `torch.device`; None stays None."""
    if device is None or isinstance(device, str):
        return device
    if (type(device).__module__, type(device).__name__) == ("torch", "device"):
        return str(device)
    raise DeviceError(f"device {device!r} is not known", "cpu, cuda or cuda:N", device, hint="use 'cpu' or 'cuda'")


def probe(device: str | None = None) -> DeviceSpec:
    """The spec of `device`: `cpu`, `cuda`, `cuda:N`, or None for the current GPU, else the CPU.

    Raises:
        DeviceError: There is no GPU, or none with this index, or `device` is another word.
    """
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise DeviceError(f"device {device!r} is not known", "cpu, cuda or cuda:N", device, hint="use cpu or cuda")
    if device == "cpu" or (device is None and gpu_missing()):
        return _cpu()
    if reason := gpu_missing():
        raise DeviceError(f"device {device} cannot be used: {reason}", device, "cpu", hint="use the device cpu")
    unasked = _by_driver()
    torch = None if unasked else require("torch", "finding the GPU")
    _, colon, number = (device or "").partition(":")
    index = int(number) if colon else 0 if torch is None else torch.cuda.current_device()
    count = len(unasked) if torch is None else torch.cuda.device_count()
    _check_index(index, count)
    return _with_peaks((unasked if torch is None else _by_torch(torch))[index])


def _check_index(index: int, count: int) -> None:
    if index >= count:
        raise DeviceError(
            f"there is no GPU {index}; this process sees {count}", f"cuda:{index}",
            hint="use a smaller index, or check CUDA_VISIBLE_DEVICES",
        )  # fmt: skip


def gpus_here() -> tuple[DeviceSpec, ...]:
    """The GPUs that this process sees, in the order of torch's indices; a `DeviceError` if there is none."""
    if reason := gpu_missing():
        raise DeviceError(f"no GPU can be used: {reason}", hint="`triton-ops doctor` says what works here")
    return _by_driver() or _by_torch(require("torch", "finding the GPUs"))


def _by_driver() -> tuple[DeviceSpec, ...]:
    """The GPUs as the driver describes them; empty if only torch can tell, or torch already uses a GPU here.

    The driver is asked first because torch describes a device by making a context on it, which takes device memory and
    a fifth of a second.
    """
    if "torch" in sys.modules:
        torch = require("torch", "finding the GPU")  # waits for another thread that is still importing torch
        is_used = getattr(getattr(torch, "cuda", None), "is_initialized", None)
        if is_used is None or is_used():
            return ()
    return gpus_without_torch()


@lru_cache(maxsize=1)
def _by_torch(torch: Any) -> tuple[DeviceSpec, ...]:
    return gpus_of(torch)


@lru_cache(maxsize=16)
def _with_peaks(spec: DeviceSpec) -> DeviceSpec:
    row = datasheet_of(spec.name)
    if row is None:
        return spec
    return replace(spec, bandwidth_gbps=row.bandwidth_gbps, tflops=dict(row.tflops))


@lru_cache(maxsize=1)
def _cpu() -> DeviceSpec:
    return DeviceSpec(kind="cpu", name=_cpu_name(), arch=platform.machine(), units=Host.affinity_cpus())


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


_FORMS = "give 'all', or the indices, such as 0,2"


def chosen_gpus(choice: Any) -> tuple[str, ...]:
    """Torch's names of the GPUs that measure: `all`, indices as a list or as text such as `0,2`, or None for no choice.

    All are of one model: a `DeviceError` if not.
    """
    if choice is None:
        return ()
    numbers = None if choice == "all" else _indices(choice)
    gpus = gpus_here()
    indices = range(len(gpus)) if numbers is None else numbers
    for index in indices:
        _check_index(index, len(gpus))
    models = {gpus[index].name: index for index in indices}
    if len(models) > 1:
        words = " and ".join(f"GPU {index} is a {name}" for name, index in models.items())
        raise DeviceError(
            f"one run is for GPUs of one model: {words}", hint="start a run for each model, with the same cache folder"
        )
    return tuple(f"cuda:{index}" for index in indices)


def _indices(choice: Any) -> list[int]:
    parts: Sequence[Any] = ()
    if isinstance(choice, str):
        parts = choice.split(",") if choice.strip() else []
    elif isinstance(choice, Iterable) and not isinstance(choice, (bytes, Mapping)):
        parts = list(choice)
    else:
        raise SettingsError(f"gpus is {choice!r}", hint=_FORMS)
    if not parts:
        raise SettingsError("gpus names no GPU", hint=_FORMS)
    indices = [_index(part, choice) for part in parts]
    if twice := sorted({index for index in indices if indices.count(index) > 1}):
        raise SettingsError(f"gpus names GPU {twice[0]} twice", hint="name each once")
    return indices


def _index(part: Any, choice: Any) -> int:
    word = str(part).strip()
    if isinstance(part, bool) or not (word.isascii() and word.isdigit()):
        raise SettingsError(f"gpus is {choice!r}, and {word or 'an empty word'} is no index of a GPU", hint=_FORMS)
    return int(word)


_BUSY = 0.2  # of all CPU time: less, such as one program on a host of many CPUs, is not worth a note


def free_bytes_of(device_name: str) -> int:
    """The free memory of a GPU by its torch name, or the host's for `cpu`; all of it where the host does not tell."""
    if device_name != "cpu":
        return int(require("torch", "asking the GPU").cuda.mem_get_info(device_name)[0])
    if (available := Host.available_bytes()) is not None:
        return available
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


class CpuLoad:
    """The use of the CPUs by other programs, from the moment this object is made; Linux counts it."""

    def __init__(self) -> None:
        self._before = _cpu_seconds()

    @property
    def others(self) -> float | None:
        """The share of all CPU time that other processes and other virtual machines took; None if it is not known.

        Processes that this one has started count as its own once they have ended.
        """
        after = _cpu_seconds()
        if self._before is None or after is None:
            return None
        busy_s, whole_s, own_s = (late - early for late, early in zip(after, self._before, strict=True))
        return min(max((busy_s - own_s) / whole_s, 0.0), 1.0) if whole_s > 0 else None

    def notes(self, device: DeviceSpec) -> tuple[str, ...]:
        """A note if other programs kept the CPUs busy while callables were timed on them; empty if not, or on a GPU."""
        others = self.others if device.kind == "cpu" else None
        return () if others is None or others < _BUSY else (f"other programs used {others:.0%} of the CPUs meanwhile",)


def _cpu_seconds() -> tuple[float, float, float] | None:
    """Seconds since the start: CPUs busy, CPUs busy or idle, and CPU time of this process and of ended children."""
    try:
        first, _, _ = Path("/proc/stat").read_text(encoding="ascii").partition("\n")
    except OSError:  # no Linux
        return None
    ticks = [int(word) for word in first.split()[1:9]]  # user, nice, system, idle, waiting for a disk, …, steal
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s, sum(ticks) * tick_s, sum(os.times()[:4])
