"""How much where arguments lie in GPU memory, and where blocks go, decide the time of a launch.

    python -m benchmarks.timing.placement --parts arguments blocks --out FILE

`arguments`: two configs of a matrix product of 4096³ are timed in turn, L2 flushed, on ten argument sets of one
process. Their ratio is the same in every round of one set, and another on the next: a comparison on one set alone
proves what the next process refutes. The standard deviation over the sets says how many of them a comparison has to
take in turn.

`blocks`: products by cuBLAS and by the shipped kernel are captured in graphs over cold argument sets. First nothing
else runs: several groups of argument sets and several captures of one group are sampled in turn. Then each of some
short kernels runs before every sample, outside of its time. A kernel whose levels are several keeps one of them until
another kernel moves it; `spread` is the standard deviation over samples in percent of their mean.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from benchmarks.kernels import KINDS
from triton_ops import chooser
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.timing import Interval, Launch, Sampler
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer

KIND = "gluon_matmul"
PAIR = (
    Config({"BM": 64, "BN": 256, "BK": 64, "BUFFERS": 2, "num_warps": 4}),
    Config({"BM": 128, "BN": 128, "BK": 64, "BUFFERS": 3, "num_warps": 4}),
)
SETS, ROUNDS = 10, 30
GROUP, GROUPS, CAPTURES, SAMPLES = 8, 4, 3, 40
TILES = {
    "ALGORITHM": "tiles", "LOADS": "host", "SWAPPED": False, "PROGRAMS": 1, "SPLIT": 1, "BM": 64, "BN": 128, "BK": 64,
    "HALVES": False, "GROUP_M": 8, "num_warps": 4, "num_stages": 7,
}  # fmt: skip
LAUNCHES = {
    "cuBLAS 256x4096x4096": ((256, 4096, 4096), "aten", {}),
    "triton 256x4096x4096": ((256, 4096, 4096), "triton", TILES),
    "cuBLASLt 256x4096x14336": ((256, 4096, 14336), "cublaslt", {}),
    "cuBLAS 256x4096x14336": ((256, 4096, 14336), "aten", {}),
    "cuBLAS 1024x4096x4096": ((1024, 4096, 4096), "aten", {}),
}


def rounds_on(sets: int, rounds: int) -> list[tuple[list[float], list[float]]]:
    """The milliseconds of both configs by set, in the same rounds."""
    operation = KINDS[KIND]
    arguments = [operation.materialise(operation.problem(None, None), "cuda") for _ in range(sets)]
    executables = [operation.kernel.compile(config, arguments[0]) for config in PAIR]
    timer = EventTimer("cuda", cache="flushed")
    samplers = [[timer.prepare(Launch(each.bind(one)), 1) for each in executables] for one in arguments]
    rows: list[tuple[list[float], list[float]]] = [([], []) for _ in range(sets)]
    rng = random.Random(0)
    for _ in range(rounds):
        for one in rng.sample(range(sets), sets):
            for which in rng.sample((0, 1), 2):
                rows[one][which].append(statistics.median(samplers[one][which].take(timer, 3)))
    return rows


def of_arguments() -> dict[str, Any]:
    """By how much the second config is slower than the first on each set, with its interval, and the spread."""
    gaps = [Interval.of_gap(second, first) for first, second in rounds_on(SETS, ROUNDS)]
    centres = [gap.centre for gap in gaps]
    for gap in gaps:
        print(f"{100 * gap.centre:+.2f} % ({100 * gap.low:+.2f} to {100 * gap.high:+.2f})")
    mean, deviation = statistics.mean(centres), statistics.stdev(centres)
    print(f"mean {100 * mean:+.2f} %, standard deviation over sets {100 * deviation:.2f} %")
    return {
        "kernel": KIND, "pair": [dict(config) for config in PAIR], "mean": mean, "deviation_over_sets": deviation,
        "slower_by_set": [[gap.low, gap.centre, gap.high] for gap in gaps],
    }  # fmt: skip


class StillTimer(GraphTimer):
    """The timer, which runs nothing before a sample by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._queue.unsettle = lambda: None  # type: ignore[method-assign]


def sets_of(shape: Sequence[int], count: int) -> list[tuple[torch.Tensor, ...]]:
    """Factors of a product, made anew, of values in [-1, 1)."""
    rows, columns, inner = shape
    sizes = (rows, inner), (inner, columns)
    return [tuple((2 * torch.rand(size, device="cuda") - 1).bfloat16() for size in sizes) for _ in range(count)]


def launch_of(function: Callable[..., Any], sets: Sequence[Sequence[torch.Tensor]]) -> Launch:
    """The product of each set in turn."""
    calls = [partial(function, *arguments) for arguments in sets]
    calls[0]()
    return Launch(calls[0], None, tuple(calls[1:]))


def ways() -> dict[str, Callable[[], Any]]:
    """What runs before each sample, by its name."""
    rng = random.Random(0)
    rows = {mib: torch.zeros(mib * 1024, 256, device="cuda") for mib in (4, 16, 32)}
    sums = {mib: torch.zeros(mib * 1024, device="cuda") for mib in rows}
    source, target = (torch.zeros(1 << 23, device="cuda") for _ in range(2))
    calls: dict[str, Callable[[], Any]] = {"nothing": lambda: None}
    for mib, tensor in rows.items():
        calls[f"sums of rows, {mib} MiB"] = partial(torch.sum, tensor, 1, out=sums[mib])
    calls["a copy of 32 MiB"] = lambda: target.copy_(source)
    calls["a fill of up to 4 MiB"] = lambda: target[: rng.randrange(1 << 20)].fill_(0)
    return calls


def samples_us(timer: GraphTimer, sampler: Sampler, before: Callable[[], Any]) -> list[float]:
    """Microseconds of one launch, after `before` each time."""
    samples = []
    for _ in range(SAMPLES):
        with timer.round():
            before()
            pending = sampler.queue(1)
        samples += [1e3 * sample for sample in pending()]
    return samples


def device_us(timer: GraphTimer, before: Callable[[], Any]) -> float:
    """How long the device takes for what runs before a sample."""
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with timer.round():
            start.record()
            before()
            end.record()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def figures(samples: Sequence[float]) -> dict[str, float]:
    """The mean, the spread and the ends."""
    mean, (low, *_, high) = statistics.fmean(samples), statistics.quantiles(samples, n=10)
    return {"mean_us": mean, "spread_percent": 100 * statistics.stdev(samples) / mean, "p10_us": low, "p90_us": high}


def measured(timer: GraphTimer, shape: Sequence[int], function: Callable[..., Any]) -> dict[str, Any]:
    """The settled level of every group and capture, and the samples after each way."""
    groups = [sets_of(shape, GROUP) for _ in range(GROUPS)]
    samplers = [timer.prepare(launch_of(function, group)) for group in groups]
    samplers += [timer.prepare(launch_of(function, groups[0])) for _ in range(CAPTURES)]
    settled = [statistics.fmean(samples_us(timer, sampler, lambda: None)) for sampler in samplers]
    after = {name: figures(samples_us(timer, samplers[0], way)) for name, way in ways().items()}
    return {"settled_us": {"groups": settled[:GROUPS], "captures": settled[GROUPS:]}, "after": after}


def of_blocks() -> dict[str, Any]:
    """The levels of each launch, and how long the device takes for what runs before a sample."""
    timer, products, launches = StillTimer(), chooser("matmul").implementations, {}
    for name, (shape, which, tiles) in LAUNCHES.items():
        launches[name] = measured(timer, shape, products[which].run(tiles))
        print(name, {key: [round(us, 2) for us in level] for key, level in launches[name]["settled_us"].items()})
        for way, row in launches[name]["after"].items():
            print(f"  {way:22}", " ".join(f"{key} {value:.2f}" for key, value in row.items()), flush=True)
    return {"launches": launches, "device_us": {name: device_us(timer, way) for name, way in ways().items()}}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"arguments": of_arguments, "blocks": of_blocks}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/launch_states.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    command = f"python -m benchmarks.timing.placement --parts {' '.join(options.parts)}"
    rows = {name: figure for part in options.parts for name, figure in PARTS[part]().items()}
    save(options.out, headed(command, options.commit, device=probe("cuda").name, **rows))


if __name__ == "__main__":
    main()
