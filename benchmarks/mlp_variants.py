"""Forms of the gated MLP beside the shipped winner, eager PyTorch and torch.compile's max-autotune.

    python -m benchmarks.mlp_variants --limit-s 120 --out build/mlp_variants.json
    python -m benchmarks.mlp_variants --compile-only        # no GPU: registers, spills, serialised matrix instructions

What was expected of them, by reading their machine code: a program of the shipped winner makes four descriptors for one
tile, some microseconds of 27 waves of 48; the shipped form that walks over tiles has its matrix instructions serialised
by ptxas. Descriptors of the host cost a program nothing, and neither `packed` nor `gluon` is serialised.
"""

from __future__ import annotations

import sys

from benchmarks.form_race import Case, run
from benchmarks.kernels.mlp_forms import mlp_forms

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_SIZE_M": 8}
HOST = {"FORM": "host", **TILE, "PROGRAMS": 0, "FLAT": False, "HALVES": True, "num_warps": 8, "num_stages": 4}
PACKED = {**HOST, "FORM": "packed", "PROGRAMS": 1, "FLAT": True}
GLUON = {"FORM": "gluon", **TILE, "BUFFERS": 4, "JOINED": True, "num_warps": 4}
FORMS = {
    "Gluon, joined": GLUON,
    "Gluon, apart": {**GLUON, "JOINED": False},
    "host": HOST,
    "host, whole": {**HOST, "HALVES": False},
    "host, walking": {**HOST, "PROGRAMS": 1},
    "packed, walking": PACKED,
    "packed": {**PACKED, "PROGRAMS": 0, "FLAT": False},
    "Gluon, joined, groups of 16": {**GLUON, "GROUP_SIZE_M": 16},
}
PROBLEMS = ("llama-8b-prefill", "llama-70b-prefill", "qwen-7b-prefill", "llama-8b-chunk", "deepseek-v3-expert")
CASES = [Case(mlp_forms, "gated_mlp", problem, FORMS) for problem in PROBLEMS]

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.mlp_variants", __doc__, ("eager", "compile")))
