"""Faults planted among good configs: each must end in its status, and the winner must be what it is without them.

    python -m benchmarks.robustness.faults                       on a CPU, with 100 kills of the tune itself: 10 minutes
    python -m benchmarks.robustness.faults --device cuda --out benchmarks/results/nvidia-h200/faults.json     under 90 s

Ends with exit code 1 if anything was not as it must be.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.document import headed, parser_of, save
from benchmarks.robustness.planted import ON_CPU, ON_CUDA, fault_of, product, product_space, sums
from benchmarks.robustness.process_faults import GOOD, sums_space, workers_of
from benchmarks.robustness.process_kills import killed_often
from triton_ops import TuningResult, release_processes, tune
from triton_ops.device import probe
from triton_ops.request import Patience

PATIENCE = Patience(launch_s=5.0)


def planted_run(device: str, cache: Path) -> dict[str, Any]:
    """One tune without faults, one with all of them; what each fault came to."""
    operation, space_of, expected = (
        (product, product_space, ON_CUDA) if device == "cuda" else (sums, sums_space, ON_CPU)
    )
    clean, clean_s = tuned(operation, space_of([]), cache / "clean")
    with_faults, planted_s = tuned(operation, space_of(list(expected)), cache / "planted")
    again, again_s = tuned(operation, space_of(list(expected)), cache / "planted", force=True)
    faulty = {fault_of(trial.config): trial for trial in with_faults.trials if fault_of(trial.config) != GOOD}
    rows = [
        {
            "fault": fault,
            "expected": status.value,
            "status": faulty[fault].status.value if fault in faulty else None,
            "error": faulty[fault].error if fault in faulty else "no trial",
        }
        for fault, status in expected.items()
    ]
    ties = {config.text for config in clean.ties}
    quarantined = [t for t in again.trials if t.error.startswith("quarantined")]
    return {
        "faults": rows,
        "every_fault_in_its_status": all(row["status"] == row["expected"] for row in rows),
        "good_configs_ok": all(trial.ok for trial in with_faults.trials if fault_of(trial.config) == GOOD),
        "winner_without": clean.best_config,
        "ties_without": [dict(config) for config in clean.ties],
        "winner_with": with_faults.best_config,
        "same_winner": any(dict(c) == with_faults.best_config for c in clean.ties) or bool(
            ties & {config.text for config in with_faults.ties}
        ),
        "place": with_faults.place,
        "verified": with_faults.verified,
        "quarantined_next_time": len(quarantined),
        "seconds": {"without": clean_s, "with": planted_s, "again": again_s},
    }  # fmt: skip


def tuned(operation: Any, space: Any, cache: Path, **more: Any) -> tuple[TuningResult, float]:
    """An exhaustive tune in a worker, and its seconds."""
    start = time.monotonic()
    result = tune(operation, space=space, search="exhaustive", isolate=True, patience=PATIENCE, cache_dir=cache, **more)
    return result, round(time.monotonic() - start, 2)


def killed_from_outside(device: str, cache: Path) -> dict[str, Any]:
    """A tune whose worker is killed twice by somebody else: no config is to blame."""
    operation, space_of = (product, product_space) if device == "cuda" else (sums, sums_space)
    with killer(1 if device == "cuda" else 2, cache / "outside") as kills:
        result, seconds = tuned(operation, space_of([]), cache / "outside")
    return {
        "kills": len(kills),
        "all_ok": {trial.status.value for trial in result.trials} == {"ok"},
        "place": result.place,
        "seconds": seconds,
    }


@contextlib.contextmanager
def killer(times: int, cache: Path) -> Iterator[list[int]]:
    """Inside, a thread kills the worker of this process each time that it has finished a trial or two more.

    The list fills with those it killed.
    """
    end, kills, before = threading.Event(), list[int](), [0]

    def kill() -> None:
        while not end.wait(0.01) and len(kills) < times:
            finished = trials_in(cache)
            if finished < before[0] + 2:
                continue
            for pid in workers_of(os.getpid())[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills.append(pid)
                    before[0] = finished

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        end.set()
        thread.join()


def trials_in(cache: Path) -> int:
    """Finished trials in the run logs of a cache folder."""
    return sum(path.read_text().count('"type": "trial"') for path in cache.glob("runs/*/*.jsonl"))


def parent_unharmed(device: str) -> bool:
    """Whether this process can still compute, on the GPU as well."""
    import torch

    ones = torch.ones(8, device=device)
    return float((ones + ones).sum()) == 16.0


def main() -> int:
    """Run all parts, print a table, write JSON; 1 if anything was not as it must be."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--kills", type=int, help="of the tune itself; default 100 on a CPU, 0 on a GPU")
    options = parser.parse_args()
    kills = options.kills if options.kills is not None else 0 if options.device == "cuda" else 100
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        planted = planted_run(options.device, place)
        outside = killed_from_outside(options.device, place)
        resumed = [killed_often(place, part, isolate) for part, isolate in parts(kills)]
    release_processes()
    leftovers = workers_of(os.getpid())
    document = headed(
        f"python -m benchmarks.robustness.faults --device {options.device}",
        options.commit,
        device=probe(options.device).name,
        planted=planted,
        worker_killed_from_outside=outside,
        tune_killed=resumed,
        parent_unharmed=parent_unharmed(options.device),
        processes_left=len(leftovers),
        seconds=round(time.monotonic() - start, 1),
    )
    document["passed"] = passed(document)
    show(document)
    if options.out:
        save(options.out, document)
    return 0 if document["passed"] else 1


def parts(kills: int) -> list[tuple[int, bool]]:
    """Half of the kills with a worker, half without; none for none."""
    return [(kills - kills // 2, True), (kills // 2, False)] if kills > 1 else []


def passed(document: dict[str, Any]) -> bool:
    """Whether all is as it must be."""
    planted, outside = document["planted"], document["worker_killed_from_outside"]
    return (
        planted["every_fault_in_its_status"]
        and planted["good_configs_ok"]
        and planted["same_winner"]
        and planted["quarantined_next_time"] > 0
        and outside["kills"] > 0
        and outside["all_ok"]
        and all(r["most_lost"] <= 1 and r["orphans"] == 0 and r["winner"] == {"n": 17} for r in document["tune_killed"])
        and document["parent_unharmed"]
        and document["processes_left"] == 0
    )


def show(document: dict[str, Any]) -> None:
    """A table for people."""
    planted = document["planted"]
    for row in planted["faults"]:
        mark = "  " if row["status"] == row["expected"] else "! "
        print(f"{mark}{row['fault']:26} {row['status'] or '-':10} {row['error'][:110]}")
    print(f"winner without faults {planted['winner_without']}, with {planted['winner_with']}, "
          f"same or tied: {planted['same_winner']}; {planted['place']}")  # fmt: skip
    print(f"seconds {planted['seconds']}; quarantined the next time: {planted['quarantined_next_time']}")
    print(f"worker killed from outside: {document['worker_killed_from_outside']}")
    for run in document["tune_killed"]:
        print(f"tune killed: {run}")
    print(f"parent unharmed: {document['parent_unharmed']}, processes left: {document['processes_left']}, "
          f"{document['seconds']} s, passed: {document['passed']}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
