"""The two forms of attention beside the shipped winner, and the best beside the fastest backend of torch's attention.

    python -m benchmarks.shipped.attention_variants --limit-s 100 --out build/attention_variants.json
    python -m benchmarks.shipped.attention_variants --beside "Triton, 64 rows"  # what the form in Gluon gains
    python -m benchmarks.shipped.attention_variants --compile-only  # no GPU: registers, spills, serialised products

`shipped`, beside which each form is raced, is the winner of the package, or the default where there is none; `library`
is torch's attention by its fastest backend.
"""

from __future__ import annotations

import sys

from benchmarks.shipped.form_race import Case, run
from triton_ops_kernels.attention import operation
from triton_ops_kernels.attention.problems import GLUON_HAS

GLUON = {**GLUON_HAS, "FORM": "gluon", "GROUP_HEADS": 8}
TRITON = {
    "FORM": "triton", "BLOCK_M": 64, "BLOCK_N": 64, "GROUP_HEADS": 1, "SPLITS": 1, "DESCRIPTORS": False,
    "WARP_SPECIALIZE": False, "num_warps": 4, "num_stages": 3,
}  # fmt: skip
FORMS = {
    "Gluon": GLUON,
    "Gluon, one head": {**GLUON, "GROUP_HEADS": 1},
    "Triton, 64 rows": TRITON,
    "Triton, 128 rows": {**TRITON, "BLOCK_M": 128, "num_warps": 8},
}
PROBLEMS = (
    "llama-8b-prefill", "llama-8b-long", "llama-70b-chunk", "qwen-0.5b-prefill", "flux-dev-image", "whisper-large"
)  # fmt: skip
CASES = [Case(operation, "attention", problem, FORMS) for problem in PROBLEMS]

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.shipped.attention_variants", __doc__, ("library",)))
