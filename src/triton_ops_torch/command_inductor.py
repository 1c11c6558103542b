"""`triton-ops torch`: what torch's compiler can be told, what it has kept, and what it has made of a model."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import triton_ops
from triton_ops.base import counted, require
from triton_ops.benchmark import time_ms
from triton_ops.device import DeviceSpec, probe
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.terminal import Facts, option, tell
from triton_ops.values import dtype_name
from triton_ops_torch.backends import Site, gate_of
from triton_ops_torch.compile_mode import autotune_options, wrong_variables
from triton_ops_torch.compiled_files import CacheContent
from triton_ops_torch.compiled_graphs import KINDS, OF_MODEL, ShownGraphs, drawn, graphs_in
from triton_ops_torch.compiler_output import AutotuneTable, CompilerLog
from triton_ops_torch.log_lines import text_of

_S_PER_DAY = 86_400.0
_OWN = "its winner, or its default config if nothing is recorded"
_LONGEST = 80  # characters of an example
_PLACE = "Inductor's cache folder; default the one that torch would use."


def backends_command(
    op: Annotated[str, option("OP", "mm, a product of matrices, or conv, a convolution.")] = "mm",
    shape: Annotated[str | None, option("--shape", "The extents of a product.", "MxNxK")] = None,
    dtype: Annotated[str, option("--dtype", "Such as bf16, fp16, fp32.", "DTYPE")] = "fp32",
    device: str = "cpu",
    gpu: str | None = None,
    names: Annotated[str | None, option("--list", "The list of backends; default the one in use.", "NAMES")] = None,
    freezing: Annotated[bool, option("--freezing", "Weights are constants.")] = False,
) -> Facts:
    """Say which backends max-autotune would measure for a product or a convolution, and why not the others."""
    spec = probe(device) if gpu is None else DeviceSpec.typed(gpu)
    site = Site(kind=op, device=spec, dtype=dtype_name(dtype), frozen=freezing)
    choices = replace(site, extents=_extents(shape, op)).backends(names)
    if not any(choice.takes_part for choice in choices):
        tell("no backend takes part, so that torch cannot compile this; list ATEN too", "warning", "yellow")
    rows = [{**asdict(choice), "takes_part": choice.takes_part} for choice in choices]
    place = {"op": op, "device": spec.name, "dtype": site.dtype, "shape": _extents(shape, op)}
    facts = Facts("torch backends", {**place, "backends": rows})
    words = {True: "yes", False: "no"}
    cells = [[one.name, words[one.listed], words[one.takes_part], one.reason or "-"] for one in choices]
    head = " ".join(filter(None, [op, shape, site.dtype, f"on {spec.name}, with max-autotune"]))
    return facts.lines(head).table(("backend", "listed", "takes part", "why"), cells)


def log_command(
    file: Annotated[Path, option("FILE", "What a program that compiles wrote to stderr.")],
    own: Annotated[bool, option("--own", "Time this package's matmul on this GPU as one more candidate.")] = False,
) -> Facts:
    """Read a log: autotune tables, CUDA graphs recorded again or skipped, recompilations, hints.

    What a launcher or a container puts before each line tells processes apart. A table in which the lines of
    several processes are mixed has no winner, and says so. Lines that look like a part of a table and were not read
    are counted. A file without a line of torch's is an error.
    """
    content = CompilerLog.read([text_of(file)])
    if not content.useful:
        tables, lines = counted(len(content.tables), "table"), counted(len(content.unread), "line")
        raise TargetError(
            f"of {tables} in {file} no choice can be read; {lines} may be a part of one"
            if content.tables or content.unread
            else f"no line of torch's log is in {file}: it is another file, or torch logged nothing",
            hint="name what a program that compiles wrote to stderr, with its whole lines",
        )
    if own:
        if not any(table.product for table in content.tables):
            ops = ", ".join(dict.fromkeys(table.op for table in content.tables)) or "none"
            tell(
                f"--own adds nothing: it is for tables of mm and addmm with matrices of one dtype; those here: {ops}",
                "warning", "yellow",
            )  # fmt: skip
        content = replace(content, tables=tuple(beside_own(content.tables, _own_ms)))
    return _log_facts(content)


def _own_ms(m: int, n: int, k: int, dtype: str) -> float:
    """Milliseconds of this package's matmul for a product on this machine's GPU, with L2 cold, as Inductor measures.

    The product alone is timed: an `addmm` of Inductor's adds its bias too.
    """
    probe("cuda")  # which says why there is none
    torch = require("torch", "timing a product")
    a, b = (torch.randn(extents, device="cuda", dtype=getattr(torch, dtype)) for extents in ((m, k), (k, n)))
    return time_ms(triton_ops.matmul, args=(a, b)).median_ms


def options_command(
    name: Annotated[str | None, option("WORD", "Only options whose names hold it.")] = None,
    device: str = "cpu",
) -> Facts:
    """List the options of tuning and of what is fused or recorded, with variable and value; and a device's gate.

    Without WORD these are options that say how candidates are measured and chosen, of which kernels and tiles, and
    what is fused, padded, laid out, frozen or recorded. With WORD they are all whose names hold it.
    """
    rows = autotune_options() if name is None else autotune_options((name,))
    if not rows:
        raise SettingsError(
            f"no option of Inductor has {name!r} in its name", hint="leave it out to list those of tuning"
        )
    gate = gate_of(probe(device))
    wrong, texts = wrong_variables()
    for text in texts:
        tell(text, "warning", "yellow")
    options = msgspec.to_builtins(
        [{**asdict(row), "changed": row.changed} for row in rows], str_keys=True, enc_hook=str
    )
    facts = Facts("torch options", {"options": options, "gate": gate._asdict(), "wrong_names": wrong})
    cells = [[row.name, _short(row.value), _short(row.default), " ".join(row.variables) or "-"] for row in rows]
    facts.table(("option", "value", "default", "variable"), cells)
    return facts.text(gate.reason, f"gate {'open' if gate.open else 'closed'}  ")


def inductor_cache_command(
    folder: Annotated[Path | None, option("--folder", _PLACE, "DIR")] = None,
    empty: Annotated[bool, option("--clean", "Remove what is provably Inductor's.")] = False,
    days: Annotated[float, option("--older-than", "With --clean, only what is older.", "DAYS")] = 0.0,
    yes: Annotated[bool, option("--yes", "With --clean, do not ask.")] = False,
) -> Facts:
    """Show Inductor's cache folder and what is in it, or clean it; files that are not Inductor's stay.

    --clean shows what is provably Inductor's by name and by place or content, asks, and removes it. Links, packages
    of AOTInductor (.pt2) and files of other users stay. A folder that holds mostly other things is refused (exit
    code 4). Where stdin is no terminal, --yes is needed (exit code 2).
    """
    # `days < 0` would let NaN pass.
    if not days >= 0 or (days and not empty):
        raise SettingsError(f"--older-than is {days:g}; it must be 0 or more days, and goes with --clean")
    content = CacheContent.cleanable(folder, days * _S_PER_DAY) if empty else CacheContent.of(folder)
    facts = _cache_facts(content)
    if not empty:
        return facts
    facts.show_ahead()
    if content.files:
        if not (yes or sys.stdin.isatty()):
            question = f"remove these {content.files} files from {content.path}?"
            raise SettingsError(f"stdin is no terminal to ask on: {question}", hint="--yes removes them")
        if not (yes or typer.confirm(f"remove these {content.files} files?", err=True)):
            tell("nothing was removed")
            raise typer.Exit
        before, content = content, CacheContent.clean(folder, days * _S_PER_DAY)
        if content.files < before.files:
            tell(f"{before.files - content.files} files could not be removed", "warning", "yellow")
    text = f"{content.files} files removed, {_mib(content.size_bytes)}, from {content.path}"
    return Facts("torch cache", _content_json(content)).lines(text)


def draw_command(
    trace: Annotated[Path, option("TRACE", "An ir_post_fusion.txt, or a folder of traces.")],
    other: Annotated[Path | None, option("OTHER", "A second one, to be compared.")] = None,
    out: Annotated[Path | None, option("--out", "Where the SVG goes; default none.", "FILE")] = None,
) -> Facts:
    """Draw captured graphs as SVG, or those of two programs in pairs with what differs; graphviz is not needed.

    Each argument is an ir_post_fusion.txt, a folder of traces, or a log with TORCH_LOGS=ir_post_fusion. Graphs of
    two programs are compared in pairs, in the order made. Classes of nodes that are not known are named, and count
    as one launch each.
    """
    paths = [path for path in (trace, other) if path is not None]
    programs = [graphs_in(path) for path in paths]
    kinds = Counter(node.kind for graphs in programs for nodes in graphs.values() for node in nodes)
    if strange := [f"{name} ({number})" for name, number in kinds.items() if name not in KINDS]:
        tell(f"nodes of unknown classes count as one launch each: {', '.join(strange)}", "warning", "yellow")
    named = [(name, nodes) for graphs in programs for name, nodes in graphs.items()]
    if branches := [name for name, nodes in named if not any(OF_MODEL.match(node.name) for node in nodes)]:
        tell(f"of branches alone, not of their models: {', '.join(branches)}", "warning", "yellow")
    shown = ShownGraphs.of_two(paths, programs) if other else ShownGraphs.of(programs[0])
    if out is not None:
        Facts.save(out, drawn(shown.pictures), "name a file")
    return Facts("torch draw", shown.data).lines(*shown.lines, *([] if out is None else [f"drawn to {out}"]))


def _extents(shape: str | None, op: str) -> tuple[int, ...]:
    """M, N and K, which may be 0: a product without elements is one of the things that backends refuse."""
    if shape is None:
        return ()
    words = shape.lower().split("x")
    if op != "mm" or len(words) != 3 or not all(word.isdecimal() for word in words):
        raise SettingsError(
            f"--shape is {shape!r}; a product has M, N and K, and a convolution needs none",
            hint="such as mm --shape 256x1024x1024",
        )
    return tuple(map(int, words))


def _content_json(content: CacheContent) -> dict[str, Any]:
    return {**asdict(content), "files": content.files, "size_bytes": content.size_bytes}


def _cache_facts(content: CacheContent) -> Facts:
    facts = Facts("torch cache", _content_json(content))
    if not content.exists:
        facts.lines(f"{content.path} is not there: nothing was compiled yet")
    elif not content.files:
        facts.lines(f"{content.path}: no files of Inductor's")
    else:
        rows = [[part.name, str(part.files), _mib(part.size_bytes), part.what] for part in content.parts]
        facts.lines(f"{content.path}: {content.files} files, {_mib(content.size_bytes)}")
        facts.table(("part", "files", "size", "what"), rows, ("files", "size"))
    if names := content.strange:
        more = f", and {len(names) - 10} more" if len(names) > 10 else ""
        facts.tell(f"not provably Inductor's, and never removed: {', '.join(names[:10])}{more}")
    return facts


def beside_own(
    tables: Iterable[AutotuneTable], own_ms: Callable[[int, int, int, str], float]
) -> Iterator[AutotuneTable]:
    """Tables of products with this package's matmul as one more candidate; others as they are."""
    timed = lru_cache(maxsize=None)(own_ms)  # several tables may be of one product
    for table in tables:
        product = table.product
        yield table if product is None else table.with_choice("triton_ops.matmul", timed(*product), _OWN)


def _log_facts(log: CompilerLog) -> Facts:
    winners = [None if table.winner is None else table.winner.name for table in log.tables]
    tables = [{**asdict(table), "winner": name} for table, name in zip(log.tables, winners, strict=True)]
    facts = Facts("torch log", {**asdict(log), "tables": tables})
    several = len({table.writer for table in log.tables}) > 1
    for each in log.tables:
        rows = [[c.name, "failed" if c.ms is None else f"{c.ms:.4f}", c.source, c.what] for c in each.choices]
        seconds = "" if each.benchmark_s is None else f", {each.benchmark_s:.1f} s of measuring"
        writer = f", by {each.writer or 'a process without prefix'}" if several else ""
        facts.lines(f"{each.op}({each.sizes}) {each.dtypes}{seconds}{writer}")
        facts.table(("choice", "ms", "from", "what"), rows, ("ms",))
        if each.winner is None:
            facts.text((each.doubt or "no choice has a time") if rows else "no choice could be read", "no winner: ")
    facts.lines(f"CUDA graphs recorded: {log.recordings}, again: {len(log.rerecorded)}")
    events = {
        "recorded again": log.rerecorded, "skipped": log.skipped, "recompiled": log.recompiled,
        "not compiled any more": log.limits, "hint": log.hints, "failed": log.failures,
    }  # fmt: skip
    for name, texts in events.items():
        for text in dict.fromkeys(texts):
            facts.text(text, f"{name}: ")
    if log.unread:
        number, example = counted(len(log.unread), "line"), log.unread[0][:_LONGEST]
        facts.tell(f"{number} that look like a part of a table were not read, such as {example!r}", "warning", "yellow")
    return facts


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
