"""Every test that a document names as its proof is there."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = sorted((PROJECT / "docs").rglob("*.md"))
_NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def missing(text):
    """The named tests that no file of that name defines."""
    for file, test in _NAMED.findall(text):
        result = [path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob(file)]
        if not any(re.search(rf"^def {test}\(", code, re.MULTILINE) for code in result):
            yield f"{file}::{test}"


def test_a_test_that_is_not_there_is_found():
    here = "`test_named_tests.py::test_a_test_that_is_not_there_is_found`"
    assert list(missing(f"{here} `test_named_tests.py::test_other` `test_no.py::test_x`")) == [
        "test_named_tests.py::test_other", "test_no.py::test_x",
    ]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_are_there(page):
    assert list(missing(page.read_text(encoding="utf-8"))) == []


def test_the_promises_name_their_tests():
    assert len(_NAMED.findall((PROJECT / "docs" / "reference" / "security.md").read_text(encoding="utf-8"))) > 30
