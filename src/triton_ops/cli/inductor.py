"""`triton-ops inductor`: what torch's compiler can be told, what it has kept, and what it has made of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import settings
from triton_ops.base import read_named, write_named
from triton_ops.benchmark import beside_own
from triton_ops.cli.console import Json, Verbose, agrees, bold, paragraph, say, say_json, table, tell, width
from triton_ops.compile_modes import (
    AutotuneTable,
    CacheContent,
    CompilerLog,
    ProgramGraphs,
    Site,
    autotune_options,
    gate_here,
    wrong_variables,
)
from triton_ops.device import probe
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.lab import device_spec
from triton_ops.values import dtype_name

_S_PER_DAY = 86_400.0
_MOST_STRANGE = 0.1  # of the characters of a text: a log may hold some bytes of another encoding

app = typer.Typer(
    help="Options, caches, logs and graphs of torch's compiler.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Inductor's cache folder; default the one that torch would use."),
]


@app.command("options")
def options(
    name: Annotated[str | None, typer.Argument(metavar="WORD", help="Only options whose names hold it.")] = None,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = "cpu",
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """List the options of tuning and of what is fused or recorded, with variable and value; and a device's gate."""
    found = autotune_options() if name is None else autotune_options((name,))
    if not found:
        raise SettingsError(
            f"no option of Inductor has {name!r} in its name", hint="leave it out to list those of tuning"
        )
    gate = gate_here(device)
    wrong, texts = wrong_variables(dict(settings.environment()))
    for strange, meant in wrong.items():
        tell(f"{strange} is set, and torch does not read it; {meant} is probably meant", "warning", "yellow")
    for text in texts:
        tell(text, "warning", "yellow")
    if as_json:
        rows = [{**asdict(each), "changed": each.changed} for each in found]
        say_json({"options": _plain(rows), "gate": asdict(gate), "wrong_names": wrong})
        return
    cells = [[e.name, _short(e.value), _short(e.default), " ".join(e.variables) or "-"] for e in found]
    header, *lines = table(("option", "value", "default", "variable"), cells, width())
    state = "open" if gate.open else "closed"
    say(bold(header), *lines, *paragraph(f"gate {state}  ", gate.reason, width()))


@app.command("backends")
def backends(
    op: Annotated[str, typer.Argument(metavar="OP", help="mm, a product of matrices, or conv, a convolution.")] = "mm",
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxNxK", help="The extents of a product.")] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp32.")] = "fp32",
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = "cpu",
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here.")] = None,
    listed: Annotated[
        str | None, typer.Option("--list", metavar="NAMES", help="The list of backends; default the one in use.")
    ] = None,
    frozen: Annotated[bool, typer.Option("--freezing", help="Weights are constants.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Say which backends max-autotune would measure for a product or a convolution, and why not the others."""
    where = device_spec(gpu) if gpu is not None else probe(device)
    site = Site(kind=op, device=where, dtype=dtype_name(dtype), frozen=frozen)
    site = replace(site, extents=_extents(shape, op))
    found = site.backends(listed)
    if not any(each.takes_part for each in found):
        tell("no backend takes part, so that torch cannot compile this; list ATEN too", "warning", "yellow")
    if as_json:
        rows = [{**asdict(each), "takes_part": each.takes_part} for each in found]
        say_json({"op": op, "device": site.device.name, "dtype": site.dtype, "shape": site.extents, "backends": rows})
        return
    cells = [[each.name, _yes(each.listed), _yes(each.takes_part), each.reason or "-"] for each in found]
    header, *lines = table(("backend", "listed", "takes part", "why"), cells, width())
    what = " ".join(filter(None, [op, shape, site.dtype, f"on {site.device.name}, with max-autotune"]))
    say(what, bold(header), *lines)


@app.command("cache")
def cache(
    folder: _Folder = None,
    empty: Annotated[bool, typer.Option("--clean", help="Remove what is provably Inductor's.")] = False,
    days: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", help="With --clean, only what is older.")
    ] = 0.0,
    agreed: Annotated[bool, typer.Option("--yes", help="With --clean, do not ask.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Show Inductor's cache folder and what is in it, or clean it; files that are not Inductor's stay."""
    if not days >= 0 or (days and not empty):
        raise SettingsError(f"--older-than is {days:g}; it must be 0 or more days, and goes with --clean")
    found = CacheContent.cleanable(folder, days * _S_PER_DAY) if empty else CacheContent.of(folder)
    if not as_json:
        say(*_cache_lines(found))
        _tell_strange(found.strange)
    if empty and found.files:
        if not (agreed or agrees(f"remove these {found.files} files from {found.path}?", "--yes removes them")):
            tell("nothing was removed")
            return
        shown, found = found, CacheContent.clean(folder, days * _S_PER_DAY)
        if found.files < shown.files:
            tell(f"{shown.files - found.files} files could not be removed", "warning", "yellow")
    if as_json:
        say_json({**asdict(found), "files": found.files, "size_bytes": found.size_bytes})
    elif empty:
        say(f"{found.files} files removed, {_mib(found.size_bytes)}, from {found.path}")


@app.command("log")
def log(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What a program that compiles wrote to stderr.")],
    own: Annotated[
        bool, typer.Option("--own", help="Time this package's matmul on this GPU as one more candidate.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Read a log: autotune tables, CUDA graphs recorded again or skipped, recompilations, hints."""
    found = CompilerLog.read(_text_of(file).splitlines())
    if not found.lines:
        tell(f"no line of torch's log is in {file}: it is another file, or torch logged nothing", "warning", "yellow")
    if own:
        _tell_of_no_product(found.tables)
        found = replace(found, tables=tuple(beside_own(found.tables)))
    if as_json:
        say_json(asdict(found))
    else:
        say(*_log_lines(found))


@app.command("draw")
def draw(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="An ir_post_fusion.txt, or a folder of traces.")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="A second one, to be compared.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where the SVG goes; default none.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Draw captured graphs as SVG, or those of two programs in pairs with what differs; graphviz is not needed."""
    program = ProgramGraphs.read(trace)
    shown = program if other is None else program.beside(ProgramGraphs.read(other))
    if out is not None:
        try:
            write_named(out, shown.svg())
        except OSError as error:
            raise SettingsError(f"{out} cannot be written: {error.strerror or error}", hint="name a file") from error
    if as_json:
        say_json(shown.as_json())
    else:
        say(*shown.lines, *([] if out is None else [f"drawn to {out}"]))


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


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _cache_lines(found: CacheContent) -> list[str]:
    if not found.exists:
        return [f"{found.path} is not there: nothing was compiled yet"]
    if not found.files:
        return [f"{found.path}: no files of Inductor's"]
    rows = [[part.name, str(part.files), _mib(part.size_bytes), part.what] for part in found.parts]
    header, *lines = table(("part", "files", "size", "what"), rows, width(), ("files", "size"))
    return [f"{found.path}: {found.files} files, {_mib(found.size_bytes)}", bold(header), *lines]


def _tell_strange(names: Sequence[str]) -> None:
    if names:
        more = f", and {len(names) - 10} more" if len(names) > 10 else ""
        tell(f"not provably Inductor's, and never removed: {', '.join(names[:10])}{more}")


def _text_of(file: Path) -> str:
    """The text of a log.

    Raises:
        TargetError: It cannot be read, or is no text.
    """
    try:
        content = read_named(file)
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror or error}", hint="name a file") from error
    text = content.decode("utf-8", "replace")
    if "\0" in text or text.count("\N{REPLACEMENT CHARACTER}") > _MOST_STRANGE * len(text):
        raise TargetError(
            f"{file} is no text: its {len(content)} bytes are binary data, or of another encoding than UTF-8",
            hint="name a file with what a program that compiles wrote to stderr",
        )
    return text


def _tell_of_no_product(tables: Sequence[AutotuneTable]) -> None:
    """Say why `--own` adds nothing."""
    if not any(table.product for table in tables):
        there = ", ".join(dict.fromkeys(table.op for table in tables)) or "none"
        tell(
            f"--own adds nothing: it is for tables of mm and addmm with matrices of one dtype; those here: {there}",
            "warning", "yellow",
        )  # fmt: skip


def _log_lines(found: CompilerLog) -> list[str]:
    lines = [line for each in found.tables for line in _table_lines(each)]
    lines.append(f"CUDA graphs recorded: {found.recordings}, again: {len(found.rerecorded)}")
    named = {"recorded again": found.rerecorded, "skipped": found.skipped, "recompiled": found.recompiled}
    for what, texts in {**named, "hint": found.hints}.items():
        for text in dict.fromkeys(texts):
            lines += paragraph(f"{what}: ", text, width())
    return lines


def _table_lines(found: AutotuneTable) -> list[str]:
    rows = [[c.name, "failed" if c.ms is None else f"{c.ms:.4f}", c.source, c.what] for c in found.choices]
    header, *lines = table(("choice", "ms", "from", "what"), rows, width(), ("ms",))
    took = "" if found.benchmark_s is None else f", {found.benchmark_s:.1f} s of measuring"
    return [f"{found.op}({found.sizes}) {found.dtypes}{took}", bold(header), *lines]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
