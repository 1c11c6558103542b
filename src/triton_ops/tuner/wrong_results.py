"""Conclusions from wrong results while a tune goes on: doubts of its reference, and tiles that are part of the result.

A fault makes results wrong by much more than rounding at most tiles. Errors of a few times what rounding costs, in the
default config or in many, rather mean that the reference computes more precisely than the kernel is meant to. That is
said while the tune goes on, since a search over the few configs that are left finds a poor winner.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from triton_ops.base import warn
from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Status, Trial

_SHARE = 0.25  # of the configs that ran
_FEWEST_RAN = 4  # configs that ran, before a share of them means anything


class Doubts:
    """Follows the trials of a tune, and warns once of each doubt."""

    def __init__(self, default: Config) -> None:
        self._default = default
        self._ran: set[Config] = set()
        self._little: dict[Config, Trial] = {}
        self._warned: set[Callable[[], str]] = set()

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        if not trial.status.facts.compared:
            return
        self._ran.add(trial.config)
        self._little.pop(trial.config, None)
        if _rounded(trial):
            self._little[trial.config] = trial
        for doubt in (self._of_default, self._of_many):
            if doubt not in self._warned and (note := doubt()):
                self._warned.add(doubt)
                warn("%s", note)

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts as they stand, for the result."""
        return tuple(filter(None, (self._of_default(), self._of_many())))

    def _of_default(self) -> str:
        if (trial := self._little.get(self._default)) is None:
            return ""
        return f"the default config is wrong by little, {_numbers(trial)}; {_advice(trial.excess)}"

    def _of_many(self) -> str:
        if len(self._ran) < _FEWEST_RAN or len(self._little) <= _SHARE * len(self._ran):
            return ""
        worst = max(self._little.values(), key=lambda trial: trial.excess or 0.0)
        return (
            f"{len(self._little)} of {len(self._ran)} configs are wrong by little, at most ({worst.config}) "
            f"{_numbers(worst)}; {_advice(worst.excess)}"
        )


def _numbers(trial: Trial) -> str:
    return f"by {trial.excess:.2g} times what is allowed: {trial.error}"


def _advice(excess: float | None) -> str:
    # A fifth more than was seen, since other configs round in another order.
    times = math.ceil((excess or 1.0) * 1.2)
    return (
        f"if such an error is right for this kernel, say so with tolerance=Tolerance(times={times}) or a check; "
        "else the kernel or its reference has a fault"
    )


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    Nobody has listed the values of a space whose tiles were read from a kernel. Configs that differ from the default in
    one tile, by one step, are tried first. Where all of them that ran are wrong, and no other value of the tile was
    right, the tile is part of the result, and stays as the default has it. That holds as far as somebody stands behind
    the default: its author, or a reference. A default that was made up may be the one that is wrong; then nobody can
    tell which value is right.

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
            self.dispute = f"the default ({self._default}), which nobody has written, is wrong itself: {default.error}"
        for name, probes in self._probes.items() if default is not None and default.ok else ():
            right = any(each.ok and each.config[name] != self._default[name] for each in self._trials.values())
            trials = [self._trials[config] for config in probes if config in self._trials]
            wrong = [each for each in trials if each.status is Status.WRONG and not _rounded(each)]
            if wrong and len(trials) == len(probes) and not right and name not in self.notes:
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self.notes.items() if config[name] != self._default[name]), None)

    def end(self, uncompared: str = "") -> None:
        """Raise SpaceError where nothing agrees with a default that was made up, or why results are `uncompared`."""
        agree = [trial.config for trial in self._trials.values() if trial.ok or _rounded(trial)]
        tiles = {tuple(config[name] for name in self._probes) for config in agree}
        if self._made_up and self.first and len(tiles) < 2 and not self.dispute:
            names = ", ".join(self._probes)
            self.dispute = f"nobody has written the default ({self._default}), and no config with other {names} agrees"
        if uncompared and self.first and not self.dispute:
            self.dispute = f"nothing shows which {', '.join(self._probes)} are right: {uncompared}"
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
            warn("%s", reason)


def _rounded(trial: Trial) -> bool:
    """Tell whether a result is off by little: sums in another order are no other result."""
    return trial.excess is not None and trial.excess <= Trial.LITTLE
