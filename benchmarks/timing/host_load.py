"""Do compilers that run on all CPUs move what is timed on the GPU? Whether they must be held follows from it.

    python -m benchmarks.timing.host_load --out benchmarks/results/nvidia-h200/host_load.json

One config is sampled in turns with idle CPUs and with a compile pool at work, as in a search: by events at 4096³, by
graph replays on a short kernel, and end to end (a trial's wall time, which the host's part of it is in).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from benchmarks.tuning.spaces import operation_of
from triton_ops import Operation
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.base import Host
from triton_ops.compilation import CompilePool
from triton_ops.device import Target, probe
from triton_ops.timing import Launch
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer
from triton_ops.timing.race_statistics import median_interval

TURNS = 8
SAMPLES = 30
SETTLE_S = 0.5
CASES = {"event": ("matmul", (4096, 4096, 4096)), "graph": ("rmsnorm", (128, 8192))}


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Inside, every CPU compiles configs that nobody has compiled before."""
    operation = operation_of("matmul")
    problem = operation.problem((8192, 8192, 8192), "float16")
    arguments: Any = Arguments(keyword=dict(problem.arguments))
    kernel: Any = operation.kernel
    with tempfile.TemporaryDirectory() as fresh, contextlib.ExitStack() as stack:
        before = os.environ.get("TRITON_CACHE_DIR", "")
        os.environ["TRITON_CACHE_DIR"] = fresh
        stack.callback(os.environ.__setitem__, "TRITON_CACHE_DIR", before)
        pool = stack.enter_context(CompilePool(TritonCompiler(kernel, arguments, Target.of(probe("cuda")))))
        futures = [pool.submit(config, anyway=True) for config in operation.space_for(problem)]
        while not any(future.done() for future in futures):
            time.sleep(0.01)
        yield
        assert not all(future.done() for future in futures), "the compilers had too little to do"


def sampler_of(operation: Operation, shape: tuple[int, ...], clock: str) -> tuple[Any, Any]:
    """A timer, and what samples the default config with it."""
    problem = operation.problem(shape, None)
    arguments = operation.materialise(problem, "cuda")
    config = operation.space_for(problem).default_config
    call = operation.kernel.compile(config, arguments).bind(arguments)
    call()
    torch.cuda.synchronize()
    timer = GraphTimer("cuda", cold=False) if clock == "graph" else EventTimer("cuda")
    return timer, timer.prepare(Launch(call))


def measured(clock: str) -> dict[str, Any]:
    """Medians with idle and with busy CPUs, turn by turn, and their ratio with its 95 % interval."""
    name, shape = CASES[clock]
    timer, sampler = sampler_of(operation_of(name), shape, clock)
    rows: dict[str, list[float]] = {"idle": [], "busy": []}
    walls: dict[str, list[float]] = {"idle": [], "busy": []}
    spreads: dict[str, list[float]] = {"idle": [], "busy": []}
    sampler.take(timer, SAMPLES)
    for _ in range(TURNS):
        for state in ("idle", "busy"):
            with compiling() if state == "busy" else contextlib.nullcontext():
                time.sleep(SETTLE_S)
                sampler.take(timer, SAMPLES)  # to the same power state
                start = time.perf_counter()
                samples = sorted(sampler.take(timer, SAMPLES))
                walls[state].append(1e3 * (time.perf_counter() - start))
            rows[state].append(statistics.median(samples))
            spreads[state].append((samples[-SAMPLES // 5] - samples[SAMPLES // 5]) / statistics.median(samples))
    ratio = median_interval([math.log(b / i) for i, b in zip(rows["idle"], rows["busy"], strict=True)])
    return {
        "kernel": name,
        "shape": shape,
        "mode": timer.mode,
        "median_ms": {state: statistics.median(samples) for state, samples in rows.items()},
        "spread": {state: statistics.median(samples) for state, samples in spreads.items()},
        "busy_over_idle": [math.exp(ratio.centre), math.exp(ratio.low), math.exp(ratio.high)],
        "wall_ms_of_30_samples": {state: statistics.median(samples) for state, samples in walls.items()},
    }


def main() -> None:
    """Both clocks; writes JSON and says what follows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/host_load.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        os.environ["TRITON_CACHE_DIR"] = compiled
        clocks = {}
        for clock in CASES:
            clocks[clock] = measured(clock)
    document = headed(
        "python -m benchmarks.timing.host_load", options.commit, device=probe("cuda").name, cpus=Host.usable_cpus(),
        turns=TURNS, clocks=clocks,
    )  # fmt: skip
    save(options.out, document)
    for clock, row in clocks.items():
        centre, low, high = row["busy_over_idle"]
        print(f"{clock}: busy over idle {centre:.4f} ({low:.4f} to {high:.4f}), spread {row['spread']}, "
              f"wall of {SAMPLES} samples {row['wall_ms_of_30_samples']}")  # fmt: skip
    worst = max(abs(math.log(row["busy_over_idle"][0])) for row in clocks.values())
    print(f"hold the compilers while a candidate is timed: {'yes' if worst > 0.005 else 'no'} (0.5 % counts)")


if __name__ == "__main__":
    main()
