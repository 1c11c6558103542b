"""The site: its navigation has every page, its links resolve, and its pages work for every reader without a network."""

from pathlib import Path

import pytest
from website import api
from website.navigation import SECTIONS
from website.pages import lay_out
from website.repository import relinked

import triton_ops
from tests.browser import access_faults, opened_browser
from triton_ops.cli.app import PROGRAM
from triton_ops_lint import LintReport, command_lint

from .test_links import anchors, dead_links
from .test_shown import options_of

SITE = Path(__file__).parents[2] / "build" / "site"
LOOKED_AT_CLOSELY = ("index", "search", "guides/pitfalls", "reference/commands", "reference/api/tuning")
WIDTH = 390
SCROLLING = "[...document.querySelectorAll('pre')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    lay_out(folder)
    return {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.md"))}


def test_the_navigation_has_every_page_once(pages):
    listed = [page for section in SECTIONS.values() for page in section]
    assert sorted([*listed, "index"]) == sorted(pages)


def test_links_of_the_site_lead_somewhere(pages):
    assert {name: result for name, page in pages.items() if (result := list(dead_links(page)))} == {}


def test_every_public_name_is_on_one_page_of_the_reference(pages):
    text = "".join(
        page.read_text(encoding="utf-8") for name, page in pages.items() if name.startswith("reference/api/")
    )
    for name in triton_ops.__all__:
        assert text.count(f":: triton_ops.{name}\n") == 1
        assert f"`triton_ops.{name}` | {api.summary(name)}" in text


def test_every_command_has_a_section_with_its_options(pages):
    text = pages["reference/commands"].read_text(encoding="utf-8")
    for path in [path for section in PROGRAM.sections.values() for path in section]:
        assert f"\n## triton-ops {path}\n" in text
        assert {name for name in options_of(path.split()[0]) if name.startswith("--") and name not in text} == set()


def test_each_rule_in_a_sarif_file_names_its_section_of_the_site(pages, monkeypatch):
    monkeypatch.setattr(command_lint, "_documentation", lambda: "https://a.b")
    (run,) = command_lint.as_sarif(LintReport(), "0")["runs"]
    for rule in run["tool"]["driver"]["rules"]:
        page, _, anchor = rule["helpUri"].removeprefix("https://a.b/").partition(".html#")
        assert anchor in anchors(pages[page])


def test_links_to_files_of_the_repository():
    text = "[a `b`](../../README.md#x) ![c](simulate-dark.png) [d](../../Makefile) [e](https://f.g) `[h](i.md)`\n"
    assert relinked(text, "docs/guides/kernel.md") == (
        "[a `b`](../index.md#x) ![c](simulate-dark.png) d (`Makefile`) [e](https://f.g) `[h](i.md)`\n"
    )
    assert relinked("[two\nlines](../../README.md)", "docs/guides/kernel.md") == "[two\nlines](../index.md)"
    with pytest.raises(FileNotFoundError, match=r"docs/guides/kernel\.md links to no\.md"):
        relinked("[a](no.md)", "docs/guides/kernel.md")


@pytest.fixture(scope="module")
def browser():
    if not SITE.is_dir():
        pytest.skip("there is no site: make site")
    with opened_browser() as result:
        yield result


def test_pages_work_on_a_phone_and_ask_nothing_of_the_network(browser):
    words, paths = [], sorted(SITE.rglob("*.html"))
    assert len(paths) > 50
    with browser.tab(viewport={"width": WIDTH, "height": 844}) as page:
        page.on("console", lambda message: words.append(message.text))
        page.on("pageerror", lambda error: words.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or words.append(request.url))
        for path in paths:
            page.goto(path.as_uri())
            words += [f"wider than the window: {path}"] * (
                page.evaluate("document.documentElement.scrollWidth") > WIDTH
            )
    assert words == []


def test_no_code_scrolls_in_a_window_of_1280_pixels(browser):
    with browser.tab(viewport={"width": 1280, "height": 800}) as page:
        for name in ("index", "guides/migrate", "reference/cli", "reference/files"):
            page.goto((SITE / f"{name}.html").as_uri())
            assert page.evaluate(SCROLLING) == 0, name


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("lockfile", "Pinning winners"),
        ("rollback", "From triton.autotune to production"),
        ("vllm", "Tuned kernels in vLLM"),
        ("troubleshooting", "Install, upgrade, and troubleshooting"),
        ("layer norm dropout", "The shipped kernels"),
        ("jupyter", "In a Jupyter notebook"),
    ],
)
def test_the_search_finds_a_page_without_a_server(browser, words, title):
    with browser.tab() as page:
        page.goto((SITE / "search.html").as_uri() + f"?q={words.replace(' ', '+')}")
        page.wait_for_selector(f"#search-results li a:has-text('{title}')")
        assert title in page.inner_text("#search-results")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", LOOKED_AT_CLOSELY)
def test_pages_have_no_fault_for_readers_with_a_keyboard_or_a_screen_reader(browser, name, colours):
    with browser.tab(viewport={"width": WIDTH, "height": 844}, color_scheme=colours) as page:
        page.goto((SITE / f"{name}.html").as_uri())
        assert access_faults(page) == []
