"""The main job, end to end, on any CPU and without torch: tune, find the winner again, show the record, make a page.

Everything is stored under `build/demo`, made anew each time.
"""

import shutil
import sys
import time
from pathlib import Path

from nearest import CENTRES, COORDINATES, POINTS, SPACE, inputs, nearest, nearest_in_parts

from triton_ops import TuningResult, tune
from triton_ops.cli.app import main as triton_ops

FOLDER = Path("build/demo")
PAGE = FOLDER / "report.html"
QUESTION = f"""
Which of {CENTRES} centres is nearest to each of {POINTS:,} points with {COORDINATES} coordinates, and how many
points at a time should NumPy be given? Every result must equal that for all points at once. (examples/nearest.py)

result = tune(nearest_in_parts, (points, centres), space={SPACE}, reference=nearest)"""
MEANINGS = {1: "a loop over the points: the default", POINTS: "all points at once"}


def tuned() -> TuningResult:
    """Tune, or find what was found."""
    return tune(nearest_in_parts, inputs(), space=SPACE, reference=nearest, cache_dir=FOLDER)


def table(result: TuningResult) -> str:
    """What was tried, each with its time when it was tried; the comparison of the fastest came later."""
    lines = [f"{'rows':>6}{'ms':>9}"]
    for trial in sorted(result.trials, key=lambda trial: trial.config["rows"]):
        rows, time_ms = trial.config["rows"], f"{trial.median_ms:9.2f}" if trial.ok else f"  {trial.status}"
        words = [MEANINGS.get(rows), "the winner" if rows == result.best_config["rows"] else None]
        lines.append(f"{rows:6}{time_ms}  {', '.join(filter(None, words))}".rstrip())
    return "\n".join(lines)


def run(*arguments: str) -> None:
    """Run one command as it would be typed, and stop on its failure."""
    print(f"\n$ triton-ops {' '.join(arguments)}", flush=True)
    if code := triton_ops(list(arguments)):
        sys.exit(code)


def main() -> None:
    """Tune, recall, show."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    begun = time.perf_counter()
    print(QUESTION, flush=True)
    result = tuned()
    print(table(result), result, f"Seconds: {result.elapsed_s:.1f}", sep="\n")
    again = tuned()
    print(f"\nThe same call again: {again.best_config}, from its record in {again.elapsed_s * 1e3:.1f} ms; nothing ran")
    run("cache", "show", "--cache-dir", str(FOLDER))
    run("report", again.run, "--out", str(PAGE), "--cache-dir", str(FOLDER))
    print(f"\nThe demo took {time.perf_counter() - begun:.1f} s; now open {PAGE.resolve().as_uri()} in a browser")


if __name__ == "__main__":
    main()
