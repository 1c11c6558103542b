"""The proof that tiles which were read from a kernel change no result.

Nobody has listed the values of such a space. Configs that differ from the default in one tile, by one step, are tried
first. Where all of them that ran are wrong, and no other value of the tile was right, the tile is part of the result,
and stays as the default has it. That holds as far as somebody stands behind the default: its author, or a reference. A
default that was made up may be the one that is wrong; then another one is taken, and if that agrees with no config of
other tiles either, nobody can tell which value is right.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Status, Trial

_log = logging.getLogger("triton_ops")


class Dispute(NamedTuple):
    """A made-up default that disagrees with configs of other tiles: how, and the config to be compared with next."""

    reason: str
    other: Config


class DisputedError(SpaceError):
    """Nobody can tell yet which value of a tile is right: `other` may be compared with next."""

    def __init__(self, dispute: Dispute) -> None:
        super().__init__(
            dispute.reason, hint="give the constant in the call, or a default in the kernel's signature, or a reference"
        )
        self.other = dispute.other


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    `first` are the configs to be tried first. `judged` says that a reference decides which results are right.
    """

    def __init__(self, space: ConfigSpace, *, judged: bool = False) -> None:
        self._default, self._made_up = space.default_config, False
        self._probes: dict[str, list[Config]] = {}  # by the tile in which they differ from the default
        self.first: tuple[Config, ...] = ()
        self._trials: dict[Config, Trial] = {}
        self._reasons: dict[str, str] = {}  # by the tile that is part of the result
        self.dispute: Dispute | None = None
        if isinstance(space, UnlistedSpace):
            near = list(space.neighbours(self._default, steps_only=True))
            self._probes = {name: [one for one in near if self._differs(one, name)] for name in space.tiles}
            self._made_up = not (space.seeds or judged)
            self.first = (*space.seeds, *(one for probes in self._probes.values() for one in probes))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is part of the result, in words."""
        return tuple(self._reasons.values())

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        if not self._probes:
            return
        self._trials[trial.config] = trial
        default = self._trials.get(self._default)
        if default is None:
            return
        if self._made_up and default.status is Status.WRONG:
            self._doubt(f"the config ({self._default}) is wrong by itself: {default.error}", *self._probes)
        for name in self._probes if default.ok else ():
            if name not in self._reasons and (wrong := self._wrong_by(name)):
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self._reasons.items() if self._differs(config, name)), None)

    def _differs(self, config: Config, name: str) -> bool:
        return config[name] != self._default[name]

    def _wrong_by(self, name: str) -> list[Config]:
        """The configs that are wrong by a tile alone; none if another value of it was right, or one is to come."""
        probes = self._probes[name]
        if any(trial.ok and self._differs(config, name) for config, trial in self._trials.items()):
            return []
        if any(config not in self._trials for config in probes):
            return []
        return [config for config in probes if self._trials[config].status is Status.WRONG]

    def _conclude(self, name: str, wrong: list[Config]) -> None:
        values = " and ".join(f"{config[name]!r}" for config in wrong)
        reason = (
            f"{name} is part of the result: with {values} in place of {self._default[name]!r} it is another one, "
            f"{self._trials[wrong[0]].error}"
        )
        if self._made_up:
            self._doubt(reason, name)
            return
        self._reasons[name] = reason
        _log.warning("%s", reason)

    def _doubt(self, reason: str, *names: str) -> None:
        """Have the default compared no further; the largest tiles beside it are next, since they may have to cover."""
        others = [config for name in names for config in self._probes[name]]
        if others:
            self.dispute = Dispute(reason, max(others, key=lambda config: [config[name] for name in names]))
