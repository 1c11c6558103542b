"""The 30 problems of `many_problems` as one run on simulated GPUs: what the driver, the schedule and compilers cost.

    python -m benchmarks.many.many_simulated --gpus 1 --cpus 16
    python -m benchmarks.many.many_simulated --gpus 2 --cpus 32 --ahead 2 --out OUT.json

Everything that runs in the process of `tune_many` is real: the schedule, the searches, what they expect of configs
before any has run, the queues of the compile pools with their threads, and the run logs. What runs in other processes
takes its time asleep instead: the start of a worker; compilations, of which as many go on at a time as there are CPUs;
arguments and reference results; trials, and last comparisons. The seconds are those that `time_line --many` and run
logs of an H200 have shown (`COSTS`). A config's own time is what the ranking model expects of it, each tunable's value
off by up to a tenth; a kernel without a model has made-up times.

Where each GPU's seconds went: `worked` on trials and comparisons, `began` until its first trial, `between` from the end
of a comparison to the first trial of the next problem less the worker's own work, `waited` for compilers, `turns`
between two trials otherwise. All but `worked` is what the driver and the schedule can change. A busy machine makes all
of these longer: compare runs that were made at one time. Rows of other commits stay in the file.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.document import headed, save
from benchmarks.many.many_problems import problems
from triton_ops import Operation, TuneProblem
from triton_ops.base import Host
from triton_ops.compilation import CompilePool, SharedCpus
from triton_ops.cost_model import Model
from triton_ops.device import DeviceSpec, Machine
from triton_ops.evaluation import Assignment, FinalRequest, Outcome, StationFacts, Stations
from triton_ops.kernel_ir import KernelWork
from triton_ops.many import ManyResult, RunOptions, run_jobs, session
from triton_ops.many.executor import SPARED, Executor, LentCpus, LocalExecutor
from triton_ops.many.session import Follows
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.request import TuneOptions, request
from triton_ops.space import Config
from triton_ops.values import Compiled, Measurement, Resources, Status, Trial


class Cost(NamedTuple):
    """What one problem costs outside the driver.

    Attributes:
        compile_s: One compilation.
        setup_s: The arguments and the reference's results.
        trial_ms: One trial in the worker.
        final_s: The last comparison.
    """

    compile_s: float
    setup_s: float
    trial_ms: float
    final_s: float


COSTS = {
    "attention llama-8b-prefill": Cost(0.8, 0.25, 41.1, 1.18),
    "attention llama-8b-decode": Cost(0.8, 0.36, 35.1, 1.21),
    "attention qwen-0.5b-prefill": Cost(0.8, 0.15, 38.1, 0.60),
    "attention whisper-large": Cost(0.8, 0.67, 23.4, 1.30),
    "attention_backward qwen-0.5b-training": Cost(2.4, 0.24, 40.9, 0.57),
    "fp8_dequantize deepseek-v3-weight": Cost(0.25, 0.15, 14.0, 0.33),
    "fp8_dequantize llama-8b-by-token": Cost(0.25, 0.1, 14.0, 0.27),
    "fp8_quantize deepseek-v3-prefill": Cost(0.15, 0.1, 14.4, 0.32),
    "fp8_quantize llama-8b-by-token": Cost(0.15, 0.1, 17.8, 0.30),
    "gated_mlp_backward llama-8b-prefill": Cost(0.15, 0.15, 40.4, 1.47),
    "gated_mlp_backward qwen-7b-prefill": Cost(0.15, 0.15, 45.2, 1.61),
    "grouped_matmul mixtral-8x7b-up-decode": Cost(0.45, 0.1, 29.4, 0.90),
    "grouped_matmul qwen3-30b-up-decode": Cost(0.45, 0.1, 27.7, 1.31),
    "layer_norm falcon-40b-prefill": Cost(0.17, 0.1, 28.7, 0.77),
    "layer_norm gpt-2-training": Cost(0.17, 0.1, 25.5, 1.08),
    "layer_norm deepseek-indexer": Cost(0.17, 0.1, 23.2, 0.76),
    "layer_norm_backward falcon-40b-prefill": Cost(0.4, 0.1, 41.2, 1.04),
    "layer_norm_backward gpt-2-training": Cost(0.4, 0.1, 32.1, 0.63),
    "rmsnorm_rope llama-8b-prefill": Cost(0.2, 0.1, 20.5, 0.88),
    "rmsnorm_rope llama-8b-decode": Cost(0.2, 0.1, 13.5, 1.70),
    "rmsnorm_rope qwen-7b-prefill": Cost(0.2, 0.1, 17.1, 0.34),
    "rmsnorm_rope_backward llama-8b-prefill": Cost(0.35, 0.1, 37.2, 0.59),
    "rmsnorm_rope_backward qwen-7b-prefill": Cost(0.35, 0.1, 24.8, 0.61),
    "softmax attention-4096": Cost(0.14, 0.1, 39.6, 0.68),
    "softmax qwen-logits-prefill": Cost(0.14, 0.15, 52.2, 0.65),
    "softmax deepseek-router": Cost(0.14, 0.05, 16.1, 0.90),
    "softmax_backward attention-4096": Cost(0.1, 0.1, 49.5, 0.77),
    "softmax_backward deepseek-router": Cost(0.1, 0.05, 15.5, 0.95),
    "matmul 4096": Cost(0.3, 0.1, 22.0, 0.35),
    "matmul llama-8b-prefill": Cost(0.3, 0.1, 25.7, 0.46),
}
_WORKER_S = 2.7  # until a new worker has imported torch and Triton and has a context on its GPU
_SERVER_S = 1.0  # until the fork server has imported Triton
_PROCESS_S = 0.3  # until a compiling process has compiled its first config, beside that config's own seconds
_SPREAD = 0.3  # of the logarithm of a config's seconds of compiling
_STEP = 0.1  # by how much one tunable changes a config's time at most, where a model expects the rest
_STEP_ALONE = 0.4


class GpuClock:
    """Where the seconds of one simulated GPU went."""

    def __init__(self, start_s: float) -> None:
        self.ready_s = start_s + _WORKER_S
        self.seconds: Counter[str] = Counter()
        self._last, self._was = start_s, "began"

    def works(self, seconds: float, then: str) -> None:
        """Be busy for so many seconds; the time since it was busy last is what was said then to follow."""
        begun = time.monotonic()
        self.seconds[self._was] += begun - self._last
        time.sleep(seconds)
        self._last, self._was = time.monotonic(), then
        self.seconds["worked"] += seconds


class _Process:
    """A compiling process; `begun` says whether it has compiled anything."""

    begun = closed = False


class _Worker:
    """What the tune sees of a worker: whether it could measure."""

    def __init__(self, ready_s: float) -> None:
        self._ready_s = ready_s

    @property
    def has_written(self) -> bool:
        return time.monotonic() >= self._ready_s


class Simulated:
    """A station whose steps take their time asleep."""

    def __init__(self, assignment: Assignment, cost: Cost, clock: GpuClock) -> None:
        self.facts, self.lost = StationFacts(mode="simulated", apart=True), None
        self._problem, self._cost, self._clock = str(assignment.problem), cost, clock
        machine = Machine.of(assignment.device)
        modelled = assignment.work is not None and assignment.work.tiles is not None and machine is not None
        self._model = Model(assignment.work, machine) if modelled else None

    def attempt(self, config: Config, best: Trial | None) -> Trial:  # noqa: ARG002 - the role's signature
        """A trial with a made-up time."""
        self._clock.works(self._cost.trial_ms / 1e3, "turns")
        self.facts = StationFacts(mode="simulated", baseline=self.facts.baseline or config, apart=True)
        return Trial(config, Status.OK, Measurement((self._time_ms(config),), "simulated"))

    def finals(self, final: FinalRequest) -> Outcome:
        """The fastest trial, after the seconds of the comparison."""
        self._clock.works(self._cost.final_s, "between")
        return Outcome.of_screenings(final.trials)

    def close(self) -> None:
        """Nothing is open."""

    def _time_ms(self, config: Config) -> float:
        expected_ms = math.nan if self._model is None else self._model.expected_ms(config)
        modelled = math.isfinite(expected_ms)
        factor, step = (expected_ms, _STEP) if modelled else (1.0, _STEP_ALONE)
        for name, value in config.items():
            factor *= 1 + step * random.Random(f"{self._problem} {name} {value}").random()
        return factor


@contextmanager
def simulated_machine(cpus: int, clocks: Mapping[str, GpuClock]) -> Iterator[None]:
    """Within the block this process believes in GPUs and CPUs that are simulated.

    Args:
        cpus: How many configs compile at a time.
        clocks: The GPUs, by torch's names.
    """
    before = [(request, "probe"), (request, "gpu_missing"), (Host, "usable_cpus"), (Stations, "begin"),
              (Stations, "early_process"), (CompilePool, "_compile"), (CompilePool, "_read")]  # fmt: skip
    originals = [(place, name, getattr(place, name)) for place, name in before]
    server_ready_s = time.monotonic() + _SERVER_S
    compile_s = {_asked(problem)[0]: COSTS[label].compile_s for label, problem in problems().items()}

    def begin(_: Stations, assignment: Assignment, *__: Any, **___: Any) -> Callable[[], Simulated]:
        cost, clock = COSTS[_label_of(assignment)], clocks[assignment.device_name]
        ready_s = max(clock.ready_s, time.monotonic()) + cost.setup_s

        def opened() -> Simulated:
            time.sleep(max(0.0, ready_s - time.monotonic()))
            return Simulated(assignment, cost, clock)

        return opened

    @contextmanager
    def started_early(stations: Stations) -> Iterator[_Worker]:
        yield _Worker(clocks[stations.problem.device_name].ready_s)

    def compiled(pool: Any, config: Config) -> Compiled:
        seconds = compile_s[pool._compiler.kernel.name]
        seconds *= random.Random(config.text).lognormvariate(0.0, _SPREAD)
        with pool._one.func(_Process) as process:
            if not process.begun:
                process.begun = True
                seconds += _PROCESS_S + max(0.0, server_ready_s - time.monotonic())
            until = time.monotonic() + seconds
            while not pool.closed and (left_s := until - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.05))
        registers = 32 + random.Random(f"{config.text} registers").randrange(0, 220, 4)
        return Compiled(config, Status.OK, resources=Resources(registers, 0, 0), compile_s=seconds)

    changes: list[Any] = [
        lambda _: DeviceSpec.named("NVIDIA H200"), lambda: "", lambda: cpus, begin, started_early, compiled,
        lambda *_: KernelWork(silent="it is simulated"),
    ]  # fmt: skip
    for (place, name), change in zip(before, changes, strict=True):
        setattr(place, name, change)
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


def _label_of(assignment: Assignment) -> str:
    """The name of a problem in `COSTS`."""
    source = assignment.generated
    assert source is not None
    question = (assignment.kernel.name, source.shape, source.dtype)
    return next(label for label, problem in problems().items() if question == _asked(problem))


def _asked(problem: TuneProblem) -> tuple[str, tuple[int, ...], str | None]:
    target = problem.target
    assert isinstance(target, Operation)
    assert problem.shape is not None
    return target.kernel.name, tuple(problem.shape), problem.dtype


def simulate(gpus: int, cpus: int, ahead: int, folder: str) -> dict[str, Any]:
    """One run of all problems; its wall seconds, and where those of the GPUs went."""
    start_s, cpu_s = time.monotonic(), time.process_time()
    clocks = {f"cuda:{at}": GpuClock(start_s) for at in range(gpus)}
    common = RunOptions(each=TuneOptions(cache_dir=folder, isolate=False), devices=tuple(clocks))

    def executors(_jobs: Any, _options: RunOptions, _cpus: SharedCpus, view: Follows) -> Mapping[str, Executor]:
        lent, places = LentCpus(cpus // gpus), dict[str, LocalExecutor]()
        for device in clocks:

            def note(idle: int, device: str = device) -> None:
                if device in places:
                    lent.note(device, places[device], idle)  # type: ignore[arg-type]

            places[device] = LocalExecutor(SharedCpus(cpus // gpus, SPARED, note), device, view.listener)
        return places

    session.AHEAD = ahead
    own = patch.object(session, "_executors", executors)
    with simulated_machine(cpus, clocks), patch.dict(FollowedLockfile.SHARED, clear=True), own:
        result = run_jobs(session.jobs_of(problems().values(), common), common, told=lambda _: None, start=start_s)
    wall_s = time.monotonic() - start_s
    return {
        "gpus": gpus, "cpus": cpus, "ahead": ahead, "wall_s": wall_s, "totals": result.totals,
        "driver_cpu_s": time.process_time() - cpu_s,
        "seconds": {name: dict(clock.seconds) for name, clock in clocks.items()},
        "problems": _rows(result),
    }  # fmt: skip


def _rows(result: ManyResult) -> dict[str, Any]:
    labels = {id(problem): label for label, problem in problems().items()}
    return {
        labels[id(each.problem)]: {
            "device": each.device, "began_s": each.began_s, "ended_s": each.ended_s,
            "trials": 0 if each.result is None else len(each.result.trials),
            "waited_s": 0.0 if each.result is None else each.result.waited_s,
            "error": each.error and repr(each.error),
        }
        for each in sorted(result.outcomes, key=lambda each: each.ended_s)
    }  # fmt: skip


def main() -> None:
    """Run, print where the seconds went, and write it all if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--ahead", type=int, default=session.AHEAD)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row_of_run = simulate(options.gpus, options.cpus, options.ahead, folder)
    for label, row in row_of_run["problems"].items():
        print(f"{row['began_s']:6.2f} {row['ended_s']:6.2f} {row['device']} {label}: {row['trials']} trials, "
              f"waited {row['waited_s']:.2f} s {row['error'] or ''}")  # fmt: skip
    for name, seconds in row_of_run["seconds"].items():
        print(name, {what: round(took_s, 2) for what, took_s in seconds.items()})
    print(f"{row_of_run['wall_s']:.1f} s, the driver's CPU {row_of_run['driver_cpu_s']:.1f} s, {row_of_run['totals']}")
    if options.out is not None:
        document = json.loads(options.out.read_text()) if options.out.is_file() else {"rows": {}}
        row = headed("python -m benchmarks.many.many_simulated", options.commit, **row_of_run)
        document["rows"][f"{options.gpus} GPUs, {options.cpus} CPUs, {options.ahead} ahead, {row['commit']}"] = row
        save(options.out, document)


if __name__ == "__main__":
    main()
