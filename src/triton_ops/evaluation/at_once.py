"""The role of what tries several configs at once, and the form that a station takes which tries one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from triton_ops.evaluation.station import TriesConfigs
from triton_ops.space import Config
from triton_ops.trial import Trial


@runtime_checkable
class TriesAtOnce(Protocol):
    """Tries configs, several at a time; its methods are called by one thread."""

    @property
    def room(self) -> int:
        """How many further configs could be begun now: for each device that tries, one to try and one to follow it."""

    def begin(self, config: Config, best: Trial | None, program: str | None = None) -> None:
        """Begin to try a config.

        Args:
            config: The config.
            best: The best trial so far; the screening of a much slower config ends early.
            program: Fingerprint of what was compiled; configs with equal ones are the same program. None if not known.
        """

    def take(self, ready: Callable[[], bool]) -> list[Trial]:
        """The trials that have finished, in order; some config was begun and not taken.

        This waits until there is one. The list is empty where there is room, and something that could be begun.

        Args:
            ready: Whether a further config could be begun.
        """

    def again(self, trials: Iterable[Trial]) -> list[Config]:
        """The configs among finished trials that are to be tried once more before the last comparison, best first."""


@runtime_checkable
class KeepsEach(Protocol):
    """What tries configs by itself, and can have each trial kept before it begins with the next one."""

    def keep_with(self, keep: Callable[[Trial], None]) -> None:
        """From now on call a function with each trial that is going to be taken, before the next one begins.

        Args:
            keep: The function, which is called in another thread.
        """


class OneAtATime:
    """A station as what has room for one config.

    Args:
        station: The station; it tries the config when the trial is taken.
    """

    def __init__(self, station: TriesConfigs) -> None:
        self._station = station
        self._begun: tuple[Config, Trial | None] | None = None

    @property
    def room(self) -> int:
        """1 if no config was begun."""
        return int(self._begun is None)

    def begin(self, config: Config, best: Trial | None, program: str | None = None) -> None:  # noqa: ARG002 - the role's
        """Note the config."""
        self._begun = config, best

    def take(self, ready: Callable[[], bool]) -> list[Trial]:  # noqa: ARG002 - there is room for one alone
        """Try the config that was begun."""
        assert self._begun is not None
        (config, best), self._begun = self._begun, None
        return [self._station.attempt(config, best)]

    def again(self, trials: Iterable[Trial]) -> list[Config]:  # noqa: ARG002 - the role's signature
        """No config: all were tried by the station that compares the finalists."""
        return []


def at_once(station: TriesConfigs) -> TriesAtOnce:
    """A station as what tries several configs at once: itself if it does, else with room for one."""
    return station if isinstance(station, TriesAtOnce) else OneAtATime(station)
