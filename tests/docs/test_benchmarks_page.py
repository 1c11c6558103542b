"""The page of the benchmarks names every script in its folder, with results that are there and the dates they have."""

import json
import re
from typing import NamedTuple

import pytest

from .test_shown import PROJECT

FOLDER = PROJECT / "benchmarks"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
RESULTS = {
    "H200": ["nvidia-h200"],
    "H100": ["nvidia-h100-80gb-hbm3"],
    "EPYC": ["cpu"],
    "Xeon": ["cpu"],
    "16 CPUs": ["cpu"],
    "32 CPUs": ["cpu"],
    "simulated": ["simulated"],
}
_HEADING = re.compile(r"^## ", re.MULTILINE)
_PARTS = re.compile(r"^Parts?: ([^.]*)\.$", re.MULTILINE)


class Row(NamedTuple):
    """One run of a script: its results and their date, or none of them."""

    script: str
    machine: str
    results: list[str]
    date: str


def rows_of(section):
    """The runs of a section; a row without a script is one more run of the script above it."""
    script = ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) == 5 and cells[0] != "script":
            script = cells[0].strip("`") or script
            yield Row(script, cells[2], re.findall(r"`([^`]+)`", cells[3]), cells[4])


def sections():
    """Folders of each section, of which the first has the scripts beside the page, and the section's text."""
    for section in _HEADING.split(PAGE)[1:]:
        folders = re.findall(r"`(\w+)`", section.splitlines()[0])
        yield folders or ["."], section


def scripts_in(folders):
    """The modules of the folders, and whether each can be run."""
    files = [file for folder in folders for file in (FOLDER / folder).glob("*.py") if file.stem != "__init__"]
    return {file.stem: '"__main__"' in file.read_text(encoding="utf-8") for file in files}


def test_every_folder_has_a_section():
    folders = {path.parent.name for path in FOLDER.glob("*/*.py")}
    assert {folder for names, _ in sections() for folder in names} == folders | {"."}


@pytest.mark.parametrize(("folders", "section"), list(sections()), ids=lambda value: "")
def test_every_script_stands_on_the_page(folders, section):
    modules = scripts_in(folders)
    scripts = {row.script for row in rows_of(section)}
    parts = {name for line in _PARTS.findall(section) for name in re.findall(r"`(\w+)`", line)}
    assert scripts | parts == set(modules) - ({"document"} if folders == ["."] else set())
    assert not scripts & parts
    assert {name for name in scripts if not modules[name]} == set()


@pytest.mark.parametrize("row", [row for _, section in sections() for row in rows_of(section)], ids=str)
def test_results_are_there_and_from_the_day_that_the_page_says(row):
    assert re.fullmatch(r"2\d{3}-\d\d-\d\d", row.date)
    for name in row.results:
        places = [FOLDER / "results" / folder / name for folder in RESULTS.get(row.machine, ["model", "search"])]
        (result,) = [place for place in places if place.exists()]
        if result.suffix == ".json" and "date" in (document := json.loads(result.read_text(encoding="utf-8"))):
            assert document["date"][:10] == row.date


def test_the_page_says_how_many_cases_of_hidden_lists_there_are_and_have_a_result():
    cases = (FOLDER / "tuning" / "hidden_list_cases.py").read_text(encoding="utf-8").count(": Case(")
    folder = FOLDER / "results" / "nvidia-h200"
    results = json.loads((folder / "hidden_lists.json").read_text(encoding="utf-8"))
    assert f"and refused? {len(results['cases'])} of {cases} cases." in PAGE
