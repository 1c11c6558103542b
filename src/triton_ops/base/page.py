"""One self-contained HTML file out of a template, a style, data and scripts.

The file's policy names the style and the scripts by their digests and forbids everything else: nothing is asked of a
network, and no text of a file that is shown could run, even if it became markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.base.files import read_file

_LARGEST_BYTES = 1 << 20
_OWN = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class PageParts:
    """The parts of a page."""

    template: str  # HTML with `{{POLICY}}`, `{{STYLE}}` and `{{SCRIPTS}}` at their places, each once
    style: Sequence[str]
    scripts: Sequence[str]  # in one scope
    asks: bool = False  # the scripts may ask the server that the page came from, and nothing else in any case


def assembled(parts: PageParts) -> str:
    """The page as HTML. The style and the scripts that all pages share come before the page's own."""
    style = "\n".join([part(_OWN, "base.css"), *parts.style])
    scripts = [part(_OWN, "elements.js"), *parts.scripts]
    filled = {
        "{{POLICY}}": "; ".join([
            "default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'",
            *(["connect-src 'self'"] if parts.asks else []),
            f"style-src {_digest(style)}", f"script-src {' '.join(map(_digest, scripts))}",
        ]),
        "{{STYLE}}": style,
        "{{SCRIPTS}}": "\n".join(f"<script>{script}</script>" for script in scripts),
    }  # fmt: skip
    page = parts.template
    for place, text in filled.items():  # the scripts last: what stands in the data is never taken for a place
        before, _, after = page.partition(place)
        page = before + text + after
    return page


def part(folder: Path, name: str) -> str:
    """The text of a file of this package, such as a script."""
    return read_file(folder / name, _LARGEST_BYTES).decode()


def data_script(name: str, content: Any) -> str:
    """A script that gives plain JSON values a name. `<` is written otherwise: no text of a file can end the script."""
    return f"const {name} = {json_text(content).replace('<', chr(92) + 'u003c')};"


def json_text(content: Any) -> str:
    """Plain JSON values as a text without spaces, of ASCII alone; ValueError if a number is not finite."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
