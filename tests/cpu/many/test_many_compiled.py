"""Problems of a Triton kernel as one run, really compiled for a GPU that is not here; only the launches are planned."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.limits import ENOUGH_S

pytest.importorskip("triton")

from benchmarks.robustness.planted import product

from tests.fleet import Benches
from tests.planted_station import Planned
from triton_ops import TuneProblem, release_processes, tune_many
from triton_ops.compilation import pool
from triton_ops.compilation.pool import compiler_server
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import Stations
from triton_ops.many import RunOptions, run_jobs
from triton_ops.many.executor import LocalExecutor
from triton_ops.many.session import jobs_of
from triton_ops.records import Run
from triton_ops.request import Effort, TuneOptions, request

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("own_fork_server")]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that compiles, and whose times are planned; gives the stations, in the order in which they were opened."""
    stations = []

    def begun(_, assignment, *__, **___):
        def opened():
            stations.append(Planned(assignment))
            return stations[-1]

        return opened

    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    monkeypatch.setattr(Stations, "begin", begun)
    yield stations
    release_processes()


def test_the_next_problem_compiles_while_one_is_measured_and_all_fork_from_one_server(gpu, tmp_path, monkeypatch):
    servers, compiled, ahead = [], pool.CompilePool._compile, threading.Event()

    def counted(*needs):
        servers.append(compiler_server(*needs))
        return servers[-1]

    def noted(self, config):
        result = compiled(self, config)
        if not self._queue.first:
            ahead.set()
        return result

    def waits(self, config, best):
        if self is gpu[0]:
            assert ahead.wait(ENOUGH_S), "nothing of the next problem was compiled while the first is measured"
        return attempt(self, config, best)

    attempt = Planned.attempt
    monkeypatch.setattr(pool, "compiler_server", counted)
    monkeypatch.setattr(pool.CompilePool, "_compile", noted)
    monkeypatch.setattr(Planned, "attempt", waits)
    problems = [TuneProblem(target=product, shape=(n,)) for n in (64, 128, 64)]
    result = tune_many(problems, cache_dir=tmp_path, isolate=False, told=lambda _: None)
    assert result.totals == {"tuned": 3}, [each.error for each in result.outcomes]
    assert result.outcomes[0].result is result.outcomes[2].result, "the same problem is measured once"
    assert len(servers) == 1
    assert all(one.closed_s <= other.opened_s for one, other in pairwise(gpu)), "one at a time has the device"
    logs = [Run.read(path) for path in sorted(tmp_path.glob("runs/*/*.jsonl"))]
    assert [log.end is not None and log.end.record is not None for log in logs] == [True, True]
    assert [len(log.trials) for log in logs] == [4, 4]
    again = tune_many(problems, cache_dir=tmp_path, isolate=False, told=lambda _: None)
    assert again.totals == {"known": 3}
    assert len(gpu) == 2, "nothing was measured again"
    assert servers[0].alive
    release_processes()
    assert not servers[0].alive


def test_two_benches_measure_at_the_same_time_each_on_its_device(gpu, tmp_path, monkeypatch):
    options = RunOptions(
        each=TuneOptions(effort=Effort.named("quick"), cache_dir=tmp_path, isolate=False), devices=("cuda:0", "cuda:1")
    )
    attempt, both = Planned.attempt, threading.Event()

    def waits(self, config, best):
        if len({station.assignment.device_name for station in gpu}) == 2:
            both.set()
        assert both.wait(ENOUGH_S), "one device waited for the other"
        return attempt(self, config, best)

    monkeypatch.setattr(Planned, "attempt", waits)
    jobs = jobs_of([TuneProblem(target=product, shape=(n,)) for n in (64, 128, 192)], options)
    names = options.devices
    benches = Benches(lambda cpus, listener_of: {name: LocalExecutor(cpus, name, listener_of) for name in names})
    result = run_jobs(jobs, replace(options, cluster=benches), told=lambda _: None)
    assert result.totals == {"tuned": 3}, [each.error for each in result.outcomes]
    assert {each.device for each in result.outcomes} == {"cuda:0", "cuda:1"}
