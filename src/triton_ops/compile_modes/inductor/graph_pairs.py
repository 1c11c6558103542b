"""Differences between all graphs of two programs: a model with a graph break or a backward pass is several graphs.

Graphs are paired in the order in which torch made them, which is the same for two ways to compile one model as long as
both break it at the same places. What has no counterpart differs as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops.compile_modes.inductor.drawing import Picture, drawn
from triton_ops.compile_modes.inductor.graphs import GraphDifference, GraphNode, difference, graphs_in

Graphs: TypeAlias = Mapping[str, Sequence[GraphNode]]
_ONLY = ("fusions", "kernels")
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
        """Compare the two."""
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
        first, second = (title or None for title in self.titles)
        return {"first": first, "second": second, **asdict(self.difference)}


@dataclass(frozen=True)
class GraphPairs:
    """All graphs of two programs, in pairs."""

    pairs: tuple[GraphPair, ...]

    @property
    def launches(self) -> tuple[int, int]:
        """Numbers of kernels and calls that all graphs of each of the two programs launch."""
        launches = [pair.difference.launches for pair in self.pairs]
        return sum(own for own, _ in launches), sum(other for _, other in launches)

    @property
    def lines(self) -> list[str]:
        """Text on each pair of graphs, and on the sum of several."""
        lines = [str(pair) for pair in self.pairs]
        if len(self.pairs) > 1:
            (own, other), titles = self.launches, zip(*(pair.titles for pair in self.pairs), strict=True)
            graphs, graphs_there = (sum(map(bool, each)) for each in titles)
            lines.append(f"all graphs, {graphs} against {graphs_there}: {own} launches against {other}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The sums over all graphs, and each pair with the names of its graphs."""
        graphs = [pair.as_json() for pair in self.pairs]
        only = {what: [[text for each in graphs for text in each[what][side]] for side in (0, 1)] for what in _ONLY}
        return {"launches": self.launches, **only, "graphs": graphs}

    def svg(self) -> str:
        """The text of an SVG file with the graphs of each pair beside each other."""
        return drawn(picture for pair in self.pairs for picture in pair.pictures)


@dataclass(frozen=True)
class ProgramGraphs:
    """The graphs of one program.

    Attributes:
        path: Where they are from.
        graphs: The nodes of each, by name, in the order made.
    """

    path: Path
    graphs: Graphs

    @classmethod
    def read(cls, path: Path) -> ProgramGraphs:
        """The graphs of a trace, or of every trace below a folder.

        Raises:
            TargetError: There is no such file, or no trace in the folder.
        """
        return cls(path, graphs_in(path))

    def beside(self, other: ProgramGraphs) -> GraphPairs:
        """These graphs and those of another program in pairs, in their order.

        The last names of the two paths stand before a graph's, and the whole paths if those are alike.
        """
        heads = [self.path.name, other.path.name]
        if heads[0] == heads[1]:
            heads = [str(self.path), str(other.path)]
        pairs = []
        for (one, own), (another, there) in zip_longest(self.graphs.items(), other.graphs.items(), fillvalue=_NONE):
            titles = (f"{heads[0]} {one}" if one else "", f"{heads[1]} {another}" if another else "")
            pairs.append(GraphPair(titles, (own, there)))
        return GraphPairs(tuple(pairs))

    @property
    def lines(self) -> list[str]:
        """Text on each graph: its name, and how much it launches."""
        return [f"{name}: {sum(node.launches for node in nodes)} launches" for name, nodes in self.graphs.items()]

    def as_json(self) -> dict[str, Any]:
        """The nodes of each graph by its name."""
        return {name: [asdict(node) for node in nodes] for name, nodes in self.graphs.items()}

    def svg(self) -> str:
        """The text of an SVG file with each graph below its name."""
        return drawn(Picture(name, nodes) for name, nodes in self.graphs.items())
