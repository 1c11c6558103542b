"""Every link between the documents leads to a file, and to a heading where it names one."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [
    *sorted(PROJECT.glob("*.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted((PROJECT / "benchmarks").rglob("*.md")),
]
_LINK = re.compile(r"\[(?:[^\]\n]|\n(?!\n))*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as the usual hosts make them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def dead_links(page):
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text(encoding="utf-8")))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            yield f"{link}: no such heading"


def test_dead_links_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# The `two` parts, really\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[x](b.md) [x](b.md#the-two-parts-really) [x](#here) [x](https://a.b/c) `[x](no.md)`\n\n"
        "## Here\n\n[x](c.md) [two\nlines](b.md#other)\n\n```\n[x](d.md)\n```\n"
    )
    assert list(dead_links(page)) == ["c.md: no such file", "b.md#other: no such heading"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page):
    assert list(dead_links(page)) == []
