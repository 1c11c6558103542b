"""Compile modes on a GPU: the well-known MLP in float32 and bfloat16, a Llama-like block, and a trap of warm-up calls.

    python -m benchmarks.compile_modes_gpu --limit-s 540 --out benchmarks/results/nvidia-h200/compile_modes.json
    python -m benchmarks.compile_modes_gpu --models mlp-fp32 mlp-bf16 --seconds 5

For each model: the modes with what is paid once and what is paid at each call, the recommended one, whether it
is within 1 % of the fastest and not slower than eager in a further comparison, and the culprit. `trap` times
`max-autotune` as many do, by a mean of 50 calls after one warm-up call, and after three: with CUDA graphs the second
call records. The exit code is 1 if a recommendation does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from triton_ops import tune_compile
from triton_ops.compile_modes.report import CompileReport
from triton_ops.compile_modes.scenarios import llama_block, simple_mlp
from triton_ops.hardware import probe
from triton_ops.inductor.gate import gate_here

MODELS = {
    "mlp-fp32": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="float32", device="cuda"),
    "mlp-bf16": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="bfloat16", device="cuda"),
    "llama-block": partial(llama_block, 1, 512, (4096, 32, 8, 14336), dtype="bfloat16", device="cuda"),
}
CALLS = 50
NEAR = 1.01  # times the fastest


def measured(name: str, left_s: float, seconds: float) -> dict[str, Any]:
    """One model: its modes, and whether the recommended one holds in a further comparison."""
    begun = time.monotonic()
    report = tune_compile(MODELS[name], why=True, seconds=seconds, budget_s=left_s, resume=False, follow=say)
    again = None
    if not report.chosen.eager:
        again = tune_compile(MODELS[name], modes=[report.chosen], seconds=seconds, resume=False, warm=True, follow=say)
    found = report.as_json(details=True)
    for row in found["details"]["modes"].values():
        row.pop("tables", None)
    return {
        "took_s": time.monotonic() - begun,
        "near_best": near_best(report),
        "held": again is None or again.recommended == report.recommended,
        "again": None if again is None else again.confirmed,
        **found,
    }


def near_best(report: CompileReport) -> bool:
    """Whether the recommended mode takes at most 1 % longer than the fastest."""
    times = {row.name: row.relative for row in report.modes if row.ok and row.relative is not None}
    return times[report.recommended] <= NEAR * min(times.values())


def trap(mode: str, warmups: int) -> float:
    """Mean milliseconds of 50 calls of a mode after some warm-up calls, between two events, as the trap goes."""
    torch.compiler.reset()
    model, (x,) = MODELS["mlp-fp32"]()
    compiled = torch.compile(model, mode=mode)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.no_grad():
        for _ in range(warmups):
            compiled(x)
        torch.cuda.synchronize()
        start.record()
        for _ in range(CALLS):
            compiled(x)
        end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / CALLS


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Measure the trap and the models, and write what was found after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--limit-s", type=float, default=540.0, help="start nothing more after so many seconds")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each last comparison")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    asked = parser.parse_args()
    begun = time.monotonic()
    modes = ("default", "max-autotune-no-cudagraphs", "max-autotune")
    traps = {mode: {f"after {count} warm-up calls": trap(mode, count) for count in (1, 3)} for mode in modes}
    found: dict[str, Any] = {"gate": gate_here("cuda:0").reason, "trap_ms": traps, "models": {}}
    print(json.dumps(traps), flush=True)
    for name in asked.models:
        left_s = asked.limit_s - (time.monotonic() - begun)
        if left_s < 60:
            say(f"{name} was not begun: {left_s:.0f} s are left")
            continue
        found["models"][name] = row = measured(name, 0.6 * left_s, asked.seconds)
        content = headed("python -m benchmarks.compile_modes_gpu", asked.commit, device=probe("cuda").name, **found)
        if asked.out is not None:
            save(asked.out, content)
        rows = {m["name"]: [m["status"], m["steady_ms"], m["first_call_s"], m["recordings"]] for m in row["modes"]}
        shown = {key: row[key] for key in ("recommended", "near_best", "held", "again", "culprit", "took_s")}
        print(json.dumps({name: {**shown, "modes": rows, "notes": row["details"]["notes"]}}), flush=True)
    return 0 if all(row["held"] and row["near_best"] for row in found["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
