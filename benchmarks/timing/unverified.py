"""Selections without checks and compilation: what is left of a tune when only its choice is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from triton_ops.backend import Arguments, ArgumentSet, Executable, Kernel
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import FinalRequest, Outcome, Subject
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.records import RunLog
from triton_ops.request import Effort
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.timing import SharedTimer
from triton_ops.tuner import Silent, TuningLoop
from triton_ops.values import Trial

GPU = "cuda"


def timer_on(device: DeviceSpec) -> SharedTimer:
    """The timer of a race on the GPU, with L2 cold."""
    return SharedTimer(device, GPU)


def unverified(
    kernel: Kernel,
    arguments: Arguments,
    effort: Effort,
    shared: SharedTimer,
    executables: dict[Config, Executable] | None = None,
) -> Evaluator:
    """An evaluator that checks nothing, and compiles only what is not among `executables`."""
    subject = Subject(ArgumentSet(arguments, protected=False), shared.sets)
    return Evaluator(
        kernel=kernel,
        subject=subject,
        shared_timer=shared,
        policy=effort.screen,
        executables=dict(executables or {}),
    )


@dataclass
class Unverified:
    """A station in this process that checks nothing."""

    evaluator: Evaluator
    effort: Effort
    lost: str | None = None

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try one."""
        return self.evaluator.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """The last comparison, unguarded."""
        return compare_finalists(self.evaluator, final, self.effort)

    def close(self) -> None:
        """This process holds nothing that must be given back."""


def searched(
    evaluator: Evaluator,
    space: ConfigSpace,
    default: Config,
    seed: int,
    effort: Effort,
    clock: Callable[[], float] | None = None,
) -> tuple[Trial, ...]:
    """The trials of an exhaustive search over a space, in the order taken."""
    whole = Effort(name="exhaustive", worthwhile=0.0)
    return tuple(search_of(evaluator, space, default, seed, effort, whole, clock).trials.values())


def search_of(
    evaluator: Evaluator,
    space: ConfigSpace,
    default: Config,
    seed: int,
    effort: Effort,
    limits: Effort,
    clock: Callable[[], float] | None = None,
) -> TuningLoop:
    """An exhaustive search over a space, after its end; it ends where the budget of `limits` does."""
    search = TuningLoop(
        space=replace(space, default=default),
        searcher=make_searcher("exhaustive", space, seed),
        effort=limits,
        log=RunLog(),
        listener=Silent(),
        **({} if clock is None else {"clock": clock}),
    )
    search.prepare([])
    search.run(Unverified(evaluator, effort))
    return search
