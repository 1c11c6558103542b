"""Live tunes from cold caches: how long until a winner is decided, and how good it is; `triton.autotune` beside them.

    python -m benchmarks.tuning.live_tune --out benchmarks/results/nvidia-h200/live_tune.json
    python -m benchmarks.tuning.live_tune --cases "plain gated MLP" --autotune-s 30 --out /tmp/live_plain.json

The problems are of shipped kernels with declared work, and of kernels on plain tensors that declare none. For each: one
exhaustive tune; ten default tunes, each a process of its own with caches of its own; Triton's own tuner over the same
configs, which ends early after --autotune-s seconds; then a race of all winners in one process says how far each is
from the best of them. Clocks run from the start of the process: imports count. Problems that the file holds of other
runs stay in it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import torch
import triton
from tests.inferred_kernels import grouped_matmul

from benchmarks.correctness.verdict_kernels import attention
from benchmarks.document import headed, parser_of, save
from benchmarks.timing.unverified import timer_on, unverified
from benchmarks.tuning.bodies import persistent_kernel
from benchmarks.tuning.spaces import operation_of
from triton_ops import Operation, TensorSpec, TritonKernel, tune
from triton_ops.device import probe
from triton_ops.records import Run
from triton_ops.report.run_facts import Report
from triton_ops.request import Effort
from triton_ops.settings import cache_dir
from triton_ops.space import Config
from triton_ops.timing import Arm, Interval, Rounds
from triton_ops.timing.race_statistics import relative_levels
from triton_ops.tuner import Silent
from triton_ops_kernels import load

IMPORTED = time.time()
ROUNDS = 140
WITHIN = 0.01
_OPTIONS = ("num_warps", "num_stages")
_LEADERS = 4  # of the exhaustive tune that are judged beside its ties
_MULTIPROCESSORS = 132  # of an H100 and an H200


@dataclass(frozen=True)
class Case:
    """One problem: what makes its operation, and its shape and dtype; None for the operation's own."""

    load: Callable[[], Operation]
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


def _declared(name: str, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Case:
    return Case(lambda: operation_of(name), shape, dtype)


def _plain(operation: Operation, shape: tuple[int, ...], space: dict[str, list[Any]]) -> Case:
    return Case(lambda: replace(operation, space=space, work=None), shape, "bfloat16")


def _tiles(meta: Any) -> int:
    return triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"])


def _product(M: int, N: int, K: int, dtype: str, **strides: int) -> dict[str, Any]:
    return {
        "a": TensorSpec((M, K), dtype), "b": TensorSpec((K, N), dtype), "c": TensorSpec((M, N), dtype, fill="empty"),
        "M": M, "N": N, "K": K, **strides,
    }  # fmt: skip


_matmul = Operation(
    "plain_matmul",
    TritonKernel(grouped_matmul, lambda meta: (_tiles(meta),), outputs=("c",)),
    {"BM": [128]},
    lambda M=4096, N=4096, K=4096, dtype="bfloat16": _product(M, N, K, dtype, sam=K, sak=1, sbk=N, sbn=1, scm=N, scn=1),
    dtypes=("bfloat16", "float16"),
)
_persistent = Operation(
    "persistent_matmul",
    TritonKernel(persistent_kernel, lambda meta: (min(meta["PROGRAMS"], _tiles(meta)),), outputs=("c",)),
    {"BM": [128]},
    lambda M=4096, N=4096, K=4096, dtype="bfloat16": _product(M, N, K, dtype),
    dtypes=("bfloat16", "float16"),
)
DECLARED = {
    "matmul bf16 4096x4096x4096": _declared("matmul", (4096, 4096, 4096), "bfloat16"),
    "matmul fp8 1024x8192x8192": _declared("matmul", (1024, 8192, 8192), "float8_e4m3fn"),
    "rmsnorm_rope bf16": _declared("rmsnorm_rope"),
}
UNDECLARED = {
    "plain matmul of 960 configs": _plain(_matmul, (4096, 4096, 4096), {
        "BM": [128, 16, 32, 64, 256], "BN": [128, 32, 64, 256], "BK": [64, 32, 128], "GROUP": [8, 1],
        "num_warps": [8, 4], "num_stages": [3, 2, 4, 5],
    }),
    "plain gated MLP": _plain(load("gated_mlp"), (2048, 8192, 4096), {
        "BLOCK_M": [128, 64, 256], "BLOCK_N": [64, 32, 128], "BLOCK_K": [64, 32, 128], "GROUP_SIZE_M": [8],
        "LOADS": ["pointers", "host"], "PROGRAMS": [0], "num_warps": [8, 4], "num_stages": [3, 2, 4],
    }),
    "plain causal attention": _plain(attention, (4, 32, 2048, 128), {
        "BM": [128, 32, 64, 256], "BN": [64, 16, 32, 128], "num_warps": [8, 4], "num_stages": [2, 1, 3, 4, 5],
    }),
    "plain persistent matmul": _plain(_persistent, (3072, 5120, 4096), {
        "BM": [128, 64], "BN": [128, 64, 256], "BK": [64, 32, 128], "GM": [8],
        "PROGRAMS": [_MULTIPROCESSORS, 2 * _MULTIPROCESSORS], "num_warps": [8, 4], "num_stages": [3, 2, 4],
    }),
}  # fmt: skip
CASES = {**DECLARED, **UNDECLARED}


def curve_of(run_id: str, born: float) -> list[tuple[float, float, str]]:
    """Each improvement that a run log tells: seconds since the process began, time over the default's, config."""
    (path,) = cache_dir().glob(f"runs/*/{run_id}.jsonl")
    run = Run.read(path)
    started_s = datetime.fromisoformat(run.head.started).timestamp() - born
    return [(round(started_s + at_s, 3), trial.rank, trial.config.text) for at_s, trial in Report(run).best_so_far]


def one(case: str, seed: int, search: str, born: float) -> dict[str, Any]:
    """One tune; what it found and when."""
    workload = CASES[case]
    budget: dict[str, Any] = {"trials": 10_000, "budget_s": 600} if search == "exhaustive" else {}
    result = tune(
        workload.load(), shape=workload.shape, dtype=workload.dtype, search=search, seed=seed, listener=Silent(),
        transfer=False, **budget,  # no winners that the package brings: the search alone is measured
    )  # fmt: skip
    decided = time.time()
    curve = curve_of(result.run, born)
    ranked = sorted((t for t in result.trials if t.ok), key=lambda t: (t.final is None, t.median_ms))
    return {
        "seed": seed,
        "winner": dict(result.best_config),
        "ties": [dict(config) for config in result.ties],
        "leaders": [dict(trial.config) for trial in ranked[:_LEADERS]],
        "imports_s": round(IMPORTED - born, 3),
        "first_s": curve[0][0] if curve else None,
        "decided_s": round(decided - born, 3),
        "after_imports_s": round(decided - IMPORTED, 3),
        "waited_s": result.waited_s,
        "trials": len(result.trials),
        "stopped": result.stopped,
        "curve": curve,
    }


def tritons(case: str, limit_s: float, born: float) -> dict[str, Any]:
    """Triton's tuner over the whole space, until it is done or the time is over; its improvements."""
    workload = CASES[case]
    operation = workload.load()
    problem = operation.problem(workload.shape, workload.dtype)
    arguments = operation.materialise(problem, "cuda").keyword
    kernel: Any = operation.kernel
    configs = [_triton_config(config) for config in operation.space_for(problem)]
    triton.set_allocator(lambda size, _align, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    tuner = triton.autotune(configs, key=[])(kernel.function)
    history: list[tuple[float, float, str]] = []
    count, best = 0, math.inf
    bench = tuner._bench

    def watched(*args: Any, config: Any, **more: Any) -> Any:
        nonlocal count, best
        if time.time() - born > limit_s:
            raise TimeoutError
        times = bench(*args, config=config, **more)
        count += 1
        if times[0] < best:
            best = times[0]
            history.append((round(time.time() - born, 3), best, Config(_values(config)).text))
        return times

    tuner._bench = watched
    try:
        tuner[kernel.grid](**arguments)
        winner = _values(tuner.best_config)
    except TimeoutError:
        winner = None
    return {
        "configs": len(configs), "tried": count, "winner": winner, "imports_s": round(IMPORTED - born, 3),
        "decided_s": round(time.time() - born, 3), "curve": history,
    }  # fmt: skip


def _triton_config(config: Config) -> Any:
    values = dict(config)
    options = {name: values.pop(name) for name in _OPTIONS}
    return triton.Config(values, **options)


def _values(config: Any) -> dict[str, Any]:
    return {**config.kwargs, **{name: getattr(config, name) for name in _OPTIONS}}


def judged(case: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    """How much slower than the fastest each config is, with its 95 % interval, side by side in one process."""
    workload = CASES[case]
    operation = workload.load()
    arguments = operation.materialise(operation.problem(workload.shape, workload.dtype), "cuda")
    executables = {Config(values): operation.kernel.compile(Config(values), arguments) for values in configs}
    policy = Effort.named("exhaustive")
    evaluator = unverified(operation.kernel, arguments, policy, timer_on(probe("cuda")), executables)
    samplers = [evaluator.sampler(config) for config in executables]
    timer = evaluator.shared_timer.timer
    assert timer is not None
    arms = []
    for sampler in samplers:
        first = sampler.take(timer, 3)
        arms.append(Arm(sampler, policy.race.samples(statistics.median(first) * sampler.launches)))
    Rounds(timer=timer).run(arms, ROUNDS)
    rows = [arm.values_ms for arm in arms]
    levels = relative_levels(rows)
    best = levels.index(min(levels))
    slower = {config.text: Interval.of_gap(row, rows[best]) for config, row in zip(executables, rows, strict=True)}
    return {
        "mode": timer.mode,
        "ms": {config.text: statistics.median(row) for config, row in zip(executables, rows, strict=True)},
        "slower": {text: [contrast.low, contrast.centre, contrast.high] for text, contrast in slower.items()},
    }


def child(folder: Path, seat: Seat, name: str, *words: str, compiled: str = "") -> dict[str, Any]:
    """This script in a process of its own, with empty caches unless `compiled` names one of before; its answer."""
    out = folder / f"{name}.json"
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / (compiled or name) / "triton"),
        "TRITON_OPS_CACHE_DIR": str(folder / name / "records"),
        "XDG_CACHE_HOME": str(folder / name / "home"),
        "NO_COLOR": "1",
        **({} if seat.gpu is None else {"CUDA_VISIBLE_DEVICES": seat.gpu}),
    }
    command = [*seat.pinned, sys.executable, "-m", "benchmarks.tuning.live_tune", "--out", str(out), "--part", *words]
    process = subprocess.run(
        [*command, "--born", repr(time.time())], env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(f"{name} failed:\n" + "\n".join((process.stdout + process.stderr).splitlines()[-30:]))
    row: dict[str, Any] = json.loads(out.read_text())
    return row


@dataclass(frozen=True)
class Seat:
    """A GPU, and the CPUs that go with it; all that there is for None."""

    gpu: str | None = None
    cpus: tuple[int, ...] = ()

    @property
    def pinned(self) -> list[str]:
        """What a command is preceded by."""
        return ["taskset", "-c", ",".join(map(str, self.cpus))] if self.cpus else []


def seats_of(gpus: list[str]) -> list[Seat]:
    """As many as there are GPUs, each with its part of the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    each = len(cpus) // max(len(gpus), 1)
    return [Seat(gpu, tuple(cpus[i * each : (i + 1) * each])) for i, gpu in enumerate(gpus)] or [Seat()]


def case_of(case: str, options: argparse.Namespace, folder: Path, seat: Seat) -> dict[str, Any]:
    """All of one problem."""
    whole = child(folder, seat, "whole", "tune", case, "0", "exhaustive")
    runs = [child(folder, seat, f"run{seed}", "tune", case, str(seed), "auto") for seed in range(options.runs)]
    other = child(folder, seat, "triton", "autotune", case, str(options.autotune_s)) if options.autotune_s else None
    configs = [whole["winner"], *whole["ties"], *whole["leaders"], *(run["winner"] for run in runs)]
    if other is not None and other["winner"]:
        configs.append(other["winner"])
    unique = [dict(config) for config in dict.fromkeys(Config(values) for values in configs)]
    verdict = child(folder, seat, "judge", "judge", case, json.dumps(unique), compiled="whole")
    for run in (whole, *runs, *([other] if other and other["winner"] else [])):
        run["slower"] = verdict["slower"][Config(run["winner"]).text]
    good = [run for run in runs if run["slower"][1] <= WITHIN]
    return {
        "within_1_percent": len(good),
        "runs": len(runs),
        "decided_s": [run["decided_s"] for run in runs],
        "after_imports_s": [run["after_imports_s"] for run in runs],
        "worst_slower": max(run["slower"][1] for run in runs),
        "exhaustive": whole,
        "tunes": runs,
        "triton.autotune": other,
        "judge": verdict,
    }


def summary(case: str, row: dict[str, Any]) -> str:
    """A line for people."""
    decided, after = row["decided_s"], row["after_imports_s"]
    return (
        f"{case}: {row['within_1_percent']} of {row['runs']} within 1 %, worst {100 * row['worst_slower']:.2f} %; "
        f"decided after {statistics.median(decided):.1f} s (at most {max(decided):.1f}), after imports "
        f"{statistics.median(after):.1f} s (at most {max(after):.1f}); exhaustive {row['exhaustive']['decided_s']} s"
    )


def part(options: argparse.Namespace) -> dict[str, Any]:
    """What one process does."""
    kind, case, *more = options.part
    if kind == "tune":
        return one(case, int(more[0]), more[1], options.born)
    if kind == "autotune":
        return tritons(case, float(more[0]), options.born)
    return judged(case, json.loads(more[0]))


def keep(case: str, row: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the row of a case, as soon as it is done, beside what the file holds of others."""
    how = headed(
        f"python -m benchmarks.tuning.live_tune --runs {options.runs} --autotune-s {options.autotune_s:g}",
        options.commit,
        device=probe("cuda").name,
        cpus=len(os.sched_getaffinity(0)) // max(len(options.gpus), 1),
        side_by_side=len(options.gpus) or 1,
    )
    before = json.loads(options.out.read_text())["cases"] if options.out.exists() else {}
    if row["triton.autotune"] is None and case in before:  # its code is not this package's: an earlier run's stays
        row["triton.autotune"] = before[case]["triton.autotune"]
        row["triton.autotune_measured"] = before[case].get("triton.autotune_measured") or before[case]["date"]
    save(options.out, {"cases": {**before, case: {**how, **row}}})


def main() -> None:
    """All cases, or a part of one."""
    parser = parser_of(__doc__, Path("benchmarks/results/nvidia-h200/live_tune.json"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--cases", nargs="*", default=list(DECLARED), choices=list(CASES))
    parser.add_argument(
        "--autotune-s", type=float, default=240.0, help="most seconds of Triton's tuner; 0 leaves it out"
    )
    parser.add_argument("--gpus", nargs="*", default=[], help="cases side by side, each on one of these, with its CPUs")
    parser.add_argument("--part", nargs="*", help="used by the script itself")
    parser.add_argument("--born", type=float, default=0.0, help="used by the script itself")
    options = parser.parse_args()
    if options.part:
        options.out.write_text(json.dumps(part(options)))
        return
    seats, file = SimpleQueue[Seat](), Lock()
    for seat in seats_of(options.gpus):
        seats.put(seat)

    def seated(case: str) -> None:
        seat = seats.get()
        with tempfile.TemporaryDirectory() as folder:
            row = case_of(case, options, Path(folder), seat)
        seats.put(seat)
        print(summary(case, row), flush=True)
        with file:
            keep(case, row, options)

    with ThreadPoolExecutor(max(len(options.gpus), 1)) as pool:
        list(pool.map(seated, options.cases))


if __name__ == "__main__":
    main()
