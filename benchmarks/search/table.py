"""One table and one plot from the results of several replays; both are written beside the results.

    python benchmarks/search/table.py benchmarks/results/search

Reads every `*.json` in the folder that `triton-ops replay --json` or `kernel_tuner_replay.py` wrote. Only recordings
that every search has run on count in a mean. The plot needs matplotlib (requirements.txt).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

Entries = dict[str, dict[str, dict[str, Any]]]


def read(folder: Path) -> Entries:
    """Search to recording to what it reached; a file's name tells what a run had beside the recording, or had not."""
    found: Entries = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        for entry in json.loads(path.read_text())["spaces"]:
            more = " with records" if "records" in path.stem else ""
            more += " without the model" if "no_model" in path.stem else ""
            more += " and looks" if "no_looks" in path.stem else ""
            found[entry["search"] + more][entry["file"]] = entry
    return found


def groups(entries: Entries) -> dict[str, list[str]]:
    """The recordings by what has a common set of searches: public spaces and this project's own."""
    files = {file for by_file in entries.values() for file in by_file}
    own = sorted(file for file in files if file.startswith(("matmul", "rmsnorm", "softmax")))
    return {"public spaces (tunables only)": sorted(files - set(own)), "H200 spaces": own}


def means(entries: Entries, files: list[str]) -> dict[str, dict[str, float]]:
    """Search to number of evaluations to the mean fraction, for searches that ran on all of `files`."""
    found = {}
    for search, by_file in entries.items():
        if files and set(files) <= set(by_file):
            counts = by_file[files[0]]["budgets"]
            found[search] = {n: sum(by_file[f]["budgets"][n]["mean"] for f in files) / len(files) for n in counts}
    return dict(sorted(found.items(), key=lambda item: -item[1].get("50", 0)))


def table(entries: Entries) -> list[str]:
    """Markdown: a table of means per group, and one of every recording for this package's default search."""
    lines = ["# Searches on recorded spaces: mean fraction of the optimum", ""]
    for title, files in groups(entries).items():
        found = means(entries, files)
        counts = sorted({n for shares in found.values() for n in shares}, key=int)
        lines += [f"## {title}: {len(files)}", "", _row(["search", *counts]), _row(["---"] * (len(counts) + 1))]
        lines += [_row([name, *(_said(shares.get(n)) for n in counts)]) for name, shares in found.items()]
        lines.append("")
    for search in ("auto", "auto with records", "auto without the model"):
        if entries.get(search):
            lines += [f"## {search}, each recording", "", *_each(entries[search]), ""]
    return lines


def _each(by_file: dict[str, dict[str, Any]]) -> list[str]:
    counts = sorted({n for entry in by_file.values() for n in entry["budgets"]}, key=int)
    head = ["recording", *counts, "to 5 % median (p90)", "to 1 % median (p90)", "ms each: median (mean)"]
    rows = [
        [
            file,
            *(_said(entry["budgets"].get(n, {}).get("mean")) for n in counts),
            *(f"{entry[to]['median'] or '-'} ({entry[to]['p90'] or '-'})" for to in ("to_5pct", "to_1pct")),
            f"{entry['overhead_ms']:.0f} ({entry['overhead_mean_ms']:.0f})",
        ]
        for file, entry in sorted(by_file.items())
    ]
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _said(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def plot(entries: Entries, path: Path) -> None:
    """Mean fraction against evaluations, a panel per group."""
    from matplotlib import pyplot as plt

    titles = {title: files for title, files in groups(entries).items() if files}
    figure, axes = plt.subplots(1, len(titles), figsize=(7 * len(titles), 5), squeeze=False)
    for axis, (title, files) in zip(axes[0], titles.items(), strict=True):
        for search, shares in means(entries, files).items():
            counts = sorted(shares, key=int)
            ours = not search.startswith("kernel_tuner")
            style = {"linewidth": 2.5 if search == "auto" else 1.2, "linestyle": "-" if ours else "--"}
            axis.plot(
                [int(n) for n in counts], [shares[n] for n in counts], marker="o", markersize=3, label=search, **style
            )
        axis.set(
            title=title, xlabel="evaluations, failed ones included", ylabel="mean fraction of the optimum", xscale="log"
        )
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Write table and plot."""
    folder = Path(sys.argv[1])
    entries = read(folder)
    text = "\n".join(table(entries)) + "\n"
    (folder / "README.md").write_text(text)
    plot(entries, folder / "curves.png")
    print(text)


if __name__ == "__main__":
    main()
