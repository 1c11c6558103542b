"""Watch over a GPU while candidates race on it: read-only; a round in which the hardware was slowed does not count.

After every round the clocks, power, temperature and the reasons why the driver holds the clocks back are read through
NVML. A round that ends with a slowdown (thermal, power brake) is lost for all candidates alike: to discard single ones
would select on the outcome. The power cap is no fault: matrix products live at it, so it is recorded and the round
kept. Nothing here writes a setting of the device.

A slowdown that began and ended inside a round is not seen: the reasons are those of the moment after it. NVML counts
the time spent in each, but under numbers that changed between its versions (251 became 269): asked of a driver of
another version, they name another quantity.
"""

from __future__ import annotations

import contextlib
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from triton_ops._optional import require
from triton_ops.exceptions import DeviceError
from triton_ops.hardware import probe

_REASONS = {  # NVML API reference, "NvmlClocksEventReasons"
    0x1: "idle",
    0x2: "app_clocks",  # held at a clock that someone set
    0x4: "power_cap",
    0x8: "hw_slowdown",  # clocks at half or less: too hot, too much power, or the power supply asked for it
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
_WAITS_S = (0.25, 1.0, 4.0)  # after the first, second and third slowed round in a row
_CLOCK_CHANGE = 0.03  # share by which the SM clock may differ between two rounds without a remark
_MOST_LOST = 0.2  # share of discarded rounds above which the race is no longer trusted
_MOST_READINGS = 512  # twice the longest race

Sleep: TypeAlias = "Callable[[float], None]"
Clock: TypeAlias = "Callable[[], float]"
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Reading:
    """What a GPU said of itself at one moment; None where it does not tell.

    Attributes:
        time_s: When, on the guard's clock.
        reasons: Why the clocks are held back, as words in the order of NVML's bits; unknown ones are `bit_N`. Right
            after a round the GPU has nothing to do, so `idle` says nothing.
        sm_clock_mhz: Clock of the multiprocessors.
        memory_clock_mhz: Clock of the memory.
        power_w: Power in watts; most GPUs since Ampere give the average of the last second.
        temperature_c: Temperature of the chip in degrees Celsius.
        energy_mj: Energy in millijoules since the driver was loaded.
    """

    time_s: float
    reasons: tuple[str, ...]
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    energy_mj: int | None = None


@dataclass(frozen=True)
class GuardSummary:
    """What a guard saw during a race. Ranges are (lowest, highest) after a round; None where nothing was told.

    Attributes:
        guarded: Whether the GPU was watched to the end.
        reason: Why not; empty if it was.
        status: `throttled` if the slowdown outlasted all waits and slowed rounds were kept after them.
        rounds: How many were run.
        discarded: How many of them were lost.
        clock_changes: How many rounds ended with an SM clock more than 3 % from that of the round before.
        regimes: Reasons seen after a round, but `idle`; in the order of NVML's bits.
        sm_clock_mhz: Range of the SM clock.
        power_w: Range of the power.
        temperature_c: Range of the temperature.
        confidence: `low` if the race was throttled, or more than a fifth of its rounds was lost.
        confidence_reason: Why it is low, or what the `ok` does not cover; empty if there is nothing to say.
    """

    guarded: bool
    reason: str = ""
    status: Literal["ok", "throttled"] = "ok"
    rounds: int = 0
    discarded: int = 0
    clock_changes: int = 0
    regimes: tuple[str, ...] = ()
    sm_clock_mhz: tuple[int, int] | None = None
    power_w: tuple[float, float] | None = None
    temperature_c: tuple[int, int] | None = None
    confidence: Literal["ok", "low"] = "ok"
    confidence_reason: str = ""


class Guard(Protocol):
    """Watches a device during one race; a new race takes a new guard."""

    def round_ok(self) -> bool:
        """Whether the round that has just ended counts; may wait until the device has recovered."""

    def summary(self) -> GuardSummary:
        """What was seen so far."""

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The latest readings, oldest first; at most 512."""


@dataclass
class Unguarded:
    """A device that nobody watches: every round counts.

    Attributes:
        reason: Why it is not watched.
        rounds: How many rounds were run.
    """

    reason: str
    rounds: int = 0

    def round_ok(self) -> bool:
        """True."""
        self.rounds += 1
        return True

    def summary(self) -> GuardSummary:
        """The rounds, and that nothing is known of them."""
        return GuardSummary(False, self.reason, rounds=self.rounds, confidence_reason=f"not watched: {self.reason}")

    @property
    def readings(self) -> tuple[Reading, ...]:
        """None were taken."""
        return ()


class NvmlGuard:
    """Watches one NVIDIA GPU through NVML. Not safe to share among threads.

    A slowed round is discarded, and the next one waits 0.25 s, then 1 s, then 4 s; a good round starts the waits
    anew. A fourth slowed round in a row ends this: that round and all that follow are kept, and the summary says
    `throttled`. If NVML fails on the way, the guard warns once and lets every later round pass.

    Cost: six calls of the driver for each round, and no work on the GPU.

    Args:
        nvml: The `pynvml` module, initialised; shut down once when the guard is collected, or cannot be made.
        handle: NVML's handle of the GPU.
        sleep: Waits for seconds.
        clock: Seconds, monotonic.

    Raises:
        DeviceError: The GPU does not tell why its clocks are held back.
    """

    def __init__(self, nvml: Any, handle: Any, *, sleep: Sleep = time.sleep, clock: Clock = time.monotonic) -> None:
        try:
            self._sensors = _Sensors(nvml, handle, clock)
        except DeviceError:
            shut_down(nvml)
            raise
        weakref.finalize(self, shut_down, nvml)
        self._nvml = nvml
        self._sleep = sleep
        self._readings: deque[Reading] = deque(maxlen=_MOST_READINGS)
        self._before: Reading | None = None  # after the round before, if nothing but a round lies between
        self._failure = ""
        self._rounds = self._discarded = self._clock_changes = self._in_a_row = 0
        self._throttled = False

    def round_ok(self) -> bool:
        """Read the GPU and judge the round that has just ended; sleeps up to 4 s if it was slowed.

        Cost: about 2 ms on an H200 in a virtual machine, and the sleep.
        """
        self._rounds += 1
        if self._failure:
            return True
        try:
            reading = self._sensors.read()
        except self._nvml.NVMLError as error:
            self._give_up(error)
            return True
        self._note(reading)
        if SLOWED.isdisjoint(reading.reasons):
            self._in_a_row = 0
            return True
        return self._slowed()

    def summary(self) -> GuardSummary:
        """What was seen so far; words and ranges are those of `readings`, which has discarded rounds too."""
        confidence, said = self._confidence()
        return GuardSummary(
            guarded=not self._failure,
            reason=self._failure,
            status="throttled" if self._throttled else "ok",
            rounds=self._rounds,
            discarded=self._discarded,
            clock_changes=self._clock_changes,
            regimes=_regimes(self._readings),
            sm_clock_mhz=_span(reading.sm_clock_mhz for reading in self._readings),
            power_w=_span(reading.power_w for reading in self._readings),
            temperature_c=_span(reading.temperature_c for reading in self._readings),
            confidence=confidence,
            confidence_reason=said,
        )

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The latest 512 readings, one for each round, oldest first."""
        return tuple(self._readings)

    def _note(self, reading: Reading) -> None:
        self._readings.append(reading)
        if self._before is not None and _clock_changed(self._before, reading):
            self._clock_changes += 1
        self._before = reading

    def _slowed(self) -> bool:
        if self._throttled or self._in_a_row == len(_WAITS_S):
            self._throttled = True  # the race must end some day: contrasts inside slowed rounds are better than none
            return True
        self._discarded += 1
        self._sleep(_WAITS_S[self._in_a_row])
        self._in_a_row += 1
        self._before = None  # the GPU had nothing to do meanwhile, so its clock may have gone anywhere
        return False

    def _give_up(self, error: Exception) -> None:
        self._failure = f"NVML failed after round {self._rounds}: {error}"
        warnings.warn(f"the GPU is no longer watched: {self._failure}", RuntimeWarning, stacklevel=3)

    def _confidence(self) -> tuple[Literal["ok", "low"], str]:
        slowed = " and ".join(word for word in _regimes(self._readings) if word in SLOWED)
        if self._throttled:
            return "low", f"the GPU was still slowed ({slowed}) after {len(_WAITS_S)} waits; slowed rounds were kept"
        if self._discarded > _MOST_LOST * self._rounds:
            return "low", f"{self._discarded} of {self._rounds} rounds were lost to {slowed}"
        return "ok", f"not watched to the end: {self._failure}" if self._failure else ""


class _Sensors:
    """What one GPU tells through NVML; what it does not support is left out once and for all.

    Raises:
        DeviceError: It does not tell why its clocks are held back.
    """

    def __init__(self, nvml: Any, handle: Any, clock: Clock) -> None:
        self._clock = clock
        self._reasons: Callable[[], int] = lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        if failure := _failure(nvml, self._reasons):
            raise DeviceError(f"NVML does not tell why this GPU's clocks are held back: {failure}")
        sources: dict[str, Callable[[], int]] = {
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "milliwatts": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
            "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "millijoules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        }
        self._sources = {name: source for name, source in sources.items() if not _failure(nvml, source)}

    def read(self) -> Reading:
        """One reading; raises what NVML raises."""
        reasons = _words_of(self._reasons())  # first: it changes soonest after the work has ended
        values = {name: source() for name, source in self._sources.items()}
        milliwatts = values.get("milliwatts")
        return Reading(
            time_s=self._clock(),
            reasons=reasons,
            sm_clock_mhz=values.get("sm_mhz"),
            memory_clock_mhz=values.get("memory_mhz"),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=values.get("celsius"),
            energy_mj=values.get("millijoules"),
        )


def guard_for(
    device_name: str,
    *,
    nvml: Any = None,
    properties: Any = None,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> Guard:
    """The guard of a device; one that watches nothing, and says why, where it cannot be watched. Never raises.

    Args:
        device_name: Its torch name: `cpu`, `cuda` or `cuda:N`.
        nvml: What to use as `pynvml`; None imports it.
        properties: What to use as torch's properties of the device; None asks torch.
        sleep: Waits for seconds.
        clock: Seconds, monotonic.

    Cost: loads NVML the first time, and asks the driver for some ten values.
    """
    try:
        nvml, handle = open_device(device_name, nvml=nvml, properties=properties)
        return NvmlGuard(nvml, handle, sleep=sleep, clock=clock)
    except Exception as error:  # noqa: BLE001 - watching is an aid: what keeps it from working must not stop a race
        return Unguarded(str(error) or type(error).__name__)


def open_device(device_name: str, *, nvml: Any = None, properties: Any = None) -> tuple[Any, Any]:
    """NVML, initialised, and its handle of a CUDA device; the caller shuts NVML down once.

    The device is found by its UUID, or else its place on the PCI bus, never by its number: CUDA_VISIBLE_DEVICES and
    CUDA_DEVICE_ORDER renumber CUDA's devices and not NVML's. A slice of a GPU (MIG) is found by its place: clocks are
    those of the whole GPU.

    Args:
        device_name: Its torch name, `cuda` or `cuda:N`.
        nvml: As for `guard_for`.
        properties: As for `guard_for`.

    Raises:
        MissingDependencyError: `pynvml` is not installed.
        DeviceError: No such device, one that is not a GPU, or one that NVML does not know; or NVML cannot be used.
    """
    properties = _properties(device_name) if properties is None else properties
    nvml = require("pynvml", "reading the GPU's clocks") if nvml is None else nvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise DeviceError(f"NVML cannot be used: {error}", hint="it is part of NVIDIA's driver") from error
    try:
        return nvml, _handle(nvml, device_name, properties)
    except BaseException:
        shut_down(nvml)
        raise


def _properties(device_name: str) -> Any:
    if probe(device_name).kind == "cpu":
        raise DeviceError(f"the clocks of {device_name} are not read: NVML knows GPUs only", "cuda:N", device_name)
    return require("torch", "finding the GPU").cuda.get_device_properties(device_name)


def _handle(nvml: Any, device_name: str, properties: Any) -> Any:
    lookups: list[tuple[Callable[[str], Any], str]] = []
    if uuid := str(getattr(properties, "uuid", "")):
        lookups.append((nvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid.removeprefix('GPU-')}"))
    if (bus := getattr(properties, "pci_bus_id", None)) is not None:
        place = f"{properties.pci_domain_id:08x}:{bus:02x}:{properties.pci_device_id:02x}.0"
        lookups.append((nvml.nvmlDeviceGetHandleByPciBusId, place))
    for look_up, name in lookups:
        with contextlib.suppress(nvml.NVMLError):
            return look_up(name)
    names = " or ".join(name for _, name in lookups) or "anything, since this torch tells neither UUID nor bus"
    raise DeviceError(f"NVML does not find {device_name} as {names}", actual_device=device_name)


def _failure(nvml: Any, source: Callable[[], int]) -> str:
    """Why a value cannot be read; empty if it can."""
    try:
        source()
    except nvml.NVMLError as error:
        return str(error) or type(error).__name__
    return ""


def _words_of(mask: int) -> tuple[str, ...]:
    bits = [1 << n for n in range(mask.bit_length()) if mask >> n & 1]
    return tuple(_REASONS.get(bit, f"bit_{bit.bit_length() - 1}") for bit in bits)


def _clock_changed(before: Reading, after: Reading) -> bool:
    old, new = before.sm_clock_mhz, after.sm_clock_mhz
    return old is not None and new is not None and abs(new - old) > _CLOCK_CHANGE * old


def _regimes(readings: Iterable[Reading]) -> tuple[str, ...]:
    seen = {word for reading in readings for word in reading.reasons} - {"idle"}
    return (*(word for word in _REASONS.values() if word in seen), *sorted(seen.difference(_REASONS.values())))


def _span(values: Iterable[_Number | None]) -> tuple[_Number, _Number] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def shut_down(nvml: Any) -> None:
    """Give NVML back once."""
    with contextlib.suppress(nvml.NVMLError):  # it counts who uses it, and is freed with the process at the latest
        nvml.nvmlShutdown()
