"""The report's page in a browser: it filters, sorts and redraws, by keyboard too, and nothing leaves it."""

from __future__ import annotations

import pytest

from tests.browser import opened_browser, serious_faults
from tests.runs import ID, begun
from triton_ops.records import Run
from triton_ops.records import TrialOrigin as Origin
from triton_ops.report import live as growing
from triton_ops.report import report_page as build
from triton_ops.report.report_page import page_of
from triton_ops.report.run_facts import Report

from ..lab.test_simulator_page import seen
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
    with opened_browser() as found:
        yield found


@pytest.fixture
def page(browser, file):
    with seen(browser, file.as_uri()) as found:
        yield found


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


def test_every_part_of_a_run_is_drawn(page):
    assert page.locator("#ties tbody svg").count() == 3
    assert page.locator("#confirmations tbody svg").count() == 2
    assert page.locator("#roof circle").count() == 4
    assert page.locator("#roof path.roof").count() == 2
    assert "50% of its limit" in page.inner_text("#roof-facts")
    assert page.locator("#curve circle.winner").count() == 2
    assert page.locator("#parallel path.line").count() == 4
    assert page.inner_text("#dropped").splitlines()[1:] == [
        "2\tthe device's resources", "1\tan error at run time", "1\tthe race, after 4 rounds", "1\tits screening",
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
def test_no_serious_fault_of_access_and_no_sideways_scrolling(browser, file, look):
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, "bypass_csp": True, **look})
    opened = context.new_page()
    opened.goto(file.as_uri())
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert serious_faults(opened) == []
    context.close()


def test_a_page_follows_its_run_and_keeps_what_was_chosen(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PAUSE_S", 0.0)
    log = begun(tmp_path)
    log.trial(ran(1, 1.0), Origin.DEFAULT)
    with served(log.path) as (address, found, _):
        context = browser.new_context()
        page = context.new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        assert "this page follows it" in page.inner_text("#live")
        page.fill("#words", "n=2")
        assert configs(page) == []
        log.trial(ran(3, 1.5), Origin.SEARCHER)
        log.trial(ran(2, 0.5, HOSTILE), Origin.SEARCHER)
        page.get_by_text("1 of 3 trials").wait_for()
        assert page.input_value("#words") == "n=2"
        assert page.locator("img").count() == 0
        log.ended("complete")
        found.end()
        page.get_by_text("The tune has ended").wait_for()
        assert "ended: complete" in page.inner_text("#facts")
        assert complaints == []
        context.close()


def test_a_page_of_too_many_trials_holds_the_fastest(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "MOST_ROWS", 2)
    page = page_of([Report(Run.read(written(tmp_path)))])
    assert '"all":7' in page
    assert page.count('"n=1 shape=slow"') == 0
    assert HOSTILE.partition("<")[0] in page


def test_the_command_writes_the_page(cli, tmp_path):
    path = tmp_path / "page.html"
    said = cli("report", written(tmp_path), "-o", path)
    assert (said.code, said.out, said.err) == (0, "", f"{path} is the page; open it in a browser\n")
    assert "const DATA = " in path.read_text(encoding="utf-8")
