"""`triton-ops inductor`: what torch's compiler can be told, what it has kept, and what it has made of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import settings
from triton_ops.base import NamedFile
from triton_ops.compile_modes.backends import Site, gate_here
from triton_ops.compile_modes.compile_mode import autotune_options, wrong_variables
from triton_ops.compile_modes.compiled_files import CacheContent
from triton_ops.compile_modes.compiler_output import AutotuneTable, CompilerLog, ProgramGraphs
from triton_ops.device import DeviceSpec, probe
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.terminal import Json, agrees, group, headed_table, paragraph, say, say_json, tell, width, write_output
from triton_ops.values import dtype_name

_S_PER_DAY = 86_400.0
_OWN = "its winner, or its default config if nothing is recorded"
_MOST_STRANGE = 0.1  # of the characters of a text: a log may hold some bytes of another encoding
_Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Inductor's cache folder; default the one that torch would use."),
]


def inductor_group(
    device_spec: Callable[[str], DeviceSpec], own_ms: Callable[[int, int, int, str], float]
) -> typer.Typer:
    """The group of commands; `device_spec` finds the device of `--gpu`, `own_ms` times this package's matmul."""
    commands = group("Options, caches, logs and graphs of torch's compiler.")
    commands.command("options")(options)

    @commands.command("backends")
    def backends(
        op: Annotated[
            str, typer.Argument(metavar="OP", help="mm, a product of matrices, or conv, a convolution.")
        ] = "mm",
        shape: Annotated[str | None, typer.Option("--shape", metavar="MxNxK", help="The extents of a product.")] = None,
        dtype: Annotated[str, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp32.")] = "fp32",
        device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = "cpu",
        gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here.")] = None,
        names: Annotated[
            str | None, typer.Option("--list", metavar="NAMES", help="The list of backends; default the one in use.")
        ] = None,
        freezing: Annotated[bool, typer.Option("--freezing", help="Weights are constants.")] = False,
        as_json: Json = False,
    ) -> None:
        """Say which backends max-autotune would measure for a product or a convolution, and why not the others."""
        spec = probe(device) if gpu is None else device_spec(gpu)
        site = Site(kind=op, device=spec, dtype=dtype_name(dtype), frozen=freezing)
        site = replace(site, extents=_extents(shape, op))
        _show_backends(site, shape, names, as_json=as_json)

    commands.command("cache")(cache)

    @commands.command("log")
    def log(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="What a program that compiles wrote to stderr.")],
        own: Annotated[
            bool, typer.Option("--own", help="Time this package's matmul on this GPU as one more candidate.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Read a log: autotune tables, CUDA graphs recorded again or skipped, recompilations, hints."""
        content = _compiler_log(file)
        if own:
            _tell_of_no_product(content.tables)
            content = replace(content, tables=tuple(beside_own(content.tables, own_ms)))
        if as_json:
            say_json(asdict(content))
        else:
            say(*_log_lines(content))

    commands.command("draw")(draw)
    return commands


def options(
    name: Annotated[str | None, typer.Argument(metavar="WORD", help="Only options whose names hold it.")] = None,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = "cpu",
    as_json: Json = False,
) -> None:
    """List the options of tuning and of what is fused or recorded, with variable and value; and a device's gate."""
    rows = autotune_options() if name is None else autotune_options((name,))
    if not rows:
        raise SettingsError(
            f"no option of Inductor has {name!r} in its name", hint="leave it out to list those of tuning"
        )
    gate = gate_here(device)
    environment = dict(settings.environment())
    wrong, texts = wrong_variables(environment)
    for name_set, name_read in wrong.items():
        tell(f"{name_set} is set, and torch does not read it; {name_read} is probably meant", "warning", "yellow")
    for text in texts:
        tell(text, "warning", "yellow")
    if as_json:
        documents = [{**asdict(row), "changed": row.changed} for row in rows]
        say_json({"options": _plain(documents), "gate": asdict(gate), "wrong_names": wrong})
        return
    cells = [[row.name, _short(row.value), _short(row.default), " ".join(row.variables) or "-"] for row in rows]
    lines = headed_table(("option", "value", "default", "variable"), cells, width())
    say(*lines, *paragraph(f"gate {'open' if gate.open else 'closed'}  ", gate.reason, width()))


def cache(
    folder: _Folder = None,
    empty: Annotated[bool, typer.Option("--clean", help="Remove what is provably Inductor's.")] = False,
    days: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", help="With --clean, only what is older.")
    ] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", help="With --clean, do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Show Inductor's cache folder and what is in it, or clean it; files that are not Inductor's stay."""
    if not days >= 0 or (days and not empty):
        raise SettingsError(f"--older-than is {days:g}; it must be 0 or more days, and goes with --clean")
    content = CacheContent.cleanable(folder, days * _S_PER_DAY) if empty else CacheContent.of(folder)
    if not as_json:
        say(*_cache_lines(content))
        _tell_strange(content.strange)
    if empty and content.files:
        if not (yes or agrees(f"remove these {content.files} files from {content.path}?", "--yes removes them")):
            tell("nothing was removed")
            return
        before, content = content, CacheContent.clean(folder, days * _S_PER_DAY)
        if content.files < before.files:
            tell(f"{before.files - content.files} files could not be removed", "warning", "yellow")
    if as_json:
        say_json({**asdict(content), "files": content.files, "size_bytes": content.size_bytes})
    elif empty:
        say(f"{content.files} files removed, {_mib(content.size_bytes)}, from {content.path}")


def draw(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="An ir_post_fusion.txt, or a folder of traces.")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="A second one, to be compared.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where the SVG goes; default none.")] = None,
    as_json: Json = False,
) -> None:
    """Draw captured graphs as SVG, or those of two programs in pairs with what differs; graphviz is not needed."""
    program = ProgramGraphs.read(trace)
    drawing = program if other is None else program.beside(ProgramGraphs.read(other))
    if out is not None:
        write_output(out, drawing.svg(), "name a file")
    if as_json:
        say_json(drawing.as_json())
    else:
        say(*drawing.lines, *([] if out is None else [f"drawn to {out}"]))


def _show_backends(site: Site, shape: str | None, names: str | None, *, as_json: bool) -> None:
    choices = site.backends(names)
    if not any(choice.takes_part for choice in choices):
        tell("no backend takes part, so that torch cannot compile this; list ATEN too", "warning", "yellow")
    if as_json:
        rows = [{**asdict(choice), "takes_part": choice.takes_part} for choice in choices]
        facts = {"op": site.kind, "device": site.device.name, "dtype": site.dtype, "shape": site.extents}
        say_json({**facts, "backends": rows})
        return
    cells = [[one.name, _yes(one.listed), _yes(one.takes_part), one.reason or "-"] for one in choices]
    head = " ".join(filter(None, [site.kind, shape, site.dtype, f"on {site.device.name}, with max-autotune"]))
    say(head, *headed_table(("backend", "listed", "takes part", "why"), cells, width()))


def _compiler_log(file: Path) -> CompilerLog:
    content = CompilerLog.read(_text_of(file).splitlines())
    if not content.lines:
        tell(f"no line of torch's log is in {file}: it is another file, or torch logged nothing", "warning", "yellow")
    return content


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


def _cache_lines(content: CacheContent) -> list[str]:
    if not content.exists:
        return [f"{content.path} is not there: nothing was compiled yet"]
    if not content.files:
        return [f"{content.path}: no files of Inductor's"]
    rows = [[part.name, str(part.files), _mib(part.size_bytes), part.what] for part in content.parts]
    head = f"{content.path}: {content.files} files, {_mib(content.size_bytes)}"
    return [head, *headed_table(("part", "files", "size", "what"), rows, width(), ("files", "size"))]


def _tell_strange(names: Sequence[str]) -> None:
    if names:
        more = f", and {len(names) - 10} more" if len(names) > 10 else ""
        tell(f"not provably Inductor's, and never removed: {', '.join(names[:10])}{more}")


def _text_of(file: Path) -> str:
    try:
        content = NamedFile(file).read()
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror or error}", hint="name a file") from error
    text = content.decode("utf-8", "replace")
    if "\0" in text or text.count("\N{REPLACEMENT CHARACTER}") > _MOST_STRANGE * len(text):
        raise TargetError(
            f"{file} is no text: its {len(content)} bytes are binary data, or of another encoding than UTF-8",
            hint="name a file with what a program that compiles wrote to stderr",
        )
    return text


def beside_own(
    tables: Iterable[AutotuneTable], own_ms: Callable[[int, int, int, str], float]
) -> Iterator[AutotuneTable]:
    """Tables of products with this package's matmul as one more candidate; others as they are."""
    timed = lru_cache(maxsize=None)(own_ms)  # several tables may be of one product
    for table in tables:
        product = table.product
        yield table if product is None else table.with_choice("triton_ops.matmul", timed(*product), _OWN)


def _tell_of_no_product(tables: Sequence[AutotuneTable]) -> None:
    if not any(table.product for table in tables):
        ops = ", ".join(dict.fromkeys(table.op for table in tables)) or "none"
        tell(
            f"--own adds nothing: it is for tables of mm and addmm with matrices of one dtype; those here: {ops}",
            "warning", "yellow",
        )  # fmt: skip


def _log_lines(log: CompilerLog) -> list[str]:
    lines = [line for each in log.tables for line in _table_lines(each)]
    lines.append(f"CUDA graphs recorded: {log.recordings}, again: {len(log.rerecorded)}")
    events = {
        "recorded again": log.rerecorded, "skipped": log.skipped, "recompiled": log.recompiled, "hint": log.hints,
    }  # fmt: skip
    for name, texts in events.items():
        for text in dict.fromkeys(texts):
            lines += paragraph(f"{name}: ", text, width())
    return lines


def _table_lines(autotune: AutotuneTable) -> list[str]:
    rows = [[c.name, "failed" if c.ms is None else f"{c.ms:.4f}", c.source, c.what] for c in autotune.choices]
    seconds = "" if autotune.benchmark_s is None else f", {autotune.benchmark_s:.1f} s of measuring"
    head = f"{autotune.op}({autotune.sizes}) {autotune.dtypes}{seconds}"
    return [head, *headed_table(("choice", "ms", "from", "what"), rows, width(), ("ms",))]


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
