"""Configs of the kernels over rows that may gain the last percents, beside what is shipped and torch.compile.

    python -m benchmarks.shipped.row_variants --limit-s 120 --out build/row_variants.json
    python -m benchmarks.shipped.row_variants --compile-only        # no GPU: registers, spills, widths of loads

A tune of some seconds decides between configs by short measurements; here each has a comparison of its own. All of them
are in the operations' spaces. What has been raced on an H200 and is no longer here: norms whose programs walk over many
rows forward took 1.05 to 1.5 of the time of a program for each row, with one, two or three rows in flight.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.shipped.form_race import Case, run
from triton_ops_kernels import load

PART = {"BLOCK_SIZE": 4096, "ROWS": 1, "num_warps": 8, "SPLIT": 8, "EVICT": "all"}
LONG = {"BLOCK_SIZE": 8192, "ROWS": 1, "num_warps": 32, "SPLIT": 1, "EVICT": "all"}
ROW = {"BLOCK_SIZE": 4096, "ROWS": 1, "num_warps": 16, "SPLIT": 1, "EVICT": "none"}
SHORT = {"BLOCK_SIZE": 128, "ROWS": 8, "num_warps": 2, "EVICT": "all", "SPREAD": True}
GPT = {"BLOCK_SIZE": 1024, "ROWS": 1, "num_warps": 1, "EVICT": "all", "SPREAD": False}
ROPE = {"BLOCK_SIZE": 2048, "num_warps": 4, "num_stages": 1}
BACK = {"BLOCK_SIZE": 8192, "ROWS": 1, "PROGRAMS": 1, "STAGES": 1, "SUM_COLUMNS": 64, "num_warps": 16}
ROPE_BACK = {"BLOCK_SIZE": 2048, "PROGRAMS": 2, "STAGES": 1, "SUM_COLUMNS": 64, "num_warps": 8}
WIDE = {"BLOCK_SIZE": 2048, "ROWS": 2, "PROGRAMS": 16, "STAGES": 2, "SUM_COLUMNS": 64, "num_warps": 8}
HEADS = {"BLOCK_SIZE": 128, "ROWS": 16, "PROGRAMS": 4, "STAGES": 1, "SUM_COLUMNS": 16, "num_warps": 4}


def _case(kernel: str, problem: str, base: dict[str, Any], **changes: dict[str, Any]) -> Case:
    """A config and changes of it, by names with underscores for blanks."""
    named = {name.replace("_", " "): {**base, **change} for name, change in changes.items()}
    return Case(load(kernel), kernel, problem, named)


CASES = [
    _case(
        "softmax_backward", "llama-3-logits-decode", PART, by_8={}, by_16={"SPLIT": 16},
        by_16_wide={"SPLIT": 16, "BLOCK_SIZE": 8192, "num_warps": 16}, by_32={"SPLIT": 32},
        whole={"SPLIT": 1, "BLOCK_SIZE": 32768, "num_warps": 16},
    ),
    _case(
        "softmax_backward", "qwen-logits-prefill", LONG, back={}, wide={"BLOCK_SIZE": 16384}, loads={"EVICT": "loads"},
    ),
    _case(
        "softmax_backward", "attention-4096", ROW, whole={}, half_the_warps={"num_warps": 8},
        a_quarter_of_the_warps={"num_warps": 4}, chunks={"BLOCK_SIZE": 2048, "EVICT": "loads"},
        chunks_all={"BLOCK_SIZE": 2048, "EVICT": "all"}, short_chunks={"BLOCK_SIZE": 1024, "EVICT": "loads"},
    ),
    _case(
        "layer_norm", "deepseek-indexer", SHORT, spread={}, loads_only={"EVICT": "loads"},
        more_rows={"ROWS": 16, "num_warps": 4}, most_rows={"ROWS": 32, "num_warps": 8},
    ),
    _case(
        "layer_norm", "gpt-2-training", GPT, evicts={}, loads_only={"EVICT": "loads"},
        two_rows={"ROWS": 2}, two_rows_loads={"ROWS": 2, "EVICT": "loads"},
        two_rows_spread={"ROWS": 2, "SPREAD": True}, two_rows_two_warps={"ROWS": 2, "num_warps": 2},
        two_rows_two_warps_loads={"ROWS": 2, "num_warps": 2, "EVICT": "loads"},
        four_rows_spread={"ROWS": 4, "num_warps": 4, "SPREAD": True},
    ),
    _case("rmsnorm_rope", "llama-8b-8x4096", ROPE, whole={}, chunks={"BLOCK_SIZE": 1024}),
    _case(
        "layer_norm_backward", "falcon-40b-prefill", BACK, in_flight={"STAGES": 2},
        twice_the_warps={"num_warps": 32}, twice_the_warps_in_flight={"num_warps": 32, "STAGES": 2},
        half_the_warps={"num_warps": 8}, half_the_warps_twice={"num_warps": 8, "PROGRAMS": 2},
    ),
    _case("layer_norm_backward", "falcon-40b-decode", BACK, warps={"num_warps": 32}, sums={"SUM_COLUMNS": 16}),
    _case(
        "layer_norm_backward", "wide", WIDE, two_rows={}, a_row={"ROWS": 1, "num_warps": 4},
        when_its_turn={"STAGES": 1}, one_wave={"PROGRAMS": 4}, more_programs={"PROGRAMS": 32},
    ),
    _case(
        "layer_norm_backward", "deepseek-indexer", HEADS, four_warps={},
        more_warps={"ROWS": 32, "PROGRAMS": 2, "num_warps": 8},
        in_flight={"ROWS": 32, "PROGRAMS": 2, "num_warps": 8, "STAGES": 2}, half_the_rows={"ROWS": 8, "PROGRAMS": 8},
        one_warp={"ROWS": 4, "PROGRAMS": 16, "num_warps": 1, "STAGES": 2},
    ),
    _case(
        "rmsnorm_rope_backward", "llama-8b-8x4096", ROPE_BACK, in_flight={"STAGES": 2}, sums={"SUM_COLUMNS": 16},
        more_programs={"PROGRAMS": 4}, half_the_warps={"num_warps": 4, "PROGRAMS": 4},
    ),
]  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(CASES, "benchmarks.shipped.row_variants", __doc__, ("compile",)))
