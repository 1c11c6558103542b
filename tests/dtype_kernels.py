"""A kernel whose dtype of a sum is a tunable, in a module that other processes import."""

import triton
import triton.language as tl


@triton.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr, ACC: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=ACC)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0).to(ACC)
    tl.store(out + tl.program_id(0), tl.sum(total.to(tl.float32), axis=0))


CONFIGS = [triton.Config({"BLOCK": 64, "ACC": kind}) for kind in (tl.float16, tl.float32)]
SPACE = {"BLOCK": [64], "ACC": [tl.float16, tl.float32]}
