"""No line of prose in the documents is longer than the lines of code."""

import re

import pytest

from .test_shown import PAGES, PROJECT

MOST = 120
_CODE = re.compile(r"^ *`{3,}.*?^ *`{3,} *$", re.MULTILINE | re.DOTALL)
_MADE = re.compile(r"^<!-- table:.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"\]\([^)]*\)")


def too_long(text):
    """Lines over the limit, but for code, tables and what benchmarks write; addresses of links do not count."""
    prose = _MADE.sub("", _CODE.sub("", text)).splitlines()
    return [line for line in prose if not line.startswith("|") and len(_ADDRESS.sub("]", line)) > MOST]


def test_long_lines_are_found():
    long = "a " * 61
    assert too_long(f"{long}\n```\n{long}\n```\n| {long}\n<!-- table: x -->\n{long}\n<!-- end -->\n") == [long]
    assert too_long(f"[a]({'b' * 200})\n[{'a' * 120}](b)") == ["[" + "a" * 120 + "](b)"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_lines_of_prose_are_short(page):
    assert too_long(page.read_text(encoding="utf-8")) == []


def test_the_first_page_is_read_in_three_minutes():
    assert len((PROJECT / "README.md").read_text(encoding="utf-8").split()) <= 700


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_first_screen_says_what_the_two_commands_install_how_large_it_is_and_how_long_they_take(target):
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    screen = "\n".join(text.splitlines()[:40])
    line = rf"^\$ make {target} +# installs \d[\d.]* [MG]iB with.* torch in 1 minute, then .*\d (seconds|minutes)$"
    assert re.search(line, screen, re.MULTILINE)
    assert re.search(rf"^{target}:", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert screen.index(f"make {target}") < screen.index("pip install")
