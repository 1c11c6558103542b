"""A page of tables from the results of several replays, which is written beside them.

    python -m benchmarks.search.table benchmarks/results/search

Reads every `*.json` in the folder that `triton-ops replay --json` or `peers.py` wrote. A search
counts in a mean if it has run on all recordings of the group. README.md beside this file says how the other searches
were driven, and what was tried.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

PUBLIC, OWN = "Public spaces, without a model", "H200 spaces, where auto has the kernels' model, and previews"
Entries = dict[str, dict[str, dict[str, Any]]]
_NOTES = """\
Each figure of the first tables is the best time of a space divided by the best time that a search found, after 10 to
200 evaluations, in the mean of the spaces. An evaluation is a config that the search asked for, failed ones included.
[Another page](../../search/README.md) says how the searches were driven, and what was tried. The files beside this page
have all runs, with their commands and dates."""
_MORE = {
    "records": " with records",
    "tunables": " from the tunables alone",
    "model": " without the model",
    "looks": " and previews",
}
"""Word of a file's name: what it says of a run. `no_model_no_looks` is one without both."""


def read(folder: Path) -> Entries:
    """Search to recording to what it reached; a word of the file's name tells what a run knew more or less."""
    entries: Entries = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        if path.stem.startswith("live"):  # whole tunes, which have no fractions
            continue
        more = "".join(text for word, text in _MORE.items() if word in path.stem.split("_"))
        for entry in json.loads(path.read_text())["spaces"]:
            guided = entry["search"] == "auto"  # no other search heeds a model
            entries[entry["search"] + (more if guided else "")][entry["file"]] = entry
    return entries


def groups(entries: Entries) -> dict[str, list[str]]:
    """The recordings by what has a common set of searches: public spaces and this project's own."""
    files = {file for by_file in entries.values() for file in by_file}
    own = sorted(file for file in files if file.startswith(("matmul", "rmsnorm", "softmax")))
    return {PUBLIC: sorted(files - set(own)), OWN: own}


def means(entries: Entries, files: list[str]) -> dict[str, dict[str, float]]:
    """Search to number of evaluations to the mean fraction, for searches that ran on all of `files`."""
    by_search = {}
    for search, by_file in entries.items():
        if files and set(files) <= set(by_file):
            counts = by_file[files[0]]["budgets"]
            by_search[search] = {n: sum(by_file[f]["budgets"][n]["mean"] for f in files) / len(files) for n in counts}
    return dict(sorted(by_search.items(), key=lambda item: -item[1].get("50", 0)))


def table(entries: Entries) -> list[str]:
    """Markdown: a table of means per group, and one of every recording for the default search."""
    lines = ["# Searches on recorded spaces: mean fraction of the optimum", "", _NOTES, ""]
    for title, files in groups(entries).items():
        by_search = means(entries, files)
        counts = sorted({n for shares in by_search.values() for n in shares}, key=int)
        lines += [f"## {title}: {len(files)}", "", _row(["search", *counts]), _row(["---"] * (len(counts) + 1))]
        lines += [_row([name, *(_said(shares.get(n)) for n in counts)]) for name, shares in by_search.items()]
        lines.append("")
    if entries.get("auto"):
        lines += ["## `auto`, each recording", "", *_each(entries["auto"]), ""]
    if by_search := _asked(entries):
        lines += ["## How much Helion's searches asked, mean of the public spaces", "", *by_search, ""]
    return lines


def tunes(folder: Path) -> list[str]:
    """Markdown of all files `live*.json`: simulated whole tunes, with the search's own end."""
    lines = ["## Simulated whole tunes", ""]
    lines += [
        _row(["file", "recordings", "within 1 %", "worst", "trials", "mean s", "date, commit"]),
        _row(["---"] * 7),
    ]
    for path in sorted(folder.glob("live*.json")):
        document = json.loads(path.read_text())
        spaces = document["spaces"]
        share, trials, seconds = (
            sum(entry[name] for entry in spaces) / len(spaces) for name in ("within_1pct", "trials", "seconds")
        )
        worst = max(entry["regret_worst"] for entry in spaces)
        of = f"{document['date'][:10]}, {document['commit']}"
        cells = [f"`{path.stem}`", str(len(spaces)), f"{share:.3f}", f"{worst:.2%}", f"{trials:.1f}", f"{seconds:.1f}"]
        lines.append(_row([*cells, of]))
    return [*lines, ""]


def _asked(entries: Entries) -> list[str]:
    """How many configs a search evaluated that ends by itself, and how many it proposed that break a constraint."""
    rows = []
    for search, by_file in entries.items():
        runs = [by_file[file] for file in groups(entries)[PUBLIC] if file in by_file]
        if runs and all("evaluated" in entry for entry in runs):
            counts = (sum(entry[what]["mean"] for entry in runs) / len(runs) for what in ("evaluated", "refused"))
            rows.append(_row([search, *(f"{number:.0f}" for number in counts)]))
    return (
        [_row(["search", "evaluated, 200 at most", "refused, not counted"]), _row(["---"] * 3), *rows] if rows else []
    )


def _each(by_file: dict[str, dict[str, Any]]) -> list[str]:
    counts = sorted({n for entry in by_file.values() for n in entry["budgets"]}, key=int)
    head = ["recording", *counts, "evaluations to 5 %: median (p90)", "to 1 %", "own ms for each: median (mean)"]
    rows = [
        [
            file,
            *(_said(entry["budgets"].get(n, {}).get("mean")) for n in counts),
            *(f"{entry[to]['median'] or '-'} ({entry[to]['p90'] or '-'})" for to in ("to_5pct", "to_1pct")),
            _each_ms(entry),
        ]
        for file, entry in sorted(by_file.items())
    ]
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _each_ms(entry: dict[str, Any]) -> str:
    """Time of an evaluation in the search itself: the median where it was taken, and the mean."""
    if "overhead_mean_ms" in entry:
        return f"{entry['overhead_ms']:.0f} ({entry['overhead_mean_ms']:.0f})"
    return f"- ({entry['overhead_ms']:.0f})"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _said(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the page of tables from the results of replays.")
    parser.add_argument("folder", type=Path, help="the folder of the results")
    folder = parser.parse_args().folder
    text = "\n".join([*table(read(folder)), *tunes(folder)])
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
