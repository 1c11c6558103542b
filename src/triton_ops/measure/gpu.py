"""Device time on a GPU: an event pair around each launch, L2 cold, the host out of the way.

A block of samples is queued behind a delay on the device, so that the host's launch overhead happens while the GPU
is busy and never inside a timed region. The flush, and resets of in-place arguments, stand outside the event pairs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from triton_ops._optional import require
from triton_ops.measure.timer import Launch

_FLUSH_FACTOR = 2  # times the L2: a write of exactly its size leaves parts of it in place
_LEAST_FLUSH_BYTES = 32 << 20
_CYCLES_PER_MS = 1_500_000  # of the delay kernel; GPUs run at 1 to 2 GHz, and a longer delay does no harm
_FIRST_DELAY_MS = 0.5
_CALIBRATION_COUNT = 10
_HOST_MATTERS_MS = 0.2  # launches longer than this fill the queue by themselves
_LONGEST_DELAY_MS = 64.0


class EventTimer:
    """Events on the current stream of one GPU.

    Resolution is that of the device's events, about 1 µs on an H200. Not safe to share among threads.

    Args:
        device: `cuda` or `cuda:N`.
        cold: Whether L2 is overwritten before every launch.
    """

    def __init__(self, device: str = "cuda", *, cold: bool = True) -> None:
        self._torch = require("torch", "timing on a GPU")
        self._device = self._torch.device(device)
        self._cold = cold
        self._delay_ms = _FIRST_DELAY_MS

    @property
    def mode(self) -> str:
        """`event-cold`, or `event-warm` if L2 is left as the launch before left it."""
        return "event-cold" if self._cold else "event-warm"

    def launches_per_sample(self, launch: Launch) -> int:
        """One: every launch has an event pair of its own. Lengthens the delay until the host keeps ahead."""
        while self._block(launch, 1, _CALIBRATION_COUNT) and self._delay_ms < _LONGEST_DELAY_MS:
            self._delay_ms *= 2
        return 1

    def sample(self, launch: Launch, launches: int, count: int) -> list[float]:
        """Time `count` runs of `launches` launches; waits for the device."""
        times: list[float] = []
        self._block(launch, launches, count, times)
        return times

    def _block(self, launch: Launch, launches: int, count: int, times: list[float] | None = None) -> bool:
        """Fill `times`; tell whether a short launch may have waited for the host."""
        torch = self._torch
        with torch.cuda.device(self._device):
            if self._cold:
                self._flush.zero_()  # the first one allocates, which may wait for the device: not behind the delay
            pairs = [(self._event(), self._event()) for _ in range(count)]
            torch.cuda._sleep(int(self._delay_ms * _CYCLES_PER_MS))
            delayed = torch.cuda.Event()
            delayed.record()
            for start, end in pairs:
                self._timed(launch, launches, start, end)
            delay_ran_out = bool(delayed.query())
            torch.cuda.synchronize()
        took = [start.elapsed_time(end) / launches for start, end in pairs]
        if times is not None:
            times.extend(took)
        return delay_ran_out and min(took, default=0.0) * launches < _HOST_MATTERS_MS

    def _timed(self, launch: Launch, launches: int, start: Any, end: Any) -> None:
        if launch.reset is not None:
            launch.reset()
        if self._cold:
            self._flush.zero_()
        start.record()
        for _ in range(launches):
            launch.call()
        end.record()

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    @cached_property
    def _flush(self) -> Any:
        torch = self._torch
        l2_bytes = getattr(torch.cuda.get_device_properties(self._device), "L2_cache_size", 0)
        size = max(_FLUSH_FACTOR * l2_bytes, _LEAST_FLUSH_BYTES)
        return torch.empty(size, dtype=torch.uint8, device=self._device)
