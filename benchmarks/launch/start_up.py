"""What importing the package costs beyond starting Python, and how long a worker takes to its first answer.

    python -m benchmarks.launch.start_up --out benchmarks/results/cpu/import_time.json
    python -m benchmarks.launch.start_up --workers --out benchmarks/results/cpu/start_up.json

Fresh processes, bare and with each import, in turn and many times over, so that a busy moment of the machine meets all.
The processor's milliseconds are compared, which other programs change less than the clock's. Beside the imports of this
package stand those of the three packages that it needs, and of the modules of Python's own that a look-up cannot do
without. The exit code is 1 if an import is above the target, or if `import triton_ops` has loaded heavy packages.

With `--workers` a parent that has imported torch starts a worker that imports Triton and torch, in four situations, in
turn: Python keeps bytecode; it keeps none (PYTHONDONTWRITEBYTECODE, nothing there) and neither does this project; it
keeps none, and this worker is the first that fills this project's folder; the same with the folder filled. Ratios are
of one run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.document import headed, parser_of, save
from triton_ops.base import Host
from triton_ops.device import probe

BARE = "python -c pass"
TARGET_MS = 60.0
HEAVY = ("torch", "triton", "numpy", "rich", "typer", "msgspec")
LOADED = f"import sys, triton_ops; print(*(n for n in {HEAVY} if n in sys.modules))"
OWN = ("import triton_ops", "from triton_ops import recall")
FLOOR = ("import msgspec, cloudpickle, platformdirs", "import msgspec, dataclasses, pathlib, hashlib, json, threading")
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
SITUATIONS = ("python's own", "none", "first", "kept")  # "kept" comes after "first", which fills


def printed(code: str, **more: str) -> str:
    """What a process prints, which writes bytecode unless `more` variables say otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(words, env={**environment, **more}, capture_output=True, text=True, check=True).stdout


def taken_ms(code: str) -> float:
    """The processor's milliseconds of one process that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def imports(turns: int) -> dict[str, Any]:
    """The processor's milliseconds of a bare Python, and of one with each import, turn by turn."""
    codes = {BARE: "pass", **{code: code for code in (*OWN, *FLOOR)}}
    for code in codes.values():  # files into the page cache, bytecode onto the disk
        taken_ms(code)
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(turns):
        for name, code in codes.items():
            times[name].append(taken_ms(code))
    medians_ms = {name: round(statistics.median(samples), 1) for name, samples in times.items()}
    beyond_ms = {name: round(medians_ms[name] - medians_ms[BARE], 1) for name in (*OWN, *FLOOR)}
    heavy = printed(LOADED).split()
    return {
        "processor_ms": medians_ms,
        "processor_beyond_bare_ms": beyond_ms,
        "least_beyond_bare_ms": {name: round(min(times[name]) - min(times[BARE]), 1) for name in beyond_ms},
        "target_ms": TARGET_MS,
        "target_kept": not heavy and all(beyond_ms[name] <= TARGET_MS for name in OWN),
        "heavy_packages_loaded": heavy,
    }


def seconds(situation: str, folder: str) -> float:
    """From the start of a worker to its first answer."""
    environment = {"XDG_CACHE_HOME": f"{folder}/home"}
    if situation != "python's own":
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": f"{folder}/nothing"}
    if situation == "none":
        environment["XDG_CACHE_HOME"] = os.devnull  # where no folder can be made
    return float(printed(PARENT, **environment))


def workers(turns: int) -> dict[str, Any]:
    """All situations, some times, in turn."""
    samples: dict[str, list[float]] = {situation: [] for situation in SITUATIONS}
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            for situation in SITUATIONS:
                samples[situation].append(round(seconds(situation, folder), 3))
    medians = {situation: statistics.median(times) for situation, times in samples.items()}
    over_none = {situation: round(time / medians["none"], 3) for situation, time in medians.items()}
    return {"seconds": samples, "medians_s": medians, "over_none": over_none}


def main() -> int:
    """Measure, write, and say by the exit code whether the target is kept."""
    parser = parser_of(__doc__)
    parser.add_argument("--workers", action="store_true", help="measure workers, and not imports")
    parser.add_argument("--turns", type=int, default=20, help="processes of each kind")
    options = parser.parse_args()
    command = f"python -m benchmarks.launch.start_up{' --workers' if options.workers else ''} --turns {options.turns}"
    document = headed(
        command, options.commit, device=probe("cpu").name, cpus=Host.usable_cpus(),
        load_average=[round(load, 2) for load in os.getloadavg()],
        **(workers if options.workers else imports)(options.turns),
    )  # fmt: skip
    if options.out:
        save(options.out, document)
    print(json.dumps(document, indent=1))
    return 0 if document.get("target_kept", True) else 1


if __name__ == "__main__":
    raise SystemExit(main())
