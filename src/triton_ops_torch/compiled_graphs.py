"""Graphs of kernels and calls as Inductor schedules them: read from its traces, compared, and drawn.

Facts used, of torch 2.0 to 2.15: a trace folder holds `ir_pre_fusion.txt` and `ir_post_fusion.txt`, and the log
artefact of the same name the same text. There each node has a line `NAME: CLASS(…)`, then `NAME.writes`,
`NAME.unmet_dependencies` and `NAME.met_dependencies`, lists of dependencies that begin with a buffer's name. A fused
node is named after its members, joined by `_`; below it stands each of them, below a line `NAME.snodes[…] =`, and may
be a fused one itself. Before 2.1 it was `NAME.snodes = [names]`. Names are `op0`, before 2.4 `buf0`, with a prefix in
the graph of a branch, which torch writes over its model's in a trace folder.

A node stands one layer below the lowest of those that it reads from, and in a layer below the middle of what it reads.
Nodes that a graph has and its counterpart has not are marked.

Graphs are paired in the order in which torch made them, which is the same for two ways to compile one model as long as
both break it at the same places. What has no counterpart differs as a whole.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from triton_ops.exceptions import TargetError
from triton_ops_torch.log_lines import clean_lines, read_lines, text_of

POST_FUSION = "ir_post_fusion.txt"
_HEAD = re.compile(
    r"^(?: *(?P<above>\w+)\.snodes\[\d+\] = *\n)? *(?P<name>\w+\d): (?P<kind>[A-Z]\w*)\((?P<of>.*)\)\s*$", re.MULTILINE
)
_FIELD = re.compile(r"^ *(?P<name>\w+)\.(?P<field>[\w.]+)(?:\[\d+\])? ?= ?(?P<first>.*)$", re.MULTILINE)
_DEPENDENCY = re.compile(r"Dep\((?:name=)?'(\w+)'")
_LOGGED = re.compile(r"(?P<line>__ir_post_fusion(?:\]|: \[\w+\]) ?)")
_PHASE = re.compile(r"^.*\b(BEFORE|AFTER) FUSION[ \t]*$", re.MULTILINE)  # above the graph of a log without prefixes
_NUMBER = re.compile(r"(?<!\d)\d+$")
OF_MODEL = re.compile(r"(?:op|buf)\d")  # the name of a node, which that of a branch has its graph's name before
_NOTHING, _GROUP = "NopKernelSchedulerNode", "GroupedSchedulerNode"
_SINGLE = {"SchedulerNode", "ExternKernelSchedulerNode", _NOTHING}
KINDS = {  # but for the group, those of several operations are one launch
    *_SINGLE, _GROUP, "FusedSchedulerNode", "OuterLoopFusedSchedulerNode", "ForeachKernelSchedulerNode",
    "FusedMixOrderReductions", "FusedNestedReductions", "FusedExternTritonKernelSchedulerNode",
}  # fmt: skip
_PART = "MultiOutput"  # one of the results of a call before


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A unit of Inductor's schedule: one kernel, or one call of a library.

    `members` are the operations in it, itself alone if nothing was fused; `reads` and `writes` are buffers; `kernel` is
    what it calls, such as `extern_kernels.addmm`, or the kind of buffer that it computes.
    """

    name: str
    kind: str
    members: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def label(self) -> str:
        """Its members in one word."""
        return "+".join(self.members)

    @property
    def launches(self) -> int:
        """The number of its launches: none of a node without work, one for each member of a mere group."""
        if self.kind == _NOTHING or self.kernel == _PART:
            return 0
        return len(self.members) if self.kind == _GROUP else 1

    @property
    def fused(self) -> bool:
        """Tell whether several operations were fused in it."""
        return len(self.members) > 1 and self.kind != _GROUP


def read_graph(text: str) -> tuple[GraphNode, ...]:
    """The nodes of a trace's text, in the order scheduled; a `TargetError` if there is none."""
    text = "\n".join(clean_lines([text]))
    nodes: list[list[re.Match[str]]] = []  # each head with those of its members
    for head in _HEAD.finditer(text):
        if not head["above"]:
            nodes.append([head])
        elif nodes and head["above"] in {part["name"] for part in nodes[-1]}:
            nodes[-1].append(head)
        else:
            raise TargetError(
                f"{head['name']} is a part of {head['above']}, whose first line is missing", hint="name the whole trace"
            )
    if not nodes:
        raise TargetError("there is no scheduled node in it", hint=f"name an {POST_FUSION} of torch's trace folder")
    ends = [*(heads[0].start() for heads in nodes[1:]), len(text)]
    graph = tuple(_node(heads, text[heads[0].end() : end]) for heads, end in zip(nodes, ends, strict=True))
    twice, number = Counter(member for node in graph for member in node.members).most_common(1)[0]
    if number > 1:
        raise TargetError(f"{twice} is in it {number} times: it has several graphs", hint="name a trace of one graph")
    return graph


def _node(heads: Sequence[re.Match[str]], block: str) -> GraphNode:
    """A node from its head, those of its members, and the fields below, each of which reaches to the next."""
    head, *parts = heads
    name, kind = head["name"], head["kind"]
    fused = {part["above"] for part in parts}
    members = [part["name"] for part in parts if part["name"] not in fused]
    if not members:  # a single one, or of an old torch, or cut off
        members = [name] if kind in _SINGLE else re.findall(r"(?<![a-z])[a-z]+\d+", name)
    entries = list(_FIELD.finditer(block))
    kernels = [entry["first"].strip() for entry in entries if entry["field"] == "node.kernel"]
    buffers: dict[str, list[str]] = defaultdict(list)
    for entry, after in zip_longest(entries, entries[1:]):
        if entry["name"] == name:
            buffers[entry["field"]] += _DEPENDENCY.findall(block[entry.start() : after.start() if after else None])
    return GraphNode(
        name=name,
        kind=kind,
        members=tuple(sorted(members, key=lambda member: (_number(member), member))),
        reads=tuple(dict.fromkeys(buffers["unmet_dependencies"] + buffers["met_dependencies"])),
        writes=tuple(dict.fromkeys(buffers["writes"])),
        kernel=", ".join(dict.fromkeys(kernel for kernel in kernels if kernel != "None")) or head["of"],
    )


def _number(name: str) -> int:
    number = _NUMBER.search(name)
    return int(number[0]) if number else 0


def graphs_in(path: Path) -> dict[str, tuple[GraphNode, ...]]:
    """The graphs of a file, or of every trace below a folder, by the trace's folder, in the order made.

    Traces of several programs, such as the modes of `torch modes --collect`, often have folders of one name: then the
    folder of `path` that each lies in stands before it, and where that does not tell them apart the whole path. A file
    may be a log with the artefact `ir_post_fusion`, whose graphs are numbered for each process that wrote it.
    """
    order = sorted(path.rglob(POST_FUSION), key=lambda file: (file.parent.parent, _number(file.parent.name), file))
    files = order if path.is_dir() else [path]
    if not files:
        raise TargetError(
            f"there is no {POST_FUSION} below {path}", hint="torch modes --collect DIR, or TORCH_COMPILE_DEBUG=1"
        )
    texts = [text_of(file) for file in files]
    if logged := _logged(texts[0]):
        return {name: read_graph(text) for name, text in logged.items()}
    return dict(zip(_names_of(files, path), map(read_graph, texts), strict=True))


def _logged(text: str) -> dict[str, str]:
    """The texts of a log's graphs after fusion, by the process that wrote each and its number; empty for a trace."""
    graphs: dict[str, list[str]] = {}
    number: dict[str, int] = defaultdict(int)
    for line in read_lines([text] if "__ir_post_fusion" in text else [], _LOGGED, ("__ir_post_fusion",), "line"):
        if line.match is not None:
            content = line.text[line.match.end() :]
            number[line.writer] += content.startswith("AFTER FUSION")
            graphs.setdefault(f"{line.writer} graph {number[line.writer]}".strip(), []).append(content)
    _, *parts = ("",) if graphs else _PHASE.split(text)
    after = [part for phase, part in zip(parts[::2], parts[1::2], strict=True) if phase == "AFTER"]
    if parts and not after:
        raise TargetError("its graphs are those before fusion", hint="log what is launched: TORCH_LOGS=ir_post_fusion")
    graphs |= {f"graph {number}": [part] for number, part in enumerate(after, start=1)}
    return {name: "\n".join(lines) for name, lines in graphs.items()}


def _names_of(files: Sequence[Path], path: Path) -> list[str]:
    """A name for each trace file at or below a path, as short as tells them apart."""
    folders = [file.parent for file in files]
    below = [folder.relative_to(path) if path.is_dir() else Path() for folder in folders]
    first = [f"{part.parts[0]}/{part.name}" if len(part.parts) > 1 else part.name for part in below]
    for names in ([folder.name for folder in folders], first):
        if len(set(names)) == len(names):
            return names
    return [part.as_posix() for part in below]


_WIDE, _HIGH, _ACROSS, _DOWN, _EDGE, _TITLE = 230, 46, 24, 44, 20, 34  # in pixels
_LONGEST = 34  # characters of a line in a node
_FILLS = {"call": "#dbe9f6", "fused": "#fde8c8", "loop": "#e6f4e1", "nothing": "#eeeeee"}
_OUTLINE, _MARKED = 'stroke="#555555" stroke-width="1"', 'stroke="#c0392b" stroke-width="2.5"'


class Picture(NamedTuple):
    """A graph that is drawn; what `beside` has not is outlined in red, and None marks nothing."""

    title: str
    nodes: Sequence[GraphNode]
    beside: Sequence[GraphNode] | None = None


def drawn(pictures: Iterable[Picture]) -> str:
    """The text of an SVG file with each graph below its title, side by side."""
    parts: list[str] = []
    x, height = _EDGE, 0
    for picture in pictures:
        columns, rows, drawing = _graph(picture, x)
        parts += drawing
        x += max(columns, 1) * (_WIDE + _ACROSS) + 2 * _EDGE
        height = max(height, _TITLE + rows * (_HIGH + _DOWN) + 2 * _EDGE)
    size = f'width="{x}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {x} {height}" font-family="sans-serif"'
    return "\n".join([f'{head} font-size="12">', f'<rect {size} fill="white"/>', *parts, "</svg>", ""])


def layers(nodes: Sequence[GraphNode]) -> list[list[GraphNode]]:
    """The nodes by layer: each below all that it reads from, and sorted by where those stand."""
    sources = _sources(nodes)
    depth: dict[str, int] = {}
    stack: dict[int, list[GraphNode]] = defaultdict(list)
    for node in nodes:  # in the order scheduled, in which what is read comes first
        depth[node.name] = 1 + max((depth.get(name, -1) for name in sources[node.name]), default=-1)
        stack[depth[node.name]].append(node)
    column: dict[str, float] = {}
    for _, layer in sorted(stack.items()):
        above = {node.name: [column[name] for name in sources[node.name] if name in column] for node in layer}
        layer.sort(key=lambda node: statistics.fmean(above[node.name] or [0.0]))
        column.update({node.name: place for place, node in enumerate(layer)})
    return [layer for _, layer in sorted(stack.items())]


def _sources(nodes: Sequence[GraphNode]) -> dict[str, list[str]]:
    """For each node the nodes that write what it reads, once for each buffer."""
    writer = {buffer: node.name for node in nodes for buffer in node.writes}
    return {node.name: [writer[buffer] for buffer in node.reads if buffer in writer] for node in nodes}


def _graph(picture: Picture, left: int) -> tuple[int, int, list[str]]:
    """The columns and rows that a graph takes, and its drawing."""
    title, nodes, beside = picture
    common = {(each.members, each.kernel) for each in (nodes if beside is None else beside)}
    stack = layers(nodes)
    widest = max(map(len, stack), default=0)
    places: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(stack):
        inset = (widest - len(layer)) * (_WIDE + _ACROSS) / 2
        for number, node in enumerate(layer):
            places[node.name] = (left + inset + number * (_WIDE + _ACROSS), _TITLE + _EDGE + row * (_HIGH + _DOWN))
    heading = escape(f"{title}: {_launches(nodes)} launches")
    drawing = [f'<text x="{left}" y="{_TITLE - 10}" font-weight="bold">{heading}</text>']
    for name, sources in _sources(nodes).items():
        drawing += [_edge(places[above], places[name]) for above in dict.fromkeys(sources) if above != name]
    drawing += [_box(node, places[node.name], (node.members, node.kernel) not in common) for node in nodes]
    return widest, len(stack), drawing


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1, x2, y2 = above[0] + _WIDE / 2, above[1] + _HIGH, below[0] + _WIDE / 2, below[1]
    middle = (y1 + y2) / 2
    path = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}"
    return f'<path d="{path}" fill="none" stroke="#888888"/>'


def _box(node: GraphNode, place: tuple[float, float], differs: bool) -> str:
    x, y = place
    texts = [text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in (node.label, node.kernel)]
    lines = "".join(
        f'<text x="{x + 8:.1f}" y="{y + 18 + 17 * number:.1f}">{escape(text)}</text>'
        for number, text in enumerate(texts)
    )
    details = escape(f"{node.name}: {node.kind}; reads {', '.join(node.reads)}; writes {', '.join(node.writes)}")
    look = "fused" if node.fused else "call" if node.kind.startswith("Extern") else "loop"
    fill = _FILLS[look if node.launches else "nothing"]
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{_WIDE}" height="{_HIGH}" rx="5" fill="{fill}"'
    return f'<g class="node"><title>{details}</title>{box} {_MARKED if differs else _OUTLINE}/>{lines}</g>'


def _launches(nodes: Iterable[GraphNode]) -> int:
    return sum(node.launches for node in nodes)


@dataclass(frozen=True)
class GraphPair:
    """A graph of one program and its counterpart in another; title and nodes are empty where there is none."""

    titles: tuple[str, str]
    nodes: tuple[Sequence[GraphNode], Sequence[GraphNode]]

    @property
    def launches(self) -> tuple[int, int]:
        """How many kernels and calls each of the two launches."""
        return _launches(self.nodes[0]), _launches(self.nodes[1])

    @property
    def only(self) -> dict[str, tuple[list[str], list[str]]]:
        """The `fusions`, groups that were fused, and `kernels` that only the first or only the second has."""
        groups = [[node.label for node in nodes if node.fused] for nodes in self.nodes]
        kernels = [[f"{node.label} ({node.kernel})" for node in nodes if node.launches] for nodes in self.nodes]
        return {
            what: ([it for it in first if it not in second], [it for it in second if it not in first])
            for what, (first, second) in {"fusions": groups, "kernels": kernels}.items()
        }

    def __str__(self) -> str:
        first, second = (title or "no graph" for title in self.titles)
        parts = [f"{first} against {second}: {self.launches[0]} launches against {self.launches[1]}"]
        for what, pair in self.only.items():
            sides = zip(("first", "second"), pair, strict=True)
            parts += [f"{what} only in the {word}: {', '.join(texts)}" for word, texts in sides if texts]
        return "; ".join(parts)


class ShownGraphs(NamedTuple):
    """The graphs of one program, or of two in pairs, as the command shows them: in lines, as data, and drawn."""

    lines: list[str]
    data: dict[str, Any]
    pictures: list[Picture]

    @classmethod
    def of(cls, graphs: Mapping[str, Sequence[GraphNode]]) -> ShownGraphs:
        """Each graph of one program by its name."""
        lines = [f"{name}: {_launches(nodes)} launches" for name, nodes in graphs.items()]
        return cls(lines, dict(graphs), [Picture(*graph) for graph in graphs.items()])

    @classmethod
    def of_two(cls, paths: Sequence[Path], programs: Sequence[Mapping[str, Sequence[GraphNode]]]) -> ShownGraphs:
        """The graphs of two programs in pairs, in their order, with the sums over all of them.

        The last names of the two paths stand before a graph's, and the whole paths if those are alike.
        """
        names = [path.name for path in paths]
        heads = names if names[0] != names[1] else [str(path) for path in paths]
        pairs = []
        for (one, own), (another, there) in zip_longest(*(each.items() for each in programs), fillvalue=("", ())):
            titles = (f"{heads[0]} {one}" if one else "", f"{heads[1]} {another}" if another else "")
            pairs.append(GraphPair(titles, (own, there)))
        launches = [sum(pair.launches[side] for pair in pairs) for side in (0, 1)]
        lines = [str(pair) for pair in pairs]
        if len(pairs) > 1:
            first, second = map(len, programs)
            lines.append(f"all graphs, {first} against {second}: {launches[0]} launches against {launches[1]}")
        graphs = [
            {"first": pair.titles[0] or None, "second": pair.titles[1] or None, "launches": pair.launches, **pair.only}
            for pair in pairs
        ]
        only = {
            what: [[text for pair in pairs for text in pair.only[what][side]] for side in (0, 1)]
            for what in ("fusions", "kernels")
        }
        sides = [side for pair in pairs for side in zip(pair.titles, pair.nodes, pair.nodes[::-1], strict=True)]
        pictures = [Picture(*side) for side in sides if side[0]]
        return cls(lines, {"launches": launches, **only, "graphs": graphs}, pictures)
