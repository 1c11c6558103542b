"""A station that takes turns with other processes that measure on the same device."""

from __future__ import annotations

from dataclasses import replace

from triton_ops.evaluation.finals import FinalRequest
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.station import Station, StationFacts
from triton_ops.hardware import Turns
from triton_ops.space import Config
from triton_ops.trial import Trial


class TakesTurns:
    """A station whose trials and comparisons each take a turn on the device.

    Args:
        station: The station that measures.
        turns: The turns of this tune.
    """

    def __init__(self, station: Station, turns: Turns) -> None:
        self._station, self._turns = station, turns

    @property
    def facts(self) -> StationFacts:
        """The facts of the station that measures; a note says how long others were waited for."""
        found = self._station.facts
        return replace(found, notes=(*found.notes, *self._turns.notes))

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` in a turn."""
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison in one turn."""
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.finals(final)

    def close(self) -> None:
        """Close the station that measures."""
        self._station.close()
