"""Doubts in the verdicts: a default config, or many configs, that are wrong by little may be right after all.

A fault makes results wrong by much more than rounding at most tiles. Errors of a few times what rounding costs, in the
default config or in many, rather mean that the reference computes more precisely than the kernel is meant to. That is
said while the tune goes on, since a search over the few configs that are left finds a poor winner.
"""

from __future__ import annotations

import logging
import math

from triton_ops.evaluation import LITTLE
from triton_ops.space import Config
from triton_ops.values import Status, Trial

_log = logging.getLogger("triton_ops")

_SHARE = 0.25  # of the configs that ran
_FEWEST = 4  # configs that ran, before a share of them means anything


class Doubts:
    """Follows the trials of a tune, and warns once of each doubt."""

    def __init__(self, default: Config) -> None:
        self._default = default
        self._ran: set[Config] = set()
        self._little: dict[Config, Trial] = {}
        self._warned: set[str] = set()

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        if trial.status not in (Status.OK, Status.WRONG):
            return
        self._ran.add(trial.config)
        self._little.pop(trial.config, None)
        if trial.excess is not None and trial.excess <= LITTLE:
            self._little[trial.config] = trial
        for kind, note in (("default", self._of_default()), ("many", self._of_many())):
            if note and kind not in self._warned:
                self._warned.add(kind)
                _log.warning("%s", note)

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts as they stand, for the result."""
        return tuple(note for note in (self._of_default(), self._of_many()) if note)

    def _of_default(self) -> str:
        trial = self._little.get(self._default)
        if trial is None:
            return ""
        return f"the default config is wrong by little, {_numbers(trial)}; {_advice(trial.excess)}"

    def _of_many(self) -> str:
        if len(self._ran) < _FEWEST or len(self._little) <= _SHARE * len(self._ran):
            return ""
        worst = max(self._little.values(), key=lambda trial: trial.excess or 0.0)
        return (
            f"{len(self._little)} of {len(self._ran)} configs are wrong by little, at most ({worst.config}) "
            f"{_numbers(worst)}; {_advice(worst.excess)}"
        )


def _numbers(trial: Trial) -> str:
    return f"by {trial.excess:.2g} times what is allowed: {trial.error}"


def _advice(excess: float | None) -> str:
    times = math.ceil((excess or 1.0) * 1.2)
    return (
        f"if such an error is right for this kernel, say so with tolerance=Tolerance(times={times}) or a check; "
        "else the kernel or its reference has a fault"
    )
