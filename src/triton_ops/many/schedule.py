"""The schedule of a run of many problems: which device measures which problem next, and prepares which one meanwhile.

The schedule is a state machine: it is told what has happened and when, and answers with orders. It holds no clock, no
thread and no device, so that a fleet of hundreds of devices and days of work can be simulated in a moment.

A problem is worth its weight times the share of its time that a tune is expected to save; those come first that are
worth most for each second of tuning. What a kernel's finished problems gained and cost corrects what is expected of
its others. A kernel whose first problem is still being measured is put off, since that problem's record is going to
guide the search on the others. The last problems of several devices are prepared and measured the longest first, where
all will be measured, so that no device waits long for the others' end.

Devices that prepare tell when a problem is ready, such as when its first configs are compiled, which takes some kernels
ten times as long as others. They measure what is ready first of all that they prepare, and begin with nothing that is
not, as long as something else may become ready. Where all will be measured, what is wholly prepared goes before what is
going to wait for the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from statistics import median
from typing import Any

from triton_ops.records import Record
from triton_ops.timing import RacePolicy

_LEAST_GAIN = RacePolicy.zone  # below which a comparison counts two configs as equal: no problem is worth nothing
_LEAST_S = 0.1


def estimates_of(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Gain and seconds of each kernel's next problem, as of `Planned`: the medians of its records, where these tell."""
    gains: defaultdict[str, list[float]] = defaultdict(list)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        seconds[record.key.kernel].append(record.elapsed_s)
        if not record.undecided and record.gain:
            gains[record.key.kernel].append(max(0.0, 1.0 - 1.0 / record.gain))
    expected: dict[str, dict[str, Any]] = {name: {"seconds": max(_LEAST_S, median(it))} for name, it in seconds.items()}
    for name, shares in gains.items():
        expected[name]["gain"] = max(_LEAST_GAIN, median(shares))
    return expected


LEAST_S = 1.0
"""Nothing is begun with fewer seconds left of the whole run."""
_FURTHER = 2  # problems that are prepared where nothing is ready
_PATIENCE_S = 20.0  # in which something becomes ready; then a free device takes what is first
_SLACK = 3.0  # a problem may take so many times its share of what is left
_LEAST_LIMIT_S = 2.0
_LAST, _LAST_PREPARED = 3, 8  # problems for each device; what takes long mostly compiles long, and begins early
_PUT_OFF = 0.5  # what a problem is worth while the first record of its kernel is under way
_MOST_LOSSES = (2, 4)  # devices lost with one problem, which is then given up: an eighth of all, in this range


class OrderStep(Enum):
    """A device's step with a problem."""

    PREPARE = "prepare"
    MEASURE = "measure"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One problem of a run; those of one kernel guide each other's search.

    A tune is expected to save `gain`, a share of its time, and to take `seconds`. The defaults are for a kernel of
    which nothing is known. `devices` None are all.
    """

    name: str
    kernel: str
    weight: float = 1.0
    gain: float = 0.2
    seconds: float = 4.0
    devices: frozenset[str] | None = None

    @property
    def rate(self) -> float:
        """The worth for each second, before anything is known of its kernel."""
        return self.weight * self.gain / self.seconds

    def runs_on(self, device: str) -> bool:
        """True if a device can measure it."""
        return self.devices is None or device in self.devices


@dataclass(frozen=True)
class Order:
    """An order to one device, to measure a problem or have all these prepared, the next one first, and no others."""

    step: OrderStep
    device: str
    names: tuple[str, ...]
    limit_s: float | None = None


@dataclass
class _Device:
    """The state of a device, which is free since `free_s`."""

    free_s: float = 0.0
    measuring: str | None = None
    ahead: list[str] = field(default_factory=list)
    ready: dict[str, bool] = field(default_factory=dict)  # whether all is prepared

    def gives_up(self, name: str) -> None:
        self.ahead.remove(name)
        self.ready.pop(name, None)


@dataclass
class _KernelGroup:
    """The problems of one kernel: those that wait, the best first, and what the finished ones gained and took."""

    waiting: list[Planned] = field(default_factory=list)
    finished: int = 0
    gained: float = 0.0
    planned_gain: float = 0.0
    took_s: float = 0.0
    planned_s: float = 0.0

    def learn(self, planned: Planned, gain: float, seconds: float) -> None:
        self.finished += 1
        self.gained += gain
        self.planned_gain += planned.gain
        self.took_s += seconds
        self.planned_s += planned.seconds

    def scale(self, planned: Planned) -> tuple[float, float]:
        """The expected gain and seconds of a problem over the planned ones; the plan counts as one problem."""
        gain = (planned.gain + self.gained) / (planned.gain + self.planned_gain) if planned.gain > 0 else 1.0
        return gain, (planned.seconds + self.took_s) / (planned.seconds + self.planned_s)


class Schedule:
    """The schedule of one run; `problems` of equal worth are measured in their order.

    A device prepares `ahead` problems while it measures one, and some more as long as none is ready. The budget left no
    time for those in `unbegun`; those in `lost` were given up, since devices were lost with them again and again.
    """

    def __init__(self, problems: Iterable[Planned], *, budget_s: float | None = None, ahead: int = 0) -> None:
        self._problems: dict[str, Planned] = {}
        self._groups: dict[str, _KernelGroup] = {}
        for each in problems:
            self._problems[each.name] = each
            self._groups.setdefault(each.kernel, _KernelGroup()).waiting.append(each)
        for group in self._groups.values():
            group.waiting.sort(key=lambda each: -each.rate)
        self._budget_s, self._ahead = budget_s, ahead
        self._devices: dict[str, _Device] = {}
        self._losses: dict[str, int] = {}
        self._most = 0  # devices there have been at a time
        self.unbegun: list[str] = []
        self.lost: list[str] = []

    @property
    def waiting(self) -> list[str]:
        """The problems that no device measures, and that are not finished, in no order of importance."""
        prepared = [name for each in self._devices.values() for name in each.ahead]
        return [*prepared, *(each.name for group in self._groups.values() for each in group.waiting)]

    def joined(self, devices: Iterable[str], now_s: float) -> list[Order]:
        """Devices are there, and free. `now_s` counts from the run's start."""
        for device in devices:
            self._devices[device] = _Device(free_s=now_s)
        self._most = max(self._most, len(self._devices))
        return list(self._orders(now_s))

    def ready(self, device: str, name: str, now_s: float, *, whole: bool = True) -> list[Order]:
        """A device has prepared a problem so far, or the whole of it, that measuring it hardly has to wait."""
        if (state := self._devices.get(device)) is None or name not in state.ahead:
            return []
        state.ready[name] = state.ready.get(name, False) or whole
        return list(self._orders(now_s))

    def looked(self, now_s: float) -> list[Order]:
        """Time has passed in which nothing happened: a free device may have waited long enough."""
        return list(self._orders(now_s))

    @property
    def waits(self) -> bool:
        """True if a device is free, and waits until something is ready."""
        return any(each.measuring is None and each.ahead for each in self._devices.values())

    def ended(self, device: str, name: str, now_s: float, *, seconds: float, gain: float | None = None) -> list[Order]:
        """A device has measured a problem, which saved `gain` of its time; None if it failed, or compared nothing."""
        state, planned = self._devices[device], self._problems[name]
        state.measuring, state.free_s = None, now_s
        if gain is not None:
            self._groups[planned.kernel].learn(planned, max(0.0, gain), seconds)
        return list(self._orders(now_s))

    def gone(self, device: str, now_s: float) -> list[Order]:
        """A device is gone: what it measured and prepared goes on elsewhere."""
        state = self._devices.pop(device)
        for name in reversed(state.ahead):
            self._wait_again(name)
        if state.measuring is not None:
            losses = self._losses[state.measuring] = self._losses.get(state.measuring, 0) + 1
            if losses < min(max(self._most // 8, _MOST_LOSSES[0]), _MOST_LOSSES[1]):
                self._wait_again(state.measuring)
            else:
                self.lost.append(state.measuring)
        return list(self._orders(now_s))

    def _wait_again(self, name: str) -> None:
        self._groups[self._problems[name].kernel].waiting.insert(0, self._problems[name])

    def _orders(self, now_s: float) -> Iterator[Order]:
        """Orders for now: the free devices measure, and each prepares some problems more."""
        left_s = None if self._budget_s is None else self._budget_s - now_s
        if left_s is not None and left_s < LEAST_S:
            yield from self._end()
            return
        for device, state in self._devices.items():
            if state.measuring is None:
                yield from self._measure(device, state, now_s, left_s)
        for device, state in self._devices.items():
            before = len(state.ahead)
            further = 0 if state.ready else _FURTHER  # where none is ready, they may all be slow
            most = self._ahead and self._ahead + (state.measuring is None) + further
            while len(state.ahead) < most and (name := self._best(device)) is not None:
                state.ahead.append(name)
            if len(state.ahead) > before:
                yield Order(OrderStep.PREPARE, device, tuple(state.ahead))

    def _end(self) -> Iterator[Order]:
        self.unbegun += self.waiting
        for group in self._groups.values():
            group.waiting = []
        for device, state in self._devices.items():
            if state.ahead:
                state.ahead, state.ready = [], {}
                yield Order(OrderStep.PREPARE, device, ())

    def _measure(self, device: str, state: _Device, now_s: float, left_s: float | None) -> Iterator[Order]:
        """A free device measures what it has prepared, else the best that waits, else what another has prepared."""
        name = self._first_ready(state)
        if name is None and self._ahead and now_s - state.free_s < _PATIENCE_S:
            candidates = (it for group in self._groups.values() for it in group.waiting if it.runs_on(device))
            if len(state.ahead) + sum(1 for _ in islice(candidates, 2)) > 1:
                return
        name = name or next(iter(state.ahead), None)
        if name is not None:
            state.gives_up(name)
        name = name or self._best(device)
        if name is None:
            prepared = ((at, name) for at, each in self._devices.items() for name in each.ahead)
            other = next((at for at, name in prepared if self._problems[name].runs_on(device)), None)
            if other is None:
                return
            name = next(it for it in reversed(self._devices[other].ahead) if self._problems[it].runs_on(device))
            self._devices[other].gives_up(name)
            yield Order(OrderStep.PREPARE, other, tuple(self._devices[other].ahead))
        state.measuring = name
        yield Order(OrderStep.MEASURE, device, (name,), None if left_s is None else self._limit_s(name, left_s))

    def _first_ready(self, state: _Device) -> str | None:
        """The prepared problem that is ready, and to be measured first; None if none is.

        Where all will be measured, one that is wholly prepared goes before one whose rest is being prepared meanwhile.
        """
        ready = [name for name in state.ahead if name in state.ready]
        if self._near_end():
            return max(ready, key=self._expected_s, default=None)
        whole = [name for name in ready if state.ready[name]] if self._budget_s is None else []
        return next(iter(whole or ready), None)

    def _best(self, device: str) -> str | None:
        """The problem that is worth most for each second on a device, or near the end the longest; it waits no more."""
        near_end = self._near_end(_LAST_PREPARED)
        best: tuple[float, _KernelGroup, Planned] | None = None
        names = [name for each in self._devices.values() for name in (each.measuring, *each.ahead) if name]
        under_way = {self._problems[name].kernel for name in names}
        for name, group in self._groups.items():
            planned = next((each for each in group.waiting if each.runs_on(device)), None)
            if planned is None:
                continue
            gain, seconds = group.scale(planned)
            worth = planned.seconds * seconds if near_end else planned.rate * gain / seconds
            if name in under_way and not group.finished:
                worth *= _PUT_OFF
            if best is None or worth > best[0]:
                best = worth, group, planned
        if best is None:
            return None
        best[1].waiting.remove(best[2])
        return best[2].name

    def _near_end(self, most: int = _LAST) -> bool:
        count = sum(len(group.waiting) for group in self._groups.values())
        return self._budget_s is None and len(self._devices) > 1 and count <= most * len(self._devices)

    def _limit_s(self, name: str, left_s: float) -> float:
        """The most that a problem may take: three times its share of what is left, and no more than is left."""
        waiting_s = sum(self._expected_s(other) for other in self.waiting)
        own_s = self._expected_s(name)
        share_s = left_s * len(self._devices) * own_s / (own_s + waiting_s)
        return min(left_s, max(_LEAST_LIMIT_S, _SLACK * share_s))

    def _expected_s(self, name: str) -> float:
        planned = self._problems[name]
        return planned.seconds * self._groups[planned.kernel].scale(planned)[1]
