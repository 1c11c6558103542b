"""Runs over several GPUs of a host: which are chosen, who measures where, and what becomes of a GPU that fails."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from tests.fleet import Benches
from tests.limits import ENOUGH_S, eventually
from triton_ops import DeviceError, SettingsError, operation, tune_many
from triton_ops.compilation import SharedCpus
from triton_ops.device import DeviceSpec, TorchDevice
from triton_ops.many import Job, RunOptions, run_jobs
from triton_ops.many.executor import LocalExecutor
from triton_ops.many.problem import job_of
from triton_ops.many.session import jobs_of
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.tuner import Gate, Silent


def spec(name="H200"):
    return DeviceSpec(kind="cuda", name=name, arch="sm_90", units=132)


@pytest.fixture
def host(monkeypatch):
    """Says that this machine has GPUs of these models."""
    return lambda *names: monkeypatch.setattr(TorchDevice, "gpus", lambda: tuple(map(spec, names)))


def test_gpus_are_chosen_by_index_as_a_list_or_as_text(host):
    host("H200", "H200", "H200")
    assert TorchDevice.chosen(None) == ()
    assert TorchDevice.chosen("all") == ("cuda:0", "cuda:1", "cuda:2")
    assert TorchDevice.chosen("0, 2") == TorchDevice.chosen([0, 2]) == ("cuda:0", "cuda:2")
    assert TorchDevice.chosen(range(1, 2)) == ("cuda:1",)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("", SettingsError, "names no GPU"), ([], SettingsError, "names no GPU"),
        ("0,0", SettingsError, "names GPU 0 twice"), ([1, 0, 1], SettingsError, "names GPU 1 twice"),
        ("0,7", DeviceError, "there is no GPU 7; this process sees 3"), ("0,,1", SettingsError, "an empty word"),
        ("-1", SettingsError, "-1 is no index"), ("cuda:0", SettingsError, "cuda:0 is no index"),
        ([True], SettingsError, "True is no index"), (2, SettingsError, "gpus is 2"), ([0.5], SettingsError, "0.5"),
        ("all", DeviceError, "one model: GPU 1 is a H200 and GPU 2 is a A100"),
    ],
)  # fmt: skip
def test_a_choice_that_does_not_fit_is_one_line(host, given, error, said):
    host("H200", "H200", "A100")
    with pytest.raises(error, match=said):
        TorchDevice.chosen(given)


def test_without_a_gpu_the_choice_is_refused_before_any_work(cli, monkeypatch):
    def none_here():
        raise DeviceError("no GPU can be used: torch is not installed")

    monkeypatch.setattr(TorchDevice, "gpus", none_here)
    with pytest.raises(DeviceError, match="no GPU can be used"):
        tune_many([object()], gpus="all")
    for words, message in (
        (("--all", "softmax", "--gpus", "all"), "no GPU can be used"), (("--all", "--gpus", "0,0"), "GPU 0 twice"),
        (("softmax", "--gpus", "0"), "--gpus is for --problems, --all and --from-misses"),
    ):  # fmt: skip
        ran = cli("tune", *words)
        assert (ran.code != 0, ran.out, len(ran.err.splitlines())) == (True, "", 1)
        assert message in ran.err


def result(place):
    return SimpleNamespace(gain=1.25, from_cache=False, stopped="complete", unproven="", place=place.device)


def ran(tunes, devices=("cuda:0", "cuda:1"), **more):
    jobs = [
        Job(name=f"p{at}", label=f"p{at}", kernel=f"k{at}", problem=at, tune=tune, devices=frozenset(devices), **more)
        for at, tune in enumerate(tunes)
    ]
    benches = Benches(lambda cpus, listener_of: {name: LocalExecutor(cpus, name, listener_of) for name in devices})
    options = RunOptions(each=TuneOptions(), devices=devices, cluster=benches)
    return run_jobs(jobs, options, told=lambda _: None)


def test_each_gpu_measures_one_problem_at_a_time_and_both_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    both, busy, most = threading.Barrier(2, timeout=ENOUGH_S), {"cuda:0": 0, "cuda:1": 0}, []

    def tune(place):
        place.gate.wait()
        busy[place.device] += 1
        most.append(busy[place.device])
        both.wait()
        busy[place.device] -= 1
        return result(place)

    outcome = ran([tune] * 6)
    assert outcome.totals == {"tuned": 6}
    assert sorted(each.device for each in outcome.outcomes) == ["cuda:0"] * 3 + ["cuda:1"] * 3
    assert all(each.result.place == each.device for each in outcome.outcomes)
    assert max(most) == 1


def test_a_gpu_that_reports_an_error_is_put_aside_and_its_problem_goes_on_at_another(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    seen = []

    def tune(place):
        place.gate.wait()
        seen.append(place.device)
        if place.device == "cuda:0":
            raise DeviceError("the GPU has fallen off the bus")
        return result(place)

    outcome = ran([tune] * 4)
    assert outcome.totals == {"tuned": 4}
    assert seen.count("cuda:0") == 1
    assert {each.device for each in outcome.outcomes} == {"cuda:1"}


def test_a_job_that_another_gpu_takes_over_begins_there_once_it_has_ended_where_it_was_prepared(
    tmp_path, steady_clock, caplog
):
    (job,) = jobs_of([TuneProblem(target=add_up, shape=(64,))], RunOptions(each=TuneOptions(cache_dir=tmp_path)))
    ready = threading.Event()
    first, second = (LocalExecutor(SharedCpus(2), "cpu", lambda _: Silent()) for _ in range(2))
    first.ready = lambda *_: ready.set()
    first.prepare([job])
    assert ready.wait(ENOUGH_S)
    taken = second.measure(job, None)  # it waits, since the first one holds the problem's lock
    first.prepare([])
    assert taken.result(60).trials
    assert len(list(tmp_path.glob("runs/*/*.jsonl"))) == 1
    assert "another process" not in caplog.text
    for executor in (first, second):
        executor.close()


def test_jobs_that_are_prepared_side_by_side_begin_once_and_those_no_longer_wanted_end(caplog):
    begun, ended = [], []

    def tune_of(name):
        def tune(place):
            begun.append(name)
            try:
                place.gate.wait()
            except KeyboardInterrupt:
                ended.append(name)
                raise
            return result(place)

        return tune

    jobs = {name: Job(name=name, label=name, kernel="k", problem=0, tune=tune_of(name)) for name in "abcd"}
    executor = LocalExecutor(SharedCpus(2), "cuda:0", lambda _: Silent())
    executor.prepare([jobs["a"], jobs["b"]])
    assert executor.measure(jobs["a"], None).result(60).place == "cuda:0"
    executor.prepare([jobs["c"], jobs["b"]])
    executor.prepare([jobs["c"]])
    assert executor.measure(jobs["c"], None).result(60).place == "cuda:0"
    executor.prepare([jobs["d"]])
    eventually(lambda: "d" in begun)
    executor.close()
    assert sorted(begun) == ["a", "b", "c", "d"]
    assert ended == ["b", "d"]
    assert "left behind" not in caplog.text


def test_a_gate_tells_when_it_let_the_job_in_also_who_comes_later():
    gate, before = Gate(), time.monotonic()
    gate.let_in(3.0)
    after = time.monotonic()
    time.sleep(0.02)
    gate.wait()
    assert before <= gate.since_s <= after
    assert gate.limit_s == 3.0


def test_a_job_is_told_of_once_enough_and_once_all_of_it_is_prepared_or_when_it_has_ended():
    told, enough, whole = queue.SimpleQueue(), Future(), Future()

    def waits(place):
        place.gate.wait(SimpleNamespace(enough=enough, whole=whole))
        return result(place)

    def at_once(place):
        place.gate.wait()
        return result(place)

    def fails(place):
        raise DeviceError("the GPU is gone")

    tunes = {"waits": waits, "at once": at_once, "fails": fails, "never waits": result}
    jobs = {name: Job(name=name, label=name, kernel="k", problem=0, tune=tune) for name, tune in tunes.items()}
    executor = LocalExecutor(SharedCpus(2), "cuda:0", lambda _: Silent())
    executor.ready = lambda *said: told.put(said)
    executor.prepare(list(jobs.values()))
    ready = {told.get(timeout=ENOUGH_S) for _ in range(3)}
    assert ready == {("at once", True), ("fails", True), ("never waits", True)}
    enough.set_result(None)
    assert told.get(timeout=ENOUGH_S) == ("waits", False)
    whole.set_result(None)
    assert told.get(timeout=ENOUGH_S) == ("waits", True)
    executor.close()


def test_a_job_that_is_prepared_waits_until_the_one_let_in_has_begun_and_is_let_in_or_ended_at_once(monkeypatch):
    monkeypatch.setattr("triton_ops.many.executor._HELD_S", 60.0)
    begun = []

    def tune(place):
        begun.append(place.gate)
        place.gate.wait()
        return result(place)

    first, second, third = (Job(name=at, label=at, kernel="k", problem=0, tune=tune) for at in "abc")
    executor = LocalExecutor(SharedCpus(2), "cuda:0", lambda _: Silent())
    executor.prepare([first])
    assert executor.measure(first, None).result(60).place == "cuda:0"
    executor.prepare([second, third])
    assert len(begun) == 1
    assert executor.measure(second, None).result(60).place == "cuda:0"
    executor.close()
    assert len(begun) == 2


@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n}, device="cpu")
def add_up(n, step):
    return sum(range(0, n, step)) + sum(range(1, n, step)) * (step - 1)


@pytest.mark.processes
def test_a_problem_of_the_cpu_runs_beside_the_gpus(tmp_path, host, steady_clock):
    host("H200", "H200")
    outcome = tune_many([TuneProblem(target=add_up, shape=(64,))], gpus="0,1", cache_dir=tmp_path, told=lambda _: None)
    assert [(each.status, each.device) for each in outcome.outcomes] == [("tuned", "cpu")]


def test_a_problem_that_names_a_gpu_stays_there_and_that_gpu_must_be_of_the_run(monkeypatch):
    monkeypatch.setattr("triton_ops.request.request.probe", lambda name: spec() if "cuda" in name else spec("CPU"))

    @operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n}, device="cuda")
    def on_gpu(n, step):
        return n

    options = RunOptions(each=TuneOptions(), devices=("cuda:0", "cuda:2"))
    problem = TuneProblem(target=on_gpu, shape=(8,), device="cuda:2")
    assert job_of(problem, options).devices == {"cuda:2"}
    assert job_of(TuneProblem(target=on_gpu, shape=(8,), device="cuda"), options).devices == {"cuda:0", "cuda:2"}
    with pytest.raises(DeviceError, match="the problem is bound to cuda:1, and the run uses cuda:0, cuda:2"):
        job_of(TuneProblem(target=on_gpu, shape=(8,), device="cuda:1"), options)
