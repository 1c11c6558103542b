"""Compile modes on a GPU: the well-known MLP in float32 and bfloat16, a Llama-like block, and a trap of warm-up calls.

    python -m benchmarks.torch_compile.compile_modes_gpu --limit-s 540 --out FILE

Two GPUs do different models at the same time, and a third call makes one file of both:

    CUDA_VISIBLE_DEVICES=0 python -m benchmarks.torch_compile.compile_modes_gpu --models mlp-fp32 --out one.json &
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.torch_compile.compile_modes_gpu --models mlp-bf16 --out two.json; wait
    python -m benchmarks.torch_compile.compile_modes_gpu --merge one.json two.json --out FILE

For each model: the modes with what is paid once and what is paid at each call, the recommended one, whether it is
within 1 % of the fastest and was faster than eager again in fresh processes, and the culprit. Where time is left, a
further comparison of eager and the recommended mode alone (`again`), and the trap: `max-autotune` timed as many do, by
a mean of 50 calls after one warm-up call, and after three; with CUDA graphs the second call records.

The file is written as each mode is done. `--limit-s` is for all of it: modes that do not fit are deferred. What fails
is told in its place, and the rest goes on. The exit code is 1 if a recommendation does not hold, or something failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from triton_ops import tune_compile
from triton_ops.device import probe
from triton_ops_torch import CompileReport
from triton_ops_torch.backends import gate_of
from triton_ops_torch.shipped_models import llama_block, simple_mlp

MODELS: dict[str, Callable[..., Any]] = {
    "mlp-fp32": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="float32"),
    "mlp-bf16": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="bfloat16"),
    "llama-block": partial(llama_block, 1, 512, (4096, 32, 8, 14336), dtype="bfloat16"),
}
TRAPS = ("max-autotune", "max-autotune-no-cudagraphs", "default")
WARM_UPS = (1, 3)
CALLS = 50
NEAR = 1.01  # times the fastest
_CONFIRMING_S = 50.0  # two processes start, load what was compiled, and are compared
_ONE_MODE_S = 45.0  # a comparison of one mode, or the first trap


def measured(
    name: str, settings: argparse.Namespace, until_s: float, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """One model: its modes, and whether the recommended one holds; progress is kept line by line."""
    start, lines = time.monotonic(), list[str]()

    def follow(line: str) -> None:
        say(line)
        lines.append(f"{time.monotonic() - start:.1f} s: {line}")
        keep({"progress": lines, "error": "it did not end"})

    factory, left_s = partial(MODELS[name], device=settings.on), until_s - start
    report = tune_compile(
        factory, modes=settings.modes, why=settings.why, seconds=settings.seconds, resume=False, follow=follow,
        budget_s=max(left_s - _CONFIRMING_S, 1.0), compile_s=max(left_s / 2, 1.0),
    )  # fmt: skip
    content = {
        "took_s": time.monotonic() - start, "near_best": near_best(report), "held": held(report), "again": None,
        **report.as_json(details=True), "progress": lines,
    }  # fmt: skip
    for row in content["details"]["modes"].values():
        row["tables"] = len(row.get("tables", ()))  # each has dozens of lines
    keep(content)
    left_s = until_s - time.monotonic()
    if not report.chosen.eager and left_s > _CONFIRMING_S + _ONE_MODE_S:
        again = tune_compile(
            factory, modes=[report.chosen], seconds=settings.seconds, resume=False, follow=follow,
            budget_s=left_s - _CONFIRMING_S,
        )  # fmt: skip
        times = {row.name: [row.steady_ms, row.p20_ms, row.p80_ms, row.relative] for row in again.modes}
        content["again"] = {"recommended": again.recommended, "confirmed": again.confirmed, "times": times}
        content["held"] = content["held"] and again.recommended == report.recommended
    return content


def near_best(report: CompileReport) -> bool:
    """Whether the recommended mode takes at most 1 % longer than the fastest."""
    times = {row.name: row.relative for row in report.modes if row.ok and row.relative is not None}
    return times[report.recommended] <= NEAR * min(times.values())


def held(report: CompileReport) -> bool:
    """Whether the recommendation is no slower than eager: it is eager, or was faster in fresh processes."""
    return report.chosen.eager or bool(report.confirmed)


def trap(mode: str, warmups: int, on: str) -> float:
    """Mean milliseconds of 50 calls of a mode after some warm-up calls, as the trap goes."""
    torch.compiler.reset()
    model, (x,) = MODELS["mlp-fp32"](device=on)
    compiled = torch.compile(model, mode=mode)
    with torch.no_grad():
        for _ in range(warmups):
            compiled(x)
        _wait(on)
        start = time.perf_counter()
        for _ in range(CALLS):
            compiled(x)
        _wait(on)
    return 1e3 * (time.perf_counter() - start) / CALLS


def _wait(on: str) -> None:
    if on.startswith("cuda"):
        torch.cuda.synchronize()


def traps(on: str, limit_s: float) -> dict[str, Any]:
    """The trap in a process of its own, which has so many seconds; what it has printed by then counts."""
    words = [sys.executable, "-m", "benchmarks.torch_compile.compile_modes_gpu", "--trap", "--on", on]
    try:
        process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=limit_s)
        printed, failure = process.stdout, f"its process ended with {process.returncode}: {process.stderr[-500:]}"
        failure = "" if process.returncode == 0 else failure
    except subprocess.TimeoutExpired as error:
        printed, failure = (error.stdout or b"").decode(), f"its limit of {limit_s:.0f} s ended it"
    times: dict[str, Any] = {}
    for line in printed.splitlines():
        if line.startswith('{"mode"'):
            one = json.loads(line)
            times.setdefault(one["mode"], {})[f"after {one['warm_ups']} warm-up calls"] = one["ms"]
    return {**times, **({"error": failure} if failure else {})}


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def told(row: dict[str, Any]) -> dict[str, Any]:
    """What is printed of a model."""
    if "modes" not in row:
        return {"error": row["error"]}
    rows = {m["name"]: [m["status"], m["steady_ms"], m["first_call_s"], m["recordings"]] for m in row["modes"]}
    names = ("recommended", "near_best", "held", "again", "culprit", "took_s")
    return {**{key: row[key] for key in names}, "modes": rows, "notes": row["details"]["notes"]}


def run(settings: argparse.Namespace) -> dict[str, Any]:
    """Measure the models and the trap, and write what was found as it comes."""
    until_s = time.monotonic() + settings.limit_s
    document: dict[str, Any] = {
        "device": probe(settings.on).name,
        "gate": gate_of(probe(settings.on)).reason,
        "models": {},
    }

    def keep(name: str, row: dict[str, Any]) -> None:
        document["models"][name] = row
        write(settings, document)

    for number, name in enumerate(settings.models):
        left_s = (until_s - time.monotonic()) / (len(settings.models) - number)
        if left_s < _CONFIRMING_S + _ONE_MODE_S:
            keep(name, {"error": f"not begun: {left_s:.0f} s were left"})
            continue
        try:
            row = measured(name, settings, time.monotonic() + left_s, partial(keep, name))
        except Exception as error:  # noqa: BLE001 - it is the row of this model, and the others go on
            row = {**document["models"].get(name, {}), "error": f"{type(error).__name__}: {error}"}
        keep(name, row)
        print(json.dumps({name: told(row)}), flush=True)
    if (left_s := until_s - time.monotonic()) > _ONE_MODE_S and "mlp-fp32" in settings.models:
        document["trap_ms"] = traps(settings.on, left_s)
        write(settings, document)
        print(json.dumps({"trap_ms": document["trap_ms"]}), flush=True)
    return document


def merged(paths: list[Path]) -> dict[str, Any]:
    """What several runs have found, as one."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    document: dict[str, Any] = {"device": documents[0]["device"], "gate": documents[0]["gate"], "models": {}}
    for one in documents:
        models = document["models"]
        models.update({name: row for name, row in one["models"].items() if "error" not in row or name not in models})
        document.update({"trap_ms": one["trap_ms"]} if "trap_ms" in one else {})
    return document


def write(settings: argparse.Namespace, document: dict[str, Any]) -> None:
    """Write what was found so far."""
    if settings.out is not None:
        save(settings.out, headed("python -m benchmarks.torch_compile.compile_modes_gpu", settings.commit, **document))


def options() -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--modes", nargs="*", help="ways to compile; default: the four modes")
    parser.add_argument("--why", action="store_true", help="vary the slowest modes in one option at a time")
    parser.add_argument("--limit-s", type=float, default=540.0, help="of the whole run")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each last comparison")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="make one file of these, and measure nothing")
    parser.add_argument("--trap", action="store_true", help="only print the times of the trap")
    parser.add_argument("--on", default="cuda", help="torch's name of the device")
    return parser.parse_args()


def main() -> int:
    """Measure and write, or do a part of it."""
    settings = options()
    if settings.trap:
        for mode in TRAPS:
            for count in WARM_UPS:
                print(json.dumps({"mode": mode, "warm_ups": count, "ms": trap(mode, count, settings.on)}), flush=True)
        return 0
    document = merged(settings.merge) if settings.merge else run(settings)
    write(settings, document)
    return 0 if all(row.get("held") and row.get("near_best") for row in document["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
