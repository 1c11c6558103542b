"""What opens pages in tests: Chromium, driven by Playwright."""

from __future__ import annotations

import importlib.util
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A Chromium without a window, whose tabs of one look share a context.

    A tab without others beside it takes a second of a CPU to open and to close, and half a second beside an empty one.
    """

    def __init__(self, browser):
        self._browser, self._contexts = browser, {}

    @contextmanager
    def tab(self, **look):
        """A new tab; its look is what a new context of Playwright takes."""
        key = repr(sorted(look.items()))
        if key not in self._contexts:
            self._contexts[key] = self._browser.new_context(**look)
            self._contexts[key].new_page()  # it stays
        page = self._contexts[key].new_page()
        try:
            yield page
        finally:
            page.close()


@contextmanager
def opened_browser():
    """A browser that ends with the context."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: pip install --group dev")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Browser(browser)
        finally:
            browser.close()


def access_faults(page):
    """What axe finds that keeps or hinders somebody from using a page, as rule and element.

    The page must have been opened without its content policy, which would refuse axe's script.
    """
    axe = importlib.util.find_spec("axe_playwright_python")
    if axe is None or axe.origin is None:
        pytest.skip("there is no axe: pip install --group dev")
    page.evaluate(next(Path(axe.origin).parent.rglob("axe.min.js")).read_text(encoding="utf-8"))
    result = page.evaluate("axe.run({preload: false, resultTypes: ['violations']}).then((found) => found.violations)")
    return [(one["id"], one["nodes"][0]["html"]) for one in result]


@contextmanager
def seen(browser, address):
    """An opened page; that it had no error and asked nobody but its own folder is seen at the end."""
    with browser.tab(viewport={"width": 1200, "height": 900}) as page:
        complaints, requests = [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector('main:not([aria-busy="true"])')
        yield page
    assert complaints == []
    asked = [url for url in requests if not url.startswith("data:")]
    assert asked[0].partition("#")[0] == address.partition("#")[0]
    assert all(url.startswith(f"{address}ranking.json?") for url in asked[1:])
    assert len(asked) == 1 or address.startswith("http:")
