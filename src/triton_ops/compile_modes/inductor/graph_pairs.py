"""How all graphs of two programs differ: a model with a graph break or a backward pass is several graphs.

Graphs are paired in the order in which torch made them, which is the same for two ways to compile one model as long as
both break it at the same places. What has no counterpart differs as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops.compile_modes.inductor.drawing import Picture
from triton_ops.compile_modes.inductor.graphs import GraphDifference, GraphNode, difference

Graphs: TypeAlias = Mapping[str, Sequence[GraphNode]]
_NONE: tuple[str, tuple[GraphNode, ...]] = ("", ())


@dataclass(frozen=True)
class GraphPair:
    """A graph of one program and its counterpart in another.

    Attributes:
        titles: Where each is from, and its name; empty where there is no counterpart.
        nodes: The nodes of each; none where there is no counterpart.
    """

    titles: tuple[str, str]
    nodes: tuple[Sequence[GraphNode], Sequence[GraphNode]]

    @property
    def difference(self) -> GraphDifference:
        """What one of the two has that the other has not."""
        return difference(*self.nodes)

    @property
    def pictures(self) -> list[Picture]:
        """Those that are there, each with its counterpart, from which it is told apart."""
        sides = zip(self.titles, self.nodes, reversed(self.nodes), strict=True)
        return [Picture(title, own, other) for title, own, other in sides if title]

    def __str__(self) -> str:
        first, second = (title or "no graph" for title in self.titles)
        return f"{first} against {second}: {self.difference}"

    def as_json(self) -> dict[str, Any]:
        """The pair as the command prints it; null for a graph that has no counterpart."""
        gap = self.difference
        return {
            "first": self.titles[0] or None,
            "second": self.titles[1] or None,
            "launches": gap.launches,
            "fusions": gap.fusions,
            "kernels": gap.kernels,
        }


def paired(first: Graphs, second: Graphs, paths: tuple[Path, Path]) -> list[GraphPair]:
    """The graphs of two programs in pairs, in their order.

    Args:
        first: The graphs of one, by name.
        second: Those of the other.
        paths: Where the two are from: their last names stand before a graph's, and the whole paths if those are alike.
    """
    heads = [path.name for path in paths]
    if heads[0] == heads[1]:
        heads = [str(path) for path in paths]
    pairs = []
    for (one, own), (another, other) in zip_longest(first.items(), second.items(), fillvalue=_NONE):
        titles = (f"{heads[0]} {one}" if one else "", f"{heads[1]} {another}" if another else "")
        pairs.append(GraphPair(titles, (own, other)))
    return pairs


def launches_of(pairs: Sequence[GraphPair]) -> tuple[int, int]:
    """How many kernels and calls all graphs of each of the two programs launch."""
    launches = [pair.difference.launches for pair in pairs]
    return sum(own for own, _ in launches), sum(other for _, other in launches)


def graphs_of(pairs: Sequence[GraphPair]) -> tuple[int, int]:
    """How many graphs each of the two programs has."""
    return sum(bool(pair.titles[0]) for pair in pairs), sum(bool(pair.titles[1]) for pair in pairs)
