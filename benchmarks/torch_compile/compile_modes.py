"""Compile modes end to end on this machine: a real MLP, transformer blocks, and what lies between their products.

    python -m benchmarks.torch_compile.compile_modes --out benchmarks/results/cpu/compile_modes.json
    python -m benchmarks.torch_compile.compile_modes --models simple-mlp --limit-s 300

Each model is compiled by Inductor's C++ backend in every mode, and with frozen weights, by `tune_compile`. The
recommendation is then measured once more, by a further comparison of eager and the recommended mode alone, in processes
of their own. The file is written after each model; models that are in it and not asked for stay, each with the load of
its time in `notes`. The exit code is 1 if a model took longer than its limit, or if a
recommendation did not hold: a compiled mode that is not faster than eager again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops import tune_compile
from triton_ops_torch.compile_mode import MODES
from triton_ops_torch.shipped_models import llama_block, norm_chain, simple_mlp

MODELS = {
    "simple-mlp": partial(simple_mlp, 256, (1024, 1024, 1024), device="cpu"),
    "small-transformer": partial(llama_block, 1, 128, (512, 8, 2, 1408), dtype="float32", device="cpu"),
    "one-token": partial(llama_block, 1, 1, (256, 8, 4, 704), dtype="float32", device="cpu"),
    "norm-chain": partial(norm_chain, 512, 1024, device="cpu"),
}
WAYS = (*MODES, "freezing", "gemm-cpp")


def measured(name: str, limit_s: float, seconds: float) -> dict[str, Any]:
    """One model: its modes, what is recommended, and whether a comparison of its own confirms that."""
    start = time.monotonic()
    report = tune_compile(MODELS[name], modes=WAYS, seconds=seconds, budget_s=limit_s, resume=False, follow=say)
    took_s = time.monotonic() - start
    again = None
    if not report.chosen.eager:
        again = tune_compile(MODELS[name], modes=[report.chosen], seconds=seconds, resume=False, follow=say)
    agreement = again is None or again.recommended == report.recommended
    content = {"took_s": took_s, "within": took_s <= limit_s, "held": agreement, **report.as_json(details=True)}
    for row in content["details"]["modes"].values():
        row.pop("tables", None)  # thousands of lines
    if again is not None:
        content["again"] = {"recommended": again.recommended, "confirmed": again.confirmed}
    return content


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Measure the models, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds that one model may take")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each last comparison")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    models: dict[str, dict[str, Any]] = {}
    if options.out is not None and options.out.exists():
        models = json.loads(options.out.read_text(encoding="utf-8"))["models"]
    for name in options.models:
        models[name] = measured(name, options.limit_s, options.seconds)
        if options.out is not None:
            save(options.out, headed("python -m benchmarks.torch_compile.compile_modes", None, models=models))
    print(
        json.dumps({name: {k: models[name][k] for k in ("took_s", "recommended", "held")} for name in options.models})
    )
    return 0 if all(row["within"] and row["held"] for row in models.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
