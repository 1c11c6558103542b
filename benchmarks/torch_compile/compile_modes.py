"""Compile modes of real models on this machine: MLPs, transformer blocks, and what lies between their products.

    python -m benchmarks.torch_compile.compile_modes --out benchmarks/results/cpu/compile_modes.json
    python -m benchmarks.torch_compile.compile_modes --on cuda --limit-s 180 --out FILE

Each model is compiled in every mode by `tune_compile`, on a CPU with frozen weights too. The recommendation is then
measured once more, by a further comparison of eager and the recommended mode alone, in processes of their own. On a GPU
follows a trap of warm-up calls: modes timed as many do, by a mean of 50 calls after one warm-up call, and after three;
with CUDA graphs the second call records. The file is written after each model; models that are in it and not asked for
stay. The exit code is 1 if a recommendation does not hold: it is not faster than eager again, or on a GPU over 1 %
slower than the fastest mode.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from triton_ops import tune_compile
from triton_ops.device import probe
from triton_ops_torch import CompileReport
from triton_ops_torch.backends import gate_of
from triton_ops_torch.compile_mode import MODES
from triton_ops_torch.shipped_models import llama_block, norm_chain, simple_mlp

MODELS: dict[str, dict[str, Callable[..., Any]]] = {
    "cpu": {
        "simple-mlp": partial(simple_mlp, 256, (1024, 1024, 1024)),
        "small-transformer": partial(llama_block, 1, 128, (512, 8, 2, 1408), dtype="float32"),
        "one-token": partial(llama_block, 1, 1, (256, 8, 4, 704), dtype="float32"),
        "norm-chain": partial(norm_chain, 512, 1024),
    },
    "cuda": {
        "mlp-fp32": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="float32"),
        "mlp-bf16": partial(simple_mlp, 256, (1024, 1024, 1024), dtype="bfloat16"),
        "llama-block": partial(llama_block, 1, 512, (4096, 32, 8, 14336), dtype="bfloat16"),
    },
}
WAYS = {"cpu": (*MODES, "freezing", "gemm-cpp"), "cuda": MODES}
TRAPS = ("max-autotune", "max-autotune-no-cudagraphs", "default")
WARM_UPS = (1, 3)
CALLS = 50
NEAR = 1.01  # times the fastest


def measured(model: Callable[..., Any], ways: tuple[str, ...], limit_s: float, seconds: float) -> dict[str, Any]:
    """One model: its modes, what is recommended, and whether a comparison of its own confirms that."""
    start = time.monotonic()
    compared = partial(tune_compile, model, seconds=seconds, resume=False, follow=partial(print, file=sys.stderr))
    report = compared(modes=ways, budget_s=limit_s)
    took_s, again = time.monotonic() - start, None
    if not report.chosen.eager:
        again = compared(modes=[report.chosen])
    holds = report.chosen.eager or (bool(report.confirmed) and again.recommended == report.recommended)
    content = {"took_s": took_s, "near_best": near_best(report), "held": holds, **report.as_json(details=True)}
    for row in content["details"]["modes"].values():
        row.pop("tables", None)  # thousands of lines
    if again is not None:
        content["again"] = {"recommended": again.recommended, "confirmed": again.confirmed}
    return content


def near_best(report: CompileReport) -> bool:
    """Whether the recommended mode takes at most 1 % longer than the fastest."""
    times = {row.name: row.relative for row in report.modes if row.ok and row.relative is not None}
    return times[report.recommended] <= NEAR * min(times.values())


def trap(mode: str, warmups: int) -> float:
    """Mean milliseconds of 50 calls of a mode after some warm-up calls, as the trap goes."""
    torch.compiler.reset()
    model, (x,) = MODELS["cuda"]["mlp-fp32"](device="cuda")
    compiled = torch.compile(model, mode=mode)
    with torch.no_grad():
        for _ in range(warmups):
            compiled(x)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            compiled(x)
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / CALLS


def main() -> int:
    """Measure the models, and write what was found."""
    parser = parser_of(__doc__)
    parser.add_argument("--on", choices=MODELS, default="cpu")
    parser.add_argument("--models", nargs="*", help="default: all of the device")
    parser.add_argument("--limit-s", type=float, default=600.0, help="of a model; modes that do not fit are deferred")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each last comparison")
    options = parser.parse_args()
    device, document = probe(options.on), {"models": {}}
    if options.out is not None and options.out.exists():
        document = json.loads(options.out.read_text(encoding="utf-8"))
    command = "python -m benchmarks.torch_compile.compile_modes" + (" --on cuda" if options.on == "cuda" else "")

    def keep(**more: Any) -> None:
        document.update(more)
        if options.out is not None:
            save(options.out, {**document, **headed(command, options.commit)})

    models, names = document["models"], options.models or list(MODELS[options.on])
    for name in names:
        model = partial(MODELS[options.on][name], device=options.on)
        models[name] = measured(model, WAYS[options.on], options.limit_s, options.seconds)
        keep(device=device.name, models=models)
        print(json.dumps({name: {key: models[name][key] for key in ("took_s", "recommended", "near_best", "held")}}))
    if options.on == "cuda":
        times = {mode: {f"after {n} warm-up calls": trap(mode, n) for n in WARM_UPS} for mode in TRAPS}
        keep(gate=gate_of(device).reason, trap_ms=times)
        print(json.dumps(times))
    return 0 if all(row["held"] and (row["near_best"] or options.on == "cpu") for row in models.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
