"""The proof that tiles which were read from a kernel change no result.

Nobody has listed the values of such a space. Configs that differ from the default in one tile, by one step, are tried
first. Where all of them that ran are wrong, and no other value of the tile was right, the tile is part of the result,
and stays as the default has it. That holds as far as somebody stands behind the default: its author, or a reference. A
default that was made up may be the one that is wrong; then nobody can tell which value is right.
"""

from __future__ import annotations

import logging

from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Status, Trial

_log = logging.getLogger("triton_ops")


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    `first` are the configs to be tried first. `judged` says that a reference decides which results are right, `notes`
    tell what is part of the result, and `dispute` says why a made-up default cannot be gone on with.
    """

    def __init__(self, space: ConfigSpace | None = None, *, judged: bool = False) -> None:
        self._default, self._made_up, self._probes = Config(), False, dict[str, list[Config]]()
        self.first: tuple[Config, ...] = ()
        if isinstance(space, UnlistedSpace):
            self._default, self._made_up = space.default_config, space.made_up and not judged
            near = list(space.neighbours(self._default, steps_only=True))
            self._probes = {name: [one for one in near if one[name] != self._default[name]] for name in space.tiles}
            self.first = (*space.seeds, *(one for probes in self._probes.values() for one in probes))
        self._trials: dict[Config, Trial] = {}
        self.notes: dict[str, str] = {}  # by the tile
        self.dispute = ""

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        self._trials[trial.config] = trial
        default = self._trials.get(self._default)
        if default is not None and default.status is Status.WRONG and self._made_up:
            self.dispute = f"the config ({self._default}), which was made up, is wrong by itself: {default.error}"
        for name, probes in self._probes.items() if default is not None and default.ok else ():
            right = any(each.ok and each.config[name] != self._default[name] for each in self._trials.values())
            tried = [self._trials[config] for config in probes if config in self._trials]
            wrong = [each for each in tried if each.status is Status.WRONG and not _rounded(each)]
            if wrong and len(tried) == len(probes) and not right and name not in self.notes:
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self.notes.items() if config[name] != self._default[name]), None)

    def end(self) -> None:
        """Raise SpaceError where nothing agrees with a default that was made up."""
        agree = [trial.config for trial in self._trials.values() if trial.ok or _rounded(trial)]
        tiles = {tuple(config[name] for name in self._probes) for config in agree}
        if self._made_up and self.first and len(tiles) < 2 and not self.dispute:
            names = ", ".join(self._probes)
            self.dispute = f"the config ({self._default}) was made up, and none of another {names} agrees with it"
        if self.dispute:
            hint = "give the constant in the call, or a default in the kernel's signature, or a reference"
            raise SpaceError(self.dispute, hint=f"{hint}, or more seconds")

    def _conclude(self, name: str, wrong: list[Trial]) -> None:
        others = " and ".join(repr(each.config[name]) for each in wrong)
        reason = f"{name} is part of the result: with {others} in place of {self._default[name]!r} it is another one"
        reason = f"{reason}, {wrong[0].error}"
        if self._made_up:
            self.dispute = reason
        else:
            self.notes[name] = reason
            _log.warning("%s", reason)


def _rounded(trial: Trial) -> bool:
    """Tell whether a result is off by little: sums in another order are no other result."""
    return trial.excess is not None and trial.excess <= Trial.LITTLE
