"""Captured graphs as SVG, one alone or two side by side, without graphviz: a small layout of layers.

A node stands one layer below the lowest of those that it reads from, and in a layer below the middle of what it reads.
Nodes that a graph has and its counterpart has not are marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from triton_ops.compile_modes.inductor.graphs import GraphNode

_WIDE, _HIGH, _ACROSS, _DOWN, _EDGE, _TITLE = 230, 46, 24, 44, 20, 34
_LONGEST = 34  # characters of a line in a node
_FILLS = {"call": "#dbe9f6", "fused": "#fde8c8", "loop": "#e6f4e1", "nothing": "#eeeeee"}
_OUTLINE, _MARKED = "#555555", "#c0392b"


@dataclass(frozen=True)
class Picture:
    """A graph that is drawn.

    Attributes:
        title: What stands above it.
        nodes: Its nodes.
        beside: The graph with which it is compared; what that has not is outlined in red. None marks nothing.
    """

    title: str
    nodes: Sequence[GraphNode]
    beside: Sequence[GraphNode] | None = None

    @property
    def marked(self) -> set[str]:
        """Names of the nodes that the other graph has not."""
        common = {(each.members, each.kernel) for each in (self.nodes if self.beside is None else self.beside)}
        return {node.name for node in self.nodes if (node.members, node.kernel) not in common}


def drawn(pictures: Iterable[Picture]) -> str:
    """The text of an SVG file with each graph below its title, side by side."""
    parts: list[str] = []
    x, height = _EDGE, 0.0
    for picture in pictures:
        columns, rows, drawing = _graph(picture.title, picture.nodes, x, picture.marked)
        parts += drawing
        x += max(columns, 1) * (_WIDE + _ACROSS) + 2 * _EDGE
        height = max(height, _TITLE + rows * (_HIGH + _DOWN) + 2 * _EDGE)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {x:.0f} {height:.0f}" font-family="sans-serif" font-size="12">'
    )
    white = f'<rect width="{x:.0f}" height="{height:.0f}" fill="white"/>'
    return "\n".join([head, white, *parts, "</svg>", ""])


def layers(nodes: Sequence[GraphNode]) -> list[list[GraphNode]]:
    """The nodes by layer: each below all that it reads from, and sorted by where those stand."""
    writer = {buffer: node.name for node in nodes for buffer in node.writes}
    depth: dict[str, int] = {}
    for node in nodes:  # in the order scheduled, in which what is read comes first
        above = [depth[writer[buffer]] for buffer in node.reads if writer.get(buffer) in depth]
        depth[node.name] = 1 + max(above, default=-1)
    stack: list[list[GraphNode]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node in nodes:
        stack[depth[node.name]].append(node)
    column: dict[str, float] = {}
    for layer in stack:
        layer.sort(key=lambda node: _wanted(node, writer, column))
        column.update({node.name: float(place) for place, node in enumerate(layer)})
    return stack


def _wanted(node: GraphNode, writer: Mapping[str, str], column: Mapping[str, float]) -> float:
    above = [column[writer[buffer]] for buffer in node.reads if writer.get(buffer) in column]
    return statistics.fmean(above) if above else 0.0


def _graph(
    title: str, nodes: Sequence[GraphNode], left: float, differing: Collection[str]
) -> tuple[int, int, list[str]]:
    """The columns and rows that a graph takes, and its drawing."""
    stack = layers(nodes)
    widest = max(map(len, stack), default=0)
    places: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(stack):
        inset = (widest - len(layer)) * (_WIDE + _ACROSS) / 2
        for number, node in enumerate(layer):
            x = left + inset + number * (_WIDE + _ACROSS)
            places[node.name] = (x, _TITLE + _EDGE + row * (_HIGH + _DOWN))
    heading = f"{title}: {sum(node.launches for node in nodes)} launches"
    drawing = [f'<text x="{left:.0f}" y="{_TITLE - 10}" font-weight="bold">{escape(heading)}</text>']
    writer = {buffer: node.name for node in nodes for buffer in node.writes}
    for node in nodes:
        sources = dict.fromkeys(writer[buffer] for buffer in node.reads if buffer in writer)
        drawing += [_edge(places[above], places[node.name]) for above in sources if above != node.name]
    drawing += [_box(node, places[node.name], node.name in differing) for node in nodes]
    return widest, len(stack), drawing


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1, x2, y2 = above[0] + _WIDE / 2, above[1] + _HIGH, below[0] + _WIDE / 2, below[1]
    middle = (y1 + y2) / 2
    path = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}"
    return f'<path d="{path}" fill="none" stroke="#888888"/>'


def _box(node: GraphNode, place: tuple[float, float], differs: bool) -> str:
    x, y = place
    outline, width = (_MARKED, 2.5) if differs else (_OUTLINE, 1)
    lines = [_short("+".join(node.members)), _short(node.kernel)]
    texts = "".join(
        f'<text x="{x + 8:.1f}" y="{y + 18 + 17 * number:.1f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    details = escape(f"{node.name}: {node.kind}; reads {', '.join(node.reads)}; writes {', '.join(node.writes)}")
    look = f'fill="{_FILLS[_look(node)]}" stroke="{outline}" stroke-width="{width}"'
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{_WIDE}" height="{_HIGH}" rx="5" {look}/>'
    return f'<g class="node"><title>{details}</title>{box}{texts}</g>'


def _look(node: GraphNode) -> str:
    if not node.launches:
        return "nothing"
    if node.fused:
        return "fused"
    return "call" if node.kind.startswith("Extern") else "loop"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
