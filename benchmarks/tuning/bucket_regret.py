"""What buckets cost: the regret of a matmul's winners at sizes that were not tuned, for each rule.

    python -m benchmarks.tuning.bucket_regret --limit-s 500 --out benchmarks/results/nvidia-h200/bucket_regret.json

Tunes the shipped matmul at each size of M (N = K = 4096, bfloat16), makes a lockfile of the winners under each rule,
and measures every entry at held-out sizes of its range against the default and its neighbours, with `verify`. One line
for each rule: how many sizes were held out, how many were slower beyond noise, the median and the largest regret. The
rules take turns entry by entry, and the file is written after each size, so that a run that ends at its limit has
something of every rule. `--rules` measures some of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.document import headed, parser_of, save
from triton_ops import recall, tune
from triton_ops.device import probe
from triton_ops.records import LockPlan, Record, lock_of
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import Verdict, verify
from triton_ops_kernels import load

RULES = ("measured@2", "pow2", "upto")
N = K = 4096


def tuned(sizes: Sequence[int], device: str, folder: str, budget_s: float, end: float) -> list[Record]:
    """The records of the matmul at each size of M; all tunes together take at most half of the time until `end`."""
    matmul, records = load("matmul"), []
    each_s = min(budget_s, (end - time.monotonic()) / 2 / len(sizes))
    for size in sizes:
        request: dict[str, Any] = {"shape": (size, N, K), "dtype": "bfloat16", "device": device,
                                 "cache_dir": folder}  # fmt: skip
        tune(matmul, **request, budget_s=each_s)
        record = recall(matmul, **request)
        assert record is not None
        records.append(record)
    return records


def held_out(
    records: list[Record], rule: str, device: str, count: int, neighbours: int, most_loss: float = 0.0
) -> Iterator[Verdict]:
    """The verdicts of one rule at sizes that were not tuned."""
    lock, _ = lock_of(records, LockPlan(buckets={"M": rule}, unproven=True))
    checks = verify(lock, Targets(), probe(device), device=device, held_out=count, most_neighbours=neighbours,
                   most_loss=most_loss, isolate=False)  # fmt: skip # no time goes to a new process for each size
    return (each for each in checks if each.at)


def regrets(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What the verdicts of one rule say."""
    losses = [each.regret for each in verdicts if each.regret is not None]
    return {
        "sizes": len(losses),
        "slower": sum(each.outcome == "slower" for each in verdicts),
        "invalid": sum(each.outcome == "invalid" for each in verdicts),
        "median": statistics.median(losses) if losses else None,
        "largest": max(losses, default=None),
        "at": {f"{each.entry.problem['M']}: {each.at}": each.regret for each in verdicts},
    }


def in_turns(rules: dict[str, Iterator[Verdict]], over: Callable[[], bool]) -> Iterator[dict[str, list[Verdict]]]:
    """The verdicts of all rules, after each new one; it ends when all are there, or at the limit."""
    checks: dict[str, list[Verdict]] = {rule: [] for rule in rules}
    remaining = dict(rules)
    while remaining:
        for rule, verdicts in list(remaining.items()):
            if over():
                return
            if (verdict := next(verdicts, None)) is None:
                del remaining[rule]
            else:
                checks[rule].append(verdict)
                yield checks


def main() -> None:
    """Print one JSON line for each rule, and write them."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="16,64,256,1024,4096")
    parser.add_argument("--held-out", type=int, default=4)
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    parser.add_argument("--budget-s", type=float, default=15.0, help="seconds for the tune of each size")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="measure nothing more after so many seconds")
    options = parser.parse_args()
    sizes, end = [int(size) for size in options.sizes.split(",")], time.monotonic() + options.limit_s
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        records = tuned(sizes, options.device, folder, options.budget_s, end)
        texts = {rule: f"upto:{options.sizes}" if rule == "upto" else rule for rule in options.rules}
        rules = {rule: held_out(records, text, options.device, options.held_out, options.neighbours)
                 for rule, text in texts.items()}  # fmt: skip
        for checks in in_turns(rules, lambda: time.monotonic() >= end):
            rows = {rule: regrets(verdicts) for rule, verdicts in checks.items()}
            if options.out is not None:
                winners = {record.key.problem["M"]: str(record.winner) for record in records}
                save(options.out, headed("python -m benchmarks.tuning.bucket_regret", options.commit, sizes=sizes,
                                       winners=winners, rules=rows))  # fmt: skip
    for rule, row in rows.items():
        print(json.dumps({"rule": rule, **row}), flush=True)
    if not rows:
        sys.exit(f"no size was measured within {options.limit_s:.0f} s")


if __name__ == "__main__":
    main()
