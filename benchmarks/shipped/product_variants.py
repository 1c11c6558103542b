"""Products in Gluon beside the shipped winners and the library: grouped ones, and those of 8-bit floats by turns.

python -m benchmarks.shipped.product_variants --limit-s 100 --out build/product_variants.json
python -m benchmarks.shipped.product_variants --compile-only  # no GPU: registers, spills, serialised products
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.kernels.gluon_fp8 import fp8_forms
from benchmarks.kernels.gluon_grouped import grouped_forms
from benchmarks.shipped.form_race import SHIPPED, Case, run
from triton_ops import Config

GROUPED = {
    "FORM": "gluon", "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_SIZE_M": 8, "BUFFERS": 4, "SKEW": 0,
    "num_warps": 4,
}  # fmt: skip
GROUPED_FORMS = {
    "Gluon": GROUPED,
    "Gluon, one step apart": {**GROUPED, "SKEW": 1},
    "Gluon, two steps apart": {**GROUPED, "SKEW": 2},
    "Gluon, three steps apart": {**GROUPED, "SKEW": 3},
    "Gluon, groups of 16": {**GROUPED, "GROUP_SIZE_M": 16},
}
TURNS = {
    "FORM": "turns", "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_SIZE_M": 16, "BUFFERS": 4, "num_warps": 4
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Promoted(Case):
    """Forms of the product of 8-bit floats beside the shipped one in Gluon, which has no other tunables than these."""

    @property
    def shipped(self) -> Config:
        """The winner at 8192 of both Hopper cards."""
        return Config({**TURNS, "FORM": SHIPPED, "APART": False})


PROBLEMS = (
    "mixtral-8x7b-up-prefill", "qwen3-30b-up-prefill", "qwen3-30b-down-prefill", "deepseek-v3-up-prefill",
    "deepseek-v3-down-prefill",
)  # fmt: skip
CASES = [
    *(Case(grouped_forms, "grouped_matmul", problem, GROUPED_FORMS) for problem in PROBLEMS),
    _Promoted(fp8_forms, "fp8_gemm", "8192", {"turns": TURNS, "turns, groups of 8": {**TURNS, "GROUP_SIZE_M": 8}}),
]

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.shipped.product_variants", __doc__, ("library",)))
