"""`python -m website`: lay out the pages, and have Sphinx make the site of them; every warning is an error.

The site is written to build/site, and needs neither a server nor a network: open build/site/index.html.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

from website.pages import lay_out

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"


def main() -> int:
    """Make the site; the exit code of Sphinx, which is not 0 if anything was warned of."""
    lay_out(BUILD / "site-pages")
    folders = [BUILD / "site-doctrees", BUILD / "site-pages", BUILD / "site"]
    places = ["-c", str(ROOT / "website"), "-d", *map(str, folders)]
    return sphinx_build(["-q", "-E", "-W", "--keep-going", "-b", "html", *places])


if __name__ == "__main__":
    sys.exit(main())
