"""How much of what a kernel read stays in L2 through each way to clear it, by the eviction policy of its loads.

    python -m benchmarks.timing.l2_residue --out benchmarks/results/nvidia-h200/l2_residue.json

A kernel whose loads ask for `evict_last` may leave lines that a plain write of twice the L2 does not drive out; then it
is timed half warm, and whoever is timed after it finds less room. One kernel reads a tensor under a policy, L2 is
cleared, and a plain read of the same tensor, or of another, is timed between two events. `left` is 1 where that read is
as quick as after no clearing, and 0 where it is as slow as if the first had never run; `beside` is how much slower the
other tensor's second read has become, in percent.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
import triton
import triton.language as tl

from benchmarks.document import headed, save
from triton_ops.device import probe
from triton_ops.timing import Launch
from triton_ops.timing.gpu_timers import GraphTimer

POLICIES = ("", "evict_first", "evict_last")
SHARES_OF_L2 = (0.25, 0.5)
SETS = (2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 40, 80)
MOST_OF_L2 = 20.0  # read by all sets of a rotation
KINDS = (("copy", 0.2, ("", "evict_first")), ("read", 0.2, ("", "evict_last")), ("read", 0.6, ("",)))
ROUNDS = 12  # of replays of each graph, whose launches take 0.2 ms or more
BLOCK = 8192


@triton.jit
def read(x, out, POLICY: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of each block of x, as float32."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + place, eviction_policy=POLICY), 0))


@triton.jit
def copied(x, out, POLICY: tl.constexpr, BLOCK: tl.constexpr):
    """A copy of each block of x."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place), eviction_policy=POLICY)


@triton.jit
def made_ordinary(x, LINES: tl.constexpr):
    """Take the wish to stay from the lines of 128 bytes of x, which keep their place in L2."""
    line = (x + (tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)) * 32).to(tl.int64)
    tl.inline_asm_elementwise(
        "applypriority.global.L2::evict_normal [$1], 128; mov.u32 $0, 0;", "=r,l", [line], tl.int32, False, 1
    )


class Ground:
    """Tensors of a share of L2, and what clears L2.

    Args:
        share: Size of a tensor by that of L2.
        l2_bytes: Size of L2.
    """

    def __init__(self, share: float, l2_bytes: int) -> None:
        blocks = int(share * l2_bytes) // (4 * BLOCK)
        self.mine, self.others = (torch.ones(blocks * BLOCK, device="cuda") for _ in range(2))
        self.out = torch.empty(blocks, device="cuda")
        self.written = {times: torch.empty(times * l2_bytes, dtype=torch.uint8, device="cuda") for times in (1, 2, 4)}
        self.swept = torch.ones(2 * l2_bytes // (4 * BLOCK) * BLOCK, device="cuda")
        self.sums = torch.empty(self.swept.numel() // BLOCK, device="cuda")

    def read(self, x: torch.Tensor, policy: str = "") -> None:
        """Read a tensor once under a policy."""
        read[(x.numel() // BLOCK,)](x, self.out if x is not self.swept else self.sums, POLICY=policy, BLOCK=BLOCK)

    def ways(self) -> dict[str, Callable[[], object]]:
        """What is done between the two reads, by its name."""
        calls: dict[str, Callable[[], object]] = {
            f"a write of {times} times L2": written.zero_ for times, written in self.written.items()
        }
        calls["a read of twice L2"] = lambda: self.read(self.swept)
        calls["a read of twice L2 that asks to stay"] = lambda: self.read(self.swept, "evict_last")
        calls["a read of twice L2 that asks to stay, and its lines made ordinary"] = self.swept_and_ordinary
        calls["persisting lines reset, a write of twice L2"] = lambda: (reset_persisting(), self.written[2].zero_())
        return calls

    def forget(self) -> None:
        """Leave nothing in L2 of what was read before."""
        reset_persisting()
        self.written[4].zero_()

    def read_and(self, way: Callable[[], object], policy: str, then: torch.Tensor | None = None) -> None:
        """Forget everything, read the tensor under a policy, clear L2 in this way, and read another tensor."""
        self.forget()
        self.read(self.mine, policy)
        way()
        if then is not None:
            self.read(then)

    def swept_and_ordinary(self) -> None:
        """Drive out lines that were to stay by others, which are then ordinary ones."""
        self.read(self.swept, "evict_last")
        made_ordinary[(self.swept.numel() // BLOCK,)](self.swept, LINES=BLOCK // 32)

    def timed_us(self, before: Callable[[], object], x: torch.Tensor, repeats: int) -> float:
        """The median time of a plain read of x after `before`."""
        times = []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before()
            torch.cuda._sleep(200_000)  # the host stays ahead
            start.record()
            self.read(x)
            end.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(end))
        return statistics.median(times)


def reset_persisting() -> None:
    """Make lines that were to persist ordinary ones, once all work before has ended.

    Raises:
        RuntimeError: The driver refused.
    """
    torch.cuda.synchronize()
    status = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()
    if status:
        raise RuntimeError(f"cuCtxResetPersistingL2Cache returned {status}")


def measured(ground: Ground, repeats: int) -> dict:
    """The times of a cold and of a warm read, and a row for each policy and way to clear."""
    cold_us = ground.timed_us(ground.forget, ground.mine, repeats)
    warm_us = ground.timed_us(lambda: ground.read(ground.mine), ground.mine, repeats)
    rows = []
    for policy, (name, way) in product(POLICIES, ground.ways().items()):
        mine_us = ground.timed_us(partial(ground.read_and, way, policy), ground.mine, repeats)
        other_us = ground.timed_us(partial(ground.read_and, way, policy, ground.others), ground.others, repeats)
        rows.append({
            "policy": policy or "none", "cleared_by": name, "us": mine_us,
            "left": (cold_us - mine_us) / (cold_us - warm_us), "beside_percent": 100 * (other_us / warm_us - 1),
        })  # fmt: skip
    return {"cold_us": cold_us, "warm_us": warm_us, "rows": rows}


def rotations(l2_bytes: int) -> dict:
    """Microseconds of copies and of reads by the policy and the number of argument sets that they take in turn."""
    timer = GraphTimer()
    samplers = {}
    for kind, share, policies in KINDS:
        blocks = int(share * l2_bytes) // (4 * BLOCK)
        fits = [number for number in SETS if number * share <= MOST_OF_L2]
        sets = [(torch.ones(blocks * BLOCK, device="cuda"), made(kind, blocks)) for _ in range(max(fits))]
        for policy, number in product(policies, fits):
            name = f"{kind} of {share} of L2, {policy or 'none'}"
            samplers[name, number] = timer.prepare(launch_of(kind, sets[:number], policy))
    times: dict[tuple[str, int], list[float]] = {which: [] for which in samplers}
    for _ in range(ROUNDS):  # all of them in turn, so that drift is in all alike
        for which, sampler in samplers.items():
            times[which] += sampler.take(timer, 5)
    return {
        name: {number: 1e3 * statistics.median(times[name, number]) for other, number in times if other == name}
        for name in dict.fromkeys(name for name, _ in times)
    }


def made(kind: str, blocks: int) -> torch.Tensor:
    """What a launch writes: as much as it reads, or a sum of each block."""
    return torch.ones(blocks * (BLOCK if kind == "copy" else 1), device="cuda")


def launch_of(kind: str, sets: Sequence[Sequence[torch.Tensor]], policy: str) -> Launch:
    """A copy, or a read, of each set in turn."""
    kernel = copied if kind == "copy" else read

    def call(x: torch.Tensor, out: torch.Tensor) -> None:
        kernel[(x.numel() // BLOCK,)](x, out, POLICY=policy, BLOCK=BLOCK)

    calls = [partial(call, *arguments) for arguments in sets]
    calls[0]()
    return Launch(calls[0], None, tuple(calls[1:]), (sets[0][1],))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/l2_residue.json"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--commit")
    options = parser.parse_args()
    spec = probe("cuda")
    shares = {}
    for share in SHARES_OF_L2:
        ground = Ground(share, spec.l2_bytes)
        for policy in POLICIES:
            ground.read(ground.swept, policy)  # compiles
        ground.swept_and_ordinary()
        shares[f"{share} of L2"] = measured(ground, options.repeats)
        print(share, shares[f"{share} of L2"], flush=True)
    found_rotations = rotations(spec.l2_bytes)
    print(found_rotations, flush=True)
    document = headed(
        "python -m benchmarks.timing.l2_residue",
        options.commit,
        device=spec.name,
        shares=shares,
        rotations=found_rotations,
    )
    save(options.out, document)


if __name__ == "__main__":
    main()
