"""The finished trials of a run, with the fastest one, the number of failures, and the modes of their times."""

from __future__ import annotations

from triton_ops.space import Config
from triton_ops.values import Trial


class Trials(dict[Config, Trial]):
    """Trials by config, as `add` takes them; that of a config which is measured again takes the place of the first.

    `best` is the fastest by its screening, None until one ran; `failed` counts failures, since a listener is told after
    each of thousands of trials.
    """

    def __init__(self, default: Config) -> None:
        super().__init__()
        self.best: Trial | None = None
        self.failed = 0
        self._default = default
        self._modes: set[str] = set()

    def add(self, trial: Trial) -> None:
        """Take a trial that has finished."""
        before = self.get(trial.config)
        self.failed += trial.failed - (before is not None and before.failed)
        self[trial.config] = trial
        if trial.measurement is not None:
            self._modes.add(trial.measurement.mode)
        if before is not None:  # it may have been the best one
            self.best = min((each for each in self.values() if each.ok), key=lambda each: each.rank, default=None)
        elif trial.ok and (self.best is None or trial.rank < self.best.rank):
            self.best = trial

    @property
    def default(self) -> Trial | None:
        """The default's trial; None until it ran, and if it failed."""
        return trial if (trial := self.get(self._default)) is not None and trial.ok else None

    @property
    def pair(self) -> list[Trial]:
        """The best and the default, as far as they ran; one trial where the default is the best."""
        return list({trial.config: trial for trial in (self.best, self.default) if trial is not None}.values())

    def of_other_modes(self, mode: str) -> list[Config]:
        """The configs whose times were taken in other modes than this one."""
        if self._modes <= {mode}:
            return []
        modes = {config: trial.measurement.mode for config, trial in self.items() if trial.measurement is not None}
        self._modes = {*modes.values()}
        return [config for config, other in modes.items() if other != mode]
