"""A worker that one tune leaves serves the next, which finds nothing of the first in it."""

from __future__ import annotations

import decimal
import gc
import importlib
import io
import locale
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.robustness.process_faults import nap, sums_space, workers_of

from tests.limits import ENOUGH_S, eventually
from triton_ops import release_processes, tune
from triton_ops.base import Process
from triton_ops.evaluation import Assignment, Stations, idle_worker, worker
from triton_ops.evaluation.isolated import Isolated
from triton_ops.evaluation.worker import UsersModules, _give_up
from triton_ops.processes import Surroundings
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.space import Config
from triton_ops.values import Status

GOOD, DEADLY = Config(ms=1.0, fault="none"), Config(ms=1.0, fault="segmentation fault")


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    idle_worker.drop_idle_workers()  # one that an earlier test of another file has kept
    yield
    idle_worker.drop_idle_workers()
    wait_until_no_worker_is_left()


def wait_until_no_worker_is_left():
    """One that is not kept is ended by a thread of its own, which may need a moment."""
    eventually(lambda: not workers_of(os.getpid()))


def start(needs):
    """A worker that waits for a tune with these needs."""
    idle_worker._idle.put(idle_worker.new(needs), needs, needs[1])


def assignment(function=nap, **more):
    task = (
        TuneProblem(target=function, space=more.pop("space", sums_space(["segmentation fault"])), device="cpu", **more)
        .request()
        .checked()
    )
    return Assignment.of(task, TuneOptions(effort="quick"), None)


def tried(work, config=GOOD, reuse=True):
    """The trial of a config in a station, and the process that it ran in."""
    stations = Stations(problem=work, options=TuneOptions(isolate=True), reuse=reuse)
    with stations.early_process() as process, closing(Isolated(work, process, reuse=reuse)) as station:
        return station.attempt(config, None), process.pid


@pytest.mark.processes
def test_the_next_tune_gets_the_same_process_and_others_do_not():
    first, one = tried(assignment())
    second, two = tried(assignment())
    third, three = tried(assignment(), reuse=False)
    assert (first.status, second.status, third.status) == (Status.OK,) * 3
    assert one == two
    assert three != one
    assert len(workers_of(os.getpid())) == 1


@pytest.mark.processes
def test_a_worker_with_other_needs_is_not_taken():
    work = assignment()
    tried(work)
    packages, device = idle_worker.Needs.of(work.kernel, work.device, work.device_name)
    assert idle_worker.take((("torch", *packages), device)) is None
    assert idle_worker.take((packages, "cuda:7")) is None
    assert not idle_worker.waits((("torch", *packages), device))


@pytest.mark.processes
def test_a_worker_serves_tunes_that_need_less_and_has_what_it_had_afterwards():
    """The tune of a kernel and that of a choice among kernels, which needs torch alone, take turns."""
    start((("json", "csv"), "cpu"))
    served = set()
    for needed in (("csv",), (), ("csv", "json")):
        assert idle_worker.waits((needed, "cpu"))  # so that tunes of many problems start none in its place
        worker = idle_worker.take((needed, "cpu"))
        served.add(worker.pid)
        idle_worker.keep(worker)
    assert served == set(workers_of(os.getpid()))


@pytest.mark.processes
def test_a_worker_in_which_something_died_is_not_kept():
    trial, _ = tried(assignment(), DEADLY)
    assert trial.status is Status.CRASH
    assert workers_of(os.getpid()) == []


@pytest.mark.processes
def test_a_worker_that_was_killed_meanwhile_costs_nothing():
    _, pid = tried(assignment())
    os.kill(pid, 9)
    trial, _ = tried(assignment())
    assert trial.status is Status.OK


@pytest.mark.processes
def test_a_worker_whose_end_the_program_has_waited_for_itself_costs_nothing():
    _, pid = tried(assignment())
    os.kill(pid, 9)
    assert os.waitpid(pid, 0)[0] == pid
    trial, _ = tried(assignment())
    assert trial.status is Status.OK


@pytest.mark.processes
def test_the_next_task_imports_the_users_modules_as_they_are_then(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    result = []
    for value in (1, 22):  # of another length, so that no cached bytecode can pass for it
        (tmp_path / "edited_meanwhile.py").write_text(
            f"def work(n, block=1):\n    assert n == {value}, n\n    return n\n"
        )
        sys.modules.pop("edited_meanwhile", None)
        importlib.invalidate_caches()
        module = importlib.import_module("edited_meanwhile")
        work = assignment(module.work, space={"block": [1, 2]}, args=(value,))
        result.append(tried(work, Config(block=1)))
    assert [trial.status for trial, _ in result] == [Status.OK, Status.OK], [trial.error for trial, _ in result]
    assert result[0][1] == result[1][1]


@pytest.mark.processes
def test_the_next_task_has_the_users_modules_that_are_the_same(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stays_the_same.py").write_text(
        "import os\nimport pathlib\n"
        f"with pathlib.Path({str(tmp_path / 'imports')!r}).open('a') as file:\n    print(os.getpid(), file=file)\n"
        "def work(n, block=1):\n    return n\n"
    )
    importlib.invalidate_caches()
    module = importlib.import_module("stays_the_same")
    pids = [tried(assignment(module.work, space={"block": [1, 2]}, args=(n,)), Config(block=1))[1] for n in (1, 2)]
    assert pids[0] == pids[1]
    assert (tmp_path / "imports").read_text().split() == [str(os.getpid()), str(pids[0])]


CHANGES = [
    ("SEEN = []", "SEEN.append(1)", "SEEN"),
    ("SEEN = {'at': {'n': []}}", "SEEN['at']['n'].append(1)", "SEEN['at']['n']"),
    ("class SEEN:\n    n = ()", "SEEN.n = (1,)", "SEEN.n"),
    ("def SEEN(): pass", "SEEN.n = 1", "vars(SEEN)"),
    ("import types\nclass Own(types.SimpleNamespace): pass\nSEEN = (Own(n=0),)", "SEEN[0].n = 1", "SEEN[0].n"),
    ("import collections\nSEEN = collections.deque([0])", "SEEN[0] = 1", "SEEN[0]"),
    ("import torch\nSEEN = torch.zeros(2)", "SEEN.add_(1)", "SEEN.any()"),
    ("import numpy\nSEEN = numpy.zeros(2)", "SEEN[1] = 1", "SEEN.any()"),
    ("import numpy\nSEEN = numpy.zeros(30_000)", "SEEN[9] = 1", "SEEN.any()"),  # larger than what is compared
    ("SEEN = bytearray(2)", "SEEN[0] = 1", "any(SEEN)"),
    ("SEEN = []\nSEEN += [SEEN, list(range(30_000)), []]", "SEEN[2].append(1)", "SEEN[2]"),  # more than is looked at
    ("SEEN = []\nfor _ in range(9_000): SEEN = [SEEN]  # 30_000", "SEEN.append(1)", "SEEN[1:]"),  # too deep
    ("class Own(list):\n    def __iter__(self): raise OSError\nSEEN = Own()  # 30_000", "SEEN.append(1)", "SEEN[:1]"),
]


@pytest.mark.parametrize(("begins", "changes", "changed"), CHANGES)
def test_what_a_task_changes_in_place_is_new_for_the_next(begins, changes, changed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_module.py").write_text(f"{begins}\nLIMIT = 3\n")
    modules, here = UsersModules(), Surroundings.here()
    module = importlib.import_module("own_module")
    modules.note(here)
    modules.forget_unless(here)
    held = sys.modules.get("own_module")
    exec(changes, vars(module))
    modules.forget_unless(here)
    assert "own_module" not in sys.modules
    assert eval(changed, vars(module))
    assert held in ((module,) if "30_000" not in begins else (None,))
    assert not eval(changed, vars(importlib.import_module("own_module")))
    modules.forget()


@pytest.mark.parametrize(("held_bytes", "begun", "calls"), [
    (1 << 26, True, ["empty"]), ((1 << 26) + 1, True, ["forget", "empty"]), (1 << 40, False, []),
])  # fmt: skip
def test_a_worker_gives_the_gpus_memory_up_and_modules_that_hold_much_of_it(held_bytes, begun, calls, monkeypatch):
    cuda, seen = pytest.importorskip("torch").cuda, []
    monkeypatch.setattr(cuda, "is_initialized", lambda: begun)
    monkeypatch.setattr(cuda, "memory_allocated", lambda: held_bytes)
    monkeypatch.setattr(cuda, "empty_cache", lambda: seen.append("empty"))
    _give_up(SimpleNamespace(forget=lambda: seen.append("forget")))
    assert seen == calls


def test_a_worker_that_is_to_rest_gives_up_what_it_holds_before_it_answers(monkeypatch):
    seen = []
    monkeypatch.setattr(worker, "_give_up", lambda _modules: seen.append("gives up"))
    worker.serve([idle_worker.Rest()], seen.append, "cpu")
    assert seen == ["gives up", worker.WorkerAnswer(value="")]


@pytest.mark.processes
def test_a_forked_child_leaves_the_parents_worker_alone():
    tried(assignment())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads that are left behind
        child = os.fork()
    if child == 0:
        os._exit(0 if not idle_worker._idle._places else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(workers_of(os.getpid())) == 1


@pytest.mark.processes
def test_a_worker_is_not_taken_in_another_environment_or_folder(tmp_path, monkeypatch):
    work = assignment()
    for change in (lambda: monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path)), lambda: monkeypatch.chdir(tmp_path)):
        tried(work)
        change()
        assert idle_worker.take(idle_worker.Needs.of(work.kernel, work.device, work.device_name)) is None


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variable", "by_a_library"), [("CUDA_MODULE_LOADING", "LAZY"), ("KMP_DUPLICATE_LIB_OK", "True")]
)
def test_a_worker_is_taken_although_a_library_has_set_a_variable_since(variable, by_a_library, monkeypatch):
    """torch sets the first one when it first uses a GPU, and threadpoolctl the other; another value is the user's."""
    monkeypatch.delenv(variable, raising=False)
    needs = idle_worker.Needs((), "cpu")
    start(needs)
    monkeypatch.setenv(variable, "by the user")
    assert not idle_worker.waits(needs)
    monkeypatch.setenv(variable, by_a_library)
    assert idle_worker.waits(needs)


@pytest.mark.processes
def test_a_worker_that_was_started_early_serves_the_first_gpu(monkeypatch):
    monkeypatch.setattr(idle_worker, "_DRIVER", os.devnull)
    monkeypatch.setattr(idle_worker, "EARLY", idle_worker.Needs((), "cuda"))
    assert idle_worker.start_one_early()
    devices = ("cuda:0", "cuda:1", "cuda:10", "cpu")
    waits = {device: idle_worker.waits(idle_worker.Needs((), device)) for device in devices}
    assert waits == {"cuda:0": True, "cuda:1": False, "cuda:10": False, "cpu": False}
    taken = idle_worker.take(idle_worker.Needs((), "cuda:0"))
    assert taken.ask(idle_worker.Rest(), 20, {}, "rest").value == ""
    taken.kill()


@pytest.mark.processes
def test_no_worker_is_started_early_where_a_tune_has_left_one_for_the_first_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(idle_worker, "_DRIVER", str(tmp_path))
    monkeypatch.setattr(idle_worker, "EARLY", idle_worker.Needs((), "cuda"))
    start(idle_worker.Needs((), "cuda:0"))
    before = workers_of(os.getpid())
    assert idle_worker.start_one_early()
    assert workers_of(os.getpid()) == before
    idle_worker.drop_idle_workers()


@pytest.mark.processes
def test_a_worker_gives_up_its_task_while_the_program_goes_on(monkeypatch):
    """The next tune waits for it, and one that does not give up is ended."""
    rests, go_on = threading.Event(), threading.Event()

    def late(worker):
        rests.set()
        return go_on.wait(ENOUGH_S) and right

    monkeypatch.setattr(idle_worker, "_rests", late)
    work = assignment()
    for right in (True, False):
        rests.clear()
        go_on.clear()
        tried(work)
        assert rests.wait(ENOUGH_S)
        threading.Timer(0.05, go_on.set).start()
        taken = idle_worker.take(idle_worker.Needs.of(work.kernel, work.device, work.device_name))
        assert (taken is not None) is right
        if taken is not None:
            taken.kill()
    assert workers_of(os.getpid()) == []


@pytest.mark.processes
def test_a_worker_is_started_early_where_a_driver_is_and_one_process_uses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(idle_worker, "_DRIVER", str(tmp_path / "nvidiactl"))
    assert not idle_worker.start_one_early()
    (tmp_path / "nvidiactl").touch()
    for name in ("LOCAL_RANK", "TRITON_OPS_FAMILY"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "0")
            assert not idle_worker.start_one_early()
    assert workers_of(os.getpid()) == []
    monkeypatch.setattr(idle_worker, "EARLY", idle_worker.Needs((), "cpu"))
    assert idle_worker.start_one_early()
    first = workers_of(os.getpid())
    assert idle_worker.start_one_early()
    assert workers_of(os.getpid()) == first, "one waits"
    assert not idle_worker.start_one_early("cpu")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert idle_worker.start_one_early("cuda"), "here is what the tune needs"
    taken = idle_worker.take(((), "cuda:0"))
    idle_worker.drop_idle_workers()
    assert workers_of(os.getpid()) == [taken.pid]
    taken.kill()


def leaves_torch_set(block):
    import torch

    torch.set_default_dtype(torch.float64)
    return block


def leaves_a_thread(block):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return block


def leaves_a_low_priority(block):
    os.nice(1)
    return block


def leaves_torch_with_one_thread_more(block):
    import torch

    torch.set_num_threads(torch.get_num_threads() + 1)
    return block


def leaves_another_function(block):
    random.random = lambda: 0.5
    return block


def leaves_the_environment(block):
    os.environ["LEFT_BY_A_TASK"] = str(block)
    os.chdir("/")
    os.umask(0o777)
    sys.setrecursionlimit(777)
    sys.setswitchinterval(0.5)
    decimal.getcontext().prec = 3
    decimal.getcontext().traps[decimal.Inexact] = True
    random.seed(7)
    warnings.simplefilter("error")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 600)
    logging.disable(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    socket.setdefaulttimeout(0.001)
    gc.disable()
    sys.stdout = io.StringIO()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    return block


@pytest.mark.processes
@pytest.mark.parametrize(
    "function",
    [
        leaves_torch_set, leaves_torch_with_one_thread_more, leaves_a_thread, leaves_a_low_priority,
        leaves_another_function,
    ],
)  # fmt: skip
def test_a_worker_that_a_task_has_changed_for_all_that_follows_is_not_kept(function):
    trial, _ = tried(assignment(function, space={"block": [1, 2]}), Config(block=1))
    assert trial.status is Status.OK, trial.error
    assert idle_worker.take(((), "cpu")) is None
    wait_until_no_worker_is_left()


LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tells_the_environment(block):
    assert "LEFT_BY_A_TASK" not in os.environ
    assert Path.cwd() != Path("/")
    assert sys.getrecursionlimit() != 777
    assert os.umask(0o077) != 0o777
    assert decimal.Decimal(1) / 3 == decimal.Decimal("0." + 28 * "3")
    assert random.getstate() != random.Random(7).getstate()
    warnings.warn("of no consequence", stacklevel=1)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert logging.getLogger().isEnabledFor(logging.CRITICAL)
    assert not any(isinstance(each, logging.NullHandler) for each in logging.getLogger().handlers)
    assert socket.getdefaulttimeout() is None
    assert not isinstance(sys.stdout, io.StringIO)
    assert locale.setlocale(locale.LC_NUMERIC) == "C"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == LIMIT
    return block


@pytest.mark.processes
def test_a_worker_has_its_environment_and_folder_back_for_the_next_task():
    _, one = tried(assignment(leaves_the_environment, space={"block": [1, 2]}), Config(block=1))
    trial, two = tried(assignment(tells_the_environment, space={"block": [1, 2]}), Config(block=1))
    assert trial.status is Status.OK, trial.error
    assert one == two


def doubled(x, block):
    return x * 2


@pytest.mark.processes
def test_a_worker_that_has_imported_torch_for_a_task_serves_the_next_one():
    torch = pytest.importorskip("torch")
    work = {"args": (torch.ones(4),), "space": {"block": [1, 2]}}
    ((first, one), (second, two)) = (tried(assignment(doubled, **work), Config(block=1)) for _ in range(2))
    assert (first.status, second.status) == (Status.OK, Status.OK)
    assert one == two


@pytest.mark.processes
def test_a_tune_leaves_its_worker_to_the_next_also_from_a_thread_that_ends_until_it_is_released():
    def tuned():
        release = {"space": sums_space([]), "isolate": True, "device": "cpu", "keep": False}
        assert tune(nap, **release).winner is not None

    thread = threading.Thread(target=tuned)
    thread.start()
    thread.join()
    (kept,) = workers_of(os.getpid())
    tuned()
    assert workers_of(os.getpid()) == [kept]
    release_processes()
    assert workers_of(os.getpid()) == []
    tuned()


ENDS = """
import os, sys, threading
from triton_ops import tune
from benchmarks.robustness.process_faults import nap, sums_space
from benchmarks.robustness.process_faults import workers_of

tune(nap, space=sums_space([]), isolate=True, device="cpu", keep=False)
print(*workers_of(os.getpid()), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "raises":
    raise RuntimeError("of the user's")
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["returns", "raises", "killed"])
def test_a_process_that_ends_takes_its_idle_worker_along(how):
    done = subprocess.run(
        [sys.executable, "-c", ENDS, how], capture_output=True, text=True, check=False, env=os.environ
    )
    (worker,) = map(int, done.stdout.split())
    eventually(lambda: Process(worker).ended)
