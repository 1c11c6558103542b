"""The role of what measures problems on one device, and the job that it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from triton_ops.compile_pool.shared_cpus import SharedCpus
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.progress.events import Listener
from triton_ops.runner.gate import Gate
from triton_ops.trial import TuningResult


class ExecutorLostError(Exception):
    """An executor or its device is gone; the message says how. The problem may go on elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how a job is tuned in this process.

    Attributes:
        device: Torch's name of the device; None takes the problem's own.
        gate: Lets the tune have the device, and may end it.
        shared_cpus: The CPUs that compile, shared with the other jobs.
        listener: Is told of the tune's events.
        cache_dir: The folder of records and run logs, in place of the run's; None takes the run's.
    """

    device: str | None
    gate: Gate
    shared_cpus: SharedCpus
    listener: Listener
    cache_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One problem of a run, checked and ready to be tuned.

    Attributes:
        name: The id of its record's key, which tells it from all others.
        label: Kernel and problem in words.
        kernel: The kernel's name.
        problem: What the caller gave, from which the job can be made again elsewhere.
        tune: Tunes the problem in this process.
        known: The result if the winner is known; None if it is to be tuned.
        weight: How much the problem counts beside the others.
        devices: The devices that can measure it; None for all.
        worker: What a worker process for it imports, and the device that it readies; None if it runs in this process.
    """

    name: str
    label: str
    kernel: str
    problem: Any
    tune: Callable[[Place], TuningResult]
    known: Callable[[], TuningResult | None] = field(default=lambda: None)
    weight: float = 1.0
    devices: frozenset[str] | None = None
    worker: Needs | None = None


class Executor(Protocol):
    """Measures jobs on one device, one at a time; its methods return at once, and are called by one thread.

    An executor that is lost raises an `ExecutorLostError`, at once or as the exception of its future.
    """

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Begin with what jobs need before they are measured, such as compiling, while another one is measured.

        Args:
            jobs: All that are to be prepared, the next one first. What was prepared before for others is dropped.
        """

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Tune a job, which may have been prepared.

        The future has the result, which says `interrupted` if the executor was closed meanwhile and a config had run.
        Its exception is a `TritonKernelError` if the tune failed, `KeyboardInterrupt` if the executor was closed before
        any config ran, and an `ExecutorLostError` if the executor or its device is gone.

        Args:
            job: The job.
            limit_s: Seconds that it may take at most; None is no further limit.
        """

    def close(self) -> None:
        """End what is being measured and prepared, so that it can be gone on with later, and all processes."""


Ready: TypeAlias = "Callable[[str, bool], None]"
"""Is told the name of a job of which enough is prepared, and whether all is; in any thread, and returns at once."""


@runtime_checkable
class TellsReady(Protocol):
    """An executor that can tell when a job is prepared so far that measuring it need not wait."""

    def tell_ready(self, call: Ready) -> None:
        """From now on have a function called for each job that is prepared, once enough of it is, all is, or it ended.

        Args:
            call: The function.
        """
