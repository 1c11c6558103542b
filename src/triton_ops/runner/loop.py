"""The loop: ask → try → tell → journal, until the search or the budget ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from triton_ops.runner.budget import RunningBudget
from triton_ops.runner.candidate import Bench
from triton_ops.runner.events import Listener, Standing
from triton_ops.runner.journal import Journal
from triton_ops.search import Searcher
from triton_ops.space import Config
from triton_ops.trial import Status, Trial

_BATCH = 8  # proposals asked for at a time


@dataclass
class Search:
    """One search, running.

    Attributes:
        bench: Tries configs.
        searcher: Proposes them.
        budget: Ends the search.
        journal: Holds every finished trial.
        listener: Hears of every finished trial.
        default: The default config, tried first.
        device_lost: Asked after a runtime failure: why the device cannot be used any more, or None.
        worthwhile: The search ends when the searcher expects to gain less than this share of the best's time.
        trials: What was tried so far, in order.
        stopped: Why it ended.
    """

    bench: Bench
    searcher: Searcher
    budget: RunningBudget
    journal: Journal
    listener: Listener
    default: Config
    device_lost: Callable[[], str | None] = lambda: None
    worthwhile: float = 0.0
    trials: dict[Config, Trial] = field(default_factory=dict)
    stopped: str = "complete"

    def run(self, first: Sequence[Config], known: Iterable[Trial] = ()) -> None:
        """Search until nothing is left or the budget is spent; Ctrl-C ends it and keeps everything.

        Args:
            first: Tried before the searcher is asked: the default, and what is worth checking.
            known: Finished trials of an interrupted run; they are taken over, not repeated.
        """
        self.trials.update((trial.config, trial) for trial in known)
        if self.trials:
            self.searcher.tell(list(self.trials.values()))
        try:
            batch: Sequence[Config] = list(dict.fromkeys(first))
            while batch and self._go_through(batch):
                batch = self._next()
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    @property
    def best(self) -> Trial | None:
        """The fastest so far by first looks."""
        return min((t for t in self.trials.values() if t.ok), key=lambda t: t.rank, default=None)

    def standing(self) -> Standing:
        """Where the search is."""
        default = self.trials.get(self.default)
        measured = default if default is not None and default.ok else None
        return Standing(len(self.trials), self.best, measured, self.budget.elapsed_s)

    def _next(self) -> Sequence[Config]:
        """What to try next; nothing when nothing is left, or too little left to gain."""
        gain = self.searcher.expected_gain()
        batch = self.searcher.ask(_BATCH)
        if batch and gain < self.worthwhile:
            self.stopped = "settled"
            return []
        return batch

    def _go_through(self, batch: Sequence[Config]) -> bool:
        """Try what is new in `batch` and tell the searcher; False when the search must end."""
        finished: list[Trial] = []
        for config in batch:
            if config in self.trials:
                continue
            if (reason := self.budget.spent(len(self.trials))) is not None:
                self.stopped = reason
                break
            finished.append(self._try(config))
            if self._lost(finished[-1]):
                break
        self.searcher.tell(finished)
        return self.stopped == "complete"

    def _try(self, config: Config) -> Trial:
        trial = self.bench.attempt(config, self.best)
        self._keep(trial)
        if trial.measurement is not None:
            self._repeat_others(trial.measurement.mode)
        self.listener.tried(trial, self.standing())
        return trial

    def _keep(self, trial: Trial) -> None:
        self.journal.add(trial)
        self.trials[trial.config] = trial

    def _repeat_others(self, mode: str) -> None:
        """Measure again what another clock measured: times of different modes are never compared."""
        others = [t.config for t in self.trials.values() if t.measurement is not None and t.measurement.mode != mode]
        for config in others:
            self._keep(self.bench.attempt(config, None))

    def _lost(self, trial: Trial) -> bool:
        if trial.status is Status.RUNTIME and self.device_lost() is not None:
            self.stopped = "device lost"
        return self.stopped != "complete"
