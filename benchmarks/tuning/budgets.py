"""Is a budget of seconds that of the whole tune?

    python -m benchmarks.tuning.budgets --out benchmarks/results/host/budgets.json

Five workloads, each with more configs than any budget tries, are tuned from scratch with `budget_s` of 2, 4, 10 and 30:
callables of 5 µs, 1 ms, 30 ms and 100 ms, and one of 1 ms in a process of its own. With `--gpu` the workloads are the
shipped kernels. A table on stdout; exit code 1 if a tune took more than its budget by 20 % and by 1 s. Takes about four
minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import triton_ops_kernels as kernels
from benchmarks.document import headed, save
from triton_ops import FunctionKernel, TuningResult, tune
from triton_ops.tuner import Silent

BUDGETS_S = (2.0, 4.0, 10.0, 30.0)
SHARE, LEAST_S = 0.2, 1.0
CONFIGS = 20_000


def waits(us: float) -> Callable[..., None]:
    """A callable that takes so many microseconds, and a little more for some configs."""

    def run(*, n: int) -> None:
        end = time.perf_counter_ns() + round(us * (1000 + n % 97))
        while time.perf_counter_ns() < end:
            pass

    return run


def millisecond(*, n: int) -> None:
    """A callable that another process can import."""
    waits(1000)(n=n)


def on_the_host() -> dict[str, Callable[..., TuningResult]]:
    """The workloads that need no GPU, by name."""
    space = {"n": list(range(CONFIGS))}

    def tuned(function: Callable[..., Any], **more: Any) -> Callable[..., TuningResult]:
        return lambda **given: tune(FunctionKernel(function), space=space, **more, **given)

    lengths = {"5 us": 5.0, "1 ms": 1e3, "30 ms": 3e4, "100 ms": 1e5}
    tunes = {name: tuned(waits(us)) for name, us in lengths.items()}
    return {**tunes, "1 ms, isolated": tuned(millisecond, isolate=True)}


def on_a_gpu() -> dict[str, Callable[..., TuningResult]]:
    """The workloads on a GPU, by name."""
    shapes = {
        "matmul 16x14336x4096": ("matmul", (16, 14336, 4096)),
        "matmul 4096": ("matmul", (4096, 4096, 4096)),
        "matmul 16384": ("matmul", (16384, 16384, 16384)),
        "matmul 512x4096x14336": ("matmul", (512, 4096, 14336)),
        "rmsnorm_rope": ("fused_rmsnorm_rope", None),
    }

    def tuned(name: str, shape: tuple[int, ...] | None) -> Callable[..., TuningResult]:
        return lambda **given: tune(kernels.load(name), shape=shape, **given)

    return {name: tuned(*what) for name, what in shapes.items()}


def row(name: str, run: Callable[..., TuningResult], budget_s: float) -> dict[str, Any]:
    """One tune from scratch."""
    with tempfile.TemporaryDirectory() as fresh:
        start = time.monotonic()
        result = run(budget_s=budget_s, trials=CONFIGS, effort="full", cache_dir=fresh, listener=Silent())
        took_s = time.monotonic() - start
    return {
        "workload": name,
        "budget_s": budget_s,
        "took_s": round(took_s, 2),
        "kept": took_s <= budget_s + max(SHARE * budget_s, LEAST_S),
        "trials": len(result.trials),
        "stopped": result.stopped,
        "confidence": result.confidence,
        "notes": result.notes,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run the tunes; the exit code is 1 if one took too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="tune the shipped kernels on the GPU")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS_S, help="seconds")
    parser.add_argument("--out", type=Path, help="file for all figures")
    options = parser.parse_args(words)
    rows = []
    for name, run in (on_a_gpu() if options.gpu else on_the_host()).items():
        for budget_s in options.budgets:
            rows.append(row(name, run, budget_s))
            last = rows[-1]
            print(f"{name:24} {budget_s:5g} s {last['took_s']:7.2f} s  {last['trials']:6} trials  {last['confidence']}")
    late = [it for it in rows if not it["kept"]]
    if options.out is not None:
        save(options.out, headed("python -m benchmarks.tuning.budgets" + " --gpu" * options.gpu, None, rows=rows))
    for it in late:
        print(f"missed: {it['workload']} took {it['took_s']} s of {it['budget_s']:g} s")
    return bool(late)


if __name__ == "__main__":
    raise SystemExit(main())
