"""The events of a run of many problems, and the role of who follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from triton_ops.many.executor import Job
from triton_ops.progress.events import Listener
from triton_ops.trial import TuningResult


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a job.

    Attributes:
        job: The job.
        device: The device that measured it; empty if none did.
        result: Its result; None if there is none.
        error: Why there is none.
        began_s: When its measuring began, in seconds of the run.
        ended_s: When it ended.
    """

    job: Job
    device: str = ""
    result: TuningResult | None = None
    error: BaseException | None = None
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def gain(self) -> float | None:
        """The share of the default's time that the tune saved; None if not known."""
        gain = None if self.result is None or self.result.unproven else self.result.gain
        return None if gain is None or gain <= 0 else 1.0 - 1.0 / gain

    @property
    def status(self) -> str:
        """`tuned`, `known`, `failed` or `interrupted`."""
        if isinstance(self.error, KeyboardInterrupt):
            return "interrupted"
        if self.result is None:
            return "failed"
        if self.result.from_cache:
            return "known"
        return "interrupted" if self.result.stopped == "interrupted" else "tuned"


class Follows(Protocol):
    """Follows a run of many problems."""

    def listener(self, job: Job) -> Listener:
        """The listener of one job, which may be told by another thread than the run's."""

    def ended(self, ended: Ended) -> None:
        """A job has ended; called by the run's thread."""

    def lost(self, device: str, why: BaseException) -> None:
        """A device is gone, and what it measured goes on elsewhere; called by the run's thread."""
