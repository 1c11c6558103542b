"""What buckets cost: the regret of a matmul's winners at sizes that were not tuned, for each rule.

    python -m benchmarks.bucket_regret --device cuda --sizes 16,64,256,1024,4096 --held-out 4

Tunes the shipped matmul at each size of M (N = K = 4096, bfloat16), makes a lockfile of the winners under each rule,
and measures every entry at held-out sizes of its range against the default and its neighbours, with `verify`. One line
for each rule: how many sizes were held out, how many were slower beyond noise, the median and the largest regret.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

from triton_ops import recall, tune
from triton_ops.cache import LockPlan, Record, lock_of
from triton_ops.hardware import probe
from triton_ops.kernels import load
from triton_ops.serving.targets import Targets
from triton_ops.serving.verify import verify

RULES = ("measured@2", "pow2", "upto:{sizes}")


def tuned(sizes: Sequence[int], device: str, folder: str, budget_s: float) -> list[Record]:
    """The records of the matmul at each size of M."""
    matmul, records = load("matmul"), []
    for size in sizes:
        asked: dict[str, Any] = {
            "shape": (size, 4096, 4096),
            "dtype": "bfloat16",
            "device": device,
            "cache_dir": folder,
        }
        tune(matmul, **asked, budget_s=budget_s)
        found = recall(matmul, **asked)
        assert found is not None
        records.append(found)
    return records


def regrets(records: list[Record], rule: str, device: str, held_out: int) -> dict[str, Any]:
    """The regret of one rule at sizes that were not tuned."""
    lock, _ = lock_of(records, LockPlan(buckets={"M": rule}))
    verdicts = [each for each in verify(lock, Targets(), probe(device), device=device, held_out=held_out) if each.at]
    found = [each.regret for each in verdicts if each.regret is not None]
    return {
        "rule": rule,
        "sizes": len(found),
        "slower": sum(each.outcome == "slower" for each in verdicts),
        "invalid": sum(each.outcome == "invalid" for each in verdicts),
        "median": statistics.median(found) if found else None,
        "largest": max(found, default=None),
        "at": {each.at: each.regret for each in verdicts},
    }


def main() -> None:
    """Print one JSON line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="16,64,256,1024,4096")
    parser.add_argument("--held-out", type=int, default=4)
    parser.add_argument("--budget-s", type=float, default=15.0)
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        records = tuned(sizes, given.device, folder, given.budget_s)
        for rule in RULES:
            print(
                json.dumps(regrets(records, rule.format(sizes=given.sizes), given.device, given.held_out)), flush=True
            )


if __name__ == "__main__":
    main()
