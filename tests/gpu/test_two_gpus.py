"""Work on the second GPU of a host, while the first one is the current one: nothing of it is made on the first one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from triton_ops.device import gpu_missing

torch = pytest.importorskip("torch")

_COUNT = torch.cuda.device_count() if gpu_missing() is None else 0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_COUNT < 2, reason=f"two GPUs are needed, and this process sees {_COUNT}"),
]

PROGRAM = """
import json, sys, threading
import pynvml
import torch
from triton_ops import compare, release_processes, time_ms, tune, tune_many
import triton_ops_kernels as kernels
from triton_ops.request import TuneProblem
from triton_ops.processes import WorkerProcess

started, begin = [], WorkerProcess.__init__
def noted(self, *given, **more):
    begin(self, *given, **more)
    started.append(self.pid)
WorkerProcess.__init__ = noted

pynvml.nvmlInit()
def handle(index):
    return pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1 + index])
def pids(index):
    return {each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle(index))}
def used(index):
    return pynvml.nvmlDeviceGetMemoryInfo(handle(index)).used

softmax, norm, matmul = (kernels.load(name) for name in ("softmax", "layer_norm", "matmul"))
DO
"""


def ran(body, tmp_path):
    """What a program of its own prints last, whose process has no context on any GPU at first."""
    environment = {**os.environ, "TRITON_OPS_CACHE_DIR": str(tmp_path)}
    uuids = [str(torch.cuda.get_device_properties(at).uuid).removeprefix("GPU-") for at in range(2)]
    words = [sys.executable, "-c", PROGRAM.replace("DO", body), *(f"GPU-{uuid}" for uuid in uuids)]
    result = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout.split()


def test_kernels_tuned_after_another_on_the_second_gpu_leave_nothing_on_the_first(tmp_path):
    """The first problem is timed by events, the others by graphs; one worker serves all, as in a run of many."""
    message = ran(
        """
before = used(0)
problems = [
    TuneProblem(target=matmul, shape=(4096, 4096, 4096)), TuneProblem(target=softmax, shape=(512, 1024)),
    TuneProblem(target=norm, shape=(512, 1024)), TuneProblem(target=softmax, shape=(4096, 4096)),
]
found = tune_many(problems, gpus=[1], trials=12)
failed = [str(each.error) for each in found.outcomes if each.error]
wrong = [str(t.error) for each in found.outcomes if each.result for t in each.result.trials
         if "cannot be accessed" in str(t.error)]
grown = used(0) - before
print(len(started), json.dumps(failed + wrong).replace(" ", "_"), grown >> 20)
""",
        tmp_path,
    )
    workers, failed, grown_mib = message
    assert failed == "[]"
    assert int(workers) <= 2  # one worker, and one more where ties are confirmed
    assert int(grown_mib) < 100  # a context takes 500


def test_a_worker_of_the_second_gpu_is_no_process_of_the_first(tmp_path):
    """The driver tells which processes use a GPU, except in a container with names of its own for processes."""
    message = ran(
        """
seen, over = {0: set(), 1: set()}, threading.Event()
def watch():
    while not over.wait(0.05):
        for index in seen:
            seen[index] |= pids(index)
before = pids(0)
watcher = threading.Thread(target=watch)
watcher.start()
for target in (softmax, norm):
    tune(target, shape=(512, 1024), device="cuda:1", trials=12)
over.set(); watcher.join()
release_processes()
print(len(seen[0] - before), len(seen[1]))
""",
        tmp_path,
    )
    on_first, on_second = map(int, message)
    if on_second == 0:
        pytest.skip("the driver does not tell the processes of this container")
    assert on_first == 0


def test_inline_on_the_second_gpu_works_and_the_first_one_stays_the_current_one(tmp_path):
    message = ran(
        """
torch.zeros(1, device="cuda:0")  # a context there, as in a program that uses both
for target, shape in ((matmul, (4096, 4096, 4096)), (softmax, (512, 1024)), (norm, (512, 1024))):
    found = tune(target, shape=shape, device="cuda:1", isolate=False, trials=8)
    assert found.place.startswith("inline"), found.place
    assert sum(trial.ok for trial in found.trials) >= 4, [(t.status, t.error) for t in found.trials]
    assert torch.cuda.current_device() == 0
print(len(started), torch.cuda.memory_allocated(0) >> 20)
""",
        tmp_path,
    )
    assert [int(word) for word in message] == [0, 0]


def test_calls_are_compared_and_timed_on_the_second_gpu(tmp_path):
    message = ran(
        """
torch.zeros(1, device="cuda:0")
problem = softmax.problem((512, 1024), None)
config = dict(softmax.space_for(problem).default_config)
given = softmax.materialise(problem, "cuda:1").keyword
found = compare((softmax, config), (softmax, {**config, "num_warps": 4}), kwargs=given, seconds=3.0)
assert found.mode.startswith("graph"), found.mode
taken = time_ms((softmax, config), kwargs=given)
assert time_ms((softmax, config), device="cuda:1").median_ms > 0  # of its default problem
x = torch.rand(512, 1024, device="cuda:1")
own = time_ms(lambda x: x * 2, args=(x,))
assert torch.cuda.current_device() == 0
print(taken.median_ms < 0.1 and own.median_ms < 0.1, torch.cuda.memory_allocated(0) >> 20)
""",
        tmp_path,
    )
    assert message == ["True", "0"]
