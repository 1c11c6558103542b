"""The simulator's page in a browser: it redraws on every change, by keyboard too, and asks nobody but its server."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from dataclasses import asdict, replace
from itertools import pairwise
from urllib.parse import urlencode

import pytest

from tests.browser import access_faults, opened_browser, seen
from tests.records import ENVIRONMENT
from triton_ops.device import DeviceSpec
from triton_ops.terminal import Page, PageServer
from triton_ops_lab.command_simulate import answers_of, grid_of, page_of
from triton_ops_lab.simulated_ranking import Overlay, known_devices
from triton_ops_lab.simulation import WORKLOADS
from triton_ops_lab.simulation import simulate as simulate_workload

from .test_simulator import RECORDINGS


def simulate(name, gpu="H200", **asked):
    return simulate_workload(WORKLOADS[name], DeviceSpec.called(gpu), **asked)


HOSTILE = "</script><script>alert(1)</script><img src=https://example.org onerror=alert(2)>"
LARGEST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as result:
        yield result


@pytest.fixture(scope="module")
def overlays():
    recorded = [Overlay.of(RECORDINGS / f"{name}.json.gz") for name in ("matmul_bf16-2048x6144x3072", "flash_d64")]
    return [recorded[0], replace(recorded[1], title=HOSTILE, file=HOSTILE)]


@pytest.fixture(scope="module")
def grid():
    """The rankings of a file as the page has them, which take seconds to make."""
    return json.loads(Page.json(grid_of(simulate("gemm"))))


@pytest.fixture(scope="module")
def text(grid, overlays):
    return page_of(simulate("gemm"), grid, overlays)


@pytest.fixture(scope="module")
def file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(overlays):
    """The address of a page that this process serves."""
    bound = socket.create_server(("127.0.0.1", 0))
    with PageServer(bound, "token", answers_of(simulate("gemm"), overlays)) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/token/"
        server.shutdown()
        serving.join()


@pytest.fixture
def page(browser, file):
    with seen(browser, file) as result:
        yield result


@pytest.fixture
def served(browser, address):
    with seen(browser, address) as result:
        yield result


def places(page):
    return page.locator("#places tbody td.config").all_inner_texts()


def state(page):
    return places(page), page.inner_text("#advice"), page.inner_text("#why .terms")


def answered(page, act):
    """Do something that the server is asked about, and wait until its answer is drawn."""
    with page.expect_response(re.compile("ranking.json")):
        act()
    page.wait_for_selector('#answer[aria-busy="false"]')


@pytest.mark.processes
def test_workload_size_and_device_change_the_ranking_of_a_file(page):
    states = [state(page)]
    assert "1 ★ winner" in page.inner_text("#places tr.winner")
    for control, value in (
        ("#workload", "skinny-gemm"), ("#size", "large"), ("#device", "A100-SXM4-80GB"), ("#size", "small"),
        ("#workload", "attention"),
    ):  # fmt: skip
        page.select_option(control, value)
        states.append(state(page))
    for one, other in pairwise(states):
        assert one[2] != other[2]
    assert len({one[0][0] for one in states}) > 1


def test_every_change_of_a_served_page_is_asked_for(served):
    states = [state(served)]
    for act in (
        lambda: served.select_option("#workload", "skinny-gemm"),
        lambda: served.select_option("#device", "A100-SXM4-80GB"),
        lambda: served.click('#knobs button[data-knob="num_stages"][data-value="1"]'),
        lambda: served.fill("#extent-0", "8192"),
        lambda: served.select_option("#source", "space"),
    ):
        answered(served, act)
        states.append(state(served))
    for one, other in pairwise(states):
        assert one[0] != other[0]
        assert one[2] != other[2]
    assert "num_stages=1" in " ".join(states[3][0])
    assert states[4][1] != states[3][1]
    assert len(states[5][0]) == 30
    served.click("#more")
    assert len(places(served)) == 480


@pytest.mark.parametrize("kind", ["page", "served"])
def test_the_first_page_is_what_the_terminal_shows(kind, request):
    page, result = request.getfixturevalue(kind), simulate("gemm")
    assert places(page) == [str(one.config) for one in result.standings]
    assert page.inner_text("#advice") == result.advice
    shown = page.locator("#places tbody tr").all_inner_texts()
    for row, one in zip(shown, result.standings, strict=True):
        for cell in one.cells[1:-1]:
            assert cell in row


@pytest.mark.processes
def test_a_file_has_what_the_model_says_of_every_workload_device_and_size(grid):
    assert list(grid) == list(WORKLOADS)
    for name, workload in WORKLOADS.items():
        shapes = {size: shape for size, (shape, _) in workload.operation.problems.items()}
        assert list(grid[name]) == list(known_devices())
        for at, (device, sizes) in enumerate(grid[name].items()):
            assert list(sizes) == list(shapes)
            for size, shown in sizes.items():
                has_places(shown, simulate(name, shape=shapes[size], gpu=device))
            size = list(sizes)[at % len(sizes)]
            agrees(sizes[size], simulate(name, shape=shapes[size], gpu=device))


def has_places(shown, simulation):
    """The places of the page are those of the model, in the same words and figures."""
    standings = simulation.standings
    assert shown["advice"] == simulation.advice
    assert [row["config"] for row in shown["rows"]] == [str(one.config) for one in standings]
    assert [row["place"] for row in shown["rows"]] == [one.place for one in standings]
    for row, one in zip(shown["rows"], standings, strict=True):
        assert row["cells"] == one.cells
        assert row["score"] == pytest.approx(one.score, rel=1e-4)
        assert dict(row["reasons"]) == one.reasons


def agrees(shown, simulation):
    """A ranking of the page is that of the model, with its knobs and its other shapes."""
    has_places(shown, simulation)
    for knob, dial in zip(shown["knobs"], simulation.dials_of(simulation.standings[0]), strict=True):
        assert (knob["name"], knob["range"]) == (dial.name, pytest.approx(dial.range, rel=1e-4))
        for turned, turn in zip(knob["turns"], dial.turns, strict=True):
            assert turned == {**asdict(turn), "expected_ms": pytest.approx(turn.expected_ms, rel=1e-4)}
    for extent, points in shown["shapes"].items():
        expected = simulation.over(extent)
        assert points["winners"] == [point.winner for point in expected]
        for slower, point in zip(points["slower"], expected, strict=True):
            assert slower == pytest.approx(point.slower, abs=0.006)


def test_a_page_opens_on_the_recording_that_is_given_and_names_what_limits_it(browser, grid, overlays, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page_of(simulate("gemm"), grid, overlays, on_recording=True), encoding="utf-8")
    with seen(browser, path.as_uri()) as page:
        assert page.input_value("#workload") == "recording:0"
        assert not re.search(r"limited by\W*$", page.inner_text("#advice"))
        assert page.locator("#device option[disabled]").filter(has_text="MI300X").count() == 1
        assert page.locator("#device option[disabled]").filter(has_text="RTX 5090").count() == 1


def test_what_is_chosen_stands_in_the_address(browser, file):
    with seen(browser, f"{file}#workload=attention&device=H100&size=large&dtype=nonsense") as page:
        chosen = [page.input_value(control) for control in ("#workload", "#device", "#size")]
        assert chosen == ["attention", "H100", "large"]
        page.select_option("#size", "small")
        assert "size=small" in page.evaluate("location.hash")


def test_a_file_says_what_it_has_not_and_how_to_get_it(page):
    page.select_option("#workload", "attention")
    page.select_option("#device", "H100")
    text = page.inner_text("#limits")
    assert text.startswith("This file has the sizes above in bfloat16, each with the same configs. For other sizes")
    assert page.inner_text("#limits code") == 'triton-ops simulate attention --gpu "H100" --serve'
    for control in ("#dtype", "#source", "#own", "#extents input", "#knobs button"):
        assert not page.locator(control).first.is_visible()


@pytest.mark.processes
def test_the_command_writes_a_page_on_which_what_was_asked_stands_first(browser, cli, grid, tmp_path):
    path = tmp_path / "page.html"
    ran = cli("simulate", "gemm", "--shape", "100x700x96", "--gpu", "h100", "--whole", "--html", path)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{path} is the page; open it in a browser\n")
    text = path.read_text(encoding="utf-8")
    assert len(text) <= LARGEST_BYTES
    data = json.loads(re.search(r"const DATA = (.*);</script>", text)[1])
    others = {**data["grid"], "gemm": {name: {**sizes} for name, sizes in data["grid"]["gemm"].items()}}
    assert [sizes.pop("as asked")["count"] for sizes in others["gemm"].values()] == [480] * len(known_devices())
    assert others == grid, "the rankings of named sizes are always the same"
    simulation = simulate("gemm", shape=(100, 700, 96), gpu="H100", configs=WORKLOADS["gemm"].whole())
    with seen(browser, path.as_uri()) as page:
        assert places(page) == [str(one.config) for one in simulation.standings[:30]]
        assert page.inner_text("#advice") == simulation.advice
        assert page.input_value("#size") == "as asked"
        page.select_option("#size", "large")
        assert page.inner_text("#advice") == simulate("gemm", shape=(16384, 16384, 16384), gpu="H100").advice


def test_a_page_of_recordings_is_no_larger_than_two_megabytes(text):
    assert len(text) <= LARGEST_BYTES


def test_another_config_is_chosen_and_a_knob_turned_by_keyboard(served):
    served.focus("#places tbody tr:nth-child(2) button")
    answered(served, lambda: served.keyboard.press("Enter"))
    second = places(served)[1]
    assert served.inner_text("#why p.mono") == second
    assert served.inner_text("#knob-config") == second
    assert served.evaluate("document.activeElement.textContent") == second
    served.focus('#knobs button[data-knob="BM"][data-value="128"]')
    answered(served, lambda: served.keyboard.press("Space"))
    assert "BM=128" in served.inner_text("#why p.mono")
    assert served.evaluate("document.activeElement.dataset.knob") == "BM"
    served.focus("#workload")
    answered(served, lambda: served.keyboard.press("ArrowDown"))
    assert served.input_value("#workload") == "skinny-gemm"
    assert served.input_value("#source") == "lesson"


def test_another_config_of_a_file_is_explained(page):
    page.focus("#places tbody tr:nth-child(2) button")
    page.keyboard.press("Enter")
    assert page.inner_text("#why p.mono") == places(page)[1]
    assert page.evaluate("document.activeElement.textContent") == places(page)[1]
    assert page.inner_text("#knob-config") == places(page)[0]


def test_what_makes_no_sense_is_said_and_the_last_ranking_stays(served):
    before = served.inner_text("#advice")
    for at, text, message in (
        (0, "0", "M is '0'; it must be a whole number from 1 to 2,147,483,647."),
        (1, "1.5", "N is '1.5'; it must be a whole number"),
        (2, "", "K is ''; it must be a whole number"),
    ):
        answered(served, lambda at=at, text=text: served.fill(f"#extent-{at}", text))
        assert served.inner_text("#problem").startswith(message)
        answered(served, lambda at=at: served.fill(f"#extent-{at}", "4096"))
        assert served.inner_text("#problem") == ""
    answered(served, lambda: served.select_option("#source", "own"))
    for text, message in (
        ("BM=128", "Line 1: a config has no BN, BK: BM by BN"),
        (
            "BM=16 BN=16 BK=16\nBX=1",
            "Line 2: gemm has no tunable BX; known are BM, BN, BK, ",
        ),
        ("BM=", "Line 1: config 'BM=' is not NAME=value,NAME=value with each name once."),
        ("BM=1 BM=2", "Line 1: config 'BM=1' config 'BM=2' is not NAME=value,NAME=value with each name once."),
        (" ", "There is no config to rank."),
    ):
        answered(served, lambda text=text: served.fill("#own", text))
        assert served.inner_text("#problem").startswith(message)
    assert served.inner_text("#advice") == before


def test_configs_that_cannot_run_say_why(served):
    answered(served, lambda: served.select_option("#source", "own"))
    text = f"BM=96 BN=64 BK=64\nBM=256 BN=256 BK=128 num_stages=4\nBM=64 BN=64 BK={HOSTILE.split()[0]}"
    answered(served, lambda: served.fill("#own", text))
    rows = served.locator("#places td.reason").all_inner_texts()
    assert rows[0] == "BM is 96, which is no power of two"
    assert rows[1].startswith("needs 524,288 bytes of shared memory per block")
    assert rows[2].endswith("it must be a whole number of 1 or more")
    assert served.inner_text("#advice").startswith("None of the 3 configs can run here")
    assert not served.is_visible("#knob-section")


@pytest.mark.parametrize("kind", ["page", "served"])
def test_recordings_are_laid_over_the_prediction(kind, request, overlays):
    page = request.getfixturevalue(kind)
    page.select_option("#workload", "recording:0")
    assert "correlation of expected and measured times is 0.98" in page.inner_text("#agreement")
    assert "0.8 is asked of products, and is reached" in page.inner_text("#agreement")
    assert page.locator("#scatter circle.dot").count() == 424
    assert page.is_disabled("#device")
    assert places(page)[:30] == [str(one.config) for one in overlays[0].standings[:30]]
    page.select_option("#workload", "recording:1")
    assert HOSTILE in page.inner_text("#agreement")
    assert "The work was read from the kernel" in page.inner_text("#agreement")
    assert page.locator("img").count() == 0
    page.select_option("#workload", "rmsnorm")
    page.wait_for_selector('#answer[aria-busy="false"]')
    assert page.inner_text("#agreement").startswith("Choose a recording")
    assert page.is_enabled("#device")


@pytest.mark.parametrize("kind", ["file", "address"])
@pytest.mark.parametrize(
    ("look", "workload"),
    [({}, "recording:0"), ({"color_scheme": "dark"}, "gemm"), ({"viewport": {"width": 390, "height": 844}}, "gemm")],
)
def test_no_fault_of_access_and_no_sideways_scrolling(browser, request, kind, look, workload):
    with browser.tab(**{"viewport": {"width": 1200, "height": 900}, "bypass_csp": True, **look}) as opened:
        opened.goto(request.getfixturevalue(kind))
        opened.wait_for_selector("#places tr.winner")
        opened.select_option("#workload", workload)
        opened.wait_for_selector('#answer[aria-busy="false"]')
        assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert access_faults(opened) == []


def test_texts_of_files_never_become_markup_and_nothing_is_fetched(text):
    assert HOSTILE not in text
    assert "<img" not in text
    assert text.count("<script>") == 5
    assert "default-src 'none'" in text
    assert "connect-src" not in text
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)


def test_a_page_for_a_folder_that_is_not_there_is_refused(cli, tmp_path):
    refused = cli("simulate", "gemm", "--html", tmp_path / "none" / "page.html")
    assert (refused.code, refused.out) == (2, "")
    assert "cannot be written" in refused.err


@pytest.mark.processes
def test_the_command_serves_the_page_until_it_is_interrupted():
    serving = subprocess.Popen(
        [sys.executable, "-m", "triton_ops", "simulate", "gemm", "--serve"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True,
    )  # fmt: skip
    with serving:
        try:
            told = serving.stderr.readline()
            address = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/[\w-]{32}/) in a browser; Ctrl-C ends it\n", told)[1]
            question = urlencode({"workload": "rmsnorm", "extents": "77,1234", "device": "H100", "dtype": "float16"})
            with urllib.request.urlopen(f"{address}ranking.json?{question}") as answer:
                shown = json.load(answer)
        finally:
            serving.send_signal(2)
            out, err = serving.communicate()
    agrees(shown, simulate("rmsnorm", shape=(77, 1234), gpu="H100", dtype="float16"))
    assert (serving.returncode, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("", "No workload is called ''; there are gemm, skinny-gemm, rmsnorm, attention."),
        ("workload=gemm&extents=1,2,3&device=Voodoo", "No device 'Voodoo' is in the table"),
        ("workload=gemm&extents=1,2&device=H200", "Gemm takes 3 extents"),
        (
            "workload=gemm&extents=1,2,3&device=A100-SXM4-80GB&dtype=fp8",
            "The model makes no forecast: the device has no",
        ),
        (f"workload=gemm&extents={'9' * 5000},2,3&device=H200", "M is '99999999999999999999'; it must be"),
        ("workload=gemm&extents=1,2,3&device=H200&source=own&own=BM%3Dnan BN%3D1 BK%3D1", "Line 1: tunable 'BM' has"),
        ("&".join(f"a{at}=1" for at in range(20)), "The question cannot be read"),
    ],
)
def test_a_question_that_has_no_answer_is_explained(question, problem):
    _, text, kind = answers_of(simulate("gemm"))(f"ranking.json?{question}")
    assert kind == "application/json"
    assert json.loads(text)["problem"].startswith(problem)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--serve", "--html", "page.html"], "--serve and --html exclude each other"),
        (["--serve", "--json"], "--serve and --json exclude each other"),
        (["--port", "80"], "--port is for --serve"),
        (["--serve", "--port", "99999"], "--port 99999 is no port"),
    ],
)
def test_options_of_the_server_that_do_not_fit_are_refused(cli, words, said):
    ran = cli("simulate", "gemm", *words)
    assert (ran.code, ran.data) == (2, "")
    assert said in ran.err
