"""What a known call costs the host, in every public way to call a kernel, beside what it launches.

    python -m benchmarks.launch_cost [--check] [--out FILE]

A decorated kernel stands beside plain JIT and `triton.autotune`: an addition of 4 arguments and a matmul of 16. The
other ways, `benchmarks.launch.ways`, each have a rival of their own. On a GPU the launches are real and nothing waits
for them; without one, Triton compiles for sm_90 and launches do nothing, so that only the host's work before a launch
is left, and the shipped functions take tensors on the CPU. What is compared takes turns in rounds of random order, and
the least round of each counts: what other programs do to a round only makes it longer. `--check` fails where a ratio is
above its limit.

Another version of Triton: PYTHONPATH=.triton/3.9.0:src TRITON_DEFAULT_FP_FUSION=1 python -m benchmarks.launch_cost
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from tests.launches import cpu_as_gpu, launches_that_do_nothing

import triton_ops
from benchmarks.document import headed, parser_of, save
from benchmarks.launch import ways

LIMITS = {"triton.autotune": 0.45, "plain JIT": 0.70}
ROUNDS, CALLS = 40, 500
ROUNDS_OF_WAYS, CALLS_OF_WAYS = 101, 100  # a row at a time
OURS = "triton_ops.autotune"


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # noqa: D103
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def matmul(  # noqa: D103
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: ARG001
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        at = k * BK + inner
        a = tl.load(a_ptr + rows[:, None] * stride_am + at[None, :] * stride_ak,
                    mask=(rows[:, None] < M) & (at[None, :] < K), other=0.0)  # fmt: skip
        b = tl.load(b_ptr + at[:, None] * stride_bk + columns[None, :] * stride_bn,
                    mask=(at[:, None] < K) & (columns[None, :] < N), other=0.0)  # fmt: skip
        total = tl.dot(a, b, total)
    c = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c, total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


ADD = [triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)]
TILES = [triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP_M": 8}, num_warps=4),
         triton.Config({"BM": 64, "BN": 32, "BK": 32, "GROUP_M": 8}, num_warps=4)]  # fmt: skip


def by_blocks(meta: dict[str, int]) -> tuple[int]:
    """One program for each block."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def cases(device: str) -> dict[str, tuple[object, list[triton.Config], list[str], tuple[object, ...], object]]:
    """Name to kernel, configs, key, arguments and grid: extents, and once a function, as most programs have it."""
    x = [torch.zeros(4096, device=device) for _ in range(3)]
    a, b, c = (torch.zeros(256, 256, device=device, dtype=torch.float16) for _ in range(3))
    strides = (*a.stride(), *b.stride(), *c.stride())
    return {
        "add, 4 arguments": (add, ADD, ["n"], (*x, 4096), (16,)),
        "add, 4 arguments, a grid function": (add, ADD, ["n"], (*x, 4096), by_blocks),
        "matmul, 16 arguments": (matmul, TILES, ["M", "N", "K"], (a, b, c, 256, 256, 256, *strides), (4, 8)),
    }


def contenders(kernel: object, configs: list[triton.Config], key: list[str], args: tuple[object, ...],
               grid: object) -> dict[str, Callable[[], object]]:  # fmt: skip
    """The three ways to launch the first config, each launched once."""
    first = configs[0]
    theirs = triton.autotune(configs, key)(kernel)
    theirs.cache[theirs_key(theirs, args)] = first
    ours = triton_ops.autotune(configs, key, on_miss="default")(kernel)
    ours.cache[theirs_key(ours, args)] = first
    values = first.all_kwargs()
    calls: dict[str, Callable[[], object]] = {
        "plain JIT": lambda: kernel[grid](*args, **values),  # type: ignore[index]
        "triton.autotune": lambda: theirs[grid](*args),
        OURS: lambda: ours[grid](*args),
    }
    for call in calls.values():
        call()
    return calls


def theirs_key(tuned: object, args: tuple[object, ...]) -> tuple[object, ...]:
    """The key under which Triton looks for a known winner."""
    named = dict(zip(tuned.arg_names, args, strict=False))  # type: ignore[attr-defined]
    dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*(named[name] for name in tuned.keys), *dtypes)  # type: ignore[attr-defined]


def least_us(
    calls: dict[str, Callable[[], object]], rounds: int, wait: Callable[[], object], times: int = CALLS
) -> dict[str, float]:
    """Microseconds of one call, of the least round of so many `times`."""
    rng, best = random.Random(0), dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name in rng.sample(list(calls), len(calls)):
            call = calls[name]
            start = time.perf_counter()
            for _ in range(times):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / times * 1e6)
            wait()
    return best


def times_of_way(calls: dict[str, Callable[[], object]], wait: Callable[[], object]) -> dict[str, float]:
    """Microseconds of a way to call and of its rival, of the round whose ratio is the middle one.

    The clock of a shared machine changes between rounds. Where a third time is taken away, whose noise a round adds to
    the others', each time is the least of all rounds.
    """
    if "beyond" in calls:
        return least_us(calls, ROUNDS_OF_WAYS, wait, CALLS_OF_WAYS)
    rounds = [least_us(calls, 1, wait, CALLS_OF_WAYS) for _ in range(ROUNDS_OF_WAYS)]
    return sorted(rounds, key=ways.ratio)[len(rounds) // 2]


def measured(device: str, rounds: int) -> dict[str, dict[str, float]]:
    """By case, the microseconds of each way."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    figures = {}
    for name, (kernel, configs, key, args, grid) in cases(device).items():
        figures[name] = least_us(contenders(kernel, configs, key, args, grid), rounds, wait)
    return figures


def measured_ways(device: str) -> dict[str, tuple[dict[str, float], float]]:
    """By way to call, the microseconds of it and its rival, and the limit of their ratio."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    return {name: (times_of_way(row.calls, wait), row.limit) for name, row in ways.rows(device, add, by_blocks).items()}


def told_ways(figures: dict[str, tuple[dict[str, float], float]]) -> bool:
    """Print a line for each way to call; returns whether every ratio keeps its limit."""
    for name, (times, limit) in figures.items():
        us = ", ".join(f"{which} {time_us:.2f} µs" for which, time_us in times.items())
        above = "" if ways.ratio(times) <= limit else ": ABOVE"
        print(f"{name}: {ways.ratio(times):.2f}, limit {limit:.2f}{above} ({us})")
    return all(ways.ratio(times) <= limit for times, limit in figures.values())


def told(figures: dict[str, dict[str, float]]) -> bool:
    """Print the times and the ratios; returns whether every ratio keeps its limit."""
    within = True
    for name, times in figures.items():
        print(f"{name}: " + ", ".join(f"{way} {us:.2f} µs" for way, us in times.items()))
        for other, limit in LIMITS.items():
            ratio = times[OURS] / times[other]
            within = within and ratio <= limit
            print(f"  {ratio:.2f} of {other}, limit {limit:.2f}{'' if ratio <= limit else ': ABOVE'}")
    return within


def name_of(device: str) -> str:
    """The name of the device that launches."""
    return torch.cuda.get_device_name() if device == "cuda" else "launches that do nothing"


def main() -> None:
    """Measure, tell, and check if that is asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="end with 1 where a ratio is above its limit")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"Triton {triton.__version__}, launches on {device if device == 'cuda' else 'nothing'}")
    with contextlib.ExitStack() as where:
        if device != "cuda":
            where.enter_context(launches_that_do_nothing(keep=False))
            where.enter_context(cpu_as_gpu())
        figures = measured(device, options.rounds)
        by_way = measured_ways(device)
    within = [told(figures), told_ways(by_way)]
    if options.out is not None:
        ratios = {name: {other: times[OURS] / times[other] for other in LIMITS} for name, times in figures.items()}
        save(options.out, headed("python -m benchmarks.launch_cost", options.commit, device=name_of(device),
                                 limits=LIMITS, us=figures, ratios=ratios,
                                 ways={name: {"us": times, "ratio": ways.ratio(times), "limit": limit}
                                       for name, (times, limit) in by_way.items()}))  # fmt: skip
    sys.exit(1 if options.check and not all(within) else 0)


if __name__ == "__main__":
    main()
