"""Selections without checks and compilation: what is left of a tune when only its choice is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from triton_ops.backend import Arguments, Artifact, Kernel
from triton_ops.evaluation.candidate import Bench
from triton_ops.evaluation.finals import Outcome
from triton_ops.evaluation.station import Facts, Final
from triton_ops.evaluation.verify import Verifier
from triton_ops.history.run_log import RunLog
from triton_ops.measure import Launch, ScreenPolicy, Timer
from triton_ops.runner.events import Silent
from triton_ops.runner.feed import DirectFeed
from triton_ops.runner.loop import Search
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.task.budget import Budget, RunningBudget
from triton_ops.trial import Trial


class Unchecked:
    """In a verifier's place: runs every config once and finds nothing wrong."""

    restores = False

    def __init__(self, kernel: Kernel, arguments: Arguments) -> None:
        self._kernel = kernel
        outputs = [arguments.keyword[name] for name in kernel.outputs]
        self.cases = [SimpleNamespace(bed=SimpleNamespace(arguments=arguments, outputs=outputs))]

    def wrong(self, artifact: Artifact) -> None:
        """Run it."""
        self._kernel.bind(artifact, self.cases[0].bed.arguments)()

    def left(self, _more: Any = ()) -> None:
        """Nothing is looked at."""


def bare_bench(
    kernel: Kernel,
    arguments: Arguments,
    policy: ScreenPolicy,
    choose: Callable[[Launch, bool], Timer],
    copies: Callable[[Arguments], int] = lambda _: 1,
    artifacts: dict[Config, Artifact] | None = None,
) -> Bench:
    """A bench that checks nothing, and compiles only what is not among `artifacts`."""
    verifier = cast("Verifier", Unchecked(kernel, arguments))
    return Bench(kernel, verifier, policy, choose, copies, artifacts=dict(artifacts or {}))


@dataclass
class Bare:
    """A station in this process."""

    bench: Bench

    @property
    def facts(self) -> Facts:
        """What the search asks for."""
        return Facts(self.bench.timer.mode if self.bench.timer else None)

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try one."""
        return self.bench.attempt(config, best)

    def finals(self, final: Final) -> Outcome:
        """Not asked for: the race is called by itself."""
        raise NotImplementedError(final)

    def close(self) -> None:
        """Nothing to give back."""


def searched(
    bench: Bench, space: ConfigSpace, default: Config, seed: int, clock: Callable[[], float] | None = None
) -> dict[Config, Trial]:
    """The trials of an exhaustive search over a space, in the order taken."""
    budget = RunningBudget(Budget(), clock) if clock else RunningBudget(Budget())
    search = Search(space, make_searcher("exhaustive", space, seed), budget, RunLog(), Silent(), default, DirectFeed())
    search.prepare([default])
    search.run(Bare(bench))
    return search.trials
