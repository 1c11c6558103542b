"""Compile modes on a GPU: graphs are recorded and counted, first calls are told from steady ones, memory is known."""

from __future__ import annotations

import time
from functools import partial

import pytest

from triton_ops import advise, tune_compile
from triton_ops.device import probe
from triton_ops.timing import Sampler
from triton_ops_torch.backends import gate_of
from triton_ops_torch.shipped_models import simple_mlp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def test_modes_with_graphs_record_and_then_replay(tmp_path):
    factory = partial(simple_mlp, 64, (256, 256, 256), device="cuda")
    report = tune_compile(factory, modes=["default", "reduce-overhead"], seconds=3.0, cache_dir=tmp_path)
    rows = {row.name: row for row in report.modes}
    assert {name: str(row.status) for name, row in rows.items()} == {
        "eager": "ok", "default": "ok", "reduce-overhead": "ok",
    }  # fmt: skip
    assert rows["default"].recordings == 0
    assert rows["reduce-overhead"].recordings >= 1
    assert rows["reduce-overhead"].rerecorded == ()
    for row in rows.values():
        assert row.kernels >= 2
        assert row.peak_bytes > 4 * 2 * 256 * 256
        assert row.max_error < 1e-2
    best = min(row.relative for row in rows.values())
    assert rows[report.recommended].relative <= max(1.0, 1.01 * best)


def test_the_profile_of_a_small_model_shows_the_host(tmp_path):
    advice = advise(partial(simple_mlp, 8, (64, 64, 64), device="cuda"))
    assert advice.profile.idle > 0.25
    assert advice.way == "torch.compile"
    assert gate_of(probe("cuda")).reason


def test_calls_are_timed_by_a_pair_of_events_as_by_the_wall_clock():
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    torch.mm(x, x)  # the first product of a process loads cuBLAS, which takes longer than a whole sample
    sampler = Sampler.of_calls(partial(torch.mm, x, x), "cuda", 20.0)
    ratios = []
    for _ in range(9):  # other processes may delay the host
        torch.cuda.synchronize()
        start = time.perf_counter()
        by_events = sum(sampler.queue(5)()) * sampler.launches
        ratios.append(by_events / (1e3 * (time.perf_counter() - start)))
    assert max(ratios) == pytest.approx(1, rel=0.05)
