"""How long quick commands take beyond a bare interpreter.

    python -m benchmarks.launch.cli_start --out benchmarks/results/cpu/cli_start.json

`python -c pass` and each command, in turn and many times over, with an empty folder of records. Medians of all turns
are compared; where other programs run as well, the processor's seconds of the same processes tell more than the clock.
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

from benchmarks.document import headed, save
from triton_ops.base import Host
from triton_ops.device import probe

BARE, STACK = "python -c pass", "python -c import torch, triton"
SPACE = "explain benchmarks.tuning.in_place_models:conv_kernel --space --gpu H200"  # imports torch and Triton
COMMANDS = ("--version", "--help", "cache misses", "cache path", SPACE)


def taken(words: list[str], folder: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor, for one process."""
    environment = {**os.environ, "TRITON_OPS_CACHE_DIR": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    used, start = _processor_s(), time.perf_counter()
    subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=True)
    return time.perf_counter() - start, _processor_s() - used


def _processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """All commands, some times, in turn; once more before that, so that there is bytecode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/cli_start.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    programs = {BARE: ["-c", "pass"], STACK: ["-c", "import torch, triton"]}
    programs |= {name: ["-m", "triton_ops", *name.split()] for name in COMMANDS}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for words in programs.values():
            taken(words, folder)
        for _ in range(options.turns):
            for name, words in programs.items():
                samples[name].append(taken(words, folder))
    wall_s = {name: statistics.median(wall for wall, _ in times) for name, times in samples.items()}
    cpu_s = {name: statistics.median(cpu for _, cpu in times) for name, times in samples.items()}
    document = headed(
        f"python -m benchmarks.launch.cli_start --turns {options.turns}",
        options.commit,
        device=probe("cpu").name,
        cpus=Host.usable_cpus(),
        load_average=[round(load, 2) for load in os.getloadavg()],
        medians_s={name: round(seconds, 4) for name, seconds in wall_s.items()},
        beyond_bare_s={name: round(wall_s[name] - wall_s[BARE], 4) for name in (STACK, *COMMANDS)},
        processor_beyond_bare_s={name: round(cpu_s[name] - cpu_s[BARE], 4) for name in (STACK, *COMMANDS)},
    )
    save(options.out, document)
    print(json.dumps(document["beyond_bare_s"]), json.dumps(document["processor_beyond_bare_s"]))


if __name__ == "__main__":
    main()
