"""First calls of kernels with short lists of configs, beside those of `triton.autotune`, in seconds a key.

    python -m benchmarks.tuning.short_lists --out benchmarks/results/nvidia-h100-80gb-hbm3/short_lists.json
    python -m benchmarks.tuning.short_lists --bodies add --counts 2 4 16 --limit-s 120 --out A.json

Three kernels, each with lists of 2, 4 and 8 configs, are called with four sizes of arguments, of 4 to 512 MiB a
tensor (128 for the product of matrices). Each list is tuned in fresh processes with empty caches, which take turns in
going first: by `triton` and by `ours`, this package, at once after the decoration, and by `late`, this package three
seconds after it. The first key of a process also waits for what a process starts once; `bare_s` is the time of a
process that imports torch and Triton and opens the GPU, and `first_over_bare` the time by which a first key takes
longer than `triton`'s, in such processes: at most 1.2 at once, and at most 0 of `late`, with two configs. Afterwards
all configs of each key run interleaved, on several sets of arguments in turn, so that L2 is cold: `share` is the speed
of this package's winner over that of the fastest config, and `over_default` its speed over the default's, with the 95 %
interval. Lists that the file holds of the same commit are not measured again.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton

import triton_ops
from benchmarks.document import begun, headed, parser_of, save
from benchmarks.tuning.bodies import BODIES
from triton_ops.device import probe
from triton_ops.timing import Arm, Interval, Launch, Rounds
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer

COUNTS = (2, 4, 8, 16)
EXTENTS = {"add": (1536, 4096, 8192, 16384), "norm": (1536, 4096, 8192, 16384), "product": (1536, 3072, 4096, 8192)}
CHECK_ROUNDS, BLOCK = 24, 3
SHORT_MS, LONG_MS = 0.2, 3.0  # launches below are checked in a graph, those above by one sample in a round
COLD_BYTES, LEAST_SETS, MOST_SETS = 256 << 20, 4, 16  # of arguments: a time depends on where the driver puts them
SIDES = ("ours", "late", "triton")
LATE_S = 3.0  # between decoration and launch
BARE = "import torch, triton; torch.zeros(1, device='cuda'); torch.cuda.synchronize()"


def configs_of(body: str, length: int) -> list[triton.Config]:
    """So many configs of a body: each block with 4 and 8 warps, then again with other stages."""
    triples = [(block, warps, stages) for stages in (3, 2) for warps in (4, 8) for block in BODIES[body][2]]
    return [triton.Config({"BLOCK": b}, num_warps=warps, num_stages=stages) for b, warps, stages in triples[:length]]


def arguments_of(body: str, extent: int) -> tuple[Any, ...]:
    """Three square matrices, and the number of elements or of rows."""
    tensors = (torch.randn(extent, extent, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return (*tensors, extent * extent if body == "add" else extent)


def first_calls(side: str, body: str, length: int) -> list[dict[str, Any]]:
    """For each size the seconds of the first call, and what the winner of this package's first process is worth."""
    kernel, grid, _ = BODIES[body]
    configs = configs_of(body, length)
    autotune = triton.autotune if side == "triton" else triton_ops.autotune
    tuned = autotune(configs, key=["n"])(kernel)
    if side == "late":
        time.sleep(LATE_S)
    rows = []
    for extent in EXTENTS[body]:
        arguments = arguments_of(body, extent)
        torch.cuda.synchronize()
        start = time.monotonic()
        tuned[grid](*arguments)
        torch.cuda.synchronize()
        row: dict[str, Any] = {"extent": extent, "seconds": time.monotonic() - start}
        rows.append(row | (worth_of(tuned.best_config, configs, kernel, grid, arguments) if side == "ours" else {}))
    return rows


def sets_of(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments and copies of them, which together are larger than L2."""
    size = sum(each.nbytes for each in arguments if isinstance(each, torch.Tensor))
    count = min(max(-(-COLD_BYTES // size), LEAST_SETS), MOST_SETS)

    def copy() -> tuple[Any, ...]:
        return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in arguments)

    return [arguments, *(copy() for _ in range(count - 1))]


def launch_of(config: Any, kernel: Any, grid: Any, sets: list[tuple[Any, ...]]) -> Launch:
    """The launch of a config on each set of arguments in turn, after each has run once."""
    options = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    calls = [partial(kernel[grid], *each, **options) for each in sets]
    for call in calls:
        call()
    return Launch(calls[0], others=tuple(calls[1:]))


def worth_of(winner: Any, configs: list[Any], kernel: Any, grid: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The winner's speed over that of the fastest config, and over the default's, from interleaved rounds."""
    sets = sets_of(arguments)
    launches = {str(config): launch_of(config, kernel, grid, sets) for config in configs}
    events = EventTimer(cache="cold")
    longest_ms = max(events.prepare(launch, 1).take(events, 1)[0] for launch in launches.values())
    timer = GraphTimer() if longest_ms < SHORT_MS else events
    block = 1 if longest_ms > LONG_MS else BLOCK
    arms = {label: Arm(timer.prepare(launch), block) for label, launch in launches.items()}
    Rounds(timer=timer).run(list(arms.values()), CHECK_ROUNDS)
    medians = {label: statistics.median(arm.values_ms) for label, arm in arms.items()}
    own, default = arms[str(winner)], arms[str(configs[0])]
    over = None if own is default else Interval.of_gap(default.values_ms, own.values_ms).ratio
    return {
        "winner": str(winner), "share": min(medians.values()) / medians[str(winner)],
        "over_default": [1.0, 1.0] if over is None else [over.low, over.high],
    }  # fmt: skip


def in_a_process(side: str, body: str, length: int) -> list[dict[str, Any]]:
    """The rows of a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        words = ["--side", side, "--bodies", body, "--counts", str(length), "--out", str(out)]
        command = [sys.executable, "-m", "benchmarks.tuning.short_lists", *words]
        folders = {"TRITON_CACHE_DIR": f"{folder}/compiled", "TRITON_OPS_CACHE_DIR": f"{folder}/records"}
        subprocess.run(command, env={**os.environ, **folders}, check=True, timeout=300)
        rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return rows


def bare_s() -> float:
    """The seconds of a process that imports torch and Triton and opens the GPU."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", BARE], check=True, timeout=300)
    return time.monotonic() - start


def case_of(body: str, length: int, turn: int) -> dict[str, Any]:
    """One list by all sides, and a bare process beside them."""
    sides = [SIDES[(turn + each) % len(SIDES)] for each in range(len(SIDES))]
    rows = {side: in_a_process(side, body, length) for side in sides}
    first, later = ({side: pick(each) for side, each in rows.items()} for pick in (_first_s, _later_s))
    return {
        "body": body, "configs": length, "first_s": first, "later_s": later, "bare_s": bare_s(),
        "first_ratio": first["ours"] / first["triton"], "later_ratio": later["ours"] / later["triton"],
        "keys": rows,
    }  # fmt: skip


def _first_s(rows: list[dict[str, Any]]) -> float:
    return float(rows[0]["seconds"])


def _later_s(rows: list[dict[str, Any]]) -> float:
    return statistics.mean(row["seconds"] for row in rows[1:])


def summary_of(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """For each length of list the mean seconds of all sides and their ratios; and what the winners are worth."""
    by_count = {}
    for length in sorted({case["configs"] for case in cases}):
        own = [case for case in cases if case["configs"] == length]
        means = {f"{part}_{side}_s": statistics.mean(case[f"{part}_s"][side] for case in own)
                 for part in ("first", "later") for side in SIDES}  # fmt: skip
        means["bare_s"] = statistics.mean(case["bare_s"] for case in own)
        ratios = {f"{part}_ratio": means[f"{part}_ours_s"] / means[f"{part}_triton_s"] for part in ("first", "later")}
        for side in ("ours", "late"):
            further_s = means[f"first_{side}_s"] - means["first_triton_s"]
            ratios[f"first_over_bare_{side}"] = further_s / means["bare_s"]
        by_count[str(length)] = means | ratios
    keys = [row for case in cases for row in case["keys"]["ours"]]
    return {
        "by_count": by_count, "keys": len(keys),
        "within_1_percent": sum(row["share"] >= 0.99 for row in keys),
        "worse_than_default": sum(row["over_default"][1] < 1 for row in keys),
    }  # fmt: skip


def main() -> int:
    """Measure what is asked for, and write one JSON file; also the part of one process."""
    parser = parser_of(__doc__, Path("short_lists.json"))
    parser.add_argument("--bodies", nargs="*", default=list(BODIES), choices=list(BODIES))
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS[:3], choices=COUNTS)
    parser.add_argument("--limit-s", type=float, default=240.0, help="start nothing more after so many seconds")
    parser.add_argument("--side", choices=SIDES, help="used by the script itself")
    options = parser.parse_args()
    if options.side:
        rows = first_calls(options.side, options.bodies[0], options.counts[0])
        options.out.write_text(json.dumps(rows), encoding="utf-8")
        return 0
    cases: list[dict[str, Any]] = begun(options.out, options.commit).get("cases", [])
    start = time.monotonic()
    for body, length in product(options.bodies, options.counts):
        if any((case["body"], case["configs"]) == (body, length) for case in cases):
            continue
        if time.monotonic() - start > options.limit_s:
            break
        case = case_of(body, length, turn=len(cases))
        cases.append(case)
        print(f"{body} {length}: first {case['first_s']}, later {case['later_s']}, bare {case['bare_s']}", flush=True)
        content = {"summary": summary_of(cases), "cases": cases, "device": probe("cuda").name}
        save(options.out, headed("python -m benchmarks.tuning.short_lists", options.commit, **content))
    print(json.dumps(summary_of(cases), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
