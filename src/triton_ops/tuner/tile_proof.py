"""The proof that tiles which were read from a kernel change no result.

Nobody has listed the values of such a space. Configs that differ from the default in one tile, by one step, are tried
first. Where all of them that ran are wrong, and no other value of the tile was right, the tile is part of the result,
and stays as the default has it. That holds as far as somebody stands behind the default: its author, or a reference. A
default that was made up may be the one that is wrong; then another one is taken, and if that agrees with no config of
other tiles either, nobody can tell which value is right.
"""

from __future__ import annotations

import logging

from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Status, Trial

_log = logging.getLogger("triton_ops")


class DisputedError(SpaceError):
    """A made-up default disagrees with configs of other tiles; `other` may be compared with next."""

    def __init__(self, reason: str, other: Config) -> None:
        hint = "give the constant in the call, or a default in the kernel's signature, or a reference"
        super().__init__(reason, hint=hint)
        self.other = other


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    `first` are the configs to be tried first. `judged` says that a reference decides which results are right.
    """

    def __init__(self, space: ConfigSpace | None = None, *, judged: bool = False) -> None:
        self._default, self._made_up = Config(), False
        self._probes: dict[str, list[Config]] = {}
        self.first: tuple[Config, ...] = ()
        if isinstance(space, UnlistedSpace):
            self._default, self._made_up = space.default_config, not (space.seeds or judged)
            near = list(space.neighbours(self._default, steps_only=True))
            self._probes = {name: [one for one in near if one[name] != self._default[name]] for name in space.tiles}
            self.first = (*space.seeds, *(one for probes in self._probes.values() for one in probes))
        self._trials: dict[Config, Trial] = {}
        self._reasons: dict[str, str] = {}  # by the tile that is part of the result
        self.dispute: DisputedError | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is part of the result, in words."""
        return tuple(self._reasons.values())

    @property
    def lack(self) -> SpaceError | None:
        """The error of a made-up default with which no config of other tiles was compared; None if one agrees."""
        right = [trial.config for trial in self._trials.values() if trial.ok]
        untried = [name for name, probes in self._probes.items() if not {*probes} <= self._trials.keys()]
        lacking = [name for name in untried if all(config[name] == self._default[name] for config in right)]
        several = len({tuple(config[name] for name in self._probes) for config in right}) > 1
        if not (self._made_up and self.first) or (several and not lacking):
            return None
        names = ", ".join(lacking or self._probes)
        return SpaceError(
            f"the config ({self._default}) was made up, and none of another {names} agrees with it: it may be wrong",
            hint="give more seconds, or a default in the kernel's signature, or a reference",
        )

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        self._trials[trial.config] = trial
        default = self._trials.get(self._default)
        if default is not None and default.status is Status.WRONG and self._made_up and self.first:
            other = max(self.first, key=lambda config: [config[name] for name in self._probes])
            self.dispute = DisputedError(f"the config ({self._default}) is wrong by itself: {default.error}", other)
        for name in self._probes if default is not None and default.ok else ():
            if name not in self._reasons and (wrong := self._wrong_by(name)):
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self._reasons.items() if config[name] != self._default[name]), None)

    def _wrong_by(self, name: str) -> list[Config]:
        """The configs that are wrong by a tile alone; none if another value of it was right, or one is to come."""
        right = any(trial.ok and config[name] != self._default[name] for config, trial in self._trials.items())
        if right or any(config not in self._trials for config in self._probes[name]):
            return []
        return [config for config in self._probes[name] if self._trials[config].status is Status.WRONG]

    def _conclude(self, name: str, wrong: list[Config]) -> None:
        reason = (
            f"{name} is part of the result: with {' and '.join(repr(config[name]) for config in wrong)} in place of "
            f"{self._default[name]!r} it is another one, {self._trials[wrong[0]].error}"
        )
        if self._made_up:  # a larger one is next, since it may have to cover an extent
            self.dispute = DisputedError(reason, max(wrong, key=lambda config: config[name]))
            return
        self._reasons[name] = reason
        _log.warning("%s", reason)
