"""The report's page in a browser: it filters, sorts and redraws, by keyboard too, and nothing leaves it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import triton_ops
from tests.browser import access_faults, opened_browser, seen
from tests.runs import ID, begun
from triton_ops.records import Run
from triton_ops.records import TrialOrigin as Origin
from triton_ops.report import live as build
from triton_ops.report import live as growing
from triton_ops.report.live import page_of
from triton_ops.report.run_facts import Report

from .test_report import HOSTILE, ROOF, of_problem, ran, written
from .test_watch import served


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    later = written(folder, ended=False, run="20261123T101112000000-0123abcd")
    other = of_problem(folder, 4096, 2)
    reports = [Report(Run.read(path)) for path in (written(folder, roof=ROOF), later, other)]
    path = folder / "report.html"
    path.write_text(page_of(reports), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as result:
        yield result


@pytest.fixture
def page(browser, file):
    with seen(browser, file.as_uri()) as result:
        yield result


def configs(page):
    return page.locator("#trials tbody td.config").all_inner_texts()


def test_text_of_a_file_never_becomes_markup(page, file):
    assert file.read_text(encoding="utf-8").count("</script>") == 6
    assert page.locator("img").count() == 0
    assert "<img src=https://example.org onerror=alert(1)></script>" in page.inner_text("#failures")
    assert "<img src" in page.inner_text("#environment")


def test_trials_are_filtered_and_sorted(page):
    assert len(configs(page)) == 7
    assert configs(page)[0] == "n=1 shape=x"
    page.fill("#words", "n=1 X")
    assert configs(page) == ["n=1 shape=x"]
    assert page.inner_text("#count") == "1 of 7 trials"
    page.fill("#words", "")
    page.select_option("#fate", "the device's resources")
    assert configs(page) == ["n=1 shape=big", "n=2 shape=big"]
    page.select_option("#fate", "")
    page.focus("#trials th button >> text=ms")
    page.keyboard.press("Enter")
    assert page.get_attribute("#trials th[aria-sort]", "aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert configs(page)[0] == "n=1 shape=slow"
    assert page.evaluate("document.activeElement.dataset.column") == "4"


def test_a_report_begins_with_gain_confidence_and_winner_and_ends_with_what_to_paste(page):
    assert page.inner_text("#verdict").split("\n\n") == [
        "2.00x (1.90 to 2.10) as fast as the default", "confidence ok", "winner n=1 shape=x",
    ]  # fmt: skip
    assert page.locator("#verdict .badge.ok").count() == 1
    parts = page.locator("#contents a").all_inner_texts()
    assert parts.index("Trials") < parts.index("To paste into the source")
    assert "Compared" not in parts
    for link in page.locator("#contents a").all():
        assert page.locator(link.get_attribute("href")).is_visible()
    assert page.get_by_role("button", name="Copy triton.Config").count() == 1


def test_every_column_of_every_table_sorts(page):
    page.click("#trials th >> text=config")
    assert configs(page)[:2] == ["n=1 shape=big", "n=1 shape=slow"]
    page.click("#trials th >> text=outcome")
    assert page.locator("#trials tbody td.left").first.inner_text() == "an error at run time"
    for _ in range(2):
        page.click("#ties th >> text=ms")
    assert page.locator("#ties tbody td.config").first.inner_text() == "n=3 shape=x"
    assert page.get_attribute("#ties th[aria-sort]", "aria-sort") == "descending"


@pytest.mark.parametrize(("low", "high", "curved", "ticks"), [
    (0.181, 19.6, True, [0.2, 0.5, 1, 2, 5, 10]), (1.86, 140, True, [2, 5, 10, 20, 50, 100]),
    (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]), (79, 81, False, [79, 79.5, 80, 80.5, 81]),
    (0.0003, 7e5, True, [0.001, 0.1, 10, 1000, 100000]), (3, 19, True, [5, 10]),
])  # fmt: skip
def test_axes_have_round_ticks(page, low, high, curved, ticks):
    assert page.evaluate(f"roundTicks({low}, {high}, {str(curved).lower()})") == ticks


def test_charts_are_as_wide_as_the_page(page):
    wide = page.get_attribute("#curve svg", "width")
    assert page.locator("#curve svg").bounding_box()["width"] == page.locator("#curve").bounding_box()["width"]
    page.set_viewport_size({"width": 700, "height": 900})
    page.locator(f'#curve svg:not([width="{wide}"])').wait_for()
    assert page.locator("#curve svg").bounding_box()["width"] == page.locator("#curve").bounding_box()["width"]


def test_every_part_of_a_run_is_drawn(page):
    assert page.locator("#ties tbody svg").count() == 3
    assert page.locator("#confirmations tbody svg").count() == 2
    assert page.locator("#roof circle").count() == 4
    assert page.locator("#roof path.roof").count() == 2
    assert "50% of its limit" in page.inner_text("#roof-facts")
    assert page.locator("#curve circle.winner").count() == 2
    assert page.locator("#parallel path.line").count() == 4
    assert page.inner_text("#dropped").splitlines()[1:] == [
        "2\tthe device's resources", "1\tan error at run time", "1\tslower, after 4 rounds",
        "1\tslower in its screening",
    ]  # fmt: skip
    assert "triton.Config({'n': 1, 'shape': 'x'})" in page.inner_text("#paste")
    assert '"kind": "triton-ops lock"' in page.inner_text("#paste")
    assert page.locator("#resources circle").count() == 3
    before = page.inner_text("#heat")
    page.select_option("#heat-rows", "1")
    page.select_option("#heat-columns", "0")
    assert page.inner_text("#heat") != before or page.input_value("#heat-rows") == "1"


def test_problems_are_shown_beside_each_other(page):
    rows = page.locator("#map tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [f"{ID}, CPU", "4096 x 64, H200"]
    assert "1.00x" in rows[0]


def test_another_run_is_chosen_and_both_are_compared(page):
    assert "4 configs ran in both" in page.inner_text("#comparisons")
    page.select_option("#run", "1")
    assert "not ended" in page.inner_text("#facts")
    assert not page.is_visible("#ties-section")
    assert len(configs(page)) == 7


@pytest.mark.parametrize("look", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}])
def test_no_fault_of_access_and_no_sideways_scrolling(browser, file, look):
    with browser.tab(**{"viewport": {"width": 1200, "height": 900}, "bypass_csp": True, **look}) as opened:
        opened.goto(file.as_uri())
        assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert access_faults(opened) == []


def test_a_page_follows_its_run_and_keeps_what_was_chosen(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PAUSE_S", 0.0)
    log = begun(tmp_path)
    log.trial(ran(1, 1.0), Origin.DEFAULT)
    with served(log.path) as (address, result, _), browser.tab() as page:
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        assert re.match(
            r"The tune goes on: 1 of at most 12 trials, 8 %.* This page follows it", page.inner_text("#live")
        )
        assert page.title() == "8 % · wait: tuning report"
        assert "it goes on" in page.inner_text("#facts")
        assert page.locator("#progress").evaluate("(bar) => bar.value") == pytest.approx(1 / 12, abs=0.01)
        page.fill("#words", "n=2")
        assert configs(page) == []
        log.trial(ran(3, 1.5), Origin.SEARCHER)
        log.trial(ran(2, 0.5, HOSTILE), Origin.SEARCHER)
        page.get_by_text("1 of 3 trials").wait_for()
        assert page.input_value("#words") == "n=2"
        assert page.locator("img").count() == 0
        log.ended("complete")
        result.end()
        page.get_by_text("The tune has ended").wait_for()
        assert page.title().startswith("ended 2.00x · ")
        assert not page.is_visible("#progress")
        assert "ended: complete" in page.inner_text("#facts")
        assert complaints == []


def test_a_page_of_too_many_trials_holds_the_fastest(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "MOST_ROWS", 2)
    page = page_of([Report(Run.read(written(tmp_path)))])
    assert '"all":7' in page
    assert page.count('"n=1 shape=slow"') == 0
    assert HOSTILE.partition("<")[0] in page


def test_the_command_writes_the_page(cli, tmp_path):
    path = tmp_path / "page.html"
    message = cli("report", written(tmp_path), "-o", path)
    assert (message.code, message.out, message.err) == (0, "", f"{path} is the page; open it in a browser\n")
    assert "const DATA = " in path.read_text(encoding="utf-8")


@pytest.mark.processes
def test_the_parts_of_pages_are_found_in_an_archive(tmp_path):
    package = Path(triton_ops.__file__).parent
    with ZipFile(tmp_path / "app.pyz", "w") as archive:
        for path in (*package.rglob("*.py"), *package.glob("*/assets/*")):
            archive.write(path, path.relative_to(package.parent))
    shown = "[Page.part(*it.split()) for it in sys.argv[2:]]; print(Page.__module__)"
    code = f"from triton_ops.terminal import Page; {shown}"
    parts = [f"triton_ops.{path.parts[-3]} {path.name}" for path in package.glob("*/assets/*")]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}", tmp_path / "app.pyz"]
    assert len(parts) >= 10  # of the core; pages of the lab have theirs in its package
    assert subprocess.check_output([*command, *parts], text=True, cwd=tmp_path, env={}) == "triton_ops.terminal.page\n"
