"""Tunes within bounds of 1.2 to 4 times the memory that the winner's launch takes, beside tunes without a bound.

    python -m benchmarks.tuning.memory_gpu --out FILE --commit C            # on a GPU; some four minutes
    python -m benchmarks.tuning.memory_gpu --out FILE --commit C --resume   # those rows that the file lacks
    python -m benchmarks.tuning.memory_gpu --isolate --out FILE             # in workers: NVML alone sees their memory

Five kernels with tensors of 0.5 to 1 GB, each tuned once without a bound and within ten. Tunes run in this process, so
that torch's allocator tells their peak: `allocated` and `reserved` are what it took beyond what was held before, and
`nvml` is by how much the use of the whole card rose, all in units of the winner's memory, its tensors. NVML also counts
code and graphs, and of a worker its context: `MODULES_BYTES`, or what a worker takes for small tensors, are no part of
the bound. `kept` says that no peak was beyond the bound. A row that was not tuned has the reason. `over` is the time of
its winner divided by that of the one without a bound, both taken in turn.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.document import begun, headed, parser_of, save
from triton_ops import TritonKernel, release_processes, tune
from triton_ops.exceptions import TritonKernelError
from triton_ops.tuner import Silent
from triton_ops_kernels.matmul.kernel import grid, matmul_kernel

FACTORS = tuple(round(1.2 + 2.8 * place / 9, 3) for place in range(10))
MODULES_BYTES = 64 << 20
MIB = 1 << 20
Row = dict[str, Any]
_STRIDES = ("am", "ak", "bk", "bn", "cm", "cn")


@triton.jit
def add_kernel(x, y, out, N, BLOCK: tl.constexpr):
    """Out = x + y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < N) + tl.load(y + at, mask=at < N), mask=at < N)


@triton.jit
def scale_kernel(x, N, BLOCK: tl.constexpr):
    """X = 1.5 x, in place."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < N) * 1.5, mask=at < N)


@triton.jit
def softmax_kernel(x, out, N, BLOCK: tl.constexpr):
    """The softmax of a row."""
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < N
    row = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    high = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, (high / tl.sum(high, 0)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def sums_kernel(x, out, N, BLOCK: tl.constexpr):
    """The sum of a row."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + tl.program_id(0).to(tl.int64) * N + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def _by_block(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["N"], meta["BLOCK"]),)


def _by_row(meta: Mapping[str, Any]) -> tuple[int]:
    return (meta["x"].shape[0],)


BLOCKS = [{"BLOCK": block, "num_warps": warps} for block in (512, 1024, 4096) for warps in (4, 8)]
ROWS = [{"BLOCK": 4096, "num_warps": warps} for warps in (2, 4, 8, 16, 32)]
TILES = [
    {"BM": m, "BN": n, "BK": k, "num_warps": warps, "num_stages": stages}
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3), (128, 64, 64, 4, 3), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (128, 128, 64, 4, 4),
    )
]  # fmt: skip


def _half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def _product(size: int) -> dict[str, Any]:
    a, b = _half(size, size), _half(size, size)
    strides = {f"stride_{name}": size if name in ("am", "bk", "cm") else 1 for name in _STRIDES}
    return {
        "a": a, "b": b, "c": torch.empty_like(a), "bias": None, "M": size, "N": size, "K": size, **strides,
        "A_ALONG_K": True, "B_ALONG_K": False, "A_UNIT": 16, "B_UNIT": 16, "ACTIVATION": "none", "GROUP_M": 8,
        "ALGORITHM": "tiles", "LOADS": "pointers", "SWAPPED": False, "PROGRAMS": 1, "SPLIT": 1, "HALVES": False,
    }  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A kernel, its configs, and its arguments of full size or small ones."""

    kernel: TritonKernel
    configs: list[dict[str, Any]]
    arguments: Callable[[bool], dict[str, Any]]


def _case(function: Any, grid: Any, outputs: tuple[str, ...], configs: Any, arguments: Any) -> Case:
    return Case(TritonKernel(function, grid, outputs=outputs), configs, arguments)


def _vectors(*names: str, count: int) -> Callable[[bool], dict[str, Any]]:
    def made(full: bool) -> dict[str, Any]:
        size = count if full else 1 << 16
        return {**{name: _half(size) for name in names}, "N": size}

    return made


def _rows(out: Callable[[torch.Tensor], torch.Tensor], rows: int) -> Callable[[bool], dict[str, Any]]:
    def made(full: bool) -> dict[str, Any]:
        x = _half(rows if full else 64, 4096)
        return {"x": x, "out": out(x), "N": 4096}

    return made


CASES = {
    "add": _case(add_kernel, _by_block, ("out",), BLOCKS, _vectors("x", "y", "out", count=1 << 27)),
    "in place": _case(scale_kernel, _by_block, (), BLOCKS, _vectors("x", count=1 << 28)),
    "softmax": _case(softmax_kernel, _by_row, ("out",), ROWS, _rows(torch.empty_like, 1 << 16)),
    "sums": _case(
        sums_kernel, _by_row, ("out",), [{**each, "BLOCK": 1024} for each in ROWS],
        _rows(lambda x: x.new_empty(len(x), dtype=torch.float32), 1 << 17),
    ),
    "matmul": _case(matmul_kernel, grid, ("c",), TILES, lambda full: _product(12_288 if full else 256)),
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Tune every kernel within every bound, and save after each row."""
    parser = parser_of(__doc__)
    parser.add_argument("--kernels", nargs="*", default=[*CASES], choices=[*CASES], help="which kernels")
    parser.add_argument("--budget-s", type=float, default=2.5, help="seconds of each tune")
    parser.add_argument("--limit-s", type=float, default=240.0, help="begin no row after so many seconds")
    parser.add_argument("--resume", action="store_true", help="leave out rows that the file holds of this commit")
    parser.add_argument("--isolate", action="store_true", help="tune in workers")
    options = parser.parse_args(argv)
    before = begun(options.out, options.commit) if options.resume else {}
    rows: dict[str, Row] = before.get("rows", {})
    start = time.monotonic()
    for name in options.kernels:
        missing = [factor for factor in FACTORS if f"{name} {factor}" not in rows]
        for factor, row in rows_of(CASES[name], missing, options.budget_s, options.isolate):
            rows[f"{name} {factor}"] = row
            print(f"{time.monotonic() - start:.0f} s: {name} {factor}: {row}", flush=True)
            command = " ".join(["python -m benchmarks.tuning.memory_gpu", *(argv or sys.argv[1:])])
            content = {"gpu": torch.cuda.get_device_name(), "summary": summary_of(rows), "rows": rows}
            if options.out is not None:
                save(options.out, headed(command, options.commit, **content))
            if time.monotonic() - start > options.limit_s:
                return 0
    print(summary_of(rows))
    return 0


def summary_of(rows: Mapping[str, Row]) -> Row:
    """How many rows kept their bound, how many were tuned, and how much slower the slowest winner of these is."""
    over = [row["over"] for row in rows.values() if row["tuned"]]
    return {
        "rows": len(rows), "kept": sum(row["kept"] for row in rows.values()), "tuned": len(over),
        "within_1pct": sum(each <= 1.01 for each in over), "worst_over": max(over, default=None),
    }  # fmt: skip


def rows_of(case: Case, factors: list[float], budget_s: float, isolate: bool) -> Iterator[tuple[float, Row]]:
    """The rows of one kernel, after a tune of small tensors and one without a bound."""
    if not factors:
        return
    small, full = case.arguments(False), case.arguments(True)
    _, _, first = tuned(case, small, budget_s, isolate, None)
    unit = sum(each.nbytes for each in full.values() if isinstance(each, torch.Tensor))
    other = first["nvml"] if isolate else MODULES_BYTES
    free, _, peaks = tuned(case, full, budget_s, isolate, None)
    assert free is not None
    print(f"without a bound: {peaks['nvml'] / unit:.2f} times {unit / MIB:.0f} MiB", flush=True)
    for factor in factors:
        bound = int(factor * unit)
        winner, why, peaks = tuned(case, full, budget_s, isolate, bound)
        kept = peaks["reserved"] <= bound and peaks["nvml"] <= bound + other
        over = 1.0 if winner is None or winner == free else ratio(case, full, winner, free)
        yield factor, {
            "kept": kept, "tuned": winner is not None, "why": why, "over": round(over, 4), "unit_mib": unit // MIB,
            **{name: round(count / unit, 3) for name, count in peaks.items()},
        }  # fmt: skip


def tuned(
    case: Case, arguments: dict[str, Any], budget_s: float, isolate: bool, bound: int | None
) -> tuple[dict[str, Any] | None, str, dict[str, int]]:
    """The winner of a tune, or why there is none, and the peaks of memory."""
    release_processes()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    winner, why = None, ""
    with card_use() as use:
        try:
            winner = dict(tune(
                case.kernel, kwargs=arguments, space=case.configs, budget_s=budget_s, keep=False, isolate=isolate,
                memory_bytes=bound, listener=Silent(),
            ).best_config)  # fmt: skip
        except TritonKernelError as error:
            why = f"{type(error).__name__}: {error}"
    peaks = {
        "allocated": torch.cuda.max_memory_allocated() - held,
        "reserved": torch.cuda.max_memory_reserved() - reserved, "nvml": max(use) - use[0],
    }  # fmt: skip
    return winner, why, peaks


@contextmanager
def card_use() -> Iterator[list[int]]:
    """The use of the card's memory in bytes, before and then every few milliseconds inside."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    use, done = [int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            use.append(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield use
    finally:
        done.set()
        thread.join()


def ratio(case: Case, arguments: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The time of one config divided by that of another, taken in turn."""

    def call(config: Mapping[str, Any]) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        function = case.kernel.function
        begin.record()
        function[case.kernel.grid({**arguments, **config})](**arguments, **config)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    pairs = [(call(one), call(other)) for _ in range(25)][5:]
    return statistics.median(a / b for a, b in pairs)


if __name__ == "__main__":
    sys.exit(main())
