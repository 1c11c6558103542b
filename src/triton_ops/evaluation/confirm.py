"""Finalists measured again in fresh processes: how fast a kernel runs differs a little from process to process.

Where data lies in memory, and what ran before, is fixed for the life of a process and favours one config or another
by up to a few tenths of a percent; no number of rounds in one process averages that out. Each process here loads the
operation by its import path, so user code must be importable, and measures all finalists side by side.
"""

from __future__ import annotations

import json
import logging
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from triton_ops.backend import Operation, private_copy
from triton_ops.measure import Arm, Launch, RacePolicy, interleave, take, timer_of
from triton_ops.measure.decision import relative_levels
from triton_ops.processes.child import Surroundings, command, die_with, import_heavy
from triton_ops.processes.locate import Location, load
from triton_ops.processes.reload import reloaded
from triton_ops.space import Config
from triton_ops.task.task import make_task, rotation

_log = logging.getLogger("triton_ops")

_TIMEOUT_S = 120.0  # imports, loading from the compile cache, and the rounds take about 10
_MARK = "triton-ops confirm:"


@dataclass(frozen=True)
class Job:
    """What one process measures.

    Attributes:
        location: The operation.
        shape: Extents of the problem; None is the default.
        dtype: Dtype of the problem; None for an operation without a choice.
        device: Torch device name.
        mode: The race's mode; times of another one would not be comparable.
        configs: What is measured, side by side.
        rounds: How often each is visited.
        seed: Draws the orders, and the inputs.
    """

    location: Location
    shape: tuple[int, ...] | None
    dtype: str | None
    device: str
    mode: str
    configs: list[dict[str, Any]]
    rounds: int
    seed: int


def levels_elsewhere(job: Job, processes: int) -> list[list[float]]:
    """Per process, how slow each config is relative to the others, as a logarithm; smaller is faster.

    A process that fails is left out with a warning.

    Cost: about 10 s per process on a GPU, one after another.
    """
    found = (_run(msgspec.structs.replace(_Wire.of(job), seed=job.seed + n)) for n in range(1, processes + 1))
    return [relative_levels(rows) for rows in found if rows is not None]


class _Wire(msgspec.Struct):
    """A job as it is sent to the process."""

    job: dict[str, Any]
    seed: int
    surroundings: Surroundings

    @classmethod
    def of(cls, job: Job) -> _Wire:
        return cls(asdict(job), job.seed, Surroundings.here())


def _run(wire: _Wire) -> list[list[float]] | None:
    gpu = wire.job["device"].startswith("cuda")  # which this process may use through others, without torch
    imports = [name for name in ("torch", "triton") if name in sys.modules or (gpu and name == "torch")]
    try:
        done = subprocess.run(
            command("triton_ops.evaluation.confirm", os.getpid(), *imports),
            input=msgspec.json.encode(wire),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        _log.warning("a process that should confirm the winner did not end within %.0f s", _TIMEOUT_S)
        return None
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith(_MARK)]
    if done.returncode or not lines:
        last = done.stderr.decode().strip().splitlines()[-1:] or ["no output"]
        _log.warning("a process that should confirm the winner failed: %s", last[0])
        return None
    rows: list[list[float]] = json.loads(lines[-1].removeprefix(_MARK))
    return rows


def measured_rows(job: Job) -> list[list[float]]:
    """Block medians of the job's configs in this process, side by side, in milliseconds."""
    operation: Operation = reloaded(job.location) if job.location.script else load(job.location)
    task = make_task(operation, shape=job.shape, dtype=job.dtype, device=job.device, seed=job.seed)
    arguments = task.arguments()
    cold = job.mode.endswith("-cold")
    sets = [arguments, *(private_copy(arguments) for _ in range(rotation(task, arguments) - 1 if cold else 0))]
    timer = timer_of(job.mode, job.device)
    arms = []
    for values in job.configs:
        config = Config.from_json(values)
        artifact = operation.kernel.compile(config, arguments)
        first, *others = [operation.kernel.bind(artifact, given) for given in sets]
        first()
        sampler = timer.prepare(Launch(first, copies=tuple(others)))
        sample_ms = statistics.median(take(sampler, timer, 3)) * sampler.launches
        arms.append(Arm(sampler, RacePolicy().samples(sample_ms)))
    interleave(arms, timer, rounds=job.rounds, rng=random.Random(job.seed))
    return [arm.medians_ms for arm in arms]


def main() -> None:
    """Read a job, measure, print the rows on a line of their own."""
    die_with(int(sys.argv[2]))
    wire = msgspec.json.decode(sys.stdin.buffer.read(), type=_Wire)
    job = msgspec.convert({**wire.job, "seed": wire.seed}, Job)
    out = os.dup(1)
    os.dup2(2, 1)  # what user code prints is not the answer
    import_heavy(sys.argv[3:], "confirming")
    wire.surroundings.take()
    rows = measured_rows(job)
    os.write(out, f"{_MARK}{json.dumps(rows)}\n".encode())


def agreed(own: Sequence[float], elsewhere: Sequence[Sequence[float]]) -> list[list[float]]:
    """Per config its levels in all processes, this one's first: the rows of a decision whose rounds are processes."""
    return [list(column) for column in zip(own, *elsewhere, strict=True)]
