"""A simulated device and its clock: timings with the noise and the disturbances of a real GPU, and a known truth.

Nothing sleeps: launches move a virtual clock. Everything is drawn from seeds, so a run can be repeated. What is
graded on it are the real screen, race and decision, which cannot tell the difference.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton_ops.measure.pace import DUTY, Pace
from triton_ops.measure.timer import Launch, Pending, Sampler

_REPLAY_MS = 0.2  # a sample lasts at least this long, as with replays of a graph
_MOST_LAUNCHES = 1024
_ESTIMATE_CALLS = 5
_DELAY_MS = 0.1  # of device time that a round starts with, as the real clocks do
_PREPARE_MS = 5.0  # of host time: binding, checking and capturing a launch


@dataclass(frozen=True)
class Noise:
    """What timings on an undisturbed device are like; shares are of the launch's true time.

    The defaults are those of kernels that stay below the power limit. They were fitted to seven spaces recorded on an
    H200 with unlocked clocks, two passes over 424 to 504 configs each and three more over the 24 fastest, and to
    `benchmarks/results/nvidia-h200/facts.json`.

    Attributes:
        sample: Standard deviation of the logarithm of one sample. (p80 − p20) / 1.68 of single launches is 0.7 to
            1.7 % for configs within twice the best, so 0.4 to 0.9 % over replays of 0.2 ms; paired differences of one
            replay spread by 0.6 %. 1 % is above all of them.
        spikes: Share of samples that something else delays. Quantiles do not show it: a guess.
        spike: By how much, on average.
        drift: Standard deviation of the slow drift that is common to all. Between two passes the median of a config
            moves by 0.4 to 0.7 %, a quarter of its variance shared by neighbours.
        drift_s: Its correlation time.
        carry: Standard deviation over arms of what an arm leaves behind for the one after it. A config raced against
            itself over 60 rounds, an A/A pair, differed by up to 0.15 %.
        process: Standard deviation over arms of their bias in one process. Three processes on that H200 differed by
            0.08 to 0.33 %; published figures for other GPUs are 0.4 to 0.6 %, noise included.
        tick_ms: Step of the clock; all recorded times are multiples of it.
    """

    sample: float = 0.01
    spikes: float = 0.01
    spike: float = 0.3
    drift: float = 0.005
    drift_s: float = 1.0
    carry: float = 0.002
    process: float = 0.002
    tick_ms: float = 32e-6


POWER_CAPPED = Noise(drift=0.02, drift_s=0.08)
"""Large matrix products at the power limit: the spread of paired differences, 0.9 % in rounds of 23 ms and 3 % in
rounds of 230 ms, is that of a drift of 2 % with a correlation time of 80 ms; the level's lag-1 correlation is 0.8 and
none."""


@dataclass(frozen=True)
class Disturbance:
    """What goes on besides, as shares of the time; it hits whatever runs at that moment.

    Attributes:
        cold: How much slower everything is at first; falls to nothing over `cold_s` seconds.
        cold_s: See `cold`.
        ramp: How much slower it gets every second, until `ramp_most`.
        ramp_most: See `ramp`.
        step: Jump of the power state, up and down, on average `step_s` seconds apart.
        step_s: See `step`.
        boost: How much faster everything is on a chip at rest than under lasting load. 8192³ fp8 products take 0.82 ms
            in the first fifty launches and 0.96 ms in the next. True times are those of a chip that works for the
            share of the time that timers let it, `pace.DUTY`.
        boost_s: Time constant with which a busy chip loses it, and an idle one gets it back.
        uneven: Standard deviation over arms of their share in `boost`, which is 1 on average.
        load: How much slower everything is while another program uses the device.
        load_every_s: Mean time between such stretches.
        load_s: Mean length of such a stretch.
    """

    cold: float = 0.0
    cold_s: float = 1.0
    ramp: float = 0.0
    ramp_most: float = 0.1
    step: float = 0.0
    step_s: float = 0.5
    boost: float = 0.0
    boost_s: float = 1.0
    uneven: float = 0.05
    load: float = 0.0
    load_every_s: float = 1.0
    load_s: float = 0.2


DISTURBANCES = {
    "none": Disturbance(),
    "cold start": Disturbance(cold=0.3),
    "ramp": Disturbance(ramp=0.02),
    "power steps": Disturbance(step=0.05),
    "boost": Disturbance(boost=0.15),
    "load": Disturbance(load=0.2),
    "short loads": Disturbance(load=0.3, load_every_s=0.2, load_s=0.02),
}
"""By name: a start from idle clocks, a chip that heats up, power states, boost clocks that only a chip at rest has, and
other work on the same device, in long stretches and in many shorter than the screening of eight candidates."""


class SimulatedDevice:
    """A device on which launches take their true time, but for noise.

    Args:
        noise: What it is like when quiet.
        disturbance: What goes on besides.
        seed: Draws all that changes from sample to sample.
        process: Draws the biases of the arms; another one is a fresh process on the same device.

    Attributes:
        now_s: The virtual clock, in seconds.
        busy_s: For how much of it the device worked.
    """

    def __init__(
        self,
        noise: Noise | None = None,
        disturbance: Disturbance | None = None,
        *,
        seed: int = 0,
        process: int = 0,
    ) -> None:
        self.noise = noise or Noise()
        self.disturbance = disturbance or Disturbance()
        self.now_s = 0.0
        self.busy_s = 0.0
        self._process = process
        self._rng = random.Random(seed)
        self._drift, self._drift_at = self._rng.gauss(0.0, self.noise.drift), 0.0
        self._steps = _Switch(self.disturbance.step_s, self.disturbance.step_s, random.Random(self._rng.random()))
        self._loads = _Switch(self.disturbance.load_every_s, self.disturbance.load_s, random.Random(self._rng.random()))
        self._last: SimulatedKernel | None = None
        self._left_behind = 0.0
        self._rest = 1.0  # 1 at rest, 0 under lasting load

    def launch(self, true_ms: float, name: str) -> Launch:
        """A launch that truly takes `true_ms`; those of one name have one bias."""
        return Launch(self.kernel(true_ms, name))

    def kernel(self, true_ms: float, name: str) -> SimulatedKernel:
        """What such a launch calls."""
        own, always = random.Random(f"{self._process} {name}"), random.Random(name)
        return SimulatedKernel(
            self,
            true_ms,
            own.gauss(0.0, self.noise.process),
            own.gauss(0.0, self.noise.carry),
            always.gauss(1.0, self.disturbance.uneven),
        )

    def clock(self) -> float:
        """Seconds, monotonic: for what takes a clock."""
        return self.now_s

    def work(self, ms: float) -> None:
        """The device is busy for that long."""
        self.busy_s += ms / 1e3
        self.now_s += ms / 1e3
        self._rest *= math.exp(-ms / 1e3 / self.disturbance.boost_s)

    def idle(self, ms: float) -> None:
        """The host is busy for that long, and the device is not."""
        self.now_s += ms / 1e3
        self._rest = 1 - (1 - self._rest) * math.exp(-ms / 1e3 / self.disturbance.boost_s)

    def run(self, kernel: SimulatedKernel, launches: int) -> None:
        """A train of launches of one kernel."""
        if kernel is not self._last:
            self._left_behind = 0.0 if self._last is None else self._last.leaves
            self._last = kernel
        level = self._common() - self.disturbance.boost * (self._rest - (1 - DUTY)) * kernel.response
        level += kernel.bias + self._left_behind + self._rng.gauss(0.0, self.noise.sample)
        spike = self._rng.expovariate(1 / self.noise.spike) if self._rng.random() < self.noise.spikes else 0.0
        self.work(kernel.true_ms * launches * math.exp(level) * (1 + spike))

    def _common(self) -> float:
        """By which logarithm everything is slower now: the drift by its exact step, and the disturbances."""
        drift, now = self.noise.drift, self.now_s
        kept = math.exp((self._drift_at - now) / self.noise.drift_s)
        self._drift = self._drift * kept + self._rng.gauss(0.0, drift * math.sqrt(1 - kept * kept))
        self._drift_at = now
        it = self.disturbance
        slower = it.cold * max(1 - now / it.cold_s, 0.0) + min(it.ramp * now, it.ramp_most)
        if it.step and self._steps.on(now):
            slower += it.step
        if it.load and self._loads.on(now):
            slower += it.load
        return self._drift + math.log1p(slower)


@dataclass(frozen=True, eq=False)
class SimulatedKernel:
    """Something that takes time on a simulated device.

    Attributes:
        device: Where.
        true_ms: How long, in milliseconds.
        bias: By which logarithm it is slower in this process.
        leaves: By which logarithm whatever runs after it is slower.
        response: Its share in the boost of a chip at rest.
    """

    device: SimulatedDevice
    true_ms: float
    bias: float = 0.0
    leaves: float = 0.0
    response: float = 1.0

    @property
    def own_ms(self) -> float:
        """What it takes in this process: nothing measured there can tell more."""
        return self.true_ms * math.exp(self.bias)

    def __call__(self) -> None:
        """Run once."""
        self.device.run(self, 1)


class SimulatedTimer:
    """The clock of a simulated device, with the costs and the rests of the real ones.

    A sample is a replay of 0.2 ms or more.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self._pace = Pace(clock=device.clock, sleep=lambda seconds: device.idle(1e3 * seconds))
        self._in_round = False

    @property
    def mode(self) -> str:
        """`simulated`."""
        return "simulated"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler of trains of launches; takes 5 ms of the host's time and five launches of the device's."""
        self._device.idle(_PREPARE_MS)
        each = launches or self._calibrated(launch)

        def queue(count: int) -> Pending:
            if not self._in_round:
                raise RuntimeError("samples are queued inside a round only")
            times = [self._sample(launch, each) for _ in range(count)]
            return lambda: times

        return Sampler(queue, each)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Samples may be queued inside; starts with the rest that the device is owed, and a short delay on it."""
        with self._pace.stretch():
            self._device.work(_DELAY_MS)
            self._in_round = True
            try:
                yield
            finally:
                self._in_round = False

    def _calibrated(self, launch: Launch) -> int:
        if launch.reset is not None:
            return 1
        start = self._device.now_s
        _run(launch.call, _ESTIMATE_CALLS)
        estimate_ms = (self._device.now_s - start) * 1e3 / _ESTIMATE_CALLS
        return min(math.ceil(_REPLAY_MS / max(estimate_ms, 1e-6)), _MOST_LAUNCHES)

    def _sample(self, launch: Launch, launches: int) -> float:
        if launch.reset is not None:
            launch.reset()
        start = self._device.now_s
        _run(launch.call, launches)
        took_ms = (self._device.now_s - start) * 1e3
        tick_ms = self._device.noise.tick_ms
        return round(took_ms / tick_ms) * tick_ms / launches


class _Switch:
    """Off and on in turn, for times drawn from exponential distributions."""

    def __init__(self, mean_off_s: float, mean_on_s: float, rng: random.Random) -> None:
        self._means = (mean_off_s, mean_on_s)
        self._rng = rng
        self._state = rng.random() < mean_on_s / (mean_off_s + mean_on_s)
        self._until = self._drawn()

    def on(self, now_s: float) -> bool:
        """Whether it is on; asked with times that never fall."""
        while now_s > self._until:
            self._state = not self._state
            self._until += self._drawn()
        return self._state

    def _drawn(self) -> float:
        return self._rng.expovariate(1 / self._means[self._state])


def _run(call: Callable[[], Any], launches: int) -> None:
    """A train of launches; one of simulated kernels takes a single draw, whatever its length."""
    if isinstance(call, SimulatedKernel):
        call.device.run(call, launches)
        return
    for _ in range(launches):
        call()
