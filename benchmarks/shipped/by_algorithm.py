"""The best time of each algorithm of a product, from the run logs of its tunes: which of them wins where.

    python -m benchmarks.shipped.by_algorithm RECORDS --library kernels.json --out matmul_algorithms.json

RECORDS is the folder that `python -m benchmarks.shipped.kernels_gpu --cache-dir RECORDS` has tuned into, and the file
given with `--library` what that run has written, for the vendor's library beside the winner. A tune tries each config
by screening, so that times of two algorithms are comparable to some percent, and an algorithm may have been tried with
few configs: `tried` says with how many.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops.records import Run

FORM = ("ALGORITHM", "LOADS", "DESCRIPTORS", "SWAPPED")


def forms_of(path: Path) -> dict[str, dict[str, Any]]:
    """By algorithm the best config of a run, its milliseconds, and how many configs of the algorithm were tried."""
    forms: dict[str, dict[str, Any]] = {}
    for config, trial in Run.read(path).trials.items():
        if trial.measurement is None:
            continue
        label = " ".join(f"{name}={config[name]}" for name in FORM if name in config)
        ms = statistics.median(trial.measurement.samples_ms)
        best = forms.setdefault(label, {"ms": ms, "config": dict(config), "tried": 0})
        best["tried"] += 1
        if ms < best["ms"]:
            best |= {"ms": ms, "config": dict(config)}
    return dict(sorted(forms.items(), key=lambda item: item[1]["ms"]))


def main() -> None:
    """Write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--library", type=Path, required=True, help="what kernels_gpu has written")
    parser.add_argument("--kernel", default="matmul")
    parser.add_argument("--commit", help="that the run was made at")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    measured = json.loads(options.library.read_text(encoding="utf-8"))
    rows = [row for row in measured["rows"] if row["kernel"] == options.kernel and row["rival"] == "library"]
    runs: dict[tuple[tuple[int, ...], str], Path] = {}
    for path in sorted(options.records.glob("runs/*/*.jsonl")):
        head = Run.read(path).head
        runs[tuple(head.shape or ()), str(head.dtype)] = path
    problems = {
        row["problem"]: {
            "shape": row["shape"], "dtype": row["dtype"], "library_ms": row["rival_ms"], "winner_ms": row["kernel_ms"],
            "speedup": row["speedup"], "algorithms": forms_of(runs[tuple(row["shape"]), row["dtype"]]),
        }
        for row in rows
    }  # fmt: skip
    document = headed(
        "python -m benchmarks.shipped.by_algorithm", options.commit, device=measured["device"], problems=problems
    )
    document |= {"date": measured["date"], "versions": measured["versions"]}
    save(options.out, document)


if __name__ == "__main__":
    main()
