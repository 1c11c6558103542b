"""The pages on how the package is built and changed name rooms, roles, files, classes and functions that are there."""

import keyword
import re
from functools import cache

import pytest
import tomllib

from .test_shown import PROJECT, shown

PAGE = PROJECT / "docs" / "architecture.md"
PAGES = (PAGE, PROJECT / "CONTRIBUTING.md")
PACKAGE = PROJECT / "src" / "triton_ops"
_DEFINED = re.compile(r"^ *(?:class|(?:async )?def) (\w+)|^(\w+)\b[^=\n]*=(?!=)|^    (\w+): \w", re.MULTILINE)
_PLACEHOLDER = re.compile(r"<\w+>")
_ROLE = re.compile(r"^\| (`[A-Z]\w+`(?:, `[A-Z]\w+`)*) \| [^|]+ \| `(\w+)` \|$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"[A-Z]+_[a-z_]+|[a-z_]+_[A-Z]+")  # such as NAME_command
_OF_OTHERS = {"Autotuner": "Triton", "dependencies": "the packaging of Python"}


def floors_of_page(text):
    """The groups of packages that stand on one floor, from the top; `then` begins the next group."""
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", text, re.MULTILINE)
    return [frozenset(re.findall(r"`(\w+)`", group)) for row in rows for group in row.split("then")]


def floors_of_contract():
    """As import-linter proves them."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["name"].startswith("Floors"))
    return [frozenset(part.strip() for part in layer.split("|")) for layer in layers if layer != "__main__"]


@cache
def defined():
    """Names of packages, files, classes, fields, functions and constants of all packages."""
    files = [*(PROJECT / "src").rglob("*.py"), *(PROJECT / "serving").rglob("*.py")]
    names = {name for path in files for result in _DEFINED.findall(path.read_text(encoding="utf-8")) for name in result}
    return names | {name for path in files for name in (path.name, path.stem, path.parent.name)}


@cache
def around():
    """Names of what stands around the package: files and folders, targets of make, and fixtures of the tests."""
    fixtures = (path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("conftest.py"))
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        *(path.name for path in PROJECT.iterdir()), *targets, *keyword.kwlist,
        *(name for text in fixtures for name in re.findall(r"^def (\w+)\(", text, re.MULTILINE)),
    }  # fmt: skip


def strangers(spans):
    """Code spans that name a file, a folder, a room, a class or a function, and nothing that is there."""
    known = defined() | around()
    for span in spans:
        if re.fullmatch(r"[\w./-]+/[\w./-]*", span):
            if not any((root / span.rstrip("/")).exists() for root in (PACKAGE, PROJECT)):
                yield span
        elif re.fullmatch(r"\w+(\.py)?", span) and span not in known and not _PLACEHOLDER.fullmatch(span):
            yield span


def homeless(text):
    """Roles of the table whose room has no such class."""
    for roles, room in _ROLE.findall(text):
        code = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / room).rglob("*.py"))
        yield from (
            role for role in re.findall(r"\w+", roles) if not re.search(rf"^class {role}\b", code, re.MULTILINE)
        )


def test_floors_that_are_read_are_those_of_a_table():
    assert floors_of_page("| 1 | `a`, then `b`, `c` | x |\n| 0 | `d` | `e` |\n") == [{"a"}, {"b", "c"}, {"d"}]


def test_the_floors_of_the_page_are_those_of_the_contract():
    assert floors_of_page(PAGE.read_text(encoding="utf-8")) == floors_of_contract()


def test_a_name_of_nothing_is_found():
    named = ["search/searchers.py", "search/no.py", "tests/cpu/", "no/", "searchers.py", "no.py", "Station"]
    named += ["NoStation", "begin_imports", "begin_nothing", "records", "cellar", "steady_clock", "NAME_command"]
    assert list(strangers(named)) == [
        "search/no.py", "no/", "no.py", "NoStation", "begin_nothing", "cellar",
    ]  # fmt: skip


def test_a_role_that_its_room_has_not_is_found():
    table = "| `Nvidia`, `Sensors` | describe a device | `device` |\n| `Timer` | times | `device` |\n"
    assert list(homeless(table)) == ["Timer"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_page_names_is_there(page):
    assert sorted(set(strangers(shown(page))) - set(_OF_OTHERS)) == []


def test_every_role_is_a_class_of_its_room():
    text = PAGE.read_text(encoding="utf-8")
    assert len(_ROLE.findall(text)) >= 10
    assert list(homeless(text)) == []
