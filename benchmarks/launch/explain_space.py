"""How long `explain TARGET --space` takes, a process for each public kernel whose list `hidden_lists` hides.

    python -m benchmarks.launch.explain_space FOLDER --out benchmarks/results/cpu/explain_space.json

FOLDER has the packages' files, as of `benchmarks.tuning.hidden_lists`. No GPU is needed. A turn explains all of them,
and the fewest seconds of a kernel count, so that bytecode is there. Torch and Triton alone are imported now and then.
Where other programs run as well, the processor's seconds tell more than the clock. A kernel whose file needs what is
not installed has its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.tuning.hidden_list_cases import CASES
from triton_ops.base import Host
from triton_ops.device import probe

Run = tuple[float, float, str]


def run(words: list[str], roots: list[Path], folder: str) -> Run:
    """Seconds by the clock and of the processor of one process, and its last words if it fails."""
    path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_OPS_CACHE_DIR": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, "" if process.returncode == 0 else (process.stderr.splitlines() or ["no words"])[-1]


def turn(rows: dict[str, list[Run]], packages: Path, folder: str) -> list[float]:
    """Explain each kernel that can be; the processor's seconds of importing torch and Triton alone, now and then."""
    stack_s = []
    for number, (name, runs) in enumerate(rows.items()):
        if number % 8 == 0:
            stack_s.append(run(["-c", "import torch, triton"], [], folder)[1])
        if not any(error for _, _, error in runs):
            case = CASES[name]
            words = ["-m", "triton_ops", "explain", f"{packages / case.file}:{case.kernel}", "--space", "--gpu", "H200"]
            runs.append(run(words, [packages / case.file.partition("/")[0]], folder))
    return stack_s


def main() -> None:
    """All cases, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/explain_space.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, list[Run]] = {name: [] for name in CASES}
        stack_s = [one for _ in range(options.turns) for one in turn(runs, options.folder.resolve(), folder)]
    folder_name = f"{options.folder.resolve()}/"
    rows = {name: {"error": error.replace(folder_name, "FOLDER/")[:200]} if (error := each[-1][2]) else
            {"s": round(min(one[0] for one in each), 3), "processor_s": round(min(one[1] for one in each), 3)}
            for name, each in runs.items()}  # fmt: skip
    done: list[dict[str, Any]] = [row for row in rows.values() if "error" not in row]
    summary = {"cases": len(rows), "explained": len(done), "over_2_s": sum(row["s"] > 2 for row in done),
               "stack_processor_s": round(statistics.median(stack_s), 3)} | {
        f"{word}_{name}": of([row[name] for row in done])
        for name in ("s", "processor_s") for word, of in (("median", statistics.median), ("longest", max))
    }  # fmt: skip
    command = f"python -m benchmarks.launch.explain_space FOLDER --turns {options.turns}"
    machine = {"device": probe("cpu").name, "cpus": Host.usable_cpus(), "load_average": list(os.getloadavg())}
    save(options.out, headed(command, options.commit, **machine, summary=summary, cases=rows))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
