"""Processes that measure on one GPU take turns; `TritonAutoTuner` times short calls as `tune` does."""

import itertools
import subprocess
import sys

import pytest

from triton_ops import TritonAutoTuner
from triton_ops.device import Turns, probe

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

TUNES = """
import contextlib, sys, time
from triton_ops import tune
import triton_ops_kernels as kernels
from triton_ops.device import Turns
path, shape = sys.argv[1], tuple(map(int, sys.argv[2].split("x")))
inner = Turns.turn

@contextlib.contextmanager
def traced(self, key):
    nested = Turns.held()
    with inner(self, key):
        start = time.monotonic_ns()
        try:
            yield
        finally:
            if not nested:
                with open(path, "a") as trace:
                    trace.write(f"{start} {time.monotonic_ns()} {sys.argv[2]}\\n")

Turns.turn = traced
result = tune(kernels.load("matmul"), shape=shape, trials=24, cache_dir=sys.argv[3], isolate=False)
assert result.stopped, result
"""


def test_two_processes_that_tune_on_one_gpu_never_measure_at_the_same_time(tmp_path):
    trace = tmp_path / "trace"
    processes = [
        subprocess.Popen([sys.executable, "-c", TUNES, str(trace), shape, str(tmp_path / shape)])
        for shape in ("1024x1024x1024", "2048x2048x2048")
    ]
    assert [process.wait(300) for process in processes] == [0, 0]
    spans = sorted((int(start), int(end), who) for start, end, who in map(str.split, trace.read_text().splitlines()))
    assert {who for *_, who in spans} == {"1024x1024x1024", "2048x2048x2048"}
    assert all(end <= later for (_, end, _), (later, _, _) in itertools.pairwise(spans))
    changes = sum(one[2] != other[2] for one, other in itertools.pairwise(spans))
    assert changes > 4  # side by side, and not one after the other


def test_a_gpu_has_a_key_of_its_own():
    key = Turns.key_of(probe("cuda"), "cuda")
    assert key.startswith("GPU-")
    assert len(key) > 8


def test_the_documented_tuner_times_short_calls_by_graphs_and_reports_the_noise():
    x = torch.rand(1 << 14, device="cuda")
    result = TritonAutoTuner(lambda x, *, FACTOR: x * 2, {"FACTOR": [1, 2, 3]}, 5, 50).tune(x)
    assert result.mode.startswith("graph")
    assert 0 < result.noise < 0.2
    assert result.metrics.latency_ms < 0.05


def test_an_exit_of_one_config_leaves_the_others_on_a_gpu():
    x = torch.rand(1 << 14, device="cuda")

    def exits(x, *, FACTOR):
        if FACTOR == 2:
            raise SystemExit("enough")
        return x * 2

    result = TritonAutoTuner(exits, {"FACTOR": [1, 2, 3]}, 5, 50).tune(x)
    assert [trial.config["FACTOR"] for trial in result.failures] == [2]
