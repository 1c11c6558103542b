"""A page holds its own parts alone, and its data is no markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from triton_ops.terminal import Page

TITLE, ATTACK = "A title", "</script><script>alert(1)</script>{{SCRIPTS}}"


@pytest.mark.parametrize("asks", [True, False])
def test_a_page_names_its_style_and_scripts_by_digest_and_its_data_is_no_markup(monkeypatch, asks):
    parts = {
        "page.html": "<title>{{TITLE}}</title><meta content=\"{{POLICY}}\"><style>{{STYLE}}</style>{{BODY}}{{SCRIPTS}}",
        "base.css": "a {}", "style.css": "b {}", "elements.js": "one()", "own.js": "two()", "more.js": "three()",
    }  # fmt: skip
    monkeypatch.setattr(
        Page,
        "part",
        staticmethod(lambda room, name: "<main>" if (room, name) == ("room", "page.html") else parts[name]),
    )
    html = Page(TITLE, "room", ["own.js", "more.js"], {"text": ATTACK, "n": 1.23456789}, asks=asks).html
    data = '{"text":"' + ATTACK.replace("<", "\\u003c") + '","n":1.2346}'
    scripts = ["one()", f"const DATA = {data};", "two()", "three()"]

    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert html.endswith("".join(f"<script>{one}</script>{'' if one == 'three()' else chr(10)}" for one in scripts))
    policy = re.search('content="([^"]*)"', html)[1].split("; ")
    assert policy[-1] == "script-src " + " ".join(map(digest, scripts))
    assert policy[-2] == "style-src " + digest("a {}\nb {}")
    assert ("connect-src 'self'" in policy) == asks
    assert policy[:4] == ["default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'"]
    assert f"<title>{TITLE}</title>" in html
    assert "<style>a {}\nb {}</style><main>" in html
    assert json.loads(data) == {"text": ATTACK, "n": 1.2346}
