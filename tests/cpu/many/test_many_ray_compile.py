"""Hosts of a Ray cluster that compile for others: real actors on the second node of a cluster of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from tests import planted_kernels
from tests.planted_kernels import grid
from triton_ops import TuneProblem
from triton_ops.backend import AheadOfTime, Arguments, TritonKernel
from triton_ops.compilation import CompilePool, OtherHosts, SharedCpus
from triton_ops.device import named_target
from triton_ops.many import Options, RayEngine, jobs_of
from triton_ops.many import ray_engine as engine
from triton_ops.many import ray_engine as helpers
from triton_ops.many.ray_actors import Keeper
from triton_ops.many.ray_engine import Helper, Ledger, helpers_of, idle_nodes, shared_out
from triton_ops.request import effort_of
from triton_ops.space import Config
from triton_ops.values import Status, TensorSpec

pytestmark = pytest.mark.triton

PROJECT = Path(__file__).parents[3]
AHEAD = AheadOfTime(
    TritonKernel(planted_kernels.planted, grid, outputs=("x",)),
    Arguments((TensorSpec((1000,), "float32"), 1000)),
    named_target("sm_90"),
)
WORK = """
import time
from triton_ops import operation

@operation(space={"ms": [2, 3]}, arguments=lambda n=64: {"n": n}, device="cpu")
def slow(n, ms):
    time.sleep(ms * 1e-3)
    return n
"""
PLANNED = """
import triton
from tests.planned_gpu import planned_gpu
from tests.planted_kernels import grid, planted
from triton_ops import Operation, TensorSpec, TritonKernel

planned_gpu()  # in the driver, and in the actor, which imports this module for what follows

def arguments(n=1000):
    return {"x": TensorSpec((n,), "float32"), "n": n}

operation = Operation(
    "planned", TritonKernel(planted, grid, outputs=("x",)),
    {"BLOCK": [16 << n for n in range(8)], "KIND": ["slow"]},
    arguments, device="cuda",
)
"""
DRIVER = """
import json, sys
import ray_planned
from triton_ops import TuneProblem
from triton_ops.many import RayEngine
from triton_ops.many import Options
from triton_ops.many import jobs_of, run_jobs
from triton_ops.request import effort_of

options = Options(plan=effort_of("exhaustive"), cache_dir="records", isolate=False)
jobs = jobs_of([TuneProblem(target=ray_planned.operation, shape=(1000,))], options)
(found,) = run_jobs(jobs, options, told=lambda _: None, cluster=RayEngine(sys.argv[1], simulated=1)).outcomes
tried = [] if found.result is None else [trial.ok for trial in found.result.trials]
print(json.dumps([found.status, str(found.error), tried, found.result and found.result.notes]))
"""


def test_each_cpu_of_other_hosts_compiles_for_one_gpu(monkeypatch):
    monkeypatch.setattr(helpers, "_MOST_FOR_ONE", 4)
    few, many = Helper("few", 3, None), Helper("many", 30, None)
    for measurers, counts in ((1, [4]), (2, [4, 4]), (8, [4] * 8), (16, [3] + [2] * 15), (40, [1] * 33 + [0] * 7)):
        found = shared_out([few, many], measurers)
        assert [sum(host.cpus for host in each) for each in found] == counts
        assert sum(host.cpus for each in found for host in each if host.name == "few") <= few.cpus
    assert shared_out([], 2) == [[], []]


def test_nodes_without_cpus_and_those_that_measure_or_are_gone_do_not_compile():
    def node(name, cpus, alive=True):
        return {"NodeID": name, "NodeManagerHostname": f"host of {name}", "Resources": cpus, "Alive": alive}

    nodes = [
        node("here", {"CPU": 4.0}), node("gpu", {"CPU": 8.0, "GPU": 1.0}), node("cpu", {"CPU": 8.0}), node("none", {}),
        node("gone", {"CPU": 8.0}, alive=False),
    ]  # fmt: skip
    assert idle_nodes(nodes, "here", {"gpu"}) == [("here", "host of here", 3), ("cpu", "host of cpu", 8)]
    assert idle_nodes([node("here", {"CPU": 1.0})], "here", ()) == []


def test_what_measurers_tell_is_said_once(caplog):
    keeper = Keeper("unused")
    for line in ("a", "b", "a"):
        keeper.tell(line)
    assert keeper.news() == ["a", "b"]
    keeper.tell("a")
    assert keeper.news() == []
    keeper.tell("c")
    told = SimpleNamespace(remote=keeper.news)
    ray = SimpleNamespace(get=lambda answer, timeout: answer, exceptions=SimpleNamespace(RayError=OSError))
    Ledger(ray, SimpleNamespace(news=told), None, {}, 1.0).tell_news()
    assert caplog.messages == ["c"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes of this machine with CPUs; what they launch is looked for in a disk cache that is empty at first."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'triton-ops[ray]'")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("there")))
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
        found.add_node(num_cpus=2)
    yield found
    found.shutdown()


@pytest.fixture
def connected(cluster, tmp_path, monkeypatch):
    """This process as the driver, on the first node, with a disk cache of its own."""
    import ray

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "here"))
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def the_other_node(ray):
    """The actor and the handle of the host on which this process is not."""
    (helper,) = helpers_of(ray, {ray.get_runtime_context().get_node_id()}, 1)
    ((host,),) = shared_out([helper], 1)
    return helper, host


def pool_of(hosts, told):
    shared = SharedCpus(1, elsewhere=OtherHosts(hosts, told.append))
    return CompilePool(AHEAD, workers=1, shared_cpus=shared)


def slow_and_others(pool):
    """The results of a config that keeps this host's CPU busy for a second, and of six others."""
    pool.go_first()
    futures = [pool.submit(Config(KIND="slow" if n == 0 else "good", BLOCK=16 << n)) for n in range(7)]
    return [future.result(100) for future in futures]


def test_the_cpus_of_another_node_compile_for_this_one(connected):
    helper, host = the_other_node(connected)
    assert (helper.cpus, host.cpus, host.name) == (2, 2, helper.name)
    told = []
    with pool_of([host], told) as pool:
        while not pool._elsewhere._free:  # the host has loaded the kernel
            time.sleep(0.05)
        found = slow_and_others(pool)
        notes = pool.notes
    assert [each.status for each in found] == [Status.OK] * 7
    assert told == []
    assert int(notes[0].split()[0]) >= 2, notes
    nodes = [node["NodeID"] for node in connected.nodes()]
    assert helpers_of(connected, nodes, 1) == []


def test_a_host_with_another_setting_of_triton_is_found_out(connected, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")  # changes what is compiled, and so its name
    _, host = the_other_node(connected)
    told = []
    with pool_of([host], told) as pool:
        while not pool._elsewhere._free:
            time.sleep(0.05)
        found = slow_and_others(pool)
        assert pool.notes == ()
    assert [each.status for each in found] == [Status.OK] * 7
    assert len(told) == 1
    assert "its Triton names binaries differently" in told[0]


def test_a_host_that_dies_while_it_compiles_costs_nothing_but_time(connected):
    helper, host = the_other_node(connected)
    told = []
    with pool_of([host], told) as pool:
        while not pool._elsewhere._free:
            time.sleep(0.05)
        futures = [pool.submit(Config(KIND="slow", BLOCK=16 << n)) for n in range(4)]
        time.sleep(0.3)
        connected.kill(helper.actor)
        found = [future.result(100) for future in futures]
    assert [each.status for each in found] == [Status.OK] * 4
    assert len(told) == 1
    assert told[0].startswith(f"{host.name} compiles nothing more for this run: it is gone: ")


def test_a_run_goes_on_beside_a_node_that_only_compiles(cluster, tmp_path, monkeypatch, caplog):
    (tmp_path / "ray_beside.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    import ray_beside

    options = Options(plan=effort_of(), cache_dir=tmp_path / "records")
    jobs = jobs_of([TuneProblem(target=ray_beside.slow, shape=(n,)) for n in (1, 2)], options)
    try:
        with RayEngine(address=cluster.address, simulated=1).executors(jobs, options) as executors:
            (executor,) = executors.values()
            found = [executor.measure(job, None).result(100) for job in jobs]
            engine._Tell(executor._ledger.keeper)("told by a measurer")
            until = time.monotonic() + 60
            while "told by a measurer" not in caplog.messages:
                assert time.monotonic() < until, "nobody was told"
                executor._ledger.tell_news()
    finally:
        sys.modules.pop("ray_beside")
    assert [dict(each.best_config) for each in found] == [{"ms": 2}] * 2


def test_an_actor_has_configs_compiled_on_the_other_node(cluster, tmp_path):
    (tmp_path / "ray_planned.py").write_text(PLANNED)
    (tmp_path / "driver.py").write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*sys.path, PROJECT)))}
    ran = subprocess.run(
        [sys.executable, "driver.py", cluster.address], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=110,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    status, error, ok, notes = json.loads(ran.stdout.splitlines()[-1])
    assert (status, ok) == ("tuned", [True] * 8), error
    assert any("compiled by other hosts" in note for note in notes), notes
