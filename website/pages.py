"""All pages of the site in one folder: those of `docs`, files of the repository, and references made from the code."""

from __future__ import annotations

import shutil
from pathlib import Path

from website.api import api_pages
from website.commands import commands_page
from website.json_documents import documents_page
from website.navigation import contents
from website.repository import pages_of_the_repository, pictures
from website.rules import rules_page


def lay_out(folder: Path) -> None:
    """Write every page and picture below `folder`, which is removed before."""
    shutil.rmtree(folder, ignore_errors=True)
    made = {"commands": commands_page(), "documents": documents_page(), "rules": rules_page()}
    references = {f"reference/{name}.md": text for name, text in made.items()}
    pages = {**pages_of_the_repository(), **api_pages(), **references}
    pages["index.md"] += contents()
    wanted = {place: text.encode() for place, text in pages.items()}
    wanted |= {place: path.read_bytes() for place, path in pictures().items()}
    for place, data in wanted.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
