"""Attention in Gluon beside the shipped winner and the fastest backend of torch's attention.

    python -m benchmarks.shipped.attention_variants --limit-s 100 --out build/attention_variants.json
    python -m benchmarks.shipped.attention_variants --compile-only  # no GPU: registers, spills, serialised products

`shipped`, beside which each form is raced, is the winner of the package, or the default where there is none; `library`
is torch's attention by its fastest backend, which is cuDNN's on Hopper.
"""

from __future__ import annotations

import sys

from benchmarks.kernels.gluon_attention import attention_forms
from benchmarks.shipped.form_race import Case, run

GLUON = {
    "FORM": "gluon", "BLOCK_M": 128, "BLOCK_N": 128, "GROUP_HEADS": 8, "BUFFERS": 2, "TURNS": "named", "LAZY": True,
    "OVERLAP": "held", "PACKED": True, "num_warps": 4,
}  # fmt: skip
FORMS = {
    "named turns": GLUON,
    "named turns, not packed": {**GLUON, "PACKED": False},
    "no turns": {**GLUON, "TURNS": ""},
    "shared turns": {**GLUON, "TURNS": "shared"},
    "named turns, sums at once": {**GLUON, "LAZY": False},
    "named turns, no overlap": {**GLUON, "OVERLAP": "no"},
    "named turns, free overlap": {**GLUON, "OVERLAP": "free"},
    "no turns, free overlap": {**GLUON, "OVERLAP": "free", "TURNS": ""},
    "no turns, one head": {**GLUON, "TURNS": "", "GROUP_HEADS": 1},
    "named turns, all heads": {**GLUON, "GROUP_HEADS": 1024},
    "named turns, 64 keys": {**GLUON, "BLOCK_N": 64, "BUFFERS": 3},
    "no turns, 64 keys": {**GLUON, "TURNS": "", "BLOCK_N": 64, "BUFFERS": 3},
}
PROBLEMS = (
    "llama-8b-prefill", "llama-8b-long", "llama-70b-chunk", "qwen-0.5b-prefill", "flux-dev-image", "whisper-large"
)  # fmt: skip
CASES = [Case(attention_forms, "attention", problem, FORMS) for problem in PROBLEMS]

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.shipped.attention_variants", __doc__, ("library",)))
