"""The command line of a replay that adds to its results what they lack, and writes them after every recording."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Summary = Callable[[Path, str, Sequence[int], int], dict[str, Any]]
"""From a recording, a search, numbers of evaluations and of seeds to an entry of the results."""


def main(about: str, searches: Sequence[str], usual: Sequence[str], trials: str, summary: Summary) -> None:
    """Run what is asked for and not there yet.

    Args:
        about: What the script does, for its help.
        searches: Those that there are.
        usual: Those that run if none is named.
        trials: Numbers of evaluations, separated by commas, if none are named.
        summary: Runs one search on one recording; its entry's `search` ends in the search's name.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--search", action="append", choices=searches, help=f"may be repeated; usual: {len(usual)}")
    parser.add_argument("--trials", default=trials)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    entries = json.loads(options.out.read_text())["spaces"] if options.out.exists() else []
    finished = {(entry["file"], entry["search"].split()[-1]) for entry in entries}
    budgets = sorted(int(text) for text in options.trials.split(","))
    for search in options.search or usual:
        for path in options.recordings:
            if (path.name, search) in finished:
                continue
            entry = summary(path, search, budgets, options.seeds)
            entries.append(entry)
            options.out.write_text(json.dumps({"spaces": entries}, indent=1) + "\n")
            print(_line(entry), flush=True)


def _line(entry: dict[str, Any]) -> str:
    means = {budget: reached["mean"] for budget, reached in entry["budgets"].items()}
    counts = {name: round(entry[name]["mean"]) for name in ("evaluated", "refused") if name in entry}
    return f"{entry['search']:38} {entry['file']:32} {means} {counts or ''} {entry['overhead_ms']} ms each"
