"""A run of many problems simulated without time and devices, for tests of the schedule."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from triton_ops.compilation import SharedCpus
from triton_ops.many.schedule import Order, OrderStep, Planned, Schedule


@dataclass
class Fleet:
    """Devices that take their time, on a clock that jumps to the next event.

    Attributes:
        schedule: The schedule that is carried out.
        took: Seconds that a problem takes on a device.
        gain: The share that a problem's tune saves; None for one that fails.
        deaths: When a device is gone, by its name.
        prepares: Seconds after which a problem is ready on a device; infinitely many for one that never is.
        measured: Of each device, the problems that it measured to the end, with begin and end.
        ended: The problems that were measured, in the order in which they ended.
    """

    schedule: Schedule
    took: Callable[[str, str], float]
    gain: Callable[[str], float | None] = field(default=lambda _: 0.2)
    deaths: Mapping[str, float] = field(default_factory=dict)
    prepares: Callable[[str, str], float] = field(default=lambda *_: 0.0)
    now_s: float = 0.0
    measured: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    limits: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, str, str | None, bool]] = []
        self._number = itertools.count()
        self._busy: dict[str, tuple[str, float]] = {}
        self._prepared: dict[str, tuple[str, ...]] = {}

    def run(self, devices: Sequence[str]) -> Fleet:
        """Carry out the schedule on devices that are there from the start."""
        for device, at_s in self.deaths.items():
            self._push(at_s, device, None)
        self._prepared = dict.fromkeys(devices, ())
        self._do(self.schedule.joined(devices, 0.0))
        while self._events or self.schedule.waits:
            if not self._events or (self.schedule.waits and self._events[0][0] > self.now_s + 1.0):
                self.now_s += 1.0
                self._do(self.schedule.looked(self.now_s))
                continue
            self.now_s, _, device, name, ready = heapq.heappop(self._events)
            if ready and name is not None:
                self._do(self.schedule.ready(device, name, self.now_s))
            elif name is None:
                if device in self._prepared:
                    del self._prepared[device]
                    self._busy.pop(device, None)
                    self._do(self.schedule.gone(device, self.now_s))
            elif self._busy.get(device, ("",))[0] == name:
                self._end(device, name)
        return self

    def _end(self, device: str, name: str) -> None:
        _, began_s = self._busy.pop(device)
        self.measured.setdefault(device, []).append((name, began_s, self.now_s))
        self.ended.append(name)
        took = self.now_s - began_s
        self._do(self.schedule.ended(device, name, self.now_s, seconds=took, gain=self.gain(name)))

    def _do(self, orders: Sequence[Order]) -> None:
        for order in orders:
            assert order.device in self._prepared, f"an order for {order.device}, which is gone"
            if order.step is OrderStep.PREPARE:
                self._prepare(order.device, order.names)
                continue
            assert order.device not in self._busy, f"{order.device} measures two problems"
            (name,) = order.names
            elsewhere = [at for at, names in self._prepared.items() if name in names and at != order.device]
            assert not elsewhere, f"{name} is prepared on {elsewhere}, and measured on {order.device}"
            self._prepared[order.device] = tuple(each for each in self._prepared[order.device] if each != name)
            self._busy[order.device] = name, self.now_s
            self.limits[name] = order.limit_s
            took = self.took(name, order.device)
            self._push(self.now_s + (took if order.limit_s is None else min(took, order.limit_s)), order.device, name)

    def _prepare(self, device: str, names: tuple[str, ...]) -> None:
        for name in names:
            seconds = self.prepares(device, name)
            if name not in self._prepared[device] and seconds < float("inf"):
                self._push(self.now_s + seconds, device, name, ready=True)
        self._prepared[device] = names

    def _push(self, at_s: float, device: str, name: str | None, ready: bool = False) -> None:
        heapq.heappush(self._events, (at_s, next(self._number), device, name, ready))


def plans(count: int, kernels: int = 1, **more: float) -> list[Planned]:
    """So many problems of so many kernels, in turn."""
    return [Planned(name=f"p{at}", kernel=f"k{at % kernels}", **more) for at in range(count)]


def over(schedule):
    """True if nothing is being measured, and nothing that waits can be."""
    return not any(each.measuring or each.ahead for each in schedule._devices.values())


@dataclass
class Benches:
    """Executors of this process in place of a cluster's; `made` makes them from shared CPUs and a run's listeners."""

    made: Callable

    @contextmanager
    def executors(self, _jobs, _options, listener_of):
        """The executors by the names of their devices."""
        with closing(SharedCpus(4, 2)) as cpus:
            yield self.made(cpus, listener_of)
