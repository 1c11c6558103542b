"""Configs that agree with one another against the default config or the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from triton_ops.evaluation.expected import Criteria, difference, expected, kept
from triton_ops.evaluation.judges import LITTLE, Difference, Precision
from triton_ops.space import Config

_FEWEST = 2  # that agree with one another, before what they are compared with is doubted


class Dissent:
    """Counts configs whose results are right, and those that agree with one another and are wrong.

    Args:
        precision: In what precision results are computed.
        most: The excess beyond which a wrong result is not compared with others.

    Cost: keeps the results of the first config that is wrong.
    """

    def __init__(self, precision: Precision, most: float = math.inf) -> None:
        self._manner = Criteria(precision=replace(precision, blur=2.0))
        self._agree: set[Config] = set()
        self._against: set[Config] = set()
        self._ran: set[Config] = set()
        self._most, self._excess = most, 0.0
        self._other: Any = None

    def agrees(self, config: Config) -> None:
        """A config's results are right."""
        self._agree.add(config)
        self._ran.add(config)

    def differs(self, config: Config, results: Sequence[Any], error: Difference) -> None:
        """A config's results are wrong."""
        self._ran.add(config)
        if error.excess > self._most:
            return
        self._excess = max(self._excess, error.excess)
        if self._other is None:
            self._other = expected([kept(each) for each in results], None, None, self._manner)
            self._against.add(config)
        elif difference(list(results), self._other) is None:
            self._against.add(config)

    def of_default(self, default: Config | None) -> str:
        """A remark if more configs agree against the default than with it; empty otherwise."""
        if len(self._against) < _FEWEST or len(self._against) <= len(self._agree):
            return ""
        return (
            f"{len(self._against)} of {len(self._ran)} configs agree with one another and differ from ({default}), "
            "which is therefore probably wrong: give a reference, and tune again"
        )

    def of_reference(self) -> str:
        """A remark if all configs agree with one another, and none is wrong by more than the most; empty otherwise.

        A fault of a kernel is larger at most tiles, and another one at each.
        """
        if len(self._against) < _FEWEST or self._against != self._ran:
            return ""
        little = "by little, " if self._excess <= LITTLE else ""
        return (
            f"the reference is the suspect: all {len(self._ran)} configs that ran agree with one another and differ "
            f"from it {little}at most by {self._excess:.2g} times what is allowed; let it compute in float32 or wider, "
            "and round once at the end"
        )
