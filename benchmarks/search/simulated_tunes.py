"""How near whole tunes come to the optimum, on recorded spaces: `python -m benchmarks.search.simulated_tunes`.

In a simulated tune proposals wait in the feed, and compilers take as long as they were recorded to take. The search
sees previews as they are done, and measures what is compiled first. Measurements are noisy, and the search ends where a
tune would end. Only compiling and measuring are simulated; the loop, the feed, the previews and the queue of the
compilers are a tune's own.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.document import headed, parser_of, save
from triton_ops.compilation.pool import Queue
from triton_ops.cost_model import Readings
from triton_ops.device import DeviceSpec, Machine
from triton_ops.request import Effort
from triton_ops.search import Searcher, make_searcher
from triton_ops.space import Config
from triton_ops.tuner import TuningLoop
from triton_ops.values import Compiled, Status, Trial
from triton_ops_lab.recording import Recording, read_recording
from triton_ops_lab.replayed_search import priors_for

RECORDINGS = Path(__file__).parents[1] / "recordings"
_NEAR = 0.01
_LAUNCHES = 20  # of a screening
_USUAL_COMPILE_S = 0.3  # where the recording has no time
_READ_S = 0.03  # to read what a config does from its TTIR


@dataclass(frozen=True, kw_only=True)
class LiveConditions:
    """The machine and the GPU of a simulated tune."""

    compilers: int = 16  # processes
    compilers_s: float = 1.0  # until they are ready
    worker_s: float = 3.0  # until the process that measures is ready
    trial_s: float = 0.025  # of a trial beside its launches
    noise: float = 0.01  # standard deviation of the logarithm of a measured time


@dataclass(frozen=True)
class LiveRun:
    """The outcome of one simulated tune, and why its search ended."""

    regret: float  # the time of the config that was chosen over the best recorded time, less 1
    _: KW_ONLY
    seconds: float
    trials: int
    stopped: str
    within_1pct: float | None = None  # the chance of a regret of at most 1 %, as a tune says it


def simulated(
    recording: Recording, searcher: Searcher, effort: Effort, conditions: LiveConditions, *, seed: int = 0,
    texts_read: int = 0,
) -> TuningLoop:  # fmt: skip
    """The loop of one simulated tune at its end; the `texts_read` of the kernel before its search take time."""
    start_s = conditions.compilers_s + _READ_S * texts_read / conditions.compilers
    compilers = SimulatedCompilers(recording, start_s, conditions.compilers)
    machine = Machine.of(DeviceSpec.named(recording.device))
    loop = TuningLoop(
        space=recording.space, searcher=searcher, effort=effort, pool=compilers, machine=machine, wait=compilers.wait,
        start=0.0, clock=lambda: compilers.now_s,
    )  # fmt: skip
    loop.prepare([])
    compilers.advance(max(conditions.worker_s, compilers.now_s))
    loop.run(SimulatedStation(recording, compilers, conditions, random.Random(seed)))
    return loop


def live_replay(
    recording: Recording, searcher: Searcher, effort: Effort, conditions: LiveConditions, *, seed: int = 0,
    texts_read: int = 0, modelled: bool = False,
) -> LiveRun:  # fmt: skip
    """Simulate one tune as `simulated`; `modelled` says whether the searcher has a model, for the chance it tells."""
    loop = simulated(recording, searcher, effort, conditions, seed=seed, texts_read=texts_read)
    trials = list(loop.trials.values())
    return LiveRun(
        regret_of(trials, recording, effort, loop.default), seconds=loop.budget.elapsed_s + effort.race.seconds,
        trials=len(trials), stopped=loop.stopped,
        within_1pct=loop.chance_within_1pct(modelled=modelled),
    )  # fmt: skip


class SimulatedCompilers:
    """Compilers that take as long for each config as was recorded; `now_s` passes only by what is simulated."""

    def __init__(self, recording: Recording, now_s: float, workers: int) -> None:
        self._recording, self.now_s, self.workers = recording, now_s, workers
        self._queue = Queue(max(1, workers // 2))
        self._running: list[tuple[float, int, Queue.Job]] = []
        self._count = 0

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:  # noqa: ARG002
        """Compile a config, as the compile pool does; no rule refuses any."""
        future = self._queue.add(config, spare)
        self._begin()
        return future

    def advance(self, to_s: float) -> None:
        """Let time pass, in which the compilers work."""
        while self._running and self._running[0][0] <= to_s:
            self._end_one()
        self.now_s = max(to_s, self.now_s)

    def wait(self, futures: Sequence[Future[Compiled]]) -> None:
        """Let time pass until one of the futures is done."""
        while not any(future.done() for future in futures):
            self._end_one()

    def _begin(self) -> None:
        while len(self._running) < self.workers and (job := self._queue.take()) is not None:
            took_s = self._recording.trials[job.config].compile_s or _USUAL_COMPILE_S
            self._count += 1
            heapq.heappush(self._running, (self.now_s + took_s, self._count, job))

    def _end_one(self) -> None:
        ended_s, _, job = heapq.heappop(self._running)
        self.now_s = max(ended_s, self.now_s)
        compiled = self._recording.compiled.get(job.config)
        job.future.set_result(Compiled(job.config, Status.OK, "") if compiled is None else compiled)
        self._queue.done(job)
        self._begin()


@dataclass
class SimulatedStation:
    """Answers with recorded times, each with noise, and takes the time that measuring takes, while compilers go on."""

    recording: Recording
    compilers: SimulatedCompilers
    conditions: LiveConditions
    rng: random.Random  # of the noise
    lost: str | None = None

    def attempt(self, config: Config, best: Trial | None) -> Trial:  # noqa: ARG002
        """The recorded trial with noise."""
        trial = self.recording.trials[config]
        launches_s = _LAUNCHES * trial.median_ms / 1e3 if trial.ok else 0.0
        self.compilers.advance(self.compilers.now_s + self.conditions.trial_s + launches_s)
        if trial.measurement is None:
            return trial
        noisy = trial.median_ms * math.exp(self.rng.gauss(0.0, self.conditions.noise))
        return replace(trial, measurement=replace(trial.measurement, samples_ms=(noisy,)))


def regret_of(trials: Iterable[Trial], recording: Recording, effort: Effort, default: Config) -> float:
    """The regret of the config that the last comparison chooses of those that measured well; infinite if none ran."""
    measured = sorted((trial for trial in trials if trial.ok), key=lambda trial: trial.rank)
    if not measured:
        return math.inf
    limit_ms = (1 + effort.near) * measured[0].median_ms
    near = [trial for trial in measured if trial.median_ms <= limit_ms][: effort.finalists]
    configs = {trial.config for trial in near} | {trial.config for trial in measured if trial.config == default}
    return min(recording.trials[config].median_ms for config in configs) / recording.best_ms - 1


@dataclass(frozen=True, kw_only=True)
class TunesSummary:
    """The summary of simulated tunes with one search on one recording."""

    file: str
    search: str
    within_1pct: float  # share of the tunes that chose a config within 1 % of the optimum
    regret_mean: float  # how much slower the chosen config is than the best; infinite where no config ran
    regret_worst: float  # of a tune
    promised: float | None  # the mean of the chances that the tunes told for that; None if one told none
    trials: float
    seconds: float
    stopped: dict[str, int]  # how many tunes ended for each reason


def summarised(file: str, search: str, runs: Sequence[LiveRun]) -> TunesSummary:
    """The summary of simulated tunes, at least one, that differ in their seed."""
    regrets = [run.regret for run in runs]
    told = [run.within_1pct for run in runs if run.within_1pct is not None]
    return TunesSummary(
        file=file, search=search, within_1pct=_mean(regret <= _NEAR for regret in regrets), regret_mean=_mean(regrets),
        regret_worst=round(max(regrets), 4), promised=_mean(told) if told else None,
        trials=_mean(run.trials for run in runs),
        seconds=_mean(run.seconds for run in runs), stopped=dict(Counter(run.stopped for run in runs)),
    )  # fmt: skip


def _mean(values: Iterable[float]) -> float:
    return round(statistics.fmean(values), 4)


def tuned(path: Path, effort: Effort, seeds: int, *, model: bool = True, undeclared: bool = False) -> TunesSummary:
    """The summary of simulated tunes on one recording, with a model of the work, declared or read, or none."""
    recording = read_recording(path)
    priors = priors_for(recording, undeclared) if model else []
    work = recording.work(undeclared=undeclared) if priors else None
    texts = len(work.works) if isinstance(work, Readings) else 0
    runs = [
        live_replay(
            recording, make_searcher(effort.search, recording.space, seed, priors), effort, LiveConditions(),
            seed=seed, texts_read=texts, modelled=bool(priors),
        )
        for seed in range(seeds)
    ]  # fmt: skip
    return summarised(path.name, effort.search, runs)


def main() -> None:
    """Simulate the tunes, print each summary, and save them."""
    parser = parser_of(__doc__)
    parser.add_argument("recordings", type=Path, nargs="*", default=[RECORDINGS], help="files, or folders of them")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--no-model", action="store_true")
    parser.add_argument("--undeclared", action="store_true", help="pass over declared work, for what was read")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    files = sorted(
        file for path in asked.recordings for file in ([path] if path.is_file() else path.rglob("*.json.gz"))
    )
    effort, summaries = Effort.named(asked.effort), []
    one = partial(tuned, effort=effort, seeds=asked.seeds, model=not asked.no_model, undeclared=asked.undeclared)
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        for summary in pool.map(one, files):
            summaries.append(asdict(summary))
            print(summary, flush=True)
    if asked.out:
        model = " --no-model" * asked.no_model + " --undeclared" * asked.undeclared
        command = f"python -m benchmarks.search.simulated_tunes --seeds {asked.seeds}{model}"
        save(asked.out, headed(command, asked.commit, effort=effort.name, spaces=summaries))


if __name__ == "__main__":
    main()
