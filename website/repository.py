"""Pages that are files of the repository, and what becomes of the links between them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("README.md"))
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    **{path: path for path in BENCHMARKS},
    "examples/softmax.py": "examples/softmax.md",
}  # a file outside of `docs`, and its page on the site
_LINK = re.compile(r"(?P<before>!?\[(?P<words>(?:[^\]\n]|\n(?!\s*\n))*)\])\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"^ *(?P<fence>`{3,}).*?^ *(?P=fence) *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def pages_of_the_repository() -> dict[str, str]:
    """The Markdown of each page by its place on the site, with links as the site has them."""
    paths = [*(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))), *ELSEWHERE]
    return {place: relinked(_as_markdown(ROOT / path), path) for path in paths if (place := place_of(path))}


def pictures() -> dict[str, Path]:
    """The pictures of these pages, by their place on the site."""
    shown = (
        link for path in [*(ROOT / "docs").rglob("*.md"), *map(ROOT.joinpath, ELSEWHERE)] for link in _pictures(path)
    )
    return {place: ROOT / link for link in shown if (place := place_of(link))}


def place_of(path: str) -> str | None:
    """The place on the site of a file of the repository; None where it has none."""
    if path.endswith(".png"):
        return path.removeprefix("docs/")
    return ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)


def relinked(markdown: str, source: str) -> str:
    """The text of the repository's file `source`, with each relative link as the site has it.

    A link to a file that the site does not have becomes its words and the file's path.
    """
    code: list[str] = []

    def kept(found: re.Match[str]) -> str:
        code.append(found[0])
        return f"\0{len(code) - 1}\0"

    linked = _relinked(_CODE.sub(kept, markdown), source)
    return re.sub("\0(\\d+)\0", lambda found: code[int(found[1])], linked)


def _relinked(text: str, source: str) -> str:
    here = str(Path(place_of(source) or source).parent)

    def link(found: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", found["path"]):
            return found[0]
        target = os.path.normpath(Path(source).parent / found["path"])
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{source} links to {found['path']}, which is not there")
        place = place_of(target)
        if place is None:
            return f"{found['words']} (`{target}`)"
        return f"{found['before']}({os.path.relpath(place, here)}{found['anchor'] or ''})"

    return _LINK.sub(link, text)


def _pictures(path: Path) -> Iterator[str]:
    for found in _LINK.finditer(path.read_text(encoding="utf-8")):
        if found["path"].endswith(".png"):
            yield os.path.relpath(path.parent / found["path"], ROOT)


def _as_markdown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# `{path.relative_to(ROOT)}`\n\n```python\n{text}```\n"
