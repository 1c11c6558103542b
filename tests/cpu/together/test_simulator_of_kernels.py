"""A run log of a shipped kernel in the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runs import begun
from triton_ops.records import TrialOrigin as Origin
from triton_ops.space import Config
from triton_ops.values import Key, Measurement, Status, Trial
from triton_ops_kernels import load
from triton_ops_lab.simulated_ranking import Overlay, table_name


def test_the_run_log_of_a_shipped_kernel_is_laid_over(cli, tmp_path):
    pytest.importorskip("triton")
    default = load("matmul").space_for(load("matmul").problem((1024, 1024, 1024), "bfloat16")).default_config
    key = Key(kernel="matmul", problem={}, identity={}, device={"name": "NVIDIA H200"}, cache_state="cold")
    log = begun(tmp_path, key=key, shape=(1024, 1024, 1024), dtype="bfloat16")
    for tile in (16, 32, 64, 128):
        config = Config(default, ALGORITHM="tiles", LOADS="pointers", HALVES=False, BM=tile, BN=tile)
        log.trial(Trial(config, Status.OK, Measurement((1 / tile,), "host")), Origin.SEARCHER)
    result = Overlay.of(tmp_path / f"{log.id}.jsonl")
    assert (result.title, table_name(result.spec), result.inferred) == ("matmul 1024x1024x1024 bfloat16", "H200", False)
    assert result.spearman > 0.5
    log = begun(tmp_path, id="20261122T101112000000-0123abce", key=replace(key, kernel="mine"))
    log.trial(Trial(Config(n=1), Status.OK, Measurement((1.0,), "host")), Origin.SEARCHER)
    assert "does not tell what its kernel does" in cli("simulate", "--recording", tmp_path / f"{log.id}.jsonl").err
