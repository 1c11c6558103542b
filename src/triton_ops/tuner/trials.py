"""The finished trials of a run: the fastest one, the modes of their times, and the configs that they suggest."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from triton_ops.device import Machine
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
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


_LIMITED, _MOST_LIMITED = 2, 8  # fastest configs whose limits are tried at a time, and limits in a tune


def limited_registers(space: ConfigSpace, machine: Machine | None, trials: Collection[Trial]) -> list[Config]:
    """The fastest configs of trials with other limits of registers; none of a space that leaves no limit open.

    ptxas settles by itself for few registers where more loads could be under way, and for many where one block more
    would fit. Limits are tried last, since only what was compiled says which of them have a use.
    """
    if machine is None or not isinstance(space, UnlistedSpace) or not space.limits_registers:
        return []
    room = _MOST_LIMITED - sum("maxnreg" in trial.config for trial in trials)
    known = [trial for trial in trials if trial.ok and trial.resources and trial.resources.registers]
    fastest = sorted(known, key=lambda trial: (trial.rank, trial.config.text))[:_LIMITED]
    return [config for trial in fastest for config in _beside(trial, machine)][: max(room, 0)]


def _beside(trial: Trial, machine: Machine) -> Iterator[Config]:
    """The config of a trial with the limits of registers beside those that it has."""
    warps, resources = trial.config.get("num_warps", 4), trial.resources
    if resources is not None and resources.registers is not None and isinstance(warps, int):
        for limit in machine.limits.register_limits(resources.registers, resources.shared_bytes or 0, warps):
            yield Config({**trial.config, "maxnreg": limit})
