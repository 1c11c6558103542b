"""What `import triton_ops` costs beyond starting Python, and that it loads no GPU stack.

Fresh processes, with and without the import, in alternating order, so that a busy moment of the
machine meets both. Data as JSON on stdout; exit code 1 if the cost is above the target or heavy
packages were loaded.

    python -m benchmarks.launch.import_time [--pairs N]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

TARGET_MS = 60.0
HEAVY = ("torch", "triton", "numpy", "rich", "typer", "msgspec")


def run_ms(code: str) -> float:
    """Wall milliseconds of a fresh Python that runs `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - start) * 1e3


def loaded() -> list[str]:
    """Which heavy packages the import brings in."""
    code = f"import sys, triton_ops; print(*(n for n in {HEAVY} if n in sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return process.stdout.split()


def measure(pairs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of bare Python, and what the import added to it, pair by pair."""
    codes = {"bare": "pass", "import": "import triton_ops"}
    for code in codes.values():  # files into the page cache, bytecode onto the disk
        run_ms(code)
    times: dict[str, list[float]] = {name: [] for name in codes}
    for number in range(pairs):
        order = list(codes) if number % 2 == 0 else list(reversed(codes))
        for name in order:
            times[name].append(run_ms(codes[name]))
    differences = [a - b for a, b in zip(times["import"], times["bare"], strict=True)]
    return times["bare"], differences


def main() -> int:
    """Measure, print, and say by the exit code whether the target is kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=40, help="processes of each kind")
    pairs = parser.parse_args().pairs
    bare, differences = measure(pairs)
    low, median, high = statistics.quantiles(differences, n=4)
    heavy = loaded()
    passed = not heavy and median <= TARGET_MS
    result = {
        "import_ms": round(median, 2),
        "import_quartiles_ms": [round(low, 2), round(high, 2)],
        "bare_python_ms": round(statistics.median(bare), 2),
        "pairs": pairs,
        "target_ms": TARGET_MS,
        "target_kept": passed,
        "heavy_packages_loaded": heavy,
        "python": platform.python_version(),
    }
    print(json.dumps(result, indent=2))
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
