"""A run of many problems on executors that do as they are told: what becomes of each job, whoever fails."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from triton_ops.exceptions import DeviceError, TuningFailedError
from triton_ops.many import Job
from triton_ops.many.executor import ExecutorLostError
from triton_ops.many.schedule import Schedule
from triton_ops.many.session import ManyRun, share_saved


class Told:
    """Remembers what became of the jobs."""

    def __init__(self):
        self.statuses, self.losses = {}, []

    def listener(self, job):
        raise AssertionError("the executors of these tests have no listeners")

    def ended(self, ended):
        assert ended.label not in self.statuses
        self.statuses[ended.label] = ended.status

    def lost(self, device, why):
        self.losses.append(device)


class ScriptedExecutor:
    """Ends each job at once with what its script has for it: an exception, or a gain."""

    def __init__(self, script=None, at_prepare=None):
        self.script, self.at_prepare = script or {}, at_prepare
        self.prepared, self.measured, self.closed, self.ended = [], [], 0, False

    def prepare(self, jobs):
        self.prepared.append([job.name for job in jobs])
        if self.at_prepare in self.prepared[-1]:
            raise ExecutorLostError("gone while it prepared")
        self.tell()

    def tell(self):
        for name in self.prepared[-1]:
            self.ready(name, True)

    def measure(self, job, limit_s):
        self.measured.append(job.name)
        result = self.script.get(job.name, 1.25)
        future = Future()
        if isinstance(result, BaseException):
            future.set_exception(result)
        elif result is not None:
            future.set_result(SimpleNamespace(gain=result, from_cache=False, stopped="complete", unproven=""))
        return future

    def end(self):
        self.ended = True

    def close(self):
        self.closed += 1


class TellingExecutor(ScriptedExecutor):
    """Tells that jobs are ready: first those named here, in their order once all are prepared, then each at once."""

    def __init__(self, order, **more):
        super().__init__(**more)
        self.order, self.told = order, False

    def tell(self):
        first = [] if self.told else self.order
        if set(first) <= set(self.prepared[-1]):
            self.told = True
            for name in dict.fromkeys([*first, *self.prepared[-1]]):
                self.ready(name, True)


def jobs(count):
    return [Job(name=f"p{at}", label=f"p{at}", kernel="k", problem=at, tune=None) for at in range(count)]


def ran(executors, count=4, **more):
    told = Told()
    run = ManyRun(jobs(count), executors, Schedule(jobs(count), **more), told)
    run.run()
    assert all(executor.closed >= 1 for executor in executors.values())
    return run, told


def test_each_job_is_measured_once_and_the_next_two_are_prepared_meanwhile():
    executor = ScriptedExecutor()
    run, told = ran({"a": executor}, count=8, ahead=2)
    assert executor.measured == [f"p{at}" for at in range(8)]
    assert executor.prepared == [["p0", "p1", "p2", "p3", "p4"], ["p4", "p5"], ["p5", "p6", "p7"]]
    assert told.statuses == dict.fromkeys(executor.measured, "tuned")
    assert run.stopped == "complete"
    assert share_saved(run.ended["p0"].result) == pytest.approx(0.2)


def test_what_is_ready_first_is_measured_first():
    executor = TellingExecutor(["p2", "p0"])
    run, told = ran({"a": executor}, ahead=2)
    assert executor.measured[:2] == ["p2", "p0"]
    assert executor.prepared[0] == ["p0", "p1", "p2", "p3"]
    assert sorted(executor.measured) == ["p0", "p1", "p2", "p3"]
    assert told.statuses == dict.fromkeys(executor.measured, "tuned")
    assert run.stopped == "complete"


def test_a_run_whose_jobs_are_never_ready_goes_on_all_the_same(monkeypatch):
    monkeypatch.setattr("triton_ops.many.schedule._PATIENCE_S", 0.01)
    monkeypatch.setattr("triton_ops.many.session._LOOK_S", 0.01)
    executor = TellingExecutor(["none of them"])
    run, _ = ran({"a": executor}, ahead=1)
    assert executor.measured == ["p0", "p1", "p2", "p3"]
    assert run.stopped == "complete"


def test_a_job_that_fails_while_it_is_prepared_is_told_of():
    failed = TuningFailedError("nothing ran", "p", 1, None, [])
    lost = ExecutorLostError("its process is gone")
    executors = {"a": TellingExecutor(["p0"], script={"p0": failed}), "b": TellingExecutor(["p2"], script={"p2": lost})}
    _, told = ran(executors, ahead=1)
    assert told.statuses == {"p0": "failed", "p1": "tuned", "p2": "tuned", "p3": "tuned"}
    assert told.losses == ["b"]


def test_a_problem_that_fails_ends_no_other():
    failed = TuningFailedError("nothing ran", "p", 1, None, [])
    run, told = ran({"a": ScriptedExecutor({"p1": failed, "p2": ValueError("a fault of this package")})})
    assert told.statuses == {"p0": "tuned", "p1": "failed", "p2": "failed", "p3": "tuned"}
    assert run.ended["p1"].error is failed


def test_what_a_lost_bench_measured_goes_on_at_another():
    lost = ExecutorLostError("its process is gone")
    executors = {"a": ScriptedExecutor({"p0": lost, "p1": lost, "p2": lost}), "b": ScriptedExecutor()}
    run, told = ran(executors)
    assert told.losses == ["a"]
    assert sorted(executors["b"].measured) == ["p0", "p1", "p2", "p3"]
    assert run.stopped == "complete"
    run, told = ran({"a": ScriptedExecutor(at_prepare="p2"), "b": ScriptedExecutor()}, ahead=1)
    assert told.losses == ["a"]
    assert set(told.statuses.values()) == {"tuned"}


def test_a_job_with_which_two_benches_are_lost_has_failed_and_without_benches_nothing_goes_on():
    lost = ExecutorLostError("its host is gone")
    executors = {name: ScriptedExecutor({"p0": lost}) for name in "abc"}
    run, told = ran(executors)
    assert told.statuses["p0"] == "failed"
    assert run.ended["p0"].error is lost
    assert len(run.ended) == 4
    run, told = ran({"a": ScriptedExecutor({"p0": lost})})
    assert run.stopped == "no device"
    assert told.statuses == {}


def test_a_device_that_cannot_be_used_any_more_is_put_aside_where_there_is_another():
    broken = DeviceError("the GPU cannot be used")
    executors = {"a": ScriptedExecutor({"p0": broken}), "b": ScriptedExecutor()}
    _run, told = ran(executors)
    assert told.losses == ["a"]
    assert told.statuses == dict.fromkeys(["p0", "p1", "p2", "p3"], "tuned"), "its problem goes on at the other one"
    _, told = ran({"a": ScriptedExecutor({"p0": broken})})
    assert told.losses == []
    assert list(told.statuses.values()).count("tuned") == 3


def test_ctrl_c_ends_the_run_and_takes_what_closed_benches_hand_over(monkeypatch):
    class Interrupted(ScriptedExecutor):
        def measure(self, job, limit_s):
            self.future = super().measure(job, limit_s)
            return self.future

        def close(self):
            super().close()
            if not self.future.done():
                self.future.set_result(SimpleNamespace(gain=None, from_cache=False, stopped="interrupted", unproven=""))

    executor, told = Interrupted({"p1": None}), Told()
    run = ManyRun(jobs(3), {"a": executor}, Schedule(jobs(3)), told)
    take = run._take

    def pressed(name, device):
        take(name, device)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_take", pressed)
    run.run()
    assert run.stopped == "interrupted"
    assert told.statuses == {"p0": "tuned", "p1": "interrupted"}


def test_a_budget_that_is_spent_is_said():
    run, told = ran({"a": ScriptedExecutor()}, budget_s=0.5)
    assert run.stopped == "seconds"
    assert told.statuses == {}
