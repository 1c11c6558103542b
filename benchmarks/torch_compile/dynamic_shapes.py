"""Sizes that change inside `torch.compile`: three ways to run a tuned kernel, each with its time and what it compiles.

    python -m benchmarks.torch_compile.dynamic_shapes --limit-s 300 --out FILE

A matmul of bfloat16 with N = K = 4096 is called with sizes of M between those that were tuned, by one function that was
compiled with `dynamic=True`:

- `ranges`: the key has M in buckets, so that the function is compiled once for each bucket that occurs;
- `opaque`: the same kernel inside a `torch.library.custom_op`, which looks the size up at each call;
- `one config`: the key leaves M out; the config is the one whose largest loss over the tuned sizes is the least.

For each way: microseconds of a call (the host's work included) at each size, the ratio to the fastest way there, the
seconds until every size has run once, and how many graphs were compiled. `regret` is what a way's configs lose on the
device against the best config of each size. The file is written after each way; a way that fails is told in its row.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

import triton_ops
from benchmarks.document import headed, parser_of, save

N = K = 4096
TUNED = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
ASKED = (20, 48, 100, 200, 330, 700, 1500, 3000)  # none of them tuned
CALLS = 50
DEVICE = "cuda"
TILES = [(16, 64, 128, 4, 4), (16, 128, 128, 4, 4), (32, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 128, 64, 4, 4),
         (128, 128, 64, 8, 3), (128, 256, 64, 8, 3)]  # fmt: skip
CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages)
    for bm, bn, bk, warps, stages in TILES
]


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # noqa: D103
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :], mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=rows[:, None] < M)


def grid_of(m: Any, n: int) -> Callable[[Mapping[str, int]], tuple[Any, ...]]:
    """The grid of a product with M rows and N columns."""
    return lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))


def safest(times: Mapping[int, Mapping[int, float]]) -> tuple[int, float]:
    """The config whose largest loss over all sizes is the least, and that loss as a ratio.

    Args:
        times: By size and then by config, milliseconds; infinite where the config does not run.
    """
    best = {size: min(row.values()) for size, row in times.items()}
    worst = {
        config: max(row[config] / best[size] for size, row in times.items()) for config in next(iter(times.values()))
    }
    winner = min(worst, key=lambda config: worst[config])
    return winner, worst[winner]


def regret(configs: Mapping[int, int], times: Mapping[int, Mapping[int, float]]) -> dict[str, float]:
    """What configs lose against the best of each size: the median and the largest ratio."""
    ratios = [times[size][config] / min(times[size].values()) for size, config in configs.items()]
    return {"median": statistics.median(ratios), "largest": max(ratios)}


def measured(sizes: Sequence[int]) -> dict[int, dict[int, float]]:
    """By size and config, milliseconds on the device."""
    b = torch.randn(K, N, device=DEVICE, dtype=torch.bfloat16)
    by_size: dict[int, dict[int, float]] = {}
    for m in sizes:
        a, c = torch.randn(m, K, device=DEVICE, dtype=b.dtype), torch.empty(m, N, device=DEVICE, dtype=b.dtype)
        by_size[m] = {}
        for place, config in enumerate(CONFIGS):

            def launch(config: Any = config, a: Any = a, c: Any = c, m: int = m) -> None:
                product[grid_of(m, N)](a, b, c, m, N, K, **config.all_kwargs())

            try:
                by_size[m][place] = triton_ops.time_ms(launch, warmup_ms=5, rep_ms=20, device=DEVICE).quantiles_ms[0]
            except triton_ops.TritonKernelError as error:
                print(f"M={m} {config}: {error}")
                by_size[m][place] = math.inf
    return by_size


def ways(one: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """The functions that are compiled, by name."""
    by_range = triton_ops.autotune(CONFIGS, key=["M"], buckets={"M": "pow2"}, isolate=False, budget_s=10.0)(product)
    for m in TUNED:  # the winners are recorded before anything is compiled
        a, b = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for shape in ((m, K), (K, N)))
        by_range[grid_of(m, N)](a, b, torch.empty(m, N, device=DEVICE, dtype=a.dtype), m, N, K)
    for_all = triton_ops.autotune([one], key=[])(product)

    def launched(kernel: Any, a: Any, b: Any) -> Any:
        out = torch.empty(a.shape[0], N, device=a.device, dtype=a.dtype)
        kernel[grid_of(a.shape[0], N)](a, b, out, a.shape[0], N, K)
        return out

    @torch.library.custom_op("triton_ops_benchmark::product", mutates_args=())
    def opaque(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return launched(by_range, a, b)

    @opaque.register_fake
    def _(a: torch.Tensor, _b: torch.Tensor) -> torch.Tensor:
        return torch.empty(a.shape[0], N, device=a.device, dtype=a.dtype)

    return {
        "ranges": lambda a, b: launched(by_range, a, b).relu(),
        "opaque": lambda a, b: opaque(a, b).relu(),
        "one config": lambda a, b: launched(for_all, a, b).relu(),
    }


def timed(function: Callable[[Any, Any], Any], sizes: Sequence[int]) -> dict[str, Any]:
    """What one way takes: seconds until each size has run once, graphs, and microseconds of a call at each size."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 4 * len(sizes)  # one graph for each range, and none left to eager
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, dynamic=True)
    b = torch.randn(K, N, device=DEVICE, dtype=torch.bfloat16)
    start, by_size = time.perf_counter(), {}
    inputs = {m: torch.randn(m, K, device=DEVICE, dtype=b.dtype) for m in sizes}
    for a in inputs.values():
        torch.testing.assert_close(compiled(a, b), torch.relu(a @ b), rtol=2e-2, atol=2.0)
    first_s = time.perf_counter() - start
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for m, a in inputs.items():
        rounds = []
        for _ in range(7):
            torch.cuda.synchronize()
            outset = time.perf_counter()
            for _ in range(CALLS):
                compiled(a, b)
            torch.cuda.synchronize()
            rounds.append((time.perf_counter() - outset) / CALLS * 1e6)
        by_size[m] = min(rounds)
    return {"first_s": first_s, "graphs": graphs, "us": by_size}


def tried(function: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """As `timed`; what went wrong, if it fails."""
    try:
        return timed(function, ASKED)
    except Exception as error:  # noqa: BLE001 - the other ways are measured all the same
        return {"error": f"{type(error).__name__}: {error}"[:800]}


def with_ratios(by_way: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The ways with the ratio of each to the fastest at each size."""
    timed_ways = [way["us"] for way in by_way.values() if "us" in way]
    fastest = {m: min(us[m] for us in timed_ways) for m in ASKED} if timed_ways else {}
    return {
        name: {**way, "ratio": {m: way["us"][m] / fastest[m] for m in ASKED}} if "us" in way else way
        for name, way in by_way.items()
    }


def main() -> None:
    """Measure, compare, and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--limit-s", type=float, default=3600.0, help="begin with no further way after so many seconds")
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s
    times = measured((*TUNED, *ASKED))
    place, loss = safest({m: times[m] for m in TUNED})
    nearest = {m: 1 << (m - 1).bit_length() for m in ASKED}  # the bucket's own size
    best = {m: min(times[m], key=lambda one, m=m: times[m][one]) for m in TUNED}
    by_bucket = regret({m: best[nearest[m]] for m in ASKED}, times)
    regrets = {"ranges": by_bucket, "opaque": by_bucket, "one config": regret(dict.fromkeys(ASKED, place), times)}
    print(f"one config: {CONFIGS[place]}, at most {loss:.2f} times the best at tuned sizes", flush=True)
    by_way: dict[str, dict[str, Any]] = {}
    for name, function in ways(CONFIGS[place]).items():
        by_way[name] = tried(function) if time.monotonic() < end else {"error": "left: the limit was reached"}
        way = by_way[name]
        us = ", ".join(f"{m}: {value:.1f}" for m, value in way.get("us", {}).items())
        text = way.get("error") or f"{way['graphs']} graphs, {way['first_s']:.1f} s at first"
        print(f"{name}: {text}, regret {regrets[name]}, µs {us}", flush=True)
        if options.out is not None:
            document = headed("python -m benchmarks.torch_compile.dynamic_shapes", options.commit,
                              ways=with_ratios(by_way), regret=regrets, ms=times,
                              one_config={"config": str(CONFIGS[place]), "largest_loss": loss})  # fmt: skip
            save(options.out, document)


if __name__ == "__main__":
    main()
