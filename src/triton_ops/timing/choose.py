"""The choice of the clock that times a problem: one rule, applied once per tune, for all candidates alike."""

from __future__ import annotations

import logging

from triton_ops.device import DeviceSpec
from triton_ops.timing.events import DelayedQueue, EventTimer
from triton_ops.timing.graph import REPLAY_MS, CaptureError, GraphTimer, estimate_ms
from triton_ops.timing.timer import HostTimer, Launch, Timer

_log = logging.getLogger("triton_ops")


def timer_of(mode: str, name: str) -> Timer:
    """The clock for a mode that another process has chosen."""
    clock, _, cache = mode.partition("-")
    if clock == "graph":
        return GraphTimer(name, cold=cache == "cold")
    return EventTimer(name, cache=cache) if clock == "event" else HostTimer()  # type: ignore[arg-type]


def choose_timer(device: DeviceSpec, name: str, launch: Launch, *, cold: bool = True, capture: bool = True) -> Timer:
    """The clock for a problem, chosen by its default config.

    On a CPU the clock is the host's. On a GPU, a launch that is shorter than 0.2 ms and can be captured is timed by
    replays of a graph, any other launch by event pairs. L2 is made cold by taking the launch's argument sets in turn,
    or by a flush where there is only one set.

    Args:
        device: The spec of the device.
        name: Torch's name of the device.
        launch: The launch of the default config, which has run once.
        cold: Whether L2 is to hold none of the launch's data.
        capture: Whether graphs may be used; False after a candidate could not be captured.
    """
    if device.kind == "cpu":
        return HostTimer()
    several_sets = bool(launch.others)
    graphs = capture and launch.reset is None and (several_sets or not cold)
    if graphs and estimate_ms(DelayedQueue(name), launch) < REPLAY_MS:
        timer = GraphTimer(name, cold=cold)
        try:
            timer.prepare(launch)
        except CaptureError as error:
            _log.warning("%s: timed by event pairs instead", error)
        else:
            return timer
    return EventTimer(name, cache=("cold" if several_sets else "flushed") if cold else "warm")
