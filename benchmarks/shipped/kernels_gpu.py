"""The shipped kernels, tuned, beside the vendor's library, eager PyTorch and torch.compile, at their named problems.

    python -m benchmarks.shipped.kernels_gpu --out benchmarks/results/nvidia-h200/kernels.json
    python -m benchmarks.shipped.kernels_gpu --kernels softmax layer_norm --tune-s 15 --limit-s 500
    python -m benchmarks.shipped.kernels_gpu --kernels fp8_gemm --problems 8192 --rivals library

Every kernel is checked by the rule for verdicts before it is timed; comparisons are interleaved, with L2 cold. Rows are
written as soon as they are there, and rows of earlier runs of the same file are kept unless they are measured again or
their kernel has another config now, so that a run may take a part at a time. Records go to `--cache-dir`, of which
`benchmarks.shipped.package_data` makes package data. The results are held against `benchmarks.shipped.kernel_limits` at
the end; the exit code is 1 if a limit is missed.

`share_of_copy` is the kernel's least traffic by second over that of a copy much larger than L2, measured first. `gains`
has the default config's time over the winner's, with its interval; 1 where the default is the winner; nothing where
the two differ and were not compared.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import triton_ops_kernels as kernels
from benchmarks.document import commit_here, headed, parser_of, save
from benchmarks.shipped import kernel_limits
from triton_ops import time_ms
from triton_ops.benchmark import RivalRow, RivalRun
from triton_ops.device import probe
from triton_ops_kernels.rivals import rivals_of

COPY_BYTES = 2**31  # read and written together: forty times the L2 of an H200
BY_BANDWIDTH = ("softmax", "layer_norm", "rmsnorm_rope", "fp8_quantize", "fp8_dequantize", "gated_mlp_backward")


def copy_gbps() -> float:
    """10^9 bytes per second that a large copy reads and writes."""
    x = torch.empty(COPY_BYTES // 4, dtype=torch.int16, device="cuda").random_(0, 100)
    y = torch.empty_like(x)
    times = time_ms(lambda x, y: y.copy_(x), args=(x, y), rep_ms=200.0)
    return COPY_BYTES / (times.median_ms * 1e6)


def options_of() -> argparse.Namespace:
    """What the command line asks for."""
    parser = parser_of(__doc__)
    parser.add_argument("--kernels", nargs="*", default=[], choices=kernels.names(), metavar="NAME")
    parser.add_argument("--problems", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--rivals", nargs="*", default=[], choices=["library", "eager", "compile", "default"])
    parser.add_argument("--tune-s", type=float, default=20.0, help="seconds for each tune; 0: what a call would run")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, help="start nothing more after so many seconds")
    parser.add_argument("--cache-dir", help="folder of records; default the usual one")
    return parser.parse_args()


def place_of(device: str) -> Path:
    """Where results of a device are kept."""
    return Path("benchmarks/results") / device.lower().replace(" ", "-") / "kernels.json"


Rows = dict[tuple[str, str, str], dict]


def kept_rows(path: Path) -> Rows:
    """The rows of earlier runs by kernel, problem and rival."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return {(row["kernel"], row["problem"], row["rival"]): row for row in rows}


def merged(rows: Rows, row: dict) -> Rows:
    """The rows with a new one, and without those of the same problem that another config made."""
    others = {
        place: old
        for place, old in rows.items()
        if place[:2] != (row["kernel"], row["problem"]) or (old["config"] == row["config"] and place[2] != "reference")
    }
    return {**others, (row["kernel"], row["problem"], row["rival"]): row}


def _found(rows: Rows) -> dict[str, Any]:
    everything = list(rows.values())
    return {"speedups": speedups(everything), "gains": gains(everything), "rows": everything}


def gains(rows: Iterable[dict]) -> dict[str, dict[str, dict]]:
    """For each kernel and problem, how much faster the winner is than the default, with the interval."""
    by_kernel: dict[str, dict[str, dict]] = {}
    for row in rows:
        by_problem = by_kernel.setdefault(row["kernel"], {})
        if row["rival"] == "default" and row["speedup"] is not None:
            by_problem[row["problem"]] = {
                "gain": row["speedup"],
                "interval": row["interval"],
                "verdict": row["verdict"],
            }
        elif row["is_default"] and row["rival"] != "reference" and row["origin"] != "default config":
            by_problem.setdefault(
                row["problem"], {"gain": 1.0, "interval": None, "verdict": "the default is the winner"}
            )
    return {kernel: problems for kernel, problems in by_kernel.items() if problems}


def row_of(row: RivalRow, copied_gbps: float, commit: str) -> dict:
    """A row with its commit, and with its share of the copy's bandwidth, where bandwidth is its limit."""
    memory = row.kernel in BY_BANDWIDTH or row.kernel.endswith("_backward")
    share = row.gbps / copied_gbps if memory and row.kernel_ms else None
    return {**asdict(row), "share_of_copy": share, "commit": commit}


def speedups(rows: list[dict]) -> dict[str, dict]:
    """For each kernel and rival the geometric mean, the least, and the number of problems."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["speedup"] is not None:
            ratios.setdefault((row["kernel"], row["rival"]), []).append(row["speedup"])
    return {
        f"{kernel} / {rival}": {
            "geometric_mean": math.exp(sum(map(math.log, values)) / len(values)),
            "least": min(values),
            "problems": len(values),
        }
        for (kernel, rival), values in sorted(ratios.items())
    }


def main() -> int:
    """Run what is asked for, and write one JSON file; the exit code is 1 if a limit is missed."""
    options = options_of()
    spec = probe("cuda")
    out = options.out or place_of(spec.name)
    run = RivalRun(
        rivals_of=rivals_of, problems=tuple(options.problems), rivals=tuple(options.rivals),
        tune_s=options.tune_s, seconds=options.seconds, cache_dir=options.cache_dir,
    )  # fmt: skip
    rows, copied_gbps, start = kept_rows(out), copy_gbps(), time.monotonic()
    device = {"name": spec.name, "arch": spec.arch, "units": spec.units, "driver": spec.driver}
    print(f"copy: {copied_gbps:.0f} GB/s")
    measured = set()
    for row in run.rows(map(kernels.load, options.kernels or kernels.names())):
        rows = merged(rows, row_of(row, copied_gbps, options.commit or commit_here()))
        measured.add(row.kernel)
        speed = "" if row.speedup is None else f"{row.speedup:.3f} x, {row.kernel_ms:.4f} ms"
        line = f"{row.kernel} {row.problem} / {row.rival}: {speed} {row.verdict}"
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)
        head = {"device": device, "copy_gbps": copied_gbps, "tune_s": options.tune_s, "seconds": options.seconds}
        save(out, headed("python -m benchmarks.shipped.kernels_gpu", options.commit, **head, **_found(rows)))
        if options.limit_s is not None and time.monotonic() - start >= options.limit_s:
            break
    limits = [each for each in kernel_limits.outcomes({"rows": list(rows.values())}) if each.limit.kernel in measured]
    print("\n".join(kernel_limits.tell(limits)))
    return int(kernel_limits.exit_code(limits) == 1)


if __name__ == "__main__":
    sys.exit(main())
