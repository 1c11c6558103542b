"""What most configs say of the default config, where its results are the right ones for want of a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from triton_ops.evaluation.criteria import Precision
from triton_ops.evaluation.expected import Manner, difference, expected
from triton_ops.evaluation.parts import kept
from triton_ops.space import Config

_FEWEST = 2  # that agree against the default, before it is doubted


class Dissent:
    """Counts configs that agree with the default config, and those that agree with one another against it.

    Args:
        precision: In what precision results are computed.

    Cost: keeps the results of the first config that differs.
    """

    def __init__(self, precision: Precision) -> None:
        self._manner = Manner(precision=replace(precision, blur=2.0))
        self._agree: set[Config] = set()
        self._against: set[Config] = set()
        self._ran: set[Config] = set()
        self._other: Any = None

    def agrees(self, config: Config) -> None:
        """A config's results are those of the default."""
        self._agree.add(config)
        self._ran.add(config)

    def differs(self, config: Config, results: Sequence[Any]) -> None:
        """A config's results are not those of the default."""
        self._ran.add(config)
        if self._other is None:
            self._other = expected([kept(each) for each in results], None, None, self._manner)
            self._against.add(config)
        elif difference(list(results), self._other) is None:
            self._against.add(config)

    def note(self, default: Config | None) -> str:
        """What is said if more configs agree against the default than with it; empty otherwise."""
        if len(self._against) < _FEWEST or len(self._against) <= len(self._agree):
            return ""
        return (
            f"{len(self._against)} of {len(self._ran)} configs agree with one another and differ from ({default}), "
            "which is therefore probably wrong: give a reference, and tune again"
        )
