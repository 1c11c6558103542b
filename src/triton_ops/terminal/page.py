"""One self-contained HTML file out of a room's assets and data.

The file's policy names the style and the scripts by their digests and forbids everything else: nothing is asked of a
network, and no text of a file that is shown could run, even if it became markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from triton_ops.base import storable

_OWN = "triton_ops.terminal"
_DIGITS = 5  # of numbers that are not whole


@dataclass(frozen=True)
class Page:
    """A page of a room, whose assets hold its body `page.html`, its `style.css` and its scripts."""

    title: str
    room: str
    scripts: Sequence[str]  # names; they run in one scope, in which `DATA` are the page's data
    data: Any  # what `storable` takes
    asks: bool = False  # the scripts may ask the server that the page came from, and nothing else in any case

    @property
    def html(self) -> str:
        """The page as HTML. The style and the scripts that all pages share come before the page's own."""
        style = "\n".join([self.part(_OWN, "base.css"), self.part(self.room, "style.css")])
        data = self.json(self.data).replace("<", "\\u003c")  # no text of a file can end a script
        own = [self.part(self.room, name) for name in self.scripts]
        scripts = [self.part(_OWN, "elements.js"), f"const DATA = {data};", *own]
        filled = {
            "{{POLICY}}": "; ".join([
                "default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'",
                *(["connect-src 'self'"] if self.asks else []),
                f"style-src {_digest(style)}", f"script-src {' '.join(map(_digest, scripts))}",
            ]),
            "{{TITLE}}": self.title,
            "{{STYLE}}": style,
            "{{BODY}}": self.part(self.room, "page.html"),
            "{{SCRIPTS}}": "\n".join(f"<script>{script}</script>" for script in scripts),
        }  # fmt: skip
        page = self.part(_OWN, "page.html")
        for place, text in filled.items():  # the scripts last: what stands in the data is never taken for a place
            before, _, after = page.partition(place)
            page = before + text + after
        return page

    @staticmethod
    def part(room: str, name: str) -> str:
        """The text of a file in a room's folder of assets, such as a script; the package may be in an archive."""
        return files(room).joinpath("assets", name).read_text(encoding="utf-8")

    @staticmethod
    def json(content: Any) -> str:
        """What `storable` takes as JSON of ASCII without spaces, with as many digits as a drawing can tell."""
        return json.dumps(storable(content, _DIGITS), separators=(",", ":"))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
