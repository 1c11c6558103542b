"""A kernel of any length: each value goes through a chain of so many steps, in as many programs as the config says."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_ops import TritonKernel

BLOCK = 1024
BLOCKS = 1024


@triton.jit
def chain_kernel(x, out, steps, blocks, PROGRAMS: tl.constexpr, BACKWARDS: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks in turn; the order is no matter of speed, so that configs can be equal."""
    for block in range(tl.program_id(0), blocks, PROGRAMS):
        place = blocks - 1 - block if BACKWARDS else block
        at = place * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at)
        for _ in range(steps):
            value = value * 0.999 + 0.001
        tl.store(out + at, value)


def grid(meta):
    """One program for each that the config asks for."""
    return (meta["PROGRAMS"],)


kernel = TritonKernel(chain_kernel, grid, outputs=("out",))


def arguments(steps: int) -> dict[str, object]:
    """The arguments of a chain of so many steps."""
    x = torch.rand(BLOCKS * BLOCK, device="cuda")
    return {"x": x, "out": torch.empty_like(x), "steps": steps, "blocks": BLOCKS, "BLOCK": BLOCK}


def steps_for(programs: int, launch_ms: float, few: int = 2000) -> int:
    """How many steps make a launch of so many programs last so long here."""
    given = arguments(few)
    for _ in range(2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        chain_kernel[(programs,)](**given, PROGRAMS=programs, BACKWARDS=0)
        end.record()
        end.synchronize()
    return max(round(few * launch_ms / start.elapsed_time(end)), 1)
