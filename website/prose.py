"""`python -m website.prose [PAGE ...]`: how long the documents and their sentences are; of pages named, each by itself.

Words are those of `wc -w`, with code and tables. Sentences are those of prose and lists alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = {
    "the first pages": ("README.md", "CONTRIBUTING.md", "docs/*.md"),
    "first steps": ("docs/start/*.md",),
    "how to": ("docs/guides/*.md",),
    "reference": ("docs/reference/*.md",),
    "explanation": ("docs/concepts/*.md",),
}
BENCHMARKS = "benchmarks/**/*.md"
LONG = 40  # words of a sentence
_LEFT_OUT = re.compile(r"^ *(`{3,}).*?^ *\1 *$|<!--.*?-->|^ *(?:\||#).*?$", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|^ *(?:[-*+]|\d+\.) ", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SPAN = re.compile(r"`[^`]*`")
_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"*_)])|(?<=[.!?]\*\*))\s+(?=[\"*_(\[]*[A-Z0-9])")


class Prose(NamedTuple):
    """What one or several pages hold."""

    words: tuple[int, ...]  # of each page
    sentences: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Words of a sentence, on average; 0 without a sentence."""
        return sum(map(length, self.sentences)) / max(1, len(self.sentences))

    @property
    def longest(self) -> int:
        """Words of the longest sentence; 0 without a sentence."""
        return max(map(length, self.sentences), default=0)


def length(sentence: str) -> int:
    """The words of a sentence."""
    return len(sentence.split())


def sentences_of(markdown: str) -> Iterator[str]:
    """The sentences of a page's prose; code spans are one word, and a link is its words."""
    text = _SPAN.sub("Code", _LINK.sub(r"\1", _LEFT_OUT.sub("\n", markdown)))
    for paragraph in _PARAGRAPH.split(text):
        for sentence in _END.split(" ".join(paragraph.split())):
            if length(sentence) > 1:
                yield sentence


def pages_of(*patterns: str) -> list[Path]:
    """The files of the repository that the patterns name."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def prose_of(paths: list[Path]) -> Prose:
    """What these pages hold together."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return Prose(
        tuple(len(text.split()) for text in texts), tuple(each for text in texts for each in sentences_of(text))
    )


def _line(name: str, prose: Prose) -> str:
    largest = max(prose.words, default=0)
    return (
        f"{name:<40} {len(prose.words):>3} pages {sum(prose.words):>7,} words, largest {largest:>6,}, "
        f"sentences {prose.mean:>4.1f}, longest {prose.longest:>2}"
    )


def _by_kind() -> Iterator[str]:
    for name, patterns in {**KINDS, "benchmarks": (BENCHMARKS,)}.items():
        yield _line(name, prose_of(pages_of(*patterns)))
    yield _line("all but benchmarks", prose_of(pages_of(*sum(KINDS.values(), ()))))


def _by_page(names: list[str]) -> Iterator[str]:
    for name in names:
        prose = prose_of([Path(name)])
        yield _line(name, prose)
        yield from (f"  {length(each)}: {each}" for each in prose.sentences if length(each) > LONG)


def main(pages: list[str]) -> None:
    """Print a line for each kind of page; or one for each page that is named, with the sentences that are too long."""
    sys.stdout.writelines(f"{line}\n" for line in (_by_page(pages) if pages else _by_kind()))


if __name__ == "__main__":
    main(sys.argv[1:])
