"""The page on how the package is built names floors, files, classes and functions that are there."""

import re
from functools import cache

import tomllib

from .test_shown import PROJECT, shown

PAGE = PROJECT / "docs" / "architecture.md"
PACKAGE = PROJECT / "src" / "triton_ops"
_DEFINED = re.compile(r"^ *(?:class|(?:async )?def) (\w+)|^(\w+)\b[^=\n]*=(?!=)|^    (\w+): \w", re.MULTILINE)
_PLACEHOLDER = re.compile(r"<\w+>")
_OF_OTHERS = {
    "Autotuner": "Triton",
    "HIPUtils": "Triton",
    "HIPLauncher": "Triton",
    "amdsmi_get_violation_status": "AMD's library",
    "triton.backends.amd.driver": "Triton",
    "Enum": "Python",
}


def floors_of_page(text):
    """The groups of packages that stand on one floor, from the top; `then` begins the next group."""
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", text, re.MULTILINE)
    return [frozenset(re.findall(r"`(\w+)`", group)) for row in rows for group in row.split("then")]


def floors_of_contract():
    """As import-linter proves them."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    return [frozenset(part.strip() for part in layer.split("|")) for layer in layers if layer != "__main__"]


@cache
def defined():
    """Names of packages, files, classes, fields, functions and constants of the package."""
    files = list(PACKAGE.rglob("*.py"))
    names = {name for path in files for found in _DEFINED.findall(path.read_text(encoding="utf-8")) for name in found}
    return names | {path.name for path in files} | {path.parent.name for path in files}


def strangers(spans):
    """Code spans that name a file, a folder, a class or a function, and nothing that is there."""
    for span in spans:
        if "/" in span:
            here = any((root / span.rstrip("/")).exists() for root in (PACKAGE, PROJECT))
            if not here and not _PLACEHOLDER.search(span):
                yield span
        elif re.fullmatch(r"\w+\.py|[A-Z]\w*[a-z]\w*|\w*[a-z]_[a-z]\w*", span) and span not in defined():
            yield span


def test_floors_that_are_read_are_those_of_a_table():
    assert floors_of_page("| 1 | `a`, then `b`, `c` | x |\n| 0 | `d` | `e` |\n") == [{"a"}, {"b", "c"}, {"d"}]


def test_the_floors_of_the_page_are_those_of_the_contract():
    assert floors_of_page(PAGE.read_text(encoding="utf-8")) == floors_of_contract()


def test_a_name_of_nothing_is_found():
    named = ["search/roles.py", "search/no.py", "lint/rules/", "no/", "tuned.py", "no.py", "Station", "NoStation"]
    assert list(strangers([*named, "begin_imports", "begin_nothing"])) == [
        "search/no.py", "no/", "no.py", "NoStation", "begin_nothing",
    ]  # fmt: skip


def test_what_the_page_names_is_there():
    assert sorted(set(strangers(shown(PAGE))) - set(_OF_OTHERS)) == []
