"""What importing the package costs beyond starting Python, and that `import triton_ops` loads nothing heavy.

    python -m benchmarks.launch.import_time --out benchmarks/results/cpu/import_time.json

Fresh processes, bare and with each import, in turn and many times over, so that a busy moment of the machine meets all.
The processor's milliseconds are compared, which other programs change less than the clock's. Beside the imports of this
package stand those of the three packages that it needs, and of the modules of Python's own that a look-up cannot do
without. The exit code is 1 if an import is above the target, or if heavy packages were loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.document import headed, save
from triton_ops.base import Host
from triton_ops.device import probe

BARE = "python -c pass"
TARGET_MS = 60.0
HEAVY = ("torch", "triton", "numpy", "rich", "typer", "msgspec")
OWN = ("import triton_ops", "from triton_ops import recall")
FLOOR = ("import msgspec, cloudpickle, platformdirs", "import msgspec, dataclasses, pathlib, hashlib, json, threading")


def loaded() -> list[str]:
    """Which heavy packages `import triton_ops` brings in."""
    code = f"import sys, triton_ops; print(*(n for n in {HEAVY} if n in sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return process.stdout.split()


def taken_ms(code: str) -> float:
    """The processor's milliseconds of one process that runs the code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(turns: int) -> dict[str, list[float]]:
    """The processor's milliseconds of a bare Python, and of one with each import, turn by turn."""
    codes = {BARE: "pass", **{code: code for code in (*OWN, *FLOOR)}}
    for code in codes.values():  # files into the page cache, bytecode onto the disk
        taken_ms(code)
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(turns):
        for name, code in codes.items():
            times[name].append(taken_ms(code))
    return times


def main() -> int:
    """Measure, write, and say by the exit code whether the target is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="processes of each kind")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/import_time.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    times = measure(options.turns)
    medians_ms = {name: round(statistics.median(samples), 1) for name, samples in times.items()}
    beyond_ms = {name: round(medians_ms[name] - medians_ms[BARE], 1) for name in (*OWN, *FLOOR)}
    heavy = loaded()
    within_target = not heavy and all(beyond_ms[name] <= TARGET_MS for name in OWN)
    document = headed(
        f"python -m benchmarks.launch.import_time --turns {options.turns}",
        options.commit,
        device=probe("cpu").name,
        cpus=Host.usable_cpus(),
        load_average=[round(load, 2) for load in os.getloadavg()],
        processor_ms=medians_ms,
        processor_beyond_bare_ms=beyond_ms,
        least_beyond_bare_ms={name: round(min(times[name]) - min(times[BARE]), 1) for name in beyond_ms},
        target_ms=TARGET_MS,
        target_kept=within_target,
        heavy_packages_loaded=heavy,
    )
    save(options.out, document)
    print(json.dumps(document, indent=1))
    return 0 if within_target else 1


if __name__ == "__main__":
    raise SystemExit(main())
