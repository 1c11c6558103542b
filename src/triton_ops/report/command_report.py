"""`triton-ops report`: what run logs say, in a terminal, as Markdown, as JSON, or as one page for a browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from triton_ops.base import is_file
from triton_ops.exceptions import SettingsError
from triton_ops.records import Runs, read_run
from triton_ops.report.report_page import page_of
from triton_ops.report.report_tables import SHOWN, PasteText, ReportTable, further_parts, parts_of
from triton_ops.report.run_facts import Report
from triton_ops.report.writers import markdown_of, reports_json
from triton_ops.request import named_object
from triton_ops.ship import as_target
from triton_ops.terminal import (
    CacheDir,
    Json,
    bold,
    folder_of,
    paragraph,
    printable,
    say,
    say_json,
    table,
    tell,
    width,
    write_output,
)

_HINT = "choose another -o"


def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="A run log, a run's id or its start, or a kernel or TARGET: its last run."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a page for browsers to FILE.")
    ] = None,
    as_text: Annotated[bool, typer.Option("--text", help="Write text; the default without -o.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown, for pull requests.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Trials and reasons to list.")] = SHOWN,
    problems: Annotated[
        bool, typer.Option("--problems", help="Of each kernel the newest run of every problem, beside each other.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Show what run logs say: every trial, ties, failures, which tunables matter, and the line to paste.

    Several runs are compared with the first. Nothing is run; a run that goes on is shown as far as it is.
    """
    if sum((as_text, as_markdown, as_json)) > 1 or (out is not None and as_json):
        raise SettingsError("--text, --markdown, --json and a page exclude each other", hint="give one of them")
    folder = folder_of(cache_dir)
    reports = [Report(read_run(path)) for path in _paths(runs, folder, every=problems)]
    if as_json:
        say_json(reports_json(reports))
    elif as_markdown:
        _put(out, markdown_of(reports, top).splitlines())
    elif as_text or out is None:
        _put(out, list(_lines(reports, top, width() if out is None else None)))
    else:
        write_output(out, page_of(reports), _HINT)
        tell(f"{out} is the page; open it in a browser")


def _paths(texts: Sequence[str], folder: Path, *, every: bool) -> list[Path]:
    """The run logs that are meant; a TARGET means the kernel that it names in records."""
    paths = []
    for text in texts:
        is_target = text.rpartition(":")[0].endswith(".py") and not is_file(Path(text))
        name = as_target(named_object(text)).name if is_target else text
        paths += Runs.newest_of(name, folder) if every else [Runs.find(name, folder)]
    return paths


def _put(out: Path | None, lines: Sequence[str]) -> None:
    if out is None:
        say(*lines)
    else:
        write_output(out, "".join(f"{printable(line)}\n" for line in lines), _HINT)


def _lines(reports: Sequence[Report], top: int, columns: int | None) -> Iterator[str]:
    for number, report in enumerate(reports):
        if number:
            yield ""
        for part in parts_of(report, top):
            yield from _block(part, columns) if isinstance(part, PasteText) else _part(part, columns)
    for part in further_parts(reports):
        yield from _part(part, columns)


def _part(part: ReportTable, columns: int | None) -> Iterator[str]:
    if part.title:
        yield from ("", bold(part.title))
    if part.rows:
        yield from table(part.header, part.rows, columns, part.right)
    if part.note:
        yield from paragraph("", part.note, columns)


def _block(block: PasteText, columns: int | None) -> Iterator[str]:
    for line in block.text.splitlines():
        yield from paragraph(f"{block.title}: ", line, columns)
