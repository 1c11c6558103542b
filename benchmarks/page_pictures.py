"""The pictures of the simulator's page in the guide: `python -m benchmarks.page_pictures`; needs Chromium.

They are made by the browser that the tests use, from the page as `triton-ops simulate --html` writes it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.browser import opened_browser

from triton_ops.simulator.page.build import page_of
from triton_ops.simulator.simulation import simulate

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
_LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1100, "height": 860}},
    "dark": {"viewport": {"width": 1100, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


def main() -> None:
    """Write a picture in light colours, one in dark colours, and one as a phone shows the ranking."""
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        path = Path(folder) / "page.html"
        path.write_text(page_of(simulate("gemm")), encoding="utf-8")
        for name, look in _LOOKS.items():
            opened = browser.new_context(**look).new_page()
            opened.goto(path.as_uri())
            if name == "phone":
                opened.evaluate("document.getElementById('advice').scrollIntoView()")
            opened.screenshot(path=GUIDES / f"simulate-{name}.png")
            print(f"docs/guides/simulate-{name}.png is made")


if __name__ == "__main__":
    main()
