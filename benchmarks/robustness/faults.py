"""Faults planted among good configs: each must end in its status, and the winner must be what it is without them.

    python -m benchmarks.robustness.faults --device cuda --out benchmarks/results/nvidia-h200/faults.json     under 90 s

Ends with exit code 1 if anything was not as it must be.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from benchmarks.robustness.planted import ON_CPU, ON_CUDA, fault_of, product, product_space, sums
from benchmarks.robustness.process_faults import GOOD, sums_space, workers_of
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


def parent_unharmed(device: str) -> bool:
    """Whether this process can still compute, on the GPU as well."""
    ones = torch.ones(8, device=device)
    return float((ones + ones).sum()) == 16.0


def main() -> int:
    """Plant all faults, print a table, write JSON; 1 if anything was not as it must be."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        planted = planted_run(options.device, Path(folder))
    unharmed = parent_unharmed(options.device)
    release_processes()
    left = len(workers_of(os.getpid()))
    good = all(planted[what] for what in ("every_fault_in_its_status", "good_configs_ok", "same_winner"))
    passed = good and planted["quarantined_next_time"] > 0 and unharmed and not left
    document = headed(
        f"python -m benchmarks.robustness.faults --device {options.device}", options.commit,
        device=probe(options.device).name, planted=planted, parent_unharmed=unharmed, processes_left=left,
        seconds=round(time.monotonic() - start, 1), passed=passed,
    )  # fmt: skip
    for row in planted["faults"]:
        mark = "  " if row["status"] == row["expected"] else "! "
        print(f"{mark}{row['fault']:26} {row['status'] or '-':10} {row['error'][:110]}")
    print({name: value for name, value in planted.items() if name != "faults"})
    print(f"parent unharmed: {unharmed}, processes left: {left}, passed: {passed}")
    if options.out:
        save(options.out, document)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
