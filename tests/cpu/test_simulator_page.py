"""The simulator's page in a browser: it redraws on every change, by keyboard too, and nothing leaves it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.browser import opened_browser, serious_faults
from triton_ops.lab.simulator.advice import config_text
from triton_ops.lab.simulator.page import page_of
from triton_ops.lab.simulator.recorded import overlay_of
from triton_ops.lab.simulator.simulation import simulate

from .test_simulator import RECORDINGS

HOSTILE = "<img src=https://example.org onerror=alert(1)></script>"


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    recorded = [overlay_of(RECORDINGS / f"{name}.json.gz") for name in ("matmul_bf16-2048x6144x3072", "flash_d64")]
    path = tmp_path_factory.mktemp("page") / "page.html"
    page = page_of(simulate("gemm"), [recorded[0], replace(recorded[1], title=HOSTILE)])
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture
def page(browser, file):
    """The opened page; that it had no error and asked for nothing is seen at the end."""
    with seen(browser, file) as found:
        yield found


class Seen:
    """A page with what it complained of and asked for."""

    def __init__(self, browser, file, **look):
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **look)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.file = file

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.complaints == []
            assert [url for url in self.requests if not url.startswith("data:")] == [self.file.as_uri()]


def seen(browser, file, **look):
    return Seen(browser, file, **look)


def places(page):
    return page.locator("#places tbody td.config").all_inner_texts()


def test_workload_device_and_a_knob_change_the_ranking_and_the_chart(page):
    def state():
        return places(page), page.inner_text("#advice"), page.locator("#why svg").first.get_attribute("aria-label")

    states = [state()]
    assert "1 ★ winner" in page.inner_text("#places tr.winner")
    page.select_option("#workload", "skinny-gemm")
    states.append(state())
    page.select_option("#device", "A100-SXM4-80GB")
    states.append(state())
    page.click('#knobs button[data-knob="num_stages"][data-value="1"]')
    states.append(state())
    page.fill("#extent-0", "8192")
    states.append(state())
    page.select_option("#source", "space")
    states.append(state())
    for one, other in pairwise(states):
        assert one[0] != other[0]
        assert one[2] != other[2]
    assert "num_stages=1" in " ".join(states[3][0])
    assert states[4][1] != states[3][1]
    assert len(states[5][0]) == 30
    page.click("#more")
    assert len(places(page)) == 480


def test_the_first_page_is_what_the_terminal_shows(page):
    found = simulate("gemm")
    assert places(page) == [config_text(one.config) for one in found.standings]
    assert page.inner_text("#advice") == found.advice


def test_another_config_is_chosen_and_a_knob_turned_by_keyboard(page):
    page.focus("#places tbody tr:nth-child(2) button")
    page.keyboard.press("Enter")
    second = places(page)[1]
    assert page.inner_text("#why p.mono") == second
    assert page.evaluate("document.activeElement.textContent") == second
    page.focus('#knobs button[data-knob="BM"][data-value="128"]')
    page.keyboard.press("Space")
    assert "BM=128" in page.inner_text("#why p.mono")
    assert page.evaluate("document.activeElement.dataset.knob") == "BM"
    page.focus("#workload")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#workload") == "skinny-gemm"


def test_what_makes_no_sense_is_said_and_the_last_ranking_stays(page):
    before = page.inner_text("#advice")
    for at, text, said in (
        (0, "0", "M must be a whole number from 1 to 2,147,483,647."),
        (1, "1.5", "N must be a whole number"),
        (2, "", "K must be a whole number"),
    ):
        page.fill(f"#extent-{at}", text)
        assert page.inner_text("#problem").startswith(said)
        page.fill(f"#extent-{at}", "4096")
        assert page.inner_text("#problem") == ""
    page.select_option("#source", "own")
    for text, said in (
        ("BM=128", "Line 1: there is no BN, BK."),
        ("BM=16 BN=16 BK=16\nBX=1", "Line 2: gemm has no tunable BX."),
        ("BM=16=2", "Line 1: BM=16=2 is not NAME=VALUE."),
        ("BM=1 BM=2", "Line 1: BM is given twice."),
        (" ", "There is no config to rank."),
    ):
        page.fill("#own", text)
        assert page.inner_text("#problem") == said
    assert page.inner_text("#advice") == before


def test_configs_that_cannot_run_say_why(page):
    page.select_option("#source", "own")
    page.fill("#own", f"BM=96 BN=64 BK=64\nBM=256 BN=256 BK=128 num_stages=4\nBM=64 BN=64 BK={HOSTILE.split()[0]}")
    rows = page.locator("#places td.reason").all_inner_texts()
    assert rows[0] == "BM is 96, which is no power of two"
    assert rows[1].startswith("needs 524,288 bytes of shared memory per block")
    assert rows[2] == "BK must be a whole number of 1 or more"
    assert page.inner_text("#advice").startswith("None of the 3 configs can run here")
    assert not page.is_visible("#knob-section")


def test_recordings_are_laid_over_the_prediction(page):
    page.select_option("#workload", "recording:0")
    assert "correlation of expected and measured times is 0.98" in page.inner_text("#agreement")
    assert "0.8 is asked of products, and is reached" in page.inner_text("#agreement")
    assert page.locator("#scatter circle.dot").count() == 425
    assert page.is_disabled("#device")
    page.select_option("#workload", "recording:1")
    assert HOSTILE in page.inner_text("#agreement")
    assert "these times do not change" in page.inner_text("#agreement")
    assert page.locator("img").count() == 0
    page.select_option("#workload", "rmsnorm")
    assert page.is_enabled("#device")
    assert "Choose a recording" in page.inner_text("#agreement")


@pytest.mark.parametrize(
    ("look", "workload"),
    [({}, "recording:0"), ({"color_scheme": "dark"}, "gemm"), ({"viewport": {"width": 390, "height": 844}}, "gemm")],
)
def test_no_serious_fault_of_access_and_no_sideways_scrolling(browser, file, look, workload):
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, "bypass_csp": True, **look})
    opened = context.new_page()
    opened.goto(file.as_uri())
    opened.select_option("#workload", workload)
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert serious_faults(opened) == []
    context.close()


def test_the_command_writes_the_page(cli, tmp_path):
    path = tmp_path / "page.html"
    ran = cli("simulate", "attention", "--shape", "1x8x1024x128", "--gpu", "a100", "--html", path)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"{path} is the page; open it in a browser\n"
    assert '"first":{"workload":"attention","shape":[1,8,1024,128]' in path.read_text(encoding="utf-8")
    refused = cli("simulate", "gemm", "--html", tmp_path / "none" / "page.html")
    assert (refused.code, refused.out) == (2, "")
    assert "cannot be written" in refused.err
