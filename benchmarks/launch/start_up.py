"""How long a worker process takes to its first answer, with the bytecode that it finds.

    python -m benchmarks.launch.start_up --out benchmarks/results/cpu/start_up.json

A parent that has imported torch starts a worker that imports Triton and torch, in four situations, in turn: Python
keeps bytecode; it keeps none (PYTHONDONTWRITEBYTECODE, nothing there) and neither does this project; it keeps none, and
this worker is the first that fills this project's folder; the same with the folder filled. Ratios are of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.document import headed, save
from triton_ops.base import Host
from triton_ops.device import probe

PARENT = """
import time
import torch
from triton_ops.processes import WorkerProcess
from triton_ops.evaluation.questions import Attempt
from triton_ops.space import Config

begun = time.perf_counter()
worker = WorkerProcess(("triton", "torch"), program="triton_ops.evaluation.worker")
worker.ask(Attempt(Config(), None), 120, {}, "start")
print(time.perf_counter() - begun)
worker.kill()
"""
SITUATIONS = ("python's own", "none", "first", "kept")


def seconds(situation: str, folder: Path) -> float:
    """From the start of a worker to its first answer."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "home")}
    if situation != "python's own":
        environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(folder / "nothing"))
    if situation == "none":
        environment["XDG_CACHE_HOME"] = os.devnull  # where no folder can be made
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARENT], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    """All situations, some times, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/start_up.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    samples: dict[str, list[float]] = {situation: [] for situation in SITUATIONS}
    for _ in range(options.turns):
        with tempfile.TemporaryDirectory() as folder:
            for situation in SITUATIONS:  # "kept" comes after "first", which fills
                samples[situation].append(round(seconds(situation, Path(folder)), 3))
    medians = {situation: statistics.median(times) for situation, times in samples.items()}
    document = headed(
        f"python -m benchmarks.launch.start_up --turns {options.turns}",
        options.commit,
        device=probe("cpu").name,
        cpus=Host.usable_cpus(),
        seconds=samples,
        medians_s=medians,
        over_none={situation: round(time / medians["none"], 3) for situation, time in medians.items()},
    )
    save(options.out, document)
    print(json.dumps(document["medians_s"]), json.dumps(document["over_none"]))


if __name__ == "__main__":
    main()
