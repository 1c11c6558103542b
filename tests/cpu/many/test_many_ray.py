"""Runs on a Ray cluster: real actors on a cluster of this machine, which stand in for GPUs."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.limits import ENOUGH_S, eventually
from triton_ops import DeviceError, SettingsError, TargetError, TuneProblem, tune_many
from triton_ops.many import RunOptions, run_jobs
from triton_ops.many import ray_engine as engine_module
from triton_ops.many.ray_engine import HostFacts, RayEngine, engine_named
from triton_ops.many.session import jobs_of
from triton_ops.records import Misses, Run, store_in
from triton_ops.records.misses import Harvest
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.request import TuneOptions
from triton_ops.ship.command_loading import tune_misses
from triton_ops.ship.targets import Targets
from triton_ops.values import Key

on_ray = pytest.mark.extras("ray")

WORK = """
import os, signal, time
from pathlib import Path
from triton_ops import operation

@operation(space={"ms": [2, 3, 4, 5]}, arguments=lambda n=64: {"n": n}, device="cpu")
def slow(n, ms):
    time.sleep(ms * 1e-3)
    return n

@operation(space={"ms": [2, 3]}, arguments=lambda n=64: {"n": n}, device="cpu")
def fails(n, ms):
    raise ValueError("never works")

@operation(space={"ms": [2, 3]}, arguments=lambda n=64: {"n": n}, device="cpu")
def ends_its_actor(n, ms):
    os._exit(3)

@operation(space={"ms": [2, 3, 4, 5]}, arguments=lambda n=64: {"n": n}, device="cpu")
def killed_once(n, ms):
    time.sleep(ms * 1e-3)
    begun = Path("FOLDER", f"begun-{n}-{ms}")
    if n < 3 and not begun.exists():
        begun.touch()
        if len(list(begun.parent.glob(f"begun-{n}-*"))) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return n
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "ray_work.py").write_text(WORK.replace("FOLDER", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ray_work", raising=False)
    import ray_work

    yield ray_work
    sys.modules.pop("ray_work", None)


@pytest.fixture
def engine():
    return RayEngine(simulated=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("dask", "no engine 'dask'"), (3, "no engine 3"), ("ray:", "is empty"), ("ray:host", "'host' is no address"),
        ("ray:host:0", "no address"), ("ray:host:99999", "no address"), ("ray:ray://host:10001", "Ray's client"),
    ],
)  # fmt: skip
def test_an_engine_that_is_none_is_one_line(given, said):
    with pytest.raises(SettingsError, match=said):
        engine_named(given)


def test_an_engine_and_gpus_of_this_machine_do_not_go_together(cli):
    for words, message in (
        (("--all", "--engine", "dask"), "no engine 'dask'"), (("softmax", "--engine", "ray"), "--engine is for"),
        (("--from-misses", "--engine", "ray", "--gpus", "0"), "leave out gpus, or the engine"),
    ):  # fmt: skip
        ran = cli("tune", *words)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert message in ran.err


def test_without_ray_the_next_step_is_said(work, monkeypatch, cli):
    monkeypatch.setitem(sys.modules, "ray", None)
    Path("list.txt").write_text("ray_work.py:slow shape=3\n")
    ran = cli("tune", "--problems", "list.txt", "--kernels", "ray_work.py", "--engine", "ray")
    assert (ran.out, len(ran.err.splitlines())) == ("", 1)
    assert ran.code != 0
    assert "pip install 'triton-ops[ray]'" in ran.err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "does not answer within 0.3 s"), (b"", "is no head of a Ray cluster"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no head of a Ray cluster"), (b"\0\0\0\4" + bytes(5), None),
    ],
)  # fmt: skip
def test_what_answers_at_an_address_must_greet_as_a_head_does(answer, said, monkeypatch):
    monkeypatch.setattr(engine_module, "_ANSWERS_S", 0.3 if answer is None else 60.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            taken, _ = server.accept()
            with taken:
                taken.recv(33, socket.MSG_WAITALL)
                if answer is not None:
                    taken.sendall(answer)
                    with contextlib.suppress(OSError):  # the caller may have hung up on reading it
                        taken.shutdown(socket.SHUT_WR)
                over.wait(ENOUGH_S)

        over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with nullcontext() if said is None else pytest.raises(SettingsError, match=said):
                engine_module.check_answer(f"127.0.0.1:{server.getsockname()[1]}")
        finally:
            over.set()
            thread.join()


def test_hosts_that_differ_are_named_with_what_differs():
    here = HostFacts(host="first", model="H200", python="3.12.3", triton="3.6.0")
    engine_module.check_alike([here, replace(here, host="second")], here)
    for change, error, message in (
        ({"python": "3.11.7"}, SettingsError, "second has Python 3.11.7, and this host 3.12.3"),
        ({"triton": ""}, SettingsError, r"second has Triton \(none\), and this host 3.6.0"),
        ({"model": "H100"}, DeviceError, "second has H100, and this host H200"),
    ):
        with pytest.raises(error, match=message):
            engine_module.check_alike([here, replace(here, host="second", **change)], here)


@on_ray
def test_a_kernel_that_a_host_cannot_load_is_named_before_any_work(engine, work, tmp_path, monkeypatch):
    place = tmp_path / "site-packages"  # what is installed is not sent along
    place.mkdir()
    (place / "only_here.py").write_text("def nap(ms): ...")
    monkeypatch.syspath_prepend(str(place))
    (tmp_path / "ray_more.py").write_text(f"import only_here{WORK.replace('time.sleep', 'only_here.nap')}")
    connect, more = engine_module._connect, importlib.import_module("ray_more")

    def connects_where_it_is_not_installed(*given):
        connect(*given)
        shutil.rmtree(place)

    monkeypatch.setattr(engine_module, "_connect", connects_where_it_is_not_installed)
    with pytest.raises(TargetError, match=f"{socket.gethostname()} cannot load ray_more:slow: .*No module named"):
        run_on(engine, [TuneProblem(target=more.slow, shape=(2,))], tmp_path / "records")
    assert not list((tmp_path / "records").rglob("*.jsonl"))
    for name in ("only_here", "ray_more"):
        sys.modules.pop(name)


@on_ray
def test_an_address_in_the_environment_that_does_not_answer_is_said_too(work, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(SettingsError, match=f"127.0.0.1:{port} does not answer"):
        tune_many([TuneProblem(target=work.slow, shape=(2,))], engine="ray", told=lambda _: None)


@on_ray
def test_an_address_that_does_not_answer_is_said_before_ray_waits_for_it(work):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(SettingsError, match=f"127.0.0.1:{port} does not answer"):
        tune_many([TuneProblem(target=work.slow, shape=(2,))], engine=f"ray:127.0.0.1:{port}", told=lambda _: None)


def run_on(engine, problems, folder):
    options = RunOptions(each=TuneOptions(cache_dir=folder), cluster=engine)
    return run_jobs(jobs_of(problems, options), options, told=lambda _: None)


@on_ray
def test_problems_are_tuned_by_actors_and_the_records_and_run_logs_are_here(engine, work, tmp_path):
    folder = tmp_path / "records"
    problems = [TuneProblem(target=work.slow, shape=(n,)) for n in range(1, 5)] + [TuneProblem(target=work.fails)]
    result = run_on(engine, problems, folder)
    assert [each.status for each in result.outcomes] == ["tuned"] * 4 + ["failed"]
    assert "never works" in str(result.failures[0].error)
    assert {each.device for each in result.outcomes} == {f"{socket.gethostname()}:{at}" for at in range(2)}
    assert all(dict(each.result.best_config) == {"ms": 2} for each in result.outcomes[:4])
    names = {job.name for job in jobs_of(problems, RunOptions(each=TuneOptions(cache_dir=folder)))}
    assert {path.name for path in folder.glob("runs/*")} - names == set(), "actors have the same keys"
    again = run_on(engine, problems[:4], folder)
    assert again.totals == {"known": 4}, "the records are in the folder of the run"
    assert len(list(folder.glob("runs/*/*.jsonl"))) == 5


@on_ray
def test_misses_are_tuned_by_actors_and_taken_off_the_list(engine, work, tmp_path):
    folder = tmp_path / "records"
    harvest = Harvest(folder)
    keys = []
    for n in (1, 2):
        request = TuneProblem(target=work.slow, kwargs={"n": n}, device="cpu").request()
        keys.append(Key.of(request.problem, request.kernel.identity, request.device))
        harvest.note(keys[-1], None)
    harvest.note(replace(keys[0], kernel="nowhere:kernel"), None)
    harvest.flush()
    options = RunOptions(each=TuneOptions(cache_dir=folder), cluster=engine)
    served, run = tune_misses(Misses(folder).read(), Targets([work.slow]), options)
    assert run.totals == {"tuned": 2}, [each.error for each in run.outcomes]
    assert {each.device.partition(":")[0] for each in run.outcomes} == {socket.gethostname()}
    assert {each.miss.key.id: (each.stored, each.reason) for each in served if each.result} == {
        key.id: (True, "") for key in keys
    }
    assert [miss.key.kernel for miss in Misses(folder).read()] == ["nowhere:kernel"]
    assert {record.id for record in store_in(str(folder))} == {key.id for key in keys}


@on_ray
def test_a_problem_that_ends_its_actors_is_given_up_and_the_others_go_on(work, tmp_path):
    engine = RayEngine(simulated=3)
    problems = [TuneProblem(target=work.ends_its_actor)] + [TuneProblem(target=work.slow, shape=(n,)) for n in (1, 2)]
    result = run_on(engine, problems, tmp_path / "records")
    assert [each.status for each in result.outcomes] == ["failed", "tuned", "tuned"]


@on_ray
def test_what_two_killed_actors_measured_goes_on_on_the_third(work, tmp_path, caplog):
    problems = [TuneProblem(target=work.killed_once, shape=(n,)) for n in range(1, 5)]
    options = RunOptions(each=TuneOptions(cache_dir=tmp_path / "records"), cluster=RayEngine(simulated=3))
    result = run_jobs(jobs_of(problems, options), options, told=lambda _: None)
    assert result.totals == {"tuned": 4}, result.failures
    assert len([text for text in caplog.messages if "is lost" in text]) == 2
    assert all(dict(each.result.best_config) == {"ms": 2} for each in result.outcomes)
    tried = trials(tmp_path)
    assert len(tried) == len(set(tried)) == 16, "no trial before the death is repeated"


@on_ray
def test_a_driver_that_is_killed_loses_at_most_the_trials_under_way(engine, work, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent("""
        import sys, ray_work
        from triton_ops import TuneProblem
        from triton_ops.many import RunOptions, run_jobs
        from triton_ops.many.ray_engine import RayEngine
        from triton_ops.many.session import jobs_of
        from triton_ops.request import TuneOptions
        options = RunOptions(each=TuneOptions(cache_dir="records"), cluster=RayEngine(simulated=2))
        problems = [TuneProblem(target=ray_work.slow, shape=(n,)) for n in range(1, 7)]
        run = run_jobs(jobs_of(problems, options), options, told=lambda _: None)
        print(run.totals)
    """)
    )
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, start_new_session=True)
    eventually(lambda: len(trials(tmp_path)) >= 5)
    driver.send_signal(signal.SIGKILL)
    driver.wait(ENOUGH_S)
    before = trials(tmp_path)
    assert len(before) >= 5
    problems = [TuneProblem(target=work.slow, shape=(n,)) for n in range(1, 7)]
    result = run_on(engine, problems, tmp_path / "records")
    assert set(result.totals) <= {"tuned", "known"}
    assert all(dict(each.result.best_config) == {"ms": 2} for each in result.outcomes)
    tried = trials(tmp_path)
    assert len(tried) == len(set(tried)) == 24, "no trial that was on disk is repeated"
    assert set(before) <= set(tried)


def trials(folder):
    """The trials in all run logs, as a problem and a config each."""
    result = []
    for path in folder.glob("records/runs/*/*.jsonl"):
        events = Run.read(path).events
        result += [(path.parent.name, event.trial.config.text) for event in events if isinstance(event, Tried)]
    return result
