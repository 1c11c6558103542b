"""Write the measured tables into README.md from the JSON files in benchmarks/results.

python benchmarks/tables.py            # rewrite
python benchmarks/tables.py --check    # fail if a table is not what its file says
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TUNE = ROOT / "benchmarks/results/nvidia-h200/tune.json"


def tune_table() -> str:
    """Winners of exhaustive tunes beside the vendor's library."""
    document = json.loads(TUNE.read_text())
    rows = [
        "| kernel | problem | configs | winner | default | winner | library | share of library |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in document["runs"]:
        beside, result = run["beside_the_library"], run["result"]
        times, share = beside["median_ms"], beside["share_of_library_speed"]
        tried = sum(result["totals"].values())
        config = ", ".join(f"{name} {value}" for name, value in result["best_config"].items())
        rows.append(
            f"| {run['kernel']} | {'x'.join(map(str, run['shape']))} {run['dtype']} | "
            f"{tried} in {run['wall_s']:.0f} s | {config} | {times['default']:.4f} ms | {times['winner']:.4f} ms | "
            f"{times['library']:.4f} ms, {beside['library']} | {share['winner']:.1%} |"
        )
    versions, device = document["versions"], document["device"]
    rows.append("")
    rows.append(
        f"{device['name']}, driver {device['driver']}, Triton {versions['triton']}, torch {versions['torch']}, "
        f"{document['date'][:10]}; L2 cold, {document['runs'][0]['beside_the_library']['rounds']} interleaved rounds "
        f"of {document['runs'][0]['beside_the_library']['block']} samples; `{document['command']}`."
    )
    return "\n".join(rows)


TABLES = {"tune": tune_table}


def filled(text: str) -> str:
    """`text` with every table between its markers made anew."""
    for name, make in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda found, table=make: f"{found[1]}{table()}\n{found[2]}", text, flags=re.DOTALL)
    return text


def main() -> int:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    before = README.read_text()
    after = filled(before)
    if check:
        print("README.md is up to date" if before == after else "README.md differs: run benchmarks/tables.py")
        return int(before != after)
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
