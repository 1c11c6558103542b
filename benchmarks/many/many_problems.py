"""30 problems of the shipped kernels as one run, on one GPU and on several, in turn.

    python -m benchmarks.many.many_problems --gpus 2 --out benchmarks/results/nvidia-h200/many_gpus.json

Each run begins with empty caches, of Triton too, and nothing is known of its problems; the clock begins when torch and
Triton are imported and this process has a context on the GPU. With `--cpus-per-gpu` each run has so many CPUs for each
of its GPUs. The file is written after each run.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton  # noqa: F401 - imported before the clock begins

import triton_ops_kernels as kernels
from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.spaces import operation_of
from triton_ops import Operation, TuneProblem, TuningResult, release_processes
from triton_ops.device import probe
from triton_ops.many import JobPlace, ManyResult, ProblemOutcome, RunOptions, run_jobs, session
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.request import TuneOptions
from triton_ops.space import Config

NAMED = {
    "attention": ("llama-8b-prefill", "llama-8b-decode", "qwen-0.5b-prefill", "whisper-large"),
    "attention_backward": ("qwen-0.5b-training",),
    "fp8_dequantize": ("deepseek-v3-weight", "llama-8b-by-token"),
    "fp8_quantize": ("deepseek-v3-prefill", "llama-8b-by-token"),
    "gated_mlp_backward": ("llama-8b-prefill", "qwen-7b-prefill"),
    "grouped_matmul": ("mixtral-8x7b-up-decode", "qwen3-30b-up-decode"),
    "layer_norm": ("falcon-40b-prefill", "gpt-2-training", "deepseek-indexer"),
    "layer_norm_backward": ("falcon-40b-prefill", "gpt-2-training"),
    "rmsnorm_rope": ("llama-8b-prefill", "llama-8b-decode", "qwen-7b-prefill"),
    "rmsnorm_rope_backward": ("llama-8b-prefill", "qwen-7b-prefill"),
    "softmax": ("attention-4096", "qwen-logits-prefill", "deepseek-router"),
    "softmax_backward": ("attention-4096", "deepseek-router"),
}
PLAIN = ("4096", "llama-8b-prefill")


@functools.cache
def problems() -> dict[str, TuneProblem]:
    """The 30 problems by `kernel name`."""
    named = {
        f"{kernel} {name}": _named(kernels.load(kernel), kernels.load(kernel), name)
        for kernel, names in NAMED.items() for name in names
    }  # fmt: skip
    shipped = kernels.load("matmul")
    return {**named, **{f"matmul {name}": _named(shipped, operation_of("matmul"), name) for name in PLAIN}}


def _named(shipped: Operation, target: Operation, name: str) -> TuneProblem:
    shape, dtype = shipped.problems[name]
    return TuneProblem(target=target, shape=shape, dtype=dtype)


def unguided(tune: Callable[[JobPlace], TuningResult], place: JobPlace) -> TuningResult:
    """A tune that no lockfile of a package guides, whichever process measures it."""
    FollowedLockfile.SHARED.clear()
    return tune(place)


def over(devices: tuple[str, ...], folder: str) -> ManyResult:
    """A run on some GPUs, with its records in a folder."""
    common = RunOptions(each=TuneOptions(cache_dir=f"{folder}/records"), devices=devices)
    alone = importlib.import_module("benchmarks.many.many_problems").unguided  # other processes know it by this name
    jobs = [
        replace(job, tune=functools.partial(alone, job.tune)) for job in session.jobs_of(problems().values(), common)
    ]
    return run_jobs(jobs, common, told=lambda _: None)


def row_of(outcome: ProblemOutcome) -> dict[str, Any]:
    """What became of a problem."""
    row = {"status": outcome.status, "began_s": outcome.began_s, "ended_s": outcome.ended_s, "device": outcome.device}
    if outcome.error is not None:
        return {**row, "error": str(outcome.error)}
    if (result := outcome.result) is None:
        return row
    return {
        **row, "best_config": dict(Config(result.best_config)), "median_ms": result.metrics.latency_ms,
        "gain": result.gain, "trials": len(result.trials), "totals": result.totals, "tune_s": result.elapsed_s,
        "waited_s": result.waited_s, "stopped": result.stopped, "place": result.place,
    }  # fmt: skip


def run_on(count: int, cpus: list[int]) -> dict[str, Any]:
    """The figures of one run."""
    os.sched_setaffinity(0, cpus)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/compiled"
        result = over(tuple(f"cuda:{at}" for at in range(count)), folder)
        wall_s = time.monotonic() - start
    release_processes()
    labels = {id(problem): label for label, problem in problems().items()}
    return {
        "wall_s": wall_s, "cpus": len(cpus), "totals": result.totals, "stopped": result.stopped,
        "problems": {labels[id(each.problem)]: row_of(each) for each in result.outcomes},
    }  # fmt: skip


def main() -> None:
    """Both runs, and how many times as fast the second is."""
    parser = parser_of(__doc__, Path("many_gpus.json"))
    parser.add_argument("--gpus", type=int, default=2, help="of the second run")
    parser.add_argument("--cpus-per-gpu", type=int)
    options = parser.parse_args()
    if (found := torch.cuda.device_count()) < options.gpus:
        parser.error(f"there are {found} GPUs, and {options.gpus} were asked for")
    cpus, rows, facts = sorted(os.sched_getaffinity(0)), dict[str, Any](), dict[str, Any]()
    for used in (1, options.gpus):
        row = rows[f"{used} GPUs"] = run_on(used, cpus[: used * (options.cpus_per_gpu or len(cpus))])
        print(used, json.dumps({name: row[name] for name in ("wall_s", "cpus", "totals", "stopped")}), flush=True)
        if len(rows) == 2 and all(each["totals"] == {"tuned": len(problems())} for each in rows.values()):
            facts["speedup"] = rows["1 GPUs"]["wall_s"] / row["wall_s"]
        save(options.out, headed(
            "python -m benchmarks.many.many_problems", options.commit, device=probe("cuda").name, cpus=len(cpus),
            problems=list(problems()), gpus={**facts, "rows": rows},
        ))  # fmt: skip


if __name__ == "__main__":
    main()
