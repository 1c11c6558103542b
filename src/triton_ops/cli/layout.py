"""Tables and paragraphs of plain text. Text that does not fit is wrapped between words and never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

GAP = "  "
_LEAST = 24  # columns for text in a narrow window, since one or two words per line cannot be read


def paragraph(head: str, text: str, width: int | None) -> list[str]:
    """`head` and `text` in one line, or in several lines with `text` wrapped below its first line.

    Args:
        head: The beginning of the first line, which is never wrapped.
        text: The text, which is wrapped between words only.
        width: The columns of a line; None is no limit.
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
    """The lines of a table, with the header first; only the last column is wrapped.

    Args:
        header: Names of the columns; empty strings make a table without header.
        rows: The rows, each with one text per column.
        width: The columns of a line; None is no limit.
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
    """A table of two columns without header: names on the left, facts on the right."""
    return table(["", ""], list(facts.items()), width)
