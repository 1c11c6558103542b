"""A fleet without GPUs: simulated GPUs behind the actors of a local Ray cluster, how busy they are, what kills cost.

    python -m benchmarks.many.fleet --parts efficiency --actors 64 --problems 2000
    python -m benchmarks.many.fleet --parts kills --actors 64 --problems 320 --kills 10

Each actor is a process of its own with the code that runs on a GPU: whole tunes with run logs, races and records. Only
the launches are simulated (`fleet_kernel.py`): they sleep as long as the simulated device says, so that 64 actors need
about one CPU. `efficiency` is the time of the run if each problem took as long as in one process alone and no actor
ever waited, over the time from the first begin to the last end. In `kills` the processes of actors are killed at random
moments, and then the driver, after which the same run is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.document import headed, save
from benchmarks.many.fleet_kernel import CONFIGS, LAUNCH_MS, simulated
from triton_ops import TuneProblem, tune
from triton_ops.many import ManyResult, RunOptions, run_jobs
from triton_ops.many.ray_engine import RayEngine
from triton_ops.many.session import jobs_of
from triton_ops.records import Run
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.records.run_log import Resumed
from triton_ops.request import TuneOptions
from triton_ops.request.effort import PRESETS
from triton_ops.tuner import Silent

EFFORT = replace(PRESETS["quick"], name="fleet", search="exhaustive")
_ALONE = 2  # problems that are tuned in one process, for the ideal


def main() -> int:
    """Run the parts that are asked for, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=("efficiency", "kills"), default=["efficiency"])
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10, help="actors that are killed before the driver is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/simulated/fleet.json"))
    parser.add_argument("--commit")
    parser.add_argument("--driver", help="used by the script itself: run in this folder of records")
    options = parser.parse_args()
    if options.driver:
        print(json.dumps(_summary(_run(options.problems, options.actors, options.driver))), flush=True)
        return 0
    document = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for part in options.parts:
        figures = (_efficiency if part == "efficiency" else _kills)(options)
        document[part] = headed(
            "python -m benchmarks.many.fleet", options.commit, cpus=len(os.sched_getaffinity(0)), actors=options.actors,
            problems=options.problems, configs=CONFIGS, launch_ms=LAUNCH_MS, **figures,
        )  # fmt: skip
        save(options.out, document)
        print(part, json.dumps(figures), flush=True)
    return 0


def _run(problems: int, actors: int, folder: str) -> ManyResult:
    common = RunOptions(each=TuneOptions(effort=EFFORT, cache_dir=folder), cluster=RayEngine(simulated=actors))
    jobs = jobs_of([TuneProblem(target=simulated, shape=(n,)) for n in range(1, problems + 1)], common)
    return run_jobs(jobs, common, told=lambda _: None)


def _efficiency(options: argparse.Namespace) -> dict[str, Any]:
    """How busy the simulated GPUs are."""
    with tempfile.TemporaryDirectory() as folder:
        alone_s = [_alone(n, folder) for n in range(1, _ALONE + 1)]
    with tempfile.TemporaryDirectory() as folder:
        start, cpu_s = time.monotonic(), time.process_time()
        result = _run(options.problems, options.actors, folder)
        wall_s, cpu_s = time.monotonic() - start, time.process_time() - cpu_s
    finished = [each for each in result.outcomes if each.result is not None]
    measuring_s = max(each.ended_s for each in finished) - min(each.began_s for each in finished)
    busy_s = sum(each.result.elapsed_s for each in finished if each.result is not None)
    ideal_s = options.problems * mean(alone_s) / options.actors
    return {
        **_summary(result), "wall_s": wall_s, "start_s": wall_s - measuring_s, "measuring_s": measuring_s,
        "alone_s": alone_s, "ideal_s": ideal_s, "efficiency": ideal_s / measuring_s,
        "busy_share": busy_s / options.actors / measuring_s, "driver_cpu_s": cpu_s,
        "driver_cpu_ms_per_problem": 1e3 * cpu_s / options.problems,
    }  # fmt: skip


def _alone(n: int, folder: str) -> float:
    start = time.monotonic()
    tune(simulated, shape=(n,), effort=EFFORT, cache_dir=folder, isolate=False, transfer=False, listener=Silent())
    return time.monotonic() - start


def _summary(result: ManyResult) -> dict[str, Any]:
    """What became of the problems, and how many winners are the truly fastest configs."""
    right = sum(
        each.result is not None and dict(each.result.best_config)["block"] == -each.problem.shape[0] % CONFIGS
        for each in result.outcomes
    )
    return {"totals": result.totals, "right_winners": right, "stopped": result.stopped}


def _kills(options: argparse.Namespace) -> dict[str, Any]:
    """Kill actors and the driver at random moments, run again, and count what was lost."""
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        expected_s = options.problems * LAUNCH_MS / 8 / options.actors  # a tune takes about 125 launches
        killed, before = _killed_run(options, folder, rng, expected_s)
        start = time.monotonic()
        again = _driver(options, folder)
        output, _ = again.communicate()
        trials = list(_trials(Path(folder)))
        resumptions = sum(
            isinstance(event, Resumed) for path in _logs(Path(folder)) for event in Run.read(path).events
        )  # fmt: skip
    counts = Counter(trials)
    return {
        **json.loads(output.splitlines()[-1]), "killed": killed, "trials_before_driver_was_killed": before,
        "second_run_s": time.monotonic() - start, "trials": len(counts), "trials_expected": options.problems * CONFIGS,
        "trials_measured_twice": sum(count - 1 for count in counts.values()), "runs_resumed": resumptions,
    }  # fmt: skip


def _killed_run(
    options: argparse.Namespace, folder: str, rng: random.Random, expected_s: float
) -> tuple[list[str], int]:
    """Kill actors, then the driver; which were killed, and how many trials were on disk then."""
    driver, killed = _driver(options, folder), list[str]()
    while not any(True for _ in _logs(Path(folder))):
        if driver.poll() is not None:
            raise SystemExit("the driver ended before anything was measured")
        time.sleep(0.2)
    start = time.monotonic()
    for at_s in [*sorted(rng.uniform(0.0, 0.5 * expected_s) for _ in range(options.kills)), 0.6 * expected_s]:
        time.sleep(max(0.0, start + at_s - time.monotonic()))
        if len(killed) == options.kills:
            break
        victim = rng.choice(_measurers(driver.pid))
        os.kill(victim, signal.SIGKILL)
        killed.append(f"actor after {at_s:.1f} s")
    family = _descendants(driver.pid)
    driver.kill()
    driver.wait()
    if driver.stdout is not None:
        driver.stdout.close()
    killed.append(f"driver after {time.monotonic() - start:.1f} s")
    before = len(list(_trials(Path(folder))))
    _wait_for_end(family)
    return killed, before


def _driver(options: argparse.Namespace, folder: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.many.fleet", "--driver", folder]
    words += ["--actors", str(options.actors), "--problems", str(options.problems)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _wait_for_end(family: list[int], most_s: float = 60.0) -> None:
    """Wait for the processes of a killed driver, which end by themselves; those that do not are killed."""
    until = time.monotonic() + most_s
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in family):
        time.sleep(0.5)
    for pid in family:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family[1:]


def _measurers(driver: int) -> list[int]:
    return [pid for pid in _descendants(driver) if "Measurer" in _title(pid)]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _logs(folder: Path) -> Iterator[Path]:
    return folder.glob("runs/*/*.jsonl")


def _trials(folder: Path) -> Iterator[tuple[str, str]]:
    """The trials on disk, as a problem and a config each."""
    for path in _logs(folder):
        for event in Run.read(path).events:
            if isinstance(event, Tried):
                yield path.parent.name, event.trial.config.text


if __name__ == "__main__":
    sys.exit(main())
