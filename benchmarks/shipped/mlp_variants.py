"""Forms of the gated MLP beside the shipped winner, eager PyTorch and torch.compile's max-autotune.

    python -m benchmarks.shipped.mlp_variants --limit-s 120 --out build/mlp_variants.json
    python -m benchmarks.shipped.mlp_variants --compile-only  # no GPU: registers, spills, serialised products

On an H200 the packed weights in programs that walk over tiles were 1.04 to 1.13 times as fast as the winner shipped
before, whose programs made their own descriptors, and one descriptor of the host for each weight 1.04 to 1.08 times.
`joined` has the loop of `packed`, by one descriptor of both weights where they lie. `shipped`, beside which each form
is raced, is the winner of the package, or the default where there is none.
"""

from __future__ import annotations

import sys

from benchmarks.kernels.mlp_forms import mlp_forms
from benchmarks.shipped.form_race import SHIPPED, Case, run

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_SIZE_M": 8}
SHAPE = {**TILE, "num_warps": 8, "num_stages": 4}
HOST = {"FORM": SHIPPED, **SHAPE, "LOADS": "host", "JOINED": False, "PROGRAMS": 0, "HALVES": True}
JOINED = {**HOST, "JOINED": True, "PROGRAMS": 1}
PACKED = {"FORM": "packed", **SHAPE, "PROGRAMS": 1, "FLAT": True, "HALVES": True}
GLUON = {"FORM": "gluon", **TILE, "BUFFERS": 4, "JOINED": True, "num_warps": 4}
FORMS = {
    "joined, walking": JOINED,
    "joined, walking, whole": {**JOINED, "HALVES": False},
    "joined": {**JOINED, "PROGRAMS": 0},
    "host": HOST,
    "packed, walking": PACKED,
    "packed": {**PACKED, "PROGRAMS": 0, "FLAT": False},
    "Gluon, joined": GLUON,
    "Gluon, apart": {**GLUON, "JOINED": False},
    "Gluon, joined, groups of 16": {**GLUON, "GROUP_SIZE_M": 16},
}
PROBLEMS = ("llama-8b-prefill", "llama-70b-prefill", "qwen-7b-prefill", "llama-8b-chunk", "deepseek-v3-expert")
CASES = [Case(mlp_forms, "gated_mlp", problem, FORMS) for problem in PROBLEMS]

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.shipped.mlp_variants", __doc__, ("eager", "compile")))
