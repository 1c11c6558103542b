"""Tune the shipped kernels exhaustively on the GPU that is there, and set the winners beside the vendor's library.

    python -m benchmarks.shipped.h200_tune --out benchmarks/results/nvidia-h200/tune.json

matmul is compared with cuBLAS (`torch.matmul`), rmsnorm_rope with a device-to-device copy of the same bytes; both in
interleaved rounds with the winner and the default, L2 cold.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.document import headed, save
from benchmarks.tuning.spaces import operation_of
from triton_ops import tune
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.timing import Arm, Launch, Rounds
from triton_ops.timing.gpu_timers import EventTimer

ROUNDS = 40
BLOCK = 10


def beside_the_library(name: str, shape: tuple[int, ...], dtype: str, configs: dict[str, Config]) -> dict:
    """Median ms of each config and of the library, and the configs' share of the library's speed."""
    operation = operation_of(name)
    problem = operation.problem(shape, dtype)
    arguments = operation.materialise(problem, "cuda")
    calls = {"library": library(name, arguments.keyword)}
    for label, config in configs.items():
        calls[label] = operation.kernel.compile(config, arguments).bind(arguments)
    timer = EventTimer()
    for call in calls.values():
        call()
    arms = {label: Arm(timer.prepare(Launch(call)), BLOCK) for label, call in calls.items()}
    Rounds(timer=timer).run(list(arms.values()), ROUNDS)
    blocks = {label: arm.values_ms for label, arm in arms.items()}
    share = {
        label: statistics.median(a / b for a, b in zip(blocks["library"], comparison, strict=True))
        for label, comparison in blocks.items()
    }
    return {
        "rounds": ROUNDS,
        "block": BLOCK,
        "mode": timer.mode,
        "median_ms": {label: statistics.median(comparison) for label, comparison in blocks.items()},
        "share_of_library_speed": share,
        "library": "torch.matmul (cuBLAS)" if name == "matmul" else "copy of the same bytes (read + write)",
    }


def library(name: str, arguments: dict):
    """What to compare with: cuBLAS, or a copy that moves the bytes of x once in and once out."""
    if name == "matmul":
        a, b, out = arguments["a"], arguments["b"], arguments["c"]
        return lambda: torch.matmul(a, b, out=out)
    x = next(value for value in arguments.values() if isinstance(value, torch.Tensor) and value.dim() == 3)
    out = torch.empty_like(x)
    return lambda: out.copy_(x)


def tuned(name: str, shape: tuple[int, ...], dtype: str, cache: str) -> dict:
    """One exhaustive tune, its record's hit, and the comparison with the library."""
    start = time.monotonic()
    result = tune(operation_of(name), shape=shape, dtype=dtype, effort="exhaustive", cache_dir=cache)
    wall_s = time.monotonic() - start
    start = time.monotonic()
    hit = tune(operation_of(name), shape=shape, dtype=dtype, effort="exhaustive", cache_dir=cache)
    hit_s = time.monotonic() - start
    assert hit.from_cache
    assert hit.best_config == result.best_config
    configs = {"winner": Config(result.best_config)}
    if result.default is not None and result.default.ok:
        configs["default"] = result.default.config
    compile_s = sum(trial.compile_s or 0.0 for trial in result.trials)
    return {
        "kernel": name,
        "shape": shape,
        "dtype": dtype,
        "wall_s": round(wall_s, 2),
        "hit_s": round(hit_s, 4),
        "compile_s": round(compile_s, 2),
        "result": result.as_json,
        "beside_the_library": beside_the_library(name, shape, dtype, configs),
    }


def main() -> None:
    """Run both kernels and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/tune.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    problems = [
        ("matmul", (4096, 4096, 4096), "bfloat16"),
        ("rmsnorm_rope", (4, 4096, 4096), "bfloat16"),
    ]
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as compiled:
        os.environ["TRITON_CACHE_DIR"] = compiled  # cold: the wall time is that of a first tune
        runs = [tuned(*problem, cache) for problem in problems]
    spec = probe("cuda")
    document = headed(
        "python -m benchmarks.shipped.h200_tune",
        options.commit,
        device={
            "name": spec.name,
            "arch": spec.arch,
            "units": spec.units,
            "driver": spec.driver,
        },
        runs=runs,
    )
    save(options.out, document)
    for run in runs:
        comparison = run["beside_the_library"]
        print(run["kernel"], run["result"]["best_config"], run["result"]["totals"], f"{run['wall_s']} s")
        print("   ", comparison["median_ms"], comparison["share_of_library_speed"])


if __name__ == "__main__":
    main()
