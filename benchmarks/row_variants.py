"""Forms of the kernels over rows that miss a limit, beside the shipped winner and torch.compile.

    python -m benchmarks.row_variants --limit-s 120 --out build/row_variants.json
    python -m benchmarks.row_variants --compile-only        # no GPU: registers, spills, widths of loads

Missed are the layer norm of short rows (0.98 and 0.99 of torch.compile), the gradient of the softmax of long rows (0.85
and 0.93), and RMSNorm with RoPE (0.907 of a copy).
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.form_race import Case, run
from benchmarks.kernels.row_forms import layer_norm_forms, rmsnorm_rope_forms, softmax_backward_forms

FIRST = "evict_first"
NORM = {
    "FORM": "streams", "BLOCK_SIZE": 128, "ROWS": 8, "PROGRAMS": 0, "STAGES": 1, "EVICT": FIRST, "SPREAD": False,
    "num_warps": 2,
}  # fmt: skip
LONG = {**NORM, "BLOCK_SIZE": 1024, "ROWS": 1, "num_warps": 1}
ROPE = {
    "FORM": "streams", "BLOCK_SIZE": 2048, "PROGRAMS": 0, "STAGES": 1, "EVICT": FIRST, "num_warps": 4, "num_stages": 1,
}  # fmt: skip
BACK = {"FORM": "back", "BLOCK_SIZE": 4096, "STAGES": 1, "EVICT": FIRST, "num_warps": 16}
SPLIT = {"FORM": "split", "BLOCK_SIZE": 2048, "SPLIT": 8, "EVICT": FIRST, "num_warps": 8}


def norm_forms(base: dict[str, Any], rows: int) -> dict[str, dict[str, Any]]:
    """The forms of the layer norm around one config; `rows` for each program that walks."""
    walks = {**base, "ROWS": rows}
    return {
        "as shipped, evicts": base,
        "more rows": {**base, "ROWS": 2 * base["ROWS"], "num_warps": 2 * base["num_warps"]},
        "four times the rows": {**base, "ROWS": 4 * base["ROWS"], "num_warps": 4 * base["num_warps"]},
        "more rows, keeps": {**base, "ROWS": 2 * base["ROWS"], "EVICT": "", "num_warps": 2 * base["num_warps"]},
        "fewer threads": {**base, "ROWS": 2 * base["ROWS"]},
        "walks": {**walks, "PROGRAMS": 16},
        "walks, two in flight": {**walks, "PROGRAMS": 8, "STAGES": 2},
        "walks, three in flight": {**walks, "PROGRAMS": 8, "STAGES": 3},
    }


CASES = [
    Case(softmax_backward_forms, "softmax_backward", "llama-3-logits-decode", {
        "split by 8": SPLIT, "split by 4": {**SPLIT, "SPLIT": 4}, "split by 16": {**SPLIT, "SPLIT": 16},
        "split by 8, wide": {**SPLIT, "BLOCK_SIZE": 4096}, "split by 8, keeps": {**SPLIT, "EVICT": ""},
        "back": {**BACK, "BLOCK_SIZE": 8192},
    }),
    Case(softmax_backward_forms, "softmax_backward", "qwen-logits-prefill", {
        "back": BACK, "back, keeps": {**BACK, "EVICT": ""}, "back, wide": {**BACK, "BLOCK_SIZE": 8192},
        "back, two in flight": {**BACK, "STAGES": 2}, "back, 32 warps": {**BACK, "BLOCK_SIZE": 8192, "num_warps": 32},
        "split by 4": {**SPLIT, "SPLIT": 4},
    }),
    Case(layer_norm_forms, "layer_norm", "deepseek-indexer", {
        **norm_forms(NORM, 16),
        "shipped, 32 rows": {"FORM": "shipped", "BLOCK_SIZE": 128, "ROWS": 32, "num_warps": 8},
        "shipped, 64 rows": {"FORM": "shipped", "BLOCK_SIZE": 128, "ROWS": 64, "num_warps": 8},
        "spread": {**NORM, "SPREAD": True}, "spread, 4 warps": {**NORM, "ROWS": 16, "SPREAD": True, "num_warps": 4},
        "spread, keeps": {**NORM, "SPREAD": True, "EVICT": ""},
        "spread, 1 warp": {**NORM, "ROWS": 4, "SPREAD": True, "num_warps": 1},
    }),
    Case(layer_norm_forms, "layer_norm", "gpt-2-training", norm_forms(LONG, 1)),
    Case(rmsnorm_rope_forms, "rmsnorm_rope", "llama-8b-8x4096", {
        "whole": ROPE, "whole, keeps": {**ROPE, "EVICT": ""}, "whole, 8 warps": {**ROPE, "num_warps": 8},
        "whole, 16 warps": {**ROPE, "num_warps": 16}, "walks": {**ROPE, "PROGRAMS": 8},
        "walks, two in flight": {**ROPE, "PROGRAMS": 4, "STAGES": 2},
        "walks, three in flight": {**ROPE, "PROGRAMS": 4, "STAGES": 3, "num_warps": 8},
    }),
]  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.row_variants", __doc__, ("compile",)))
