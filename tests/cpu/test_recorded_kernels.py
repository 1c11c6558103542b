"""How well work that was read ranks spaces that were recorded on an H200, without Triton and without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.model_quality import figures, read, time_ms

from triton_ops.hardware import machine_of, spec_named
from triton_ops.ranking.inferred_prior import inferred_model
from triton_ops.ranking.readings import readings_of

RECORDINGS = Path(__file__).parents[2] / "benchmarks" / "recordings"
LEAST = {  # Spearman's correlation, and the share of the optimum that the first five reach
    "attention_causal_d128": (0.90, 0.95),
    "flash_d64": (0.88, 0.95),
    "gated_mlp": (0.90, 0.95),
    "layer_norm_backward": (0.85, 0.95),
    "layer_norm_gradient": (0.75, 0.95),
    "persistent_matmul": (0.92, 0.95),
    "split_k_atomic": (0.92, 0.95),
}


@pytest.mark.parametrize("name", LEAST)
def test_work_that_was_read_ranks_a_recorded_space(name):
    recording = read(RECORDINGS / f"{name}.json.gz")
    ran = [row for row in recording["rows"] if row["status"] == "ok"]
    model = inferred_model(readings_of(recording["inferred"]), machine_of(spec_named(recording["gpu"])))
    found = figures(model.score([row["config"] for row in ran]), [time_ms(row) for row in ran])
    correlation, of_five = LEAST[name]
    assert found["spearman"] >= correlation
    assert found["best_of_5"] >= of_five
    assert 0.7 < found["level"] < 1.4
