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
    """A made-up default disagrees with configs of other tiles, of which `other` may be next, or nothing agrees."""

    def __init__(self, reason: str, other: Config | None) -> None:
        hint = "give the constant in the call, or a default in the kernel's signature, or a reference, or more seconds"
        super().__init__(reason, hint=hint)
        self.other = other


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    `first` are the configs to be tried first. `judged` says that a reference decides which results are right.
    """

    def __init__(self, space: ConfigSpace | None = None, *, judged: bool = False) -> None:
        self._default, self._made_up, self._probes = Config(), False, dict[str, list[Config]]()
        self.first: tuple[Config, ...] = ()
        if isinstance(space, UnlistedSpace):
            self._default, self._made_up = space.default_config, space.made_up and not judged
            near = list(space.neighbours(self._default, steps_only=True))
            self._probes = {name: [one for one in near if self._differs(one, name)] for name in space.tiles}
            self.first = (*space.seeds, *(one for probes in self._probes.values() for one in probes))
        self._trials: dict[Config, Trial] = {}
        self._reasons: dict[str, str] = {}  # by the tile that is part of the result
        self.dispute: DisputedError | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is part of the result, in words."""
        return tuple(self._reasons.values())

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        self._trials[trial.config] = trial
        default = self._trials.get(self._default)
        if default is not None and default.status is Status.WRONG and self._made_up and self.first:
            self.dispute = DisputedError(f"({self._default}) is wrong by itself: {default.error}", self.first[-1])
        for name, probes in self._probes.items() if default is not None and default.ok else ():
            tried = [self._trials[config] for config in probes if config in self._trials]
            wrong = [each for each in tried if each.status is Status.WRONG]
            if wrong and len(tried) == len(probes) and name not in self._reasons and not self._has_other(name):
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self._reasons.items() if self._differs(config, name)), None)

    def end(self) -> None:
        """Raise DisputedError where nothing agrees with a default that was made up."""
        tiles = {tuple(config[name] for name in self._probes) for config, trial in self._trials.items() if trial.ok}
        if self.dispute is None and self._made_up and self.first and len(tiles) < 2:
            why = f"was made up, and none of another {', '.join(self._probes)} agrees with it"
            self.dispute = DisputedError(f"({self._default}) {why}", None)
        if self.dispute is not None:
            raise self.dispute

    def _differs(self, config: Config, name: str) -> bool:
        return config[name] != self._default[name]

    def _has_other(self, name: str) -> bool:
        """Tell whether another value of a tile was right."""
        return any(trial.ok and self._differs(config, name) for config, trial in self._trials.items())

    def _conclude(self, name: str, wrong: list[Trial]) -> None:
        reason = (
            f"{name} is part of the result: with {' and '.join(repr(each.config[name]) for each in wrong)} in place of "
            f"{self._default[name]!r} it is another one, {wrong[0].error}"
        )
        if self._made_up:  # the largest is next, since it may have to cover an extent
            self.dispute = DisputedError(reason, wrong[-1].config)
            return
        self._reasons[name] = reason
        _log.warning("%s", reason)
