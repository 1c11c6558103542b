"""A simulated device and its clock: timings with the noise and the disturbances of a real GPU, and known true times.

Launches advance a virtual clock, and nothing sleeps. All noise is drawn from seeds, so a run can be repeated. The
screening, the race and the decision that run on the device are the real ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

from triton_ops.timing import Interval, Launch, Sampler
from triton_ops.timing.race_statistics import Z95
from triton_ops.timing.timer import DUTY, Pace, Pending


def wilson(successes: int, count: int, z: float = Z95) -> Interval:
    """Share of successes with its 95 % Wilson interval.

    Raises:
        ValueError: `count` is not positive, or `successes` is not between 0 and `count`.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"{successes} of {count} is no share")
    share = successes / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


_REPLAY_MS = 0.2  # the least length of a sample, as with replays of a graph
_MOST_LAUNCHES = 1024
_ESTIMATE_CALLS = 5
_DELAY_MS = 0.1  # the delay on the device at the start of a round, as with the real timers
_PREPARE_MS = 5.0  # host time to bind, check and capture a launch


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of timings on an undisturbed device; shares are of the launch's true time.

    The defaults are those of kernels that stay below the power limit. They were fitted to seven spaces recorded on an
    H200 with unlocked clocks, two passes over 424 to 504 configs each and three more over the 24 fastest, and to
    `benchmarks/results/nvidia-h200/facts.json`.

    Attributes:
        sample: Standard deviation of the logarithm of one sample. (p80 − p20) / 1.68 of single launches is 0.7 to
            1.7 % for configs within twice the best, so 0.4 to 0.9 % over replays of 0.2 ms; paired differences of one
            replay spread by 0.6 %. 1 % is above all of them.
        spikes: Share of samples with a delay. The share is a guess, because the recorded quantiles do not show it.
        spike: Mean delay of such a sample.
        drift: Standard deviation of the slow drift that all arms share. Between two passes the median of a config moves
            by 0.4 to 0.7 %, and neighbours share a quarter of the variance.
        drift_s: Correlation time of the drift.
        carry: Standard deviation over arms of an arm's effect on the arm after it. A config raced against itself over
            60 rounds, an A/A pair, differed by up to 0.15 %.
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
"""The noise of large matrix products at the power limit. Paired differences spread by 0.9 % in rounds of 23 ms and by
3 % in rounds of 230 ms, as with a drift of 2 % and a correlation time of 80 ms. The lag-1 correlation of the level is
0.8 in the short rounds and 0 in the long ones."""


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Disturbances of the device as shares of the time; a disturbance slows all launches that run at that moment.

    Attributes:
        cold: Slowdown at the start, which falls to 0 over `cold_s` seconds.
        cold_s: Seconds until the slowdown `cold` has ended.
        ramp: Slowdown that is added every second, up to `ramp_most`.
        ramp_most: Largest slowdown by `ramp`.
        step: Slowdown in the lower of two power states.
        step_s: Mean seconds between changes of the power state.
        boost: Speedup of a chip at rest over a chip under lasting load. 8192³ fp8 products take 0.82 ms in the first
            fifty launches and 0.96 ms in the next. True times are those of a chip that works for the share of the time
            that timers allow, `timer.DUTY`.
        boost_s: Time constant with which a busy chip loses the speedup, and an idle chip gets it back.
        uneven: Standard deviation over arms of their share in `boost`, which is 1 on average.
        load: Slowdown while another program uses the device.
        load_every_s: Mean seconds between two uses by the other program.
        load_s: Mean seconds of such a use.
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
"""Disturbances by name: a start from idle clocks, a chip that heats up, power states, boost clocks that only a chip at
rest has, and other work on the same device, for long times and for times shorter than the screening of 8 candidates."""


class SimulatedDevice:
    """A device on which launches take their true time, plus noise and disturbances.

    Args:
        noise: The noise of the undisturbed device.
        disturbance: The disturbances of the device.
        seed: Seed of all that changes from sample to sample.
        process: Seed of the biases of the arms; another number is a new process on the same device.

    Attributes:
        now_s: The virtual clock, in seconds.
        busy_s: Seconds of the virtual clock in which the device worked.
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
        """A launch with the true time `true_ms`; launches of one name have the same bias."""
        return Launch(self.kernel(true_ms, name))

    def kernel(self, true_ms: float, name: str) -> SimulatedKernel:
        """The kernel of a launch with the true time `true_ms`."""
        own, always = random.Random(f"{self._process} {name}"), random.Random(name)
        return SimulatedKernel(
            self,
            true_ms,
            bias=own.gauss(0.0, self.noise.process),
            leaves=own.gauss(0.0, self.noise.carry),
            response=always.gauss(1.0, self.disturbance.uneven),
        )

    def clock(self) -> float:
        """Monotonic seconds of the virtual clock, for functions that take a clock."""
        return self.now_s

    def work(self, ms: float) -> None:
        """Let `ms` milliseconds pass in which the device works."""
        self.busy_s += ms / 1e3
        self.now_s += ms / 1e3
        self._rest *= math.exp(-ms / 1e3 / self.disturbance.boost_s)

    def idle(self, ms: float) -> None:
        """Let `ms` milliseconds pass in which the host works and the device does not."""
        self.now_s += ms / 1e3
        self._rest = 1 - (1 - self._rest) * math.exp(-ms / 1e3 / self.disturbance.boost_s)

    def run(self, kernel: SimulatedKernel, launches: int) -> None:
        """Run a number of launches of one kernel in a row."""
        if kernel is not self._last:
            self._left_behind = 0.0 if self._last is None else self._last.leaves
            self._last = kernel
        level = self._common() - self.disturbance.boost * (self._rest - (1 - DUTY)) * kernel.response
        level += kernel.bias + self._left_behind + self._rng.gauss(0.0, self.noise.sample)
        spike = self._rng.expovariate(1 / self.noise.spike) if self._rng.random() < self.noise.spikes else 0.0
        self.work(kernel.true_ms * launches * math.exp(level) * (1 + spike))

    def _common(self) -> float:
        """The logarithm of the slowdown of all launches now: the drift by its exact step, and the disturbances."""
        drift, now = self.noise.drift, self.now_s
        memory = math.exp((self._drift_at - now) / self.noise.drift_s)
        self._drift = self._drift * memory + self._rng.gauss(0.0, drift * math.sqrt(1 - memory * memory))
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
    """A kernel that takes a known time on a simulated device.

    Attributes:
        device: The device that runs the kernel.
        true_ms: The true time of a launch.
        bias: Logarithm of the kernel's slowdown in this process.
        leaves: Logarithm of the slowdown of whichever kernel runs next.
        response: The kernel's share in the speedup of a chip at rest.
    """

    device: SimulatedDevice
    true_ms: float
    _: KW_ONLY
    bias: float = 0.0
    leaves: float = 0.0
    response: float = 1.0

    @property
    def own_ms(self) -> float:
        """The time in this process, bias included, which no measurement in this process can separate."""
        return self.true_ms * math.exp(self.bias)

    def __call__(self) -> None:
        """Run the kernel once."""
        self.device.run(self, 1)


class SimulatedTimer:
    """The timer of a simulated device, with the costs and the rests of the real timers.

    A sample lasts 0.2 ms or more, like a replay of a graph.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self._pace = Pace(clock=device.clock, sleep=lambda seconds: device.idle(1e3 * seconds))
        self._in_round = False

    @property
    def mode(self) -> str:
        """The mode is `simulated`."""
        return "simulated"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler of launches in a row; making it takes 5 ms of the host and five launches on the device."""
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
        """The context in which samples are queued; it begins with the rest that is due and a delay on the device."""
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
    """A state that is off and on in turn, for times drawn from exponential distributions."""

    def __init__(self, mean_off_s: float, mean_on_s: float, rng: random.Random) -> None:
        self._means = (mean_off_s, mean_on_s)
        self._rng = rng
        self._state = rng.random() < mean_on_s / (mean_off_s + mean_on_s)
        self._until = self._drawn()

    def on(self, now_s: float) -> bool:
        """Whether the state is on; the times of the calls must not fall."""
        while now_s > self._until:
            self._state = not self._state
            self._until += self._drawn()
        return self._state

    def _drawn(self) -> float:
        return self._rng.expovariate(1 / self._means[self._state])


def _run(call: Callable[[], Any], launches: int) -> None:
    """Run launches in a row; for a simulated kernel, all of them share one draw of the noise."""
    if isinstance(call, SimulatedKernel):
        call.device.run(call, launches)
        return
    for _ in range(launches):
        call()
