"""What works on one GPU of several has that GPU as the current one: stations, workers, comparisons, torch's switch."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.limits import ENOUGH_S
from triton_ops import DeviceError, FunctionKernel, compare, time_ms, tune
from triton_ops.backend import Packed
from triton_ops.device import TorchDevice, probe
from triton_ops.evaluation import Assignment, FinalRequest, worker
from triton_ops.evaluation.station import Inline
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.request.request import device_for, device_of
from triton_ops.timing import RacePolicy
from triton_ops.tuner import Silent
from triton_ops.values import Status

SEEN: set[tuple[str, int]] = set()


class Switch:
    """Torch's current device, one for each thread, without GPUs.

    Args:
        breaks: Whether going back fails, as after a fault of the GPU.
    """

    def __init__(self, breaks=False):
        self.of, self.breaks = threading.local(), breaks

    @property
    def current(self):
        return getattr(self.of, "index", 0)

    def set_device(self, name):
        self.of.index = int(name.partition(":")[2])

    @contextmanager
    def device(self, name):
        before = self.current
        self.set_device(name)
        try:
            yield
        finally:
            self.of.index = before
            if self.breaks:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")


SWITCH = Switch()


@pytest.fixture
def switch(monkeypatch):
    """A switch in the place of torch's, with the first GPU as the current one."""
    monkeypatch.setattr(torch.cuda, "device", SWITCH.device)
    monkeypatch.setattr(torch.cuda, "set_device", SWITCH.set_device)
    SWITCH.set_device("cuda:0")
    SEEN.clear()
    yield SWITCH
    SWITCH.set_device("cuda:0")


def seen(what):
    SEEN.add((what, SWITCH.current))


def double(x, step):
    seen("launch" if step else "failing launch")
    return x * (2 // step)


def twice(x):
    seen("reference")
    return 2 * x


def same(result, expected):
    seen("check")
    return torch.equal(result, expected)


TASK = (
    TuneProblem(
        target=FunctionKernel(double),
        args=(torch.ones(4),),
        space={"step": [1, 0]},
        reference=twice,
        check=same,
        device="cpu",
    )
    .request()
    .checked()
)  # step 0 fails
ASSIGNED = replace(Assignment.of(TASK, TuneOptions(effort="quick"), None), device_name="cuda:1")
"""A task of the CPU that is said to run on the second GPU."""


def test_the_device_before_is_the_current_one_again_however_the_block_ends(switch):
    with (
        TorchDevice("cuda:1").current(),
        TorchDevice("cuda:2").current(),
        TorchDevice("cpu").current(),
        TorchDevice("cuda").current(),
    ):
        assert switch.current == 2
    with pytest.raises(KeyError), TorchDevice("cuda:3").current():
        raise KeyError
    assert switch.current == 0


def test_a_gpu_that_is_lost_in_the_block_hides_no_result_of_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", Switch(breaks=True).device)
    with TorchDevice("cuda:1").current():
        result = 1
    with pytest.raises(KeyError), TorchDevice("cuda:1").current():
        raise KeyError
    assert result == 1


def test_a_gpu_that_cannot_be_used_is_one_line_where_it_is_asked_for_and_is_left_to_others_where_it_is_chosen():
    with pytest.raises(DeviceError, match="cuda:99 cannot be used: "), TorchDevice("cuda:99").current():
        pass
    TorchDevice("cuda:99").stay()
    TorchDevice("cpu").stay()


def test_whatever_an_inline_station_runs_has_its_gpu_as_the_current_one_and_the_callers_is_restored(switch):

    def arguments():
        seen("arguments")
        return TASK.arguments()

    station = Inline(replace(ASSIGNED, arguments=arguments))
    assert switch.current == 0
    trials = [station.attempt(config, None) for config in TASK.space]
    assert [trial.status for trial in trials] == [Status.OK, Status.RUNTIME]
    assert switch.current == 0
    before = set(SEEN)
    SEEN.clear()
    race = RacePolicy(checkpoints=(2,), seconds=1.0)
    station.finals(FinalRequest(trials=tuple(trials), default=trials[0].config, race=race))
    assert before == {(what, 1) for what in ("arguments", "reference", "check", "launch", "failing launch")}
    assert {("launch", 1)} == SEEN
    assert switch.current == 0


def run_worker(monkeypatch, device, questions=(), asked=None):
    """Run a worker's program here; its answers. An early one waits for its task until `asked` has an answer."""
    answers = []

    def begin(child):
        child.early, child.device, child.packages = asked is not None, device, ()
        child.messages, child.send, child.await_task = (lambda: questions), answers.append, asked and asked.get

    monkeypatch.setattr(worker.Child, "__init__", begin)
    monkeypatch.setattr(worker, "import_heavy", lambda _packages, _what: None)
    worker.main()
    return answers


def test_a_worker_stays_on_its_gpu_and_is_there_again_after_code_that_chose_another(switch, monkeypatch):
    monkeypatch.setattr(TorchDevice, "make_ready", lambda _device: None)
    here = []

    def questions():
        here.append(switch.current)
        switch.set_device("cuda:0")  # as code of the task before
        yield worker.Setup(packed=Packed.of(ASSIGNED).content, changes={})
        here.append(switch.current)

    assert run_worker(monkeypatch, "cuda:1", questions())[-1].error is None
    assert here == [1, 1]
    assert {at for _, at in SEEN} == {1}


def test_a_worker_without_a_task_yet_leaves_the_gpu_alone_until_it_is_asked_something(switch, monkeypatch):
    ready, asked = queue.SimpleQueue(), queue.SimpleQueue()
    monkeypatch.setattr(TorchDevice, "make_ready", lambda device: ready.put(device.name))
    run_worker(monkeypatch, "cuda:1")
    assert ready.get(timeout=ENOUGH_S) == "cuda:1"
    for is_asked in (False, True):  # the first has lost its connection
        early = threading.Thread(target=run_worker, args=(monkeypatch, "cuda", (), asked))
        early.start()
        assert ready.empty()
        asked.put(is_asked)
        early.join(timeout=ENOUGH_S)
    assert ready.get(timeout=ENOUGH_S) == "cuda:0"
    assert ready.empty()


def test_comparisons_run_on_their_gpu(switch, monkeypatch):
    monkeypatch.setattr("triton_ops.benchmark.timing.probe", lambda _name: probe("cpu"))
    one, other = (lambda: seen("one")), (lambda: seen("other"))
    compare(one, other, device="cuda:1", rounds=6, seconds=0.1)
    time_ms(one, device="cuda:1", warmup_ms=0, rep_ms=1)
    assert {("one", 1), ("other", 1)} == SEEN
    assert switch.current == 0


def test_a_whole_tune_on_the_cpu_chooses_no_gpu(monkeypatch, steady_clock, tmp_path):
    monkeypatch.delattr(torch.cuda, "device")
    monkeypatch.delattr(torch.cuda, "set_device")
    result = tune(
        double, (torch.ones(4),), space={"step": [1, 2]}, reference=twice, check=same, cache_dir=tmp_path,
        listener=Silent(), isolate=False,
    )  # fmt: skip
    assert result.best_config == {"step": 1}


def on(*places):
    return SimpleNamespace(tensors=lambda: iter([SimpleNamespace(device=place) for place in places]))


def test_cuda_is_the_current_gpu_of_the_thread_that_asks_and_tensors_say_where_they_are(switch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: switch.current)
    assert (TorchDevice.current_name(), device_for("cuda", "cuda", "it")) == ("cuda", "cuda")
    with TorchDevice("cuda:3").current():
        assert (
            device_for("cuda", "cuda", "it") == device_for("cuda", "any", "it") == device_of(on(), "cuda") == "cuda:3"
        )
        assert device_for("cuda:0", "cuda", "it") == "cuda:0"
        assert device_for("cpu", "any", "it") == "cpu"
        assert device_of(on("cpu", "cuda:1"), "cuda") == device_of(on("cuda:1"), None) == "cuda:1"
    with pytest.raises(DeviceError, match="on cuda:1, not on cuda:0"):
        device_of(on("cuda:1"), "cuda:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert TorchDevice.current_name() == "cuda"
