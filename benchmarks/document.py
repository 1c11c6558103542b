"""What every result says of itself: when, by which command, at which commit, with which versions; and its writing.

The commit is that of the folder that the script stands in, where that is a clone; elsewhere `--commit` tells it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

from triton_ops.base import Host


def parser_of(about: str | None, out: Path | None = None) -> argparse.ArgumentParser:
    """A parser with what nearly every script asks for: `--out`, the file of its result, and `--commit`.

    Args:
        about: The docstring of the script.
        out: Where the result goes without `--out`; None for nowhere.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out, help="file of the result")
    parser.add_argument("--commit", help="of the result, where this is no clone")
    return parser


def headed(command: str, commit: str | None, **content: Any) -> dict[str, Any]:
    """A document: its head, then `content`."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "commit": commit or commit_here(),
        "versions": Host.versions(),
        **content,
    }


def commit_here() -> str:
    """The commit of this clone, with a `+` if files in it were changed since; `unknown` where there is none."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        process = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return "unknown"
    return process.stdout.strip() or "unknown"


def begun(path: Path | None, commit: str | None) -> dict[str, Any]:
    """What a file holds of an earlier run at this commit with these versions; nothing of any other run."""
    document: dict[str, Any] = {} if path is None or not path.is_file() else json.loads(path.read_text("utf-8"))
    here = {"commit": commit or commit_here(), "versions": Host.versions()}
    return document if here.items() <= document.items() else {}


def save(path: Path, document: Any) -> None:
    """Write it as JSON, in a folder that is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
