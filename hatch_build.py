"""What the built package says of where it lives: its project links, and the links of the README on a package index.

An index shows the README without the files beside it. Until the repository has an address, links to files are left out
and their words stay.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?s)(?P<code>```.*?```|`[^`]*`)|(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<path>[^)\s]+)\)")
_ELSEWHERE = ("http://", "https://", "mailto:", "#")
_PAGES = {"Source": "", "Documentation": "/tree/main/docs", "Changes": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


class ProjectLinks(MetadataHookInterface):
    """Fills `urls` and `readme` from the address of the repository in `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields; without an address there are no `urls`."""
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository)}
        metadata["urls"] = {name: repository + page for name, page in _PAGES.items()} if repository else {}


def for_index(text: str, repository: str) -> str:
    """The README with whole addresses in place of paths; without a repository, with the links' words alone."""

    def replaced(link: re.Match[str]) -> str:
        if link["code"] is not None or link["path"].startswith(_ELSEWHERE):
            return link[0]
        if not repository:
            return link["words"]
        return (
            f"{link['image']}[{link['words']}]({repository}/{'raw' if link['image'] else 'blob'}/main/{link['path']})"
        )

    return _LINK.sub(replaced, text)
