"""Readers of what torch's compiler writes of a compilation.

Facts used, of torch 2.11 to 2.15: with autotuning, Inductor writes to stderr, for each operation, a line `Autotune
Choices Stats:` with JSON below it, and a table that begins with `AUTOTUNE op(sizes)` and ends with `… AUTOTUNE
benchmarking takes … seconds`. The log artefacts `cudagraphs`, `perf_hints` and `recompiles` write lines in which a
bracketed head names the artefact.

Facts used, of torch 2.11 to 2.15: a trace folder holds `ir_pre_fusion.txt` and `ir_post_fusion.txt`. There each node
has a line `NAME: CLASS(…)`, then `NAME.writes`, `NAME.unmet_dependencies` and `NAME.met_dependencies`, lists of
dependencies that begin with a buffer's name. A fused node is named after its members, joined by `_`; they follow it.

A node stands one layer below the lowest of those that it reads from, and in a layer below the middle of what it reads.
Nodes that a graph has and its counterpart has not are marked.

Graphs are paired in the order in which torch made them, which is the same for two ways to compile one model as long as
both break it at the same places. What has no counterpart differs as a whole.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from triton_ops.base import NamedFile
from triton_ops.exceptions import TargetError

POST_FUSION = "ir_post_fusion.txt"
_NODE = re.compile(r"^(?P<name>\w+): (?P<kind>\w*Node)\((?P<of>.*)\)[^\S\n]*$", re.MULTILINE)
_FIELD = re.compile(r"^(?P<name>\w+)\.(?P<field>[\w.]+)(?:\[\d+\])? ?= ?(?P<first>.*)$", re.MULTILINE)
_DEPENDENCY = re.compile(r"\w*Dep\((?:name=)?'(\w+)'")
_NUMBERED = re.compile(r"\.(\d+)$")
_NOTHING = "NopKernelSchedulerNode"
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
    def launches(self) -> bool:
        """Tell whether it launches something."""
        return self.kind != _NOTHING and self.kernel != _PART

    @property
    def fused(self) -> bool:
        """Tell whether several operations were fused in it."""
        return len(self.members) > 1


def read_graph(text: str) -> tuple[GraphNode, ...]:
    """The nodes of a trace's text, in the order scheduled; a `TargetError` if there is none."""
    heads: list[re.Match[str]] = []
    members: set[str] = set()
    for head in _NODE.finditer(text):
        if head["name"] not in members:
            heads.append(head)
            members = _members_of(head)
    if not heads:
        raise TargetError("there is no scheduled node in it", hint=f"name an {POST_FUSION} of torch's trace folder")
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return tuple(_node(head, text[head.end() : end]) for head, end in zip(heads, ends, strict=True))


def graphs_in(path: Path) -> dict[str, tuple[GraphNode, ...]]:
    """The graphs of a file, or of every trace below a folder, by the trace's folder, in the order made.

    Traces of several programs, such as the modes of `compile-modes --collect`, often have folders of one name: then the
    folder of `path` that each lies in stands before it, and where that does not tell them apart the whole path.
    """
    files = sorted(path.rglob(POST_FUSION), key=_order) if path.is_dir() else [path]
    if not files:
        raise TargetError(
            f"there is no {POST_FUSION} below {path}", hint="compile-modes --collect DIR, or TORCH_COMPILE_DEBUG=1"
        )
    try:
        graphs = [read_graph(NamedFile(file).read().decode("utf-8", "replace")) for file in files]
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror or error}", hint="name a file or folder") from error
    return dict(zip(_names_of(files, path), graphs, strict=True))


def _order(file: Path) -> tuple[Path, int, Path]:
    """Traces of one program in the order in which torch numbers them, at the end of a folder's name: 2 before 10."""
    number = _NUMBERED.search(file.parent.name)
    return file.parent.parent, int(number[1]) if number else 0, file


def _names_of(files: Sequence[Path], path: Path) -> list[str]:
    """A name for each trace file at or below a path, as short as tells them apart."""
    folders = [file.parent for file in files]
    below = [folder.relative_to(path) if path.is_dir() else Path() for folder in folders]
    first = [f"{part.parts[0]}/{part.name}" if len(part.parts) > 1 else part.name for part in below]
    for names in ([folder.name for folder in folders], first):
        if len(set(names)) == len(names):
            return names
    return [part.as_posix() for part in below]


def _members_of(head: re.Match[str]) -> set[str]:
    """Names of the members of a fused node, whose own texts follow."""
    fused = any(word in head["kind"] for word in ("Fused", "Foreach", "Grouped"))
    return set(re.findall(r"[a-z]+\d+", head["name"])) if fused else set()


def _node(head: re.Match[str], block: str) -> GraphNode:
    """The node with a head, from the fields below it, each of which reaches to the next."""
    entries = list(_FIELD.finditer(block))
    kernels = [entry["first"].strip() for entry in entries if entry["field"] == "node.kernel"]
    buffers: dict[str, list[str]] = defaultdict(list)
    for entry, after in zip_longest(entries, entries[1:]):
        if entry["name"] == head["name"]:
            text = block[entry.start() : after.start() if after else None]
            buffers[entry["field"]] += _DEPENDENCY.findall(text)
    members = sorted(_members_of(head), key=lambda name: (int(re.sub(r"\D", "", name)), name))
    return GraphNode(
        name=head["name"],
        kind=head["kind"],
        members=tuple(members) or (head["name"],),
        reads=tuple(dict.fromkeys(buffers["unmet_dependencies"] + buffers["met_dependencies"])),
        writes=tuple(dict.fromkeys(buffers["writes"])),
        kernel=", ".join(dict.fromkeys(kernel for kernel in kernels if kernel != "None")) or head["of"],
    )


def _launches(nodes: Iterable[GraphNode]) -> int:
    return sum(node.launches for node in nodes)


_WIDE, _HIGH, _ACROSS, _DOWN, _EDGE, _TITLE = 230, 46, 24, 44, 20, 34
_LONGEST = 34  # characters of a line in a node
_FILLS = {"call": "#dbe9f6", "fused": "#fde8c8", "loop": "#e6f4e1", "nothing": "#eeeeee"}
_OUTLINE, _MARKED = "#555555", "#c0392b"


class Picture(NamedTuple):
    """A graph that is drawn; what `beside` has not is outlined in red, and None marks nothing."""

    title: str
    nodes: Sequence[GraphNode]
    beside: Sequence[GraphNode] | None = None


def drawn(pictures: Iterable[Picture]) -> str:
    """The text of an SVG file with each graph below its title, side by side."""
    parts: list[str] = []
    x, height = _EDGE, 0.0
    for picture in pictures:
        columns, rows, drawing = _graph(picture, x)
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
    sources = _sources(nodes)
    depth: dict[str, int] = {}
    stack: dict[int, list[GraphNode]] = defaultdict(list)
    for node in nodes:  # in the order scheduled, in which what is read comes first
        depth[node.name] = 1 + max((depth.get(name, -1) for name in sources[node.name]), default=-1)
        stack[depth[node.name]].append(node)
    column: dict[str, int] = {}
    for _, layer in sorted(stack.items()):
        layer.sort(key=lambda node: _middle([column[name] for name in sources[node.name] if name in column]))
        column.update({node.name: place for place, node in enumerate(layer)})
    return [layer for _, layer in sorted(stack.items())]


def _sources(nodes: Sequence[GraphNode]) -> dict[str, list[str]]:
    """For each node the nodes that write what it reads, once for each buffer."""
    writer = {buffer: node.name for node in nodes for buffer in node.writes}
    return {node.name: [writer[buffer] for buffer in node.reads if buffer in writer] for node in nodes}


def _middle(places: Sequence[int]) -> float:
    return statistics.fmean(places) if places else 0.0


def _graph(picture: Picture, left: float) -> tuple[int, int, list[str]]:
    """The columns and rows that a graph takes, and its drawing."""
    title, nodes, beside = picture
    common = {(each.members, each.kernel) for each in (nodes if beside is None else beside)}
    stack = layers(nodes)
    widest = max(map(len, stack), default=0)
    places: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(stack):
        inset = (widest - len(layer)) * (_WIDE + _ACROSS) / 2
        for number, node in enumerate(layer):
            x = left + inset + number * (_WIDE + _ACROSS)
            places[node.name] = (x, _TITLE + _EDGE + row * (_HIGH + _DOWN))
    heading = f"{title}: {_launches(nodes)} launches"
    drawing = [f'<text x="{left:.0f}" y="{_TITLE - 10}" font-weight="bold">{escape(heading)}</text>']
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


@dataclass(frozen=True)
class GraphPair:
    """A graph of one program and its counterpart in another; title and nodes are empty where there is none."""

    titles: tuple[str, str]
    nodes: tuple[Sequence[GraphNode], Sequence[GraphNode]]

    @property
    def launches(self) -> tuple[int, int]:
        """How many kernels and calls each of the two launches."""
        first, second = map(_launches, self.nodes)
        return first, second

    @property
    def only(self) -> dict[str, tuple[list[str], list[str]]]:
        """The `fusions`, groups that were fused, and `kernels` that only the first or only the second has."""
        groups = [["+".join(node.members) for node in nodes if node.fused] for nodes in self.nodes]
        kernels = [[f"{'+'.join(n.members)} ({n.kernel})" for n in nodes if n.launches] for nodes in self.nodes]
        both = {"fusions": groups, "kernels": kernels}
        return {
            what: ([it for it in first if it not in second], [it for it in second if it not in first])
            for what, (first, second) in both.items()
        }

    def __str__(self) -> str:
        first, second = (title or "no graph" for title in self.titles)
        parts = [f"{first} against {second}: {self.launches[0]} launches against {self.launches[1]}"]
        for what, pair in self.only.items():
            sides = zip(("first", "second"), pair, strict=True)
            parts += [f"{what} only in the {word}: {', '.join(texts)}" for word, texts in sides if texts]
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The pair as the command prints it; null for a graph that has no counterpart."""
        first, second = (title or None for title in self.titles)
        return {"first": first, "second": second, "launches": self.launches, **self.only}


@dataclass(frozen=True)
class GraphPairs:
    """All graphs of two programs, in pairs."""

    pairs: tuple[GraphPair, ...]

    @property
    def launches(self) -> tuple[int, int]:
        """Numbers of kernels and calls that all graphs of each of the two programs launch."""
        own, other = zip(*(pair.launches for pair in self.pairs), strict=True)
        return sum(own), sum(other)

    @property
    def lines(self) -> list[str]:
        """Text on each pair of graphs, and on the sum of several."""
        lines = [str(pair) for pair in self.pairs]
        if len(self.pairs) > 1:
            own, other = self.launches
            graphs, graphs_there = (sum(bool(pair.titles[side]) for pair in self.pairs) for side in (0, 1))
            lines.append(f"all graphs, {graphs} against {graphs_there}: {own} launches against {other}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The sums over all graphs, and each pair with the names of its graphs."""
        graphs = [pair.as_json() for pair in self.pairs]
        only = {
            what: [[text for each in graphs for text in each[what][side]] for side in (0, 1)]
            for what in ("fusions", "kernels")
        }
        return {"launches": self.launches, **only, "graphs": graphs}

    def svg(self) -> str:
        """The text of an SVG file with the graphs of each pair beside each other."""
        sides = [side for pair in self.pairs for side in zip(pair.titles, pair.nodes, pair.nodes[::-1], strict=True)]
        return drawn(Picture(title, own, other) for title, own, other in sides if title)


@dataclass(frozen=True)
class ProgramGraphs:
    """The graphs of one program by name, in the order made."""

    path: Path
    graphs: Mapping[str, Sequence[GraphNode]]

    def beside(self, other: ProgramGraphs) -> GraphPairs:
        """These graphs and those of another program in pairs, in their order.

        The last names of the two paths stand before a graph's, and the whole paths if those are alike.
        """
        heads = [self.path.name, other.path.name]
        if heads[0] == heads[1]:
            heads = [str(self.path), str(other.path)]
        pairs = []
        for (one, own), (another, there) in zip_longest(self.graphs.items(), other.graphs.items(), fillvalue=("", ())):
            titles = (f"{heads[0]} {one}" if one else "", f"{heads[1]} {another}" if another else "")
            pairs.append(GraphPair(titles, (own, there)))
        return GraphPairs(tuple(pairs))

    @property
    def lines(self) -> list[str]:
        """Text on each graph: its name, and how much it launches."""
        return [f"{name}: {_launches(nodes)} launches" for name, nodes in self.graphs.items()]

    def as_json(self) -> dict[str, Any]:
        """The nodes of each graph by its name."""
        return {name: [asdict(node) for node in nodes] for name, nodes in self.graphs.items()}

    def svg(self) -> str:
        """The text of an SVG file with each graph below its name."""
        return drawn(Picture(name, nodes) for name, nodes in self.graphs.items())


_TABLE = re.compile(r"AUTOTUNE (?P<op>[\w:.]+)\((?P<sizes>[^)]*)\)\s*$")
_CHOICE = re.compile(r"^\s+(?P<name>\S+) (?P<ms>[\d.]+|inf|nan) ms (?P<share>[\d.]+%|<.*?>)\s?(?P<what>.*)$")
_ENDED = re.compile(
    r"AUTOTUNE benchmarking takes (?P<bench>[\d.]+) seconds and (?P<compile>[\d.]+) seconds precompiling"
    r"(?: for (?P<count>\d+) choices)?"
)
_TORCHS = re.compile(r"^(\[rank\d+\]: ?)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\.py:\d+\]")  # of any log of torch
_STATS = "Autotune Choices Stats:"
_HEAD = re.compile(r"^.*?\[__(?P<artefact>\w+)\]\s?(?:\[[^\]\s]*\]\s?)*(?P<text>.*)$")
_EVENTS = {
    "recordings": re.compile(r"(?<!Re-)\bRecording function=(?P<what>)"),
    "rerecorded": re.compile(r"Re-recording function=.*?reason=(?P<what>.*)$"),
    "skipped": re.compile(r"\bskipping cudagraphs? due to (?P<what>.*)$"),
    "recompiled": re.compile(r"Recompiling function (?P<what>.+)$"),
}

_SOURCE = re.compile(
    r"(?P<aten>decompose|_?mkl|_linear|onednn|(?:(?:bias_)?addmm|b?mm|baddbmm|convolution|_scaled_mm|_int_mm|linear)$)"
    "|(?P<triton>triton)|(?P<cpp>cpp)|(?P<cutlass>cutlass)|(?P<ck>ck)"
)
_PRODUCTS = ("mm", "addmm")
_SHAPE = re.compile(r"\d+(?:x\d+)+")


@dataclass(frozen=True)
class AutotuneChoice:
    """One candidate of an operation; its milliseconds are None where it failed."""

    name: str
    ms: float | None
    what: str = ""

    @property
    def source(self) -> str:
        """Its origin: `aten`, `triton`, `cpp`, `cutlass`, `ck`, or `other`."""
        match = _SOURCE.match(self.name.lower())
        return (match and match.lastgroup) or "other"


class ProductShape(NamedTuple):
    """A product of an (m, k) and a (k, n) matrix of one dtype."""

    m: int
    n: int
    k: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class AutotuneTable:
    """Times that Inductor measured for one operation.

    Attributes:
        benchmark_s: Seconds that measuring took; None if the table was cut off, as for `precompile_s`.
        stats: The JSON object of `Autotune Choices Stats`, if there was one.
    """

    op: str
    sizes: str  # the sizes of its inputs, such as `256x1024, 1024x1024`
    dtypes: str = ""
    choices: tuple[AutotuneChoice, ...] = ()  # the candidates that were shown, in the order shown
    benchmark_s: float | None = None
    precompile_s: float | None = None
    count: int | None = None  # how many candidates there were; None if that was not said
    stats: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def product(self) -> ProductShape | None:
        """The product that it is about; None if it is about another operation, or sizes or dtypes do not tell."""
        shapes = [tuple(map(int, text.split("x"))) for text in _SHAPE.findall(self.sizes)]
        dtypes = {each.strip().removeprefix("torch.") for each in self.dtypes.split(",")}
        if self.op not in _PRODUCTS or len(shapes) < 2 or len(dtypes) != 1:
            return None
        a, b = shapes[-2:]
        if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
            return None
        return ProductShape(a[0], b[1], a[1], dtypes.pop())

    def with_choice(self, name: str, ms: float, what: str) -> AutotuneTable:
        """The table with one more candidate, the fastest first."""
        choices = [*self.choices, AutotuneChoice(name, ms, what)]
        choices.sort(key=lambda choice: math.inf if choice.ms is None else choice.ms)
        return replace(self, choices=tuple(choices))


@dataclass(frozen=True, kw_only=True)
class CompilerLog:
    """Content of a compiler's log.

    `rerecorded` and `skipped` say why a CUDA graph was recorded again or not used, once for each time. `lines` counts
    those of torch: without any the file is another, or torch had nothing to say.
    """

    tables: tuple[AutotuneTable, ...] = ()
    recordings: int = 0
    rerecorded: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    recompiled: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    lines: int = 0

    @classmethod
    def read(cls, lines: Iterable[str]) -> CompilerLog:
        """Read the lines of a log; lines of other programs between them do no harm."""
        log_lines = [line.rstrip("\n") for line in lines]
        heads = [_HEAD.match(line) for line in log_lines]
        texts = [line if head is None else head["text"] for head, line in zip(heads, log_lines, strict=True)]
        hints = [head["text"] for head in heads if head is not None and head["artefact"] == "perf_hints"]
        events = {
            name: tuple(match["what"].strip() for text in texts if (match := pattern.search(text)))
            for name, pattern in _EVENTS.items()
        }
        return cls(
            tables=tuple(_tables(log_lines)),
            recordings=len(events.pop("recordings")),
            **events,
            hints=tuple(hint for hint in hints if hint.strip()),
            lines=sum(map(_is_torchs, log_lines)),
        )


def _is_torchs(line: str) -> bool:
    patterns = (_TORCHS, _HEAD, _TABLE, _ENDED, *_EVENTS.values())
    return _STATS in line or any(pattern.search(line) for pattern in patterns)


def _tables(lines: Sequence[str]) -> Iterator[AutotuneTable]:
    stats: dict[str, Any] = {}
    for place, line in enumerate(lines):
        if _STATS in line:
            stats = _stats(lines[place : place + 2])
        elif (head := _TABLE.search(line)) is not None:
            yield _table(head, lines[place + 1 :], stats)
            stats = {}


def _table(head: re.Match[str], below: Sequence[str], stats: dict[str, Any]) -> AutotuneTable:
    choices: list[AutotuneChoice] = []
    dtypes, end = "", None
    for line in below:
        if line.startswith("dtypes:"):
            dtypes = line.partition(":")[2].strip()
        elif (match := _CHOICE.match(line)) is not None:
            ms = None if match["ms"] in ("inf", "nan") else float(match["ms"])
            choices.append(AutotuneChoice(match["name"], ms, match["what"].strip()))
        elif (end := _ENDED.search(line)) is not None or _TABLE.search(line):
            break
    return AutotuneTable(
        op=head["op"], sizes=head["sizes"], dtypes=dtypes, choices=tuple(choices),
        benchmark_s=float(end["bench"]) if end else None, precompile_s=float(end["compile"]) if end else None,
        count=int(end["count"]) if end and end["count"] else None, stats=stats,
    )  # fmt: skip


def _stats(lines: Sequence[str]) -> dict[str, Any]:
    """The JSON object in the same line as the heading, or in the next."""
    text = " ".join(lines).partition(_STATS)[2].strip()
    try:
        stats, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # the log was cut off
        return {}
    return stats if isinstance(stats, dict) else {}
