"""A report as Markdown for pull requests. Texts of kernels and files are escaped, and never become markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from triton_ops.report.facts import Report
from triton_ops.report.tables import SHOWN, Block, Part, further_parts, parts_of

_PLAIN = re.compile(r"[A-Za-z0-9 =%,.+()/'-]*")
_CODE = re.compile(r"[A-Za-z0-9_:=%,.+()/' -]*")
_LINK = re.compile(r"//|www\.", re.IGNORECASE)  # what a reader of Markdown makes a link of by itself
_OTHER = re.compile(r"[^A-Za-z0-9 ]")


def markdown_of(reports: Sequence[Report], top: int = SHOWN) -> str:
    """The reports, and the comparison of the first with each other, as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"# {escaped(report.title)}", ""]
        for part in parts_of(report, top):
            lines += _block(part) if isinstance(part, Block) else _part(part)
    for part in further_parts(reports):
        lines += _part(part)
    return "\n".join(lines)


def escaped(text: str) -> str:
    """A text of somebody as Markdown that shows it as it is: never a link, a mention, another cell or a line's end."""
    text = " ".join(text.split())
    if _LINK.search(text) is None:
        if _PLAIN.fullmatch(text):
            return text
        if _CODE.fullmatch(text):
            return f"`{text}`"
    return f"<code>{_OTHER.sub(lambda found: f'&#{ord(found[0])};', text)}</code>"


def _part(part: Part) -> Iterator[str]:
    if part.title:
        yield from (f"## {part.title}", "")
    if part.rows:
        header = part.header if any(part.header) else ("what", "value")
        yield _row(header)
        yield "|" + "|".join(" ---: " if name in part.right else " --- " for name in header) + "|"
        yield from map(_row, part.rows)
        yield ""
    if part.note:
        yield from (escaped(part.note), "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _block(block: Block) -> list[str]:
    longest = max((len(run) for run in re.findall("`+", block.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{block.title}:", "", f"{fence}python", *block.text.splitlines(), fence, ""]
