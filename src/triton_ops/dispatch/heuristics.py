"""Heuristics around a kernel: what they compute for a launch, and what is launched for that.

Facts used, from Triton 3.6 to 3.9: `Heuristics.run` calls each of `values` with the arguments that the call gives by
name, what the config brings, `grid`, `warmup` and what came before it, and runs its `fn` with the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Heuristics = dict[str, Callable[[dict[str, Any]], Any]]


def taken_apart(function: Any) -> tuple[Any, Heuristics]:
    """The innermost kernel, and the heuristics around it in the order in which they are computed."""
    heuristics: Heuristics = {}
    while hasattr(function, "values") and hasattr(function, "fn"):
        heuristics.update(function.values)
        function = function.fn
    return function, heuristics


@dataclass
class Variants:
    """The launches of one key of a kernel with heuristics, by the values that these compute at each call.

    Attributes:
        function: The outermost heuristics.
        given: The parameters that such a call gives.
        runs: What runs the kernel and its heuristics.
    """

    function: Any
    config: Any
    brings: Mapping[str, Any]
    given: Sequence[str]
    runs: list[Any]

    def __post_init__(self) -> None:
        self.entries: dict[tuple[Any, ...], Any] = {}

    def of(self, grid: Any, values: Mapping[str, Any]) -> Any:
        """The entry for these arguments; None if what heuristics compute was not seen."""
        if self.runs != runs_of(self.function):
            return None
        arguments = {**{name: values[name] for name in self.given}, **self.brings}
        results = computed(taken_apart(self.function)[1], arguments, grid)
        return self.entries.get(tuple(results.items()))


def runs_of(function: Any) -> list[Any]:
    """The functions that run each of the heuristics and the kernel: the class's, and one in its place on the object."""
    runs = [(function, type(function).run, vars(function).get("run"))]
    return runs if not hasattr(function, "values") else runs + runs_of(function.fn)


def computed(heuristics: Heuristics, arguments: Mapping[str, Any], grid: Any) -> dict[str, Any]:
    """The values of heuristics for a launch, each of them told what Triton tells it."""
    results: dict[str, Any] = {}
    for name, heuristic in heuristics.items():
        results[name] = heuristic({**arguments, "grid": grid, "warmup": False, **results})
    return results
