"""The shipped kernels, tuned, beside the vendor's library, eager PyTorch and torch.compile, at their named problems.

    python -m benchmarks.kernels_gpu --out benchmarks/results/nvidia-h200/kernels.json
    python -m benchmarks.kernels_gpu --kernels softmax layer_norm --tune-s 15 --limit-s 500
    python -m benchmarks.kernels_gpu --kernels fp8_gemm --problems 8192 --rivals library

Every kernel is checked by the rule for verdicts before it is timed; comparisons are interleaved, with L2 cold. Rows are
written as soon as they are there, and rows of earlier runs of the same file are kept unless they are measured again, so
that a run may take a part at a time. Records go to `--cache-dir`; `triton-ops lock` makes package data of them.

`share_of_copy` is the kernel's least traffic by second over that of a copy much larger than L2, measured first.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch

from benchmarks.document import headed, save
from triton_ops import kernels, time_ms
from triton_ops.benchmark.kernels import KernelRow, KernelRun, rows_of
from triton_ops.hardware import probe

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="*", default=[], choices=kernels.names(), metavar="NAME")
    parser.add_argument("--problems", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--rivals", nargs="*", default=[], choices=["library", "eager", "compile", "default"])
    parser.add_argument("--tune-s", type=float, default=20.0, help="seconds for each tune; 0: records and defaults")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, help="start nothing more after so many seconds")
    parser.add_argument("--cache-dir", help="folder of records; default the usual one")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    return parser.parse_args()


def place_of(device: str) -> Path:
    """Where results of a device are kept."""
    return Path("benchmarks/results") / device.lower().replace(" ", "-") / "kernels.json"


def kept_rows(path: Path) -> dict[tuple[str, str, str], dict]:
    """The rows of earlier runs by kernel, problem and rival."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return {(row["kernel"], row["problem"], row["rival"]): row for row in rows}


def row_of(row: KernelRow, copied_gbps: float) -> dict:
    """A row with its share of the copy's bandwidth, where bandwidth is its limit."""
    memory = row.kernel in BY_BANDWIDTH or row.kernel.endswith("_backward")
    share = row.gbps / copied_gbps if memory and row.kernel_ms else None
    return {**row.document, "share_of_copy": share}


def speedups(rows: list[dict]) -> dict[str, dict]:
    """For each kernel and rival the geometric mean, the least, and the number of problems."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["speedup"] is not None:
            found.setdefault((row["kernel"], row["rival"]), []).append(row["speedup"])
    return {
        f"{kernel} / {rival}": {
            "geometric_mean": math.exp(sum(map(math.log, values)) / len(values)),
            "least": min(values),
            "problems": len(values),
        }
        for (kernel, rival), values in sorted(found.items())
    }


def main() -> None:
    """Run what is asked for, and write one JSON file."""
    options = options_of()
    spec = probe("cuda")
    out = options.out or place_of(spec.name)
    run = KernelRun(
        kernels=tuple(options.kernels), problems=tuple(options.problems), rivals=tuple(options.rivals),
        tune_s=options.tune_s, seconds=options.seconds, limit_s=options.limit_s, cache_dir=options.cache_dir,
    )  # fmt: skip
    rows, copied_gbps, start = kept_rows(out), copy_gbps(), time.monotonic()
    print(f"copy: {copied_gbps:.0f} GB/s")
    for row in rows_of(run):
        rows[(row.kernel, row.problem, row.rival)] = row_of(row, copied_gbps)
        speed = "" if row.speedup is None else f"{row.speedup:.3f} x, {row.kernel_ms:.4f} ms"
        said = f"{row.kernel} {row.problem} / {row.rival}: {speed} {row.verdict}"
        print(f"{time.monotonic() - start:6.0f} s  {said}", flush=True)
        document = headed(
            "python -m benchmarks.kernels_gpu",
            options.commit,
            device={"name": spec.name, "arch": spec.arch, "units": spec.units, "driver": spec.driver},
            copy_gbps=copied_gbps,
            tune_s=options.tune_s,
            seconds=options.seconds,
            speedups=speedups(list(rows.values())),
            rows=list(rows.values()),
        )
        save(out, document)


if __name__ == "__main__":
    main()
