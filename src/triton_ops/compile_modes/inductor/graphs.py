"""The graphs that Inductor schedules, read from its traces.

Facts used, of torch 2.11 to 2.15: a trace folder holds `ir_pre_fusion.txt` and `ir_post_fusion.txt`. There each node
has a line `NAME: CLASS(…)`, then `NAME.writes`, `NAME.unmet_dependencies` and `NAME.met_dependencies`, lists of
dependencies that begin with a buffer's name. A fused node is named after its members, joined by `_`; they follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops.base import read_named
from triton_ops.exceptions import TargetError

POST_FUSION = "ir_post_fusion.txt"
_HEAD = re.compile(r"^(?P<name>\w+): (?P<kind>\w*Node)\((?P<of>.*)\)\s*$")
_FIELD = re.compile(r"^(?P<name>\w+)\.(?P<field>[\w.]+)(?:\[\d+\])? ?= ?(?P<rest>.*)$")
_DEPENDENCY = re.compile(r"\w*Dep\((?:name=)?'(\w+)'")
_NUMBERED = re.compile(r"\.(\d+)$")
_NOTHING = "NopKernelSchedulerNode"
_PART = "MultiOutput"  # one of the results of a call before
_READS = ("unmet_dependencies", "met_dependencies")


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A unit of Inductor's schedule: one kernel, or one call of a library.

    Attributes:
        name: Its name, such as `op0_op1`.
        kind: The class of Inductor's node, such as `FusedSchedulerNode`.
        members: The operations in it, by name; itself alone if nothing was fused.
        reads: Buffers that it reads.
        writes: Buffers that it writes.
        kernel: What it calls, such as `extern_kernels.addmm`, or the kind of buffer that it computes.
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


@dataclass(frozen=True)
class GraphDifference:
    """Difference of two graphs.

    Attributes:
        launches: How many kernels and calls each of the two launches.
        fusions: The groups of operations that only the first, and only the second, fuses.
        kernels: The kernels and calls that only the first, and only the second, has.
    """

    launches: tuple[int, int]
    fusions: tuple[tuple[str, ...], tuple[str, ...]]
    kernels: tuple[tuple[str, ...], tuple[str, ...]]

    def __str__(self) -> str:
        parts = [f"{self.launches[0]} launches against {self.launches[1]}"]
        for what, pair in (("fusions", self.fusions), ("kernels", self.kernels)):
            for word, texts in zip(("first", "second"), pair, strict=True):
                if texts:
                    parts.append(f"{what} only in the {word}: {', '.join(texts)}")
        return "; ".join(parts)


def read_graph(text: str) -> tuple[GraphNode, ...]:
    """The nodes of a trace's text, in the order scheduled.

    Raises:
        TargetError: There is no node in it.
    """
    nodes: list[GraphNode] = []
    block: list[str] = []
    members: set[str] = set()
    for line in text.splitlines():
        match = _HEAD.match(line)
        if match is not None and match["name"] not in members:
            nodes += _node(block)
            block, members = [], _members_of(match["name"], match["kind"])
        block.append(line)
    nodes += _node(block)
    if not nodes:
        raise TargetError("there is no scheduled node in it", hint=f"name an {POST_FUSION} of torch's trace folder")
    return tuple(nodes)


def graphs_in(path: Path) -> dict[str, tuple[GraphNode, ...]]:
    """The graphs of a file, or of every trace below a folder, by the trace's folder, in the order made.

    Traces of several programs, such as the modes of `compile-modes --collect`, often have folders of one name: then the
    folder of `path` that each lies in stands before it, and where that does not tell them apart the whole path.

    Raises:
        TargetError: There is no such file, or no trace in the folder.
    """
    files = sorted(path.rglob(POST_FUSION), key=_order) if path.is_dir() else [path]
    if not files:
        raise TargetError(
            f"there is no {POST_FUSION} below {path}", hint="compile-modes --collect DIR, or TORCH_COMPILE_DEBUG=1"
        )
    try:
        graphs = [read_graph(read_named(file).decode("utf-8", "replace")) for file in files]
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror or error}", hint="name a file or folder") from error
    return dict(zip(_names_of(files, path), graphs, strict=True))


def difference(first: Sequence[GraphNode], second: Sequence[GraphNode]) -> GraphDifference:
    """Compare two graphs."""
    return GraphDifference(
        launches=(_launches(first), _launches(second)),
        fusions=_only(_fusions(first), _fusions(second)),
        kernels=_only(_kernels(first), _kernels(second)),
    )


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


def _members_of(name: str, kind: str) -> set[str]:
    """Names of the members of a fused node, whose own texts follow."""
    fused = any(word in kind for word in ("Fused", "Foreach", "Grouped"))
    return set(re.findall(r"[a-z]+\d+", name)) if fused else set()


def _node(lines: Sequence[str]) -> list[GraphNode]:
    head = _HEAD.match(lines[0]) if lines else None
    if head is None:
        return []
    fields: dict[str, str] = {}
    kernels: list[str] = []
    current = ""
    for line in lines[1:]:
        match = _FIELD.match(line)
        if match is not None:
            current = match["field"] if match["name"] == head["name"] else ""
            if match["field"] == "node.kernel" and match["rest"].strip() != "None":
                kernels.append(match["rest"].strip())
        if current:
            fields[current] = fields.get(current, "") + line
    reads = [name for field in _READS for name in _DEPENDENCY.findall(fields.get(field, ""))]
    members = _members_of(head["name"], head["kind"])
    return [
        GraphNode(
            name=head["name"],
            kind=head["kind"],
            members=tuple(sorted(members, key=_number)) or (head["name"],),
            reads=tuple(dict.fromkeys(reads)),
            writes=tuple(dict.fromkeys(_DEPENDENCY.findall(fields.get("writes", "")))),
            kernel=", ".join(dict.fromkeys(kernels)) or head["of"],
        )
    ]


def _number(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return int(digits or 0), name


def _launches(nodes: Iterable[GraphNode]) -> int:
    return sum(node.launches for node in nodes)


def _fusions(nodes: Iterable[GraphNode]) -> list[str]:
    return ["+".join(node.members) for node in nodes if node.fused]


def _kernels(nodes: Iterable[GraphNode]) -> list[str]:
    return [f"{'+'.join(node.members)} ({node.kernel})" for node in nodes if node.launches]


def _only(first: Sequence[str], second: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(each for each in first if each not in second), tuple(each for each in second if each not in first)
