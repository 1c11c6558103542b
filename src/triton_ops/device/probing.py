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

Measurements on one GPU take turns, whichever process of this user measures: two at a time would disturb each other.

A turn is a lock on a file that is named after the GPU. It is held for one measurement, a screening or a race, and not
for a trial or a tune, so that several processes that tune on one GPU get on side by side. The operating system ends the
turn of a process that dies. Work on a CPU takes no turns.

Where another user has made the folder first, or has held a lock for longer than any measurement, there are no turns:
a warning says so once.

The driver tells which processes have worked on a GPU, with the share of its multiprocessors' time. Not counted are this
process, those that started it, and processes of this package that take turns with it. A process number says something
only where the driver counts processes as this system does: in a container it may tell the host's numbers, or none. So
nobody is named before this process has been seen at work under its own number.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton_ops import device, settings
from triton_ops.base import CodeFolder, Folder, Host, Process, available, require, warn, warn_once
from triton_ops.device.specs import DeviceSpec
from triton_ops.device.vendors import (
    VENDORS,
    Nvidia,
    ProcessUse,
    Sensors,
    described_by_torch,
    gpus_without_torch,
    in_version_of_torch,
    kind_of,
)
from triton_ops.exceptions import CacheError, DeviceError, MissingDependencyError, SettingsError


class TorchDevice:
    """A device by its torch name: `cpu`, `cuda:N`, or `cuda`, which is the GPU that is the current one."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current GPU of this thread inside the block; the one before is the current one again afterwards.

        `cuda` and a CPU change nothing. A GPU that cannot be used is a `DeviceError`.
        """
        if not self.name.startswith("cuda:"):
            yield
            return
        # Triton launches on the current GPU, and refuses tensors of another one: triton-lang/triton#2441.
        context = require("torch", "choosing the GPU").cuda.device(self.name)
        try:
            context.__enter__()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            hint = "`triton-ops doctor` says what works here"
            raise DeviceError(f"{self.name} cannot be used: {reason}", self.name, hint=hint) from error
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # the GPU was lost in the block: whoever uses it next is told
                context.__exit__(None, None, None)

    def stay(self) -> None:
        """Make it the current GPU of this thread for good: for a process that works on this GPU alone.

        Nothing happens for a CPU, for `cuda`, and before torch is imported. A GPU that cannot be used is left to
        whoever uses it.
        """
        if self.name.startswith("cuda:") and "torch" in sys.modules:
            with contextlib.suppress(RuntimeError, AssertionError, AttributeError):  # the last: a torch without CUDA
                require("torch", "choosing the GPU").cuda.set_device(self.name)

    def make_ready(self) -> None:
        """Initialise the vendors' drivers for it, while another thread of the process imports torch.

        Cost: a third of a second on an H200, during which other threads can run.
        """
        for vendor in VENDORS.values():
            vendor.make_ready(self.name)

    def sensors(self, device: DeviceSpec) -> Sensors:
        """Its open sensors, with its spec; an error of this package if there are none that it can read."""
        if device.kind not in VENDORS:
            kinds = " and ".join(VENDORS)
            message = f"the clocks of {self.name} are not watched: only those of {kinds} devices are"
            raise DeviceError(message, kinds, device.kind)
        return VENDORS[device.kind].sensors(self.name)

    @property
    def free_bytes(self) -> int:
        """The free memory of the GPU, or the host's for `cpu`; all of it where the host does not tell.

        Inside an `Allowance` it is no more than what is left of that.
        """
        allowed = self.allowed_bytes
        return self._free_bytes if allowed is None else max(0, min(allowed, self._free_bytes))

    @property
    def allowed_bytes(self) -> int | None:
        """The memory that the `Allowance` of this tune leaves; None without one, and for a host that does not count."""
        allowance = device.Allowance.now()
        counts = allowance is not None and (self.name != "cpu" or allowance.shares_host)
        return allowance.left_bytes if allowance is not None and counts else None

    @property
    def _free_bytes(self) -> int:
        if self.name != "cpu":
            return int(require("torch", "asking the GPU").cuda.mem_get_info(self.name)[0])
        if (available_bytes := Host.available_bytes()) is not None:
            return available_bytes
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    @staticmethod
    def current_name() -> str:
        """The name of this thread's current GPU: `cuda:N` where it has chosen one, and `cuda` for the first one.

        Another thread or process has a current GPU of its own, so that `cuda` may be another one there.
        """
        cuda = getattr(sys.modules.get("torch"), "cuda", None)  # None as long as torch uses no GPU
        index = cuda.current_device() if cuda is not None and cuda.is_initialized() else 0
        return f"cuda:{index}" if index else "cuda"

    @staticmethod
    def name_of(device: Any) -> str | None:
        """The name of a device that a caller gave as a text or a `torch.device`; None stays None."""
        if device is None or isinstance(device, str):
            return device
        if (type(device).__module__, type(device).__name__) == ("torch", "device"):
            return str(device)
        raise DeviceError(f"device {device!r} is not known", "cpu, cuda or cuda:N", device, hint="use 'cpu' or 'cuda'")

    @staticmethod
    def gpus() -> tuple[DeviceSpec, ...]:
        """The GPUs that this process sees, in the order of torch's indices; a `DeviceError` if there is none."""
        if reason := gpu_missing():
            raise DeviceError(f"no GPU can be used: {reason}", hint=DeviceError.NO_GPU)
        return _by_driver() or described_by_torch(require("torch", "finding the GPUs"))

    @classmethod
    def chosen(cls, choice: Any) -> tuple[str, ...]:
        """The names of the GPUs that measure: `all`, indices as a list or as text such as `0,2`; None is no choice.

        All are of one model: a `DeviceError` if not.
        """
        if choice is None:
            return ()
        numbers = None if choice == "all" else _indices(choice)
        gpus = cls.gpus()
        indices = range(len(gpus)) if numbers is None else numbers
        for index in indices:
            _check_index(index, len(gpus))
        models = {gpus[index].name: index for index in indices}
        if len(models) > 1:
            words = " and ".join(f"GPU {index} is a {name}" for name, index in models.items())
            message = f"one run is for GPUs of one model: {words}"
            raise DeviceError(message, hint="start a run for each model, with the same cache folder")
        return tuple(f"cuda:{index}" for index in indices)

    @staticmethod
    def graph_nodes(torch: Any, graph_address: int) -> int | None:
        """Number of nodes of a captured graph; None if the vendor of torch's GPUs cannot tell."""
        vendor = VENDORS.get(kind_of(torch))
        return None if vendor is None else vendor.graph_nodes(graph_address)

    def handle(self, torch: Any, address: int) -> tuple[bytes, int] | None:
        """A handle by which another process copies memory of this GPU; None where its driver gives none.

        What the current stream has been given is done by then.
        """
        if (vendor := VENDORS.get(kind_of(torch))) is None:
            return None
        with self.current():
            torch.cuda.current_stream().synchronize()
            return vendor.handle(address)

    def copy_mapped(self, torch: Any, handle: tuple[bytes, int], address: int, count: int) -> None:
        """Copy memory of another process to memory of this one; an `OSError` if the driver refuses."""
        with self.current():
            VENDORS[kind_of(torch)].copy_mapped(handle, address, count)

    def raw_memory(self, torch: Any) -> Nvidia:
        """The vendor's ways to allocate, open and copy memory of the current GPU by addresses.

        Raises `DeviceError` where there are none.
        """
        if (vendor := VENDORS.get(kind_of(torch))) is None:
            raise DeviceError(f"memory of {self.name} is not shared with other processes", "cuda")
        torch.cuda.synchronize()  # makes the context of this thread
        return vendor


_CPU_VERSION = re.compile(r"^__version__ = '([^'\n]+\+cpu)'$", re.MULTILINE)  # of a build for CPUs alone


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
        version = None if "torch" in sys.modules else in_version_of_torch(_CPU_VERSION)
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


def device_spec(gpu: str | None) -> DeviceSpec:
    """The GPU of a name, or the current one; `DeviceError` if there is none."""
    if gpu is None:
        if reason := gpu_missing():
            hint = f"name one: --gpu 'NVIDIA H200'; {DeviceError.NO_GPU}"
            raise DeviceError(f"there is no GPU to explain a config for: {reason}", "cuda", hint=hint)
        return probe("cuda")
    return DeviceSpec.typed(gpu)


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
        hint = f"use the device cpu; {DeviceError.NO_GPU}"
        raise DeviceError(f"device {device} cannot be used: {reason}", device, "cpu", hint=hint)
    unasked = _by_driver()
    torch = None if unasked else require("torch", "finding the GPU")
    _, colon, number = (device or "").partition(":")
    index = int(number) if colon else 0 if torch is None else torch.cuda.current_device()
    _check_index(index, len(unasked) if torch is None else torch.cuda.device_count())
    return _with_peaks((unasked if torch is None else described_by_torch(torch))[index])


def _check_index(index: int, count: int) -> None:
    if index >= count:
        message = f"there is no GPU {index}; this process sees {count}"
        raise DeviceError(message, f"cuda:{index}", hint="use a smaller index, or check CUDA_VISIBLE_DEVICES")


def _by_driver() -> tuple[DeviceSpec, ...]:
    """The GPUs as the driver describes them; empty if only torch can tell, or torch already uses a GPU here.

    The driver is asked first because torch describes a device by making a context on it, which takes device memory and
    a fifth of a second.
    """
    if "torch" in sys.modules:
        torch = require("torch", "finding the GPU")  # waits for another thread that is still importing torch
        if (is_used := getattr(getattr(torch, "cuda", None), "is_initialized", None)) is None or is_used():
            return ()
    return gpus_without_torch()


@lru_cache(maxsize=16)
def _with_peaks(spec: DeviceSpec) -> DeviceSpec:
    known = DeviceSpec.named(spec.name)
    return spec if known is None else replace(spec, bandwidth_gbps=known.bandwidth_gbps, tflops=known.tflops)


@lru_cache(maxsize=1)
def _cpu() -> DeviceSpec:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return DeviceSpec(kind="cpu", name=name, arch=platform.machine(), units=Host.affinity_cpus())


_FORMS = "give 'all', or the indices, such as 0,2"


def _indices(choice: Any) -> list[int]:
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
        others = self.others if device.is_cpu else None
        return () if others is None or others < _BUSY else (f"other programs used {others:.0%} of the CPUs meanwhile",)


def _cpu_seconds() -> tuple[float, float, float] | None:
    """Seconds since the start: CPUs busy, CPUs busy or idle, and CPU time of this process and of ended children."""
    try:
        first, _, _ = Path("/proc/stat").read_text(encoding="ascii").partition("\n")
    except OSError:  # no Linux
        return None
    # The two words after these, of guests, count what the first two have: proc(5).
    ticks = [int(word) for word in first.split()[1:9]]  # user, nice, system, idle, waiting for a disk, …, steal
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s, sum(ticks) * tick_s, sum(os.times()[:4])


_POLL_S = 0.005  # a trial takes tens of milliseconds
_WORTH_A_LINE_S = 1.0
_mine = threading.local()
_given_up: set[str] = set()


@dataclass
class Turns:
    """The turns of one tune or comparison on a device; `wait` is for the first: later ones always are waited for.

    Once it has `begun`, a wait is no warning. `tell` is called when another one is waited for.
    """

    device_name: str
    wait: bool = True
    waited_s: float = 0.0
    begun: bool = False
    tell: Callable[[], object] = lambda: None
    _has_warned: bool = field(default=False, repr=False)

    @staticmethod
    def held() -> frozenset[str]:
        """The keys of the devices on which this thread has the turn."""
        return frozenset(_mine.__dict__.get("keys", ()))

    @staticmethod
    def key_of(device: DeviceSpec, device_name: str) -> str:
        """The name under which measurements on a device take turns: the GPU's UUID, else its place; empty for a CPU."""
        if device.is_cpu:
            return ""
        properties: Any = require("torch", "asking the GPU").cuda.get_device_properties(device_name)
        if uuid := str(getattr(properties, "uuid", "")):
            return f"GPU-{uuid.removeprefix('GPU-')}"
        place = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
        return "-".join(str(part) for part in ["GPU", *place])

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Hold the turn of the device with this key inside the block; without effect for an empty key.

        A thread that has the turn already keeps it. Where no file can be locked, a warning says so, and the measurement
        goes on; this process asks for no turn under that key again. A `DeviceError` if another process measures, and
        `wait` is false.
        """
        keys: set[str] = _mine.__dict__.setdefault("keys", set())
        folder = None if not key or key in keys | _given_up else _folder()
        if folder is None:
            yield
            return
        start = time.monotonic()
        with Folder(folder).locked(f"{key}.lock", poll_s=_POLL_S, waiting=self._waits) as is_locked:
            if not is_locked:
                _given_up.add(key)
            self.begun = True
            self.waited_s += time.monotonic() - start
            keys.add(key)
            try:
                yield
            finally:
                keys.discard(key)

    def _waits(self) -> None:
        self.tell()
        if not self.wait and not self.begun:
            message = f"another process measures on {self.device_name}"
            hint = "leave --no-wait (wait=False) out to wait for it"
            raise DeviceError(message, self.device_name, self.device_name, hint=hint)
        if not self._has_warned and not self.begun:
            warn("another process measures on %s; waiting for a turn", self.device_name)
            self._has_warned = True

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the waits: empty if they were short."""
        if self.waited_s < _WORTH_A_LINE_S:
            return ()
        return (f"waited {self.waited_s:.1f} s for turns on {self.device_name}, on which others measured",)


def takes_turns(pid: int) -> bool:
    """Check whether a process of this package takes turns: it was started for that, or holds or awaits a turn.

    A process of another user does not tell, and counts as one that takes none.
    """
    if f"{settings.FAMILY}=".encode() in Process(pid).environment:
        return True
    folder = str(settings.lock_dir())
    return any(os.path.dirname(path) == folder for path in Process(pid).open_files)  # noqa: PTH120


def _folder() -> Path | None:
    """The folder of the locks; None, and a warning, where it cannot be made or is another user's."""
    place = settings.lock_dir()
    try:
        return CodeFolder(place).private() if place == settings.OWN_LOCKS else Folder(place).ensure()
    except CacheError as error:
        warn_once(f"measurements take no turns: {error.message}")
    except OSError as error:
        why = f"{error.filename or place}: {error.strerror}"
        warn_once(f"measurements take no turns: {why}; TRITON_OPS_LOCK_DIR names another folder")
    return None


_LEAST_SHARE = 0.05  # a desktop draws its windows with a few percent
_EACH_S = 0.1  # the driver takes a sample six times a second at most
_HIDDEN = "the driver does not show this process under its own number, as in a container: others cannot be told from it"


class Others:
    """The use of one GPU by other processes; not safe to share among threads.

    Others count from `since_s` on, seconds since 1970; None is now. `is_ours` tells whether a process is one that this
    one started, or one that takes turns with it.
    """

    def __init__(
        self, sensors: Sensors, since_s: float | None = None, *, clock: Callable[[], float] = time.time,
        is_ours: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self._source: Sensors | None = sensors
        self._clock, self._is_ours = clock, is_ours or _is_ours
        self.unknown = _HIDDEN  # why nothing is known of others so far; empty if it is known
        self._early: dict[int, ProcessUse] = {}  # told, and not yet asked for
        self.begin(since_s)

    def begin(self, since_s: float | None = None) -> None:
        """Count from now on, or from a moment before."""
        self._asked_s = self._clock() if since_s is None else since_s
        self._since_us = int(self._asked_s * 1e6)
        self._early.clear()

    def seen(self) -> tuple[ProcessUse, ...]:
        """The other processes that have worked on the GPU since this was asked before, the busiest first.

        A process that has ended by now is left out: it cannot be told from a tune that has given its turn away.

        Cost: one question to the driver, ten times a second at most.
        """
        now_s = self._clock()
        if self._source is None or now_s - self._asked_s < _EACH_S:
            return ()
        self._asked_s = now_s
        try:
            samples = self._source.used_by(self._since_us)
        except DeviceError as error:
            self._source, self.unknown = None, error.message
            return ()
        self._since_us = max([self._since_us, *(sample.at_us for sample in samples)])
        if any(sample.pid == os.getpid() for sample in samples):
            self.unknown = ""
        for sample in samples:
            before = self._early.get(sample.pid)
            if sample.share >= _LEAST_SHARE and (before is None or before.share < sample.share):
                self._early[sample.pid] = sample
        if self.unknown:
            return ()
        uses = [use for pid, use in self._early.items() if not self._is_ours(pid)]
        self._early.clear()
        return tuple(sorted(uses, key=lambda use: -use.share))

    def in_words(self) -> str:
        """As `seen`, in words: `process 4711 (python3) used 40% of the GPU`; empty for none."""
        each = [
            f"process {use.pid} ({Process(use.pid).name or 'of another user'}) used {use.share:.0%}"
            for use in self.seen()
        ]
        return f"{' and '.join(each)} of the GPU" if each else ""


def _is_ours(pid: int) -> bool:
    above = any(pid == own or pid in Process(own).ancestors for own in (os.getpid(), *settings.starters()))
    return above or Process(pid).ended or takes_turns(pid)
