"""One config space screened on several equal GPUs; the finalists race on one.

Each GPU has a station of its own in a thread, which measures the default beside each config, so that scores are ratios
that the GPUs share. The first config goes to all; a GPU takes part once it has the same config for its baseline. What
fails on another GPU than the first is tried there again, and only that trial counts: a failure is the config's only if
it does not depend on the GPU. A GPU that cannot run what the first one runs, that times in another mode, or whose
default is far slower, is put aside. One whose default is off by more than the noise goes on, and what it finds good is
screened once more on the GPU of the finals.

Each screening is a ratio to the default, which is timed in turn with the candidate on the same GPU. The candidate's
time over that ratio is therefore the default's time there and then, and nothing is measured for this comparison alone.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial

from triton_ops.backend import one_line
from triton_ops.evaluation.finals import FinalRequest, finalists
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.station import Station, StationFacts
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import start_thread
from triton_ops.request import GRACE_S, Effort
from triton_ops.space import Config
from triton_ops.timing import INDIFFERENCE, Z95, Interval, median_error, robust_sigma, small_sample
from triton_ops.values import Status, Trial

_LEAST = 4  # values of each GPU, as in a race
_LATEST = 16  # values by which it is seen that a GPU has become slow
SLOW = 0.10
"""A GPU whose default is slower by more than this share measures nothing more: something is wrong with it."""


class DefaultTimes:
    """The default's times on the GPUs of one tune."""

    def __init__(self) -> None:
        self._all: dict[str, list[float]] = defaultdict(list)
        self._latest: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))

    def note(self, gpu: str, trial: Trial) -> None:
        """Note what a finished trial says of the default's time on its GPU, if it has a ratio to the default."""
        if trial.measurement is None or not trial.relative or trial.same_code_as is not None:
            return
        own_ms = trial.measurement.median_ms / trial.relative
        if own_ms > 0:
            self._all[gpu].append(math.log(own_ms))
            self._latest[gpu].append(math.log(own_ms))

    def median_ms(self, gpu: str) -> float | None:
        """The median of the default's times on a GPU, the latest ones; None if there are too few to say."""
        found = self._latest[gpu]
        return math.exp(statistics.median(found)) if len(found) >= _LEAST else None

    def apart(self, gpu: str, other: str) -> float:
        """The share by which the default is slower on a GPU than on another, over the whole run; negative if faster.

        It is 0 if the difference is within the noise: the indifference zone of decisions, or the 95 % interval of the
        difference where that is wider; and where one of the two has too few values.
        """
        if min(len(self._all[gpu]), len(self._all[other])) < _LEAST:
            return 0.0
        own, its = _level(self._all[gpu]), _level(self._all[other])
        centre = own.centre - its.centre
        return math.expm1(centre) if abs(centre) > max(INDIFFERENCE, math.hypot(own.margin, its.margin)) else 0.0

    def slow(self, gpu: str, other: str) -> float:
        """The share by which the default is slower on a GPU than on another lately, if that is too much; else 0."""
        own_ms, its_ms = self.median_ms(gpu), self.median_ms(other)
        share = 0.0 if own_ms is None or its_ms is None else own_ms / its_ms - 1.0
        return share if share > SLOW else 0.0


def _level(values: list[float]) -> Interval:
    centre = statistics.median(values)
    margin = Z95 * small_sample(len(values)) * median_error(robust_sigma(values), len(values))
    return Interval(centre, centre - margin, centre + margin)


_log = logging.getLogger("triton_ops")

_AHEAD = 2  # configs that a GPU is given: one that it tries, and one for the moment in which that one is written down
_LOOK_S = 0.002  # between two looks whether something was compiled for a GPU that has room
_MAY_BE_THE_GPU = (Status.RUNTIME, Status.CRASH, Status.TIMEOUT, Status.WRONG)


@dataclass(frozen=True)
class _Asked:
    """A config that a GPU is asked to try; one that does not count is tried for the default's time there alone."""

    config: Config
    best: Trial | None
    counts: bool = True


@dataclass(frozen=True)
class _Answer:
    """What became of a question; without one, of opening the station."""

    gpu: _Gpu
    asked: _Asked | None
    trial: Trial | None = None
    error: BaseException | None = None


class _Gpu:
    """One GPU: its station, and the thread that has it try configs, one after another.

    Attributes:
        busy: Configs that it was asked to try, and has not answered.
        ready: Whether it takes part: its baseline is that of the first GPU.
        aside: Why it takes no further part; empty if it may.
        asked_baseline: Whether it was asked to try the baseline of the first GPU.
        keep: Is called with each trial, before the next one begins.
    """

    def __init__(self, name: str, opened: Callable[[], Station], answers: queue.SimpleQueue[_Answer]) -> None:
        self.name, self._opened, self._answers = name, opened, answers
        self.station: Station | None = None
        self.busy, self.ready, self.aside, self.asked_baseline = 0, False, "", False
        self._questions: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._trying, self._ended = threading.Lock(), False
        self.keep: Callable[[Trial], None] = lambda _: None
        whose = threading.current_thread().name  # a run of many problems has one for each
        serve = partial(copy_context().run, self._serve)  # a worker after a death is given what the first one was
        self._thread = threading.Thread(target=serve, name=f"{whose} on {name}", daemon=True)
        start_thread(self._thread)

    def ask(self, asked: _Asked) -> None:
        """Have a config tried after those before it; this returns at once."""
        self.busy += 1
        self._questions.put(asked)

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try a config now, after the one that is being tried."""
        assert self.station is not None
        with self._trying:
            return self.station.attempt(config, best)

    def end(self) -> None:
        """Have the thread close the station and end, after what is being tried."""
        self._ended = True  # what waits is not tried any more
        self._questions.put(None)

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended within so many seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self.station = self._opened()
        except BaseException as error:  # noqa: BLE001 - the thread that has begun this hears of it
            self._answers.put(_Answer(self, None, error=error))
            return
        self._answers.put(_Answer(self, None))
        while (asked := self._questions.get()) is not None and not self._ended:
            self._answers.put(self._answered(asked))
        self.station.close()

    def _answered(self, asked: _Asked) -> _Answer:
        try:
            trial = self.attempt(asked.config, asked.best)
            self.keep(trial)
            return _Answer(self, asked, trial)
        except BaseException as error:  # noqa: BLE001 - as above
            return _Answer(self, asked, error=error)


class SideBySide:
    """A station that screens on several GPUs at a time, and runs the last comparison on one.

    Its methods are called by one thread.

    Args:
        first: The name of the GPU of the finals, and its station, which is open.
        others: The further GPUs, and for each a function that opens its station, which is called in a thread.
        effort: How near the best a finalist must be.

    Attributes:
        leader: The name of the GPU of the finals; another one if the default turns out far slower there.
    """

    def __init__(self, first: tuple[str, Station], others: Mapping[str, Callable[[], Station]], effort: Effort) -> None:
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        name, station = first
        self._lead = _Gpu(name, lambda: station, self._answers)
        self._lead.station, self._lead.ready = station, True
        self._gpus = [self._lead, *(_Gpu(each, opened, self._answers) for each, opened in others.items())]
        self._effort = effort
        self._times = DefaultTimes()
        self._begun = self._raced = False
        self._finished: list[Trial] = []
        self._where: dict[Config, _Gpu] = {}
        self._programs: dict[str, _Gpu] = {}
        self._failed: dict[Config, _Gpu] = {}  # and is tried again by the leader
        self._apart: dict[str, float] = {}

    @property
    def leader(self) -> str:
        """The name of the GPU of the finals."""
        return self._lead.name

    @property
    def facts(self) -> StationFacts:
        """The facts of the GPU of the finals; notes say which GPU has screened how many configs, and what was off."""
        found = self._station_of(self._lead).facts
        if len(self._gpus) == 1:
            return found
        return replace(found, notes=(*found.notes, *self._notes()))

    @property
    def room(self) -> int:
        """Two configs for each GPU that takes part, so that none waits for this thread, less those that it has."""
        self._hear_all()
        return sum(max(0, _AHEAD - gpu.busy) for gpu in self._gpus if gpu.ready)

    def keep_with(self, keep: Callable[[Trial], None]) -> None:
        """Have each trial kept before the next one begins: on one GPU alone, where each trial is taken."""
        if len(self._gpus) == 1:
            self._lead.keep = keep

    def begin(self, config: Config, best: Trial | None, program: str | None = None) -> None:
        """Begin to try a config: on the GPU that has run an equal program, where one has, else where least waits."""
        gpu = self._programs.get(program or "")
        if gpu is None or gpu.aside:
            gpu = min((each for each in self._gpus if each.ready), key=lambda each: each.busy, default=self._lead)
        if program is not None:
            self._programs[program] = gpu
        gpu.ask(_Asked(config, best))
        if not self._begun:
            for other in self._gpus[1:]:
                other.ask(_Asked(config, None, counts=False))
        self._begun = True

    def take(self, ready: Callable[[], bool]) -> list[Trial]:
        """The trials that have finished since this was asked; none where a GPU has room, and something is ready for it.

        Raises:
            TritonKernelError: As `attempt` of the station that runs the finals.
            KeyboardInterrupt: The tune is to end.
        """
        while True:
            room = self.room  # hears what has finished
            if self._finished or (room and ready()):
                break
            with contextlib.suppress(queue.Empty):
                self._hear(self._answers.get(timeout=_LOOK_S if room else None))
        found, self._finished = self._finished, []
        return found

    def again(self, trials: Iterable[Trial]) -> list[Config]:
        """Those that would be finalists, and were screened on a GPU whose default is off."""
        self._note_apart()
        doubted = {gpu for gpu in self._gpus if gpu is not self._lead and (gpu.aside or gpu.name in self._apart)}
        if not doubted:
            return []
        share = max((abs(off) for off in self._apart.values()), default=0.0)
        wider = replace(self._effort, near=(1 + self._effort.near) * (1 + share) - 1)
        found = finalists({trial.config: trial for trial in trials}, wider, ())
        return [trial.config for trial in found if self._where.get(trial.config) in doubted]

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` on the GPU of the finals, and wait for it."""
        self._where[config] = self._lead
        return self._lead.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison on one GPU; the others are given back first."""
        self._note_apart()
        self._raced = True
        for gpu in self._gpus:
            if gpu is not self._lead:
                gpu.end()
        return self._station_of(self._lead).finals(final)

    def close(self) -> None:
        """Close all stations, after what each is trying; one that does not end within half a minute is left behind."""
        for gpu in self._gpus:
            gpu.end()
        until = time.monotonic() + GRACE_S
        for gpu in self._gpus:
            if not gpu.join(until - time.monotonic()):
                _log.warning("what runs on %s does not end: it is left behind", gpu.name)

    def _hear_all(self) -> None:
        while not self._answers.empty():  # nobody else takes from it
            self._hear(self._answers.get())

    def _hear(self, answer: _Answer) -> None:
        gpu, asked = answer.gpu, answer.asked
        gpu.busy -= asked is not None
        if answer.error is not None:
            self._take_error(gpu, asked, answer.error)
        elif asked is not None and answer.trial is not None:
            self._times.note(gpu.name, answer.trial)
            if asked.counts:
                self._take_trial(gpu, asked, answer.trial)
            self._look_for_slow_ones()
        for other in self._gpus:
            if not (other.ready or other.aside or other.busy or other.station is None):
                self._admit(other)

    def _take_error(self, gpu: _Gpu, asked: _Asked | None, error: BaseException) -> None:
        if gpu is self._lead or not isinstance(error, Exception):
            raise error
        self._put_aside(gpu, error.message if isinstance(error, TritonKernelError) else one_line(error))
        if asked is None:  # its station was not opened, so that nothing answers what it was asked meanwhile
            gpu.busy = 0
        elif asked.counts:
            self._lead.ask(asked)

    def _take_trial(self, gpu: _Gpu, asked: _Asked, trial: Trial) -> None:
        """Take a trial that counts, unless it says more of its GPU than of its config."""
        if gpu is not self._lead:
            fails = trial.status in _MAY_BE_THE_GPU
            if fails:
                self._failed[asked.config] = gpu
            elif trial.measurement is not None and trial.measurement.mode != self._station_of(self._lead).facts.mode:
                self._put_aside(gpu, f"it times in another mode, {trial.measurement.mode}")
            if fails or gpu.aside:
                self._lead.ask(asked)
                return
        elif trial.ok and (failed := self._failed.pop(asked.config, None)) is not None and failed is not gpu:
            self._put_aside(failed, f"config ({asked.config}) failed there, and runs on {gpu.name}")
        self._where[asked.config] = gpu
        self._finished.append(trial)

    def _admit(self, gpu: _Gpu) -> None:
        """Have a GPU take part if its baseline is the leader's, have it try that one, or put it aside."""
        here, there = self._station_of(self._lead).facts, self._station_of(gpu).facts
        if here.mode is None or here.baseline is None:
            return  # nothing has worked yet
        if there.mode is None or there.baseline is None:
            if gpu.asked_baseline:
                self._put_aside(gpu, f"config ({here.baseline}) does not run there, and runs on {self.leader}")
            else:
                gpu.asked_baseline = True
                gpu.ask(_Asked(here.baseline, None, counts=False))
        elif there.baseline != here.baseline:
            self._put_aside(gpu, f"config ({here.baseline}) does not run there, and runs on {self.leader}")
        elif there.mode != here.mode:
            self._put_aside(gpu, f"it times in another mode, {there.mode}")
        else:
            gpu.ready = True

    def _look_for_slow_ones(self) -> None:
        """Put GPUs aside whose default is far slower than on the fastest one, which leads if the leader is slow."""
        among = [(ms, gpu) for gpu in self._gpus if gpu.ready and (ms := self._times.median_ms(gpu.name)) is not None]
        if len(among) < 2:
            return
        fastest = min(among, key=lambda one: one[0])[1]
        for _, gpu in among:
            if share := self._times.slow(gpu.name, fastest.name):
                if gpu is self._lead:
                    self._lead = fastest
                self._put_aside(gpu, f"the default takes {100 * share:.0f} % longer there than on {fastest.name}")

    def _put_aside(self, gpu: _Gpu, why: str) -> None:
        if not gpu.aside:
            gpu.aside, gpu.ready = why, False
            _log.warning("%s is put aside: %s", gpu.name, why)

    def _note_apart(self) -> None:
        """Note which GPUs' defaults are off from the leader's by more than the noise."""
        for gpu in self._gpus:
            off = 0.0 if gpu is self._lead else self._times.apart(gpu.name, self.leader)
            if off and gpu.name not in self._apart:
                self._apart[gpu.name] = off
                _log.warning("%s is told apart: the default takes %+.1f %% as long there", gpu.name, 100 * off)

    def _notes(self) -> list[str]:
        counts = Counter(self._where.values())
        each = ", ".join(f"{counts[gpu]} on {gpu.name}" for gpu in self._gpus)
        raced = f"; the finalists raced on {self.leader}" if self._raced else ""
        notes = [f"configs were screened side by side, {each}{raced}"]
        notes += [f"{gpu.name} was put aside: {gpu.aside}" for gpu in self._gpus if gpu.aside]
        for name, off in self._apart.items():
            word = "longer" if off > 0 else "shorter"
            notes.append(
                f"the default takes {abs(off):.1%} {word} on {name} than on {self.leader}, more than the noise: "
                "what seemed good there was screened again"
            )
        return notes

    @staticmethod
    def _station_of(gpu: _Gpu) -> Station:
        assert gpu.station is not None
        return gpu.station
