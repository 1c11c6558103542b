"""The pictures of the simulator's page in the guide: `python -m benchmarks.page_pictures`; needs Chromium.

They are made by the browser that the tests use, from the page as `triton-ops simulate --html` writes it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.browser import opened_browser

from triton_ops.simulator.page.build import page_of
from triton_ops.simulator.simulation import simulate

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
_SIZE = {"width": 1100, "height": 860}


def main() -> None:
    """Write one picture in light and one in dark colours."""
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        path = Path(folder) / "page.html"
        path.write_text(page_of(simulate("gemm")), encoding="utf-8")
        for colours in ("light", "dark"):
            opened = browser.new_context(viewport=_SIZE, color_scheme=colours).new_page()
            opened.goto(path.as_uri())
            opened.screenshot(path=GUIDES / f"simulate-{colours}.png")
            print(f"docs/guides/simulate-{colours}.png is made")


if __name__ == "__main__":
    main()
