"""Tables and paragraphs of plain text. Nothing is ever cut; what does not fit goes on below, between words."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

GAP = "  "
_LEAST = 24  # columns for text, however narrow the window: a wrapped word or two per line cannot be read


def paragraph(head: str, text: str, width: int | None) -> list[str]:
    """`head` and `text` in one line, or with `text` going on below itself.

    Args:
        head: Stands before the first line, and is never wrapped.
        text: Wrapped between words only.
        width: Columns there are; None is no limit.
    """
    if width is None:
        return [(head + text).rstrip()]
    room = max(width - len(head), _LEAST)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = " " * len(head)
    return [((indent if number else head) + line).rstrip() for number, line in enumerate(lines)]


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, right: Collection[str] = ()
) -> list[str]:
    """A table's lines, the header first; only the last column is wrapped.

    Args:
        header: Names of the columns; empty strings for a table without.
        rows: One text per column.
        width: Columns there are; None is no limit.
        right: Names of the columns that are aligned to the right, as numbers are.
    """
    sizes = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows] if any(header) else rows:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(row[:-1], sizes, header, strict=False)
        ]
        lines += paragraph("".join(cell + GAP for cell in cells), row[-1], width)
    return lines


def fits(lines: Sequence[str], width: int | None) -> bool:
    """Whether no line is wider than `width`."""
    return width is None or all(len(line) <= width for line in lines)


def listing(facts: Mapping[str, str], width: int | None) -> list[str]:
    """Names on the left, what is to be said of them on the right."""
    return table(["", ""], list(facts.items()), width)
