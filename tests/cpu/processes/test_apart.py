"""An early worker is no child, holds nothing of its program, and ends when the rights of that change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import eventually
from triton_ops.base import Process
from triton_ops.processes.child import Program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no worker is started early elsewhere")
SOURCE = Path(__file__).parents[3]
BEGIN = """
import ctypes, json, os, signal, sys, threading, time
from triton_ops.base import Process
from triton_ops.evaluation import idle_worker
from triton_ops.processes import WorkerProcess
idle_worker._DRIVER, idle_worker._PROGRAM = os.devnull, "tests.evaluating_worker"
NEEDS = idle_worker.EARLY = idle_worker.Needs((), "cpu")
libc = ctypes.CDLL(None)
def show(**values):
    print(json.dumps(values), flush=True)
def early():
    assert idle_worker.start_one_early()
    return idle_worker._idle._places[0].process
def gone(worker):
    return eventually(lambda: Process(worker.pid).ended)
def eventually(condition):
    until = time.monotonic() + 600
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()
"""
KERNEL = """
import triton, triton.language as tl, triton_ops
@triton_ops.autotune([triton.Config({"BLOCK": size}) for size in (128, 256)], key=["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, at < n), at < n)
"""


def program(folder, text, wait=True, **variables):
    (folder / "users_kernel.py").write_text(KERNEL)
    (folder / "program.py").write_text(BEGIN + text)
    path = os.pathsep.join((str(SOURCE / "src"), str(SOURCE)))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_OPS_CACHE_DIR": str(folder / "cache"), **variables}
    process = subprocess.Popen(
        [sys.executable, str(folder / "program.py")], env=environment, cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if not wait:
        return process
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Warning" not in errors
    return json.loads(output)


@pytest.mark.processes
def test_a_program_that_decorates_a_kernel_has_one_worker_which_is_no_child_and_no_thread(tmp_path):
    seen = program(tmp_path, """
import torch, triton
import users_kernel
sys.modules.pop("users_kernel")
import users_kernel
workers = [each.process for each in idle_worker._idle._places]
one, children = workers[0], []
own, start = [os.posix_spawn("/bin/true", ["true"], os.environ) for _ in range(2)], time.monotonic()
try:
    while True:
        children.append(os.wait()[0])
except ChildProcessError:
    pass
show(workers=len(workers), alive=one.alive, own=sorted(children) == sorted(own), threads=threading.active_count())
""")  # fmt: skip
    assert seen == {"workers": 1, "alive": True, "own": True, "threads": 1}


@pytest.mark.processes
def test_an_early_worker_has_the_programs_environment_only_from_its_task_on(tmp_path):
    seen = program(tmp_path, """
one = early()
before = [name in Process(one.pid).environment for name in (b"TOKEN", b"secret", b"TRITON_CACHE_DIR")]
del os.environ["TOKEN"]
os.environ["LATER"] = "1"
taken = idle_worker.take(NEEDS)
names = ("TOKEN", "LATER", "TRITON_CACHE_DIR", "TMPDIR", "TRITON_OPS_FAMILY")
after = taken.ask("{name: os.environ.get(name) for name in %r}" % (names,), 60, {}, "")
show(
    same=taken is one, before=before, after=[after["TOKEN"], after["LATER"], after["TRITON_CACHE_DIR"]],
    own=after["TMPDIR"] == taken.ask("tempfile.gettempdir()", 60, {}, "") != os.environ.get("TMPDIR"),
    family=after["TRITON_OPS_FAMILY"].encode() in Process(one.pid).environment,
    starter=after["TRITON_OPS_FAMILY"].endswith(f".{os.getpid()}"),
)
""", TOKEN="secret", TRITON_CACHE_DIR=str(tmp_path), PYTHONDEVMODE="1")  # fmt: skip
    assert seen == {
        "same": True, "before": [False, False, True], "after": [None, "1", str(tmp_path)], "own": True, "family": True,
        "starter": True,
    }  # fmt: skip


@pytest.mark.processes
def test_how_an_early_worker_ended_is_told_as_of_any_other(tmp_path):
    seen = program(tmp_path, """
from triton_ops.processes import WorkerLostError
endings = []
for text in ("os._exit(3)", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 9)"):
    early()
    one = idle_worker.take(NEEDS)
    try:
        one.ask(text, 60, {}, "try")
    except WorkerLostError as error:
        endings.append([str(error), error.outside, one.alive])
show(endings=endings)
""")  # fmt: skip
    assert seen["endings"] == [
        ["its process exited with code 3 during its try", False, False],
        ["its process was killed by SIGSEGV during its try", False, False],
        ["its process was killed by SIGKILL during its try", True, False],
    ]


@pytest.mark.processes
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.execvp('sleep', ['sleep', '600'])"])
@pytest.mark.parametrize("taken", [False, True])
def test_an_early_worker_ends_with_its_program_however_that_ends(end, taken, tmp_path):
    process = program(tmp_path, f"""
one = early()
if {taken}:
    idle_worker.take(NEEDS).begin("__import__('time').sleep(600)")
child = 0
if "exec" not in {end!r} and not (child := os.fork()):
    time.sleep(600)  # it has what was open, which is no sign of life
show(pids=[one.pid, Process(one.pid).parent], child=child)
sys.stdin.readline()
{end}
""", wait=False)  # fmt: skip
    seen = json.loads(process.stdout.readline())
    pids = seen["pids"]
    assert not any(Process(pid).ended for pid in pids)
    process.stdin.write("\n")
    process.stdin.flush()
    try:
        eventually(lambda: all(Process(pid).ended for pid in pids))
    finally:
        if seen["child"]:
            os.kill(seen["child"], 9)
        process.kill()
        process.communicate()


@pytest.mark.processes
def test_an_early_worker_ends_by_itself_and_another_is_started(tmp_path):
    seen = program(tmp_path, """
idle_worker._EARLY_S = 0.01
one = early()
ended = gone(one)
idle_worker._EARLY_S = 60.0
waits = idle_worker.waits(NEEDS)
other = early()
show(ended=ended, waits=waits, other=other is not one and other.alive, taken=idle_worker.take(NEEDS) is other)
""")  # fmt: skip
    assert seen == {"ended": True, "waits": False, "other": True, "taken": True}


DROPS = {
    "no new rights": "libc.prctl(38, 1, 0, 0, 0)",
    "another user": "os.setgroups([]); os.setgid(65534); os.setuid(65534)",
    "another user for now": "os.seteuid(65534)",
    "a namespace": "assert not libc.unshare(0x40000000)",
    "a user's namespace": "assert not libc.unshare(0x10000000)",
    "processes of its children": "assert not libc.unshare(0x20000000)",
    "another root": "os.chroot('.')",
    "fewer capabilities": "assert not libc.prctl(24, 23, 0, 0, 0)",
}


@pytest.mark.processes
@pytest.mark.parametrize("change", DROPS)
@pytest.mark.parametrize("kind", ["early", "taken", "child"])
def test_a_process_ends_when_its_program_gives_up_rights(change, kind, tmp_path):
    if os.getuid() and change != "no new rights":
        pytest.skip("it needs root")
    if change == "a user's namespace" and kind != "early":
        pytest.skip("no program with threads may enter one")
    tmp_path.chmod(0o755)
    seen = program(tmp_path, f"""
if {kind!r} == "child":
    one = WorkerProcess(program=idle_worker._PROGRAM)
    one.ask("1 + 1", 60, {{}}, "")
else:
    one = early()
    eventually(lambda: one.pid)
if {kind!r} == "taken":
    idle_worker.take(NEEDS)
looks = os.open("/proc", os.O_RDONLY)  # the program may not see its own later
def left():
    try:
        with open(os.open(f"{{one.pid}}/stat", os.O_RDONLY, dir_fd=looks)) as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
was_there = left()
{DROPS[change]}
taken = idle_worker.take(NEEDS)
ended = eventually(lambda: not left())
show(was_there=was_there, taken=taken is not None, ended=ended)
os._exit(0)
""")  # fmt: skip
    assert seen == {"was_there": True, "taken": False, "ended": True}


@pytest.mark.processes
def test_an_early_worker_that_the_program_may_not_look_at_is_never_used(tmp_path):
    """As under Landlock, of whose rules the system tells nothing."""
    seen = program(tmp_path, """
one = early()
eventually(lambda: one.pid)
Process.rights, rights = property(lambda self: {**rights.fget(self), "ns/user": ""}), Process.rights
idle_worker._idle._places[0].around = idle_worker._idle.inherited(early=True)
show(taken=idle_worker.take(NEEDS) is not None, ended=gone(one))
""")  # fmt: skip
    assert seen == {"taken": False, "ended": True}


@pytest.mark.processes
def test_a_program_that_has_changed_what_a_start_inherits_gets_another_worker(tmp_path):
    changes = [
        "os.umask(0o31)", "os.nice(2)", "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])",
        "__import__('resource').setrlimit(7, (500, 500))", "os.chdir('/')", "os.environ['OMP_NUM_THREADS'] = '3'",
        "os.environ['TRITON_PTXAS_PATH'] = 'ptxas'",
    ]  # fmt: skip
    seen = program(tmp_path, f"""
taken = []
for change in {changes!r}:
    early()
    exec(change)
    taken.append(idle_worker.take(NEEDS) is not None)
early()
os.environ["OTHER"] = "1"
show(taken=taken, other=idle_worker.take(NEEDS) is not None)
""")  # fmt: skip
    assert seen == {
        "taken": [len(os.sched_getaffinity(0)) == 1 and "affinity" in each for each in changes],
        "other": True,
    }


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_start_none(method, tmp_path):
    seen = program(tmp_path, f"""
import multiprocessing
starts = idle_worker.start_one_early()
def look(answers):
    answers.put([starts, idle_worker.start_one_early(), idle_worker.waits(NEEDS)])
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    context.set_forkserver_preload(["__main__"]) if {method!r} == "forkserver" else None
    answers = context.SimpleQueue()
    process = context.Process(target=look, args=(answers,))
    process.start()
    show(seen=answers.get())
    process.join()
""")  # fmt: skip
    assert seen == {"seen": [method == "fork", False, False]}


DAEMON = """
import socket
def close_all():
    os.closerange(3, 4096)
    return [socket.socketpair() for _ in range(40)], [open(f"own{n}", "w+") for n in range(40)]
def whole(pairs, files):
    for file in files:
        file.write("mine")
        file.flush()
    for here, there in pairs:
        here.send(b"mine")
        there.settimeout(60)
    return (all(there.recv(9) == b"mine" for _, there in pairs)
            and all(os.pread(file.fileno(), 9, 0) == b"mine" for file in files))
"""
LATER = {
    "waits": "idle_worker.waits(NEEDS)", "take": "idle_worker.take(NEEDS) is not None",
    "drop": "idle_worker.drop_idle_workers()", "start": "idle_worker.start_one_early() is not True",
    "ask": "one.begin('1') or one.alive or one.has_written is not True",
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("asked", [True, False], ids=["its number is known", "not yet"])
def test_a_program_that_closes_all_files_keeps_those_that_get_their_numbers_and_another_worker_comes(
    asked, later, tmp_path
):
    seen = program(tmp_path, DAEMON + f"""
one = early()
pid = one.pid if {asked} else None
own = close_all()
result = {LATER[later]}
other = early()
same = idle_worker.take(NEEDS) is other is not one
answer = other.ask("6 * 7", 60, {{}}, "")
one.kill()
show(result=bool(result), same=same, answer=answer, whole=whole(*own), gone=pid is None or gone(one))
""")  # fmt: skip
    assert seen == {"result": False, "same": True, "answer": 42, "whole": True, "gone": True}


@pytest.mark.processes
def test_a_program_that_closes_all_files_between_two_tunes_keeps_its_own_and_tunes_on(tmp_path):
    (tmp_path / "target.py").write_text("def target(*, n):\n    return n - n\n")
    seen = program(tmp_path, DAEMON + """
from target import target
idle_worker._PROGRAM = "triton_ops.evaluation.worker"
from triton_ops import release_processes, tune
from triton_ops.processes import ForkServer, fork_servers
def tuned(n):
    result = tune(target, space={"n": [n, n + 1]}, device="cpu", isolate=True)
    return [str(trial.status) for trial in result.trials]
def server():
    return fork_servers.borrow((), lambda: ForkServer("tests.evaluating_server", changes={}))
if __name__ == "__main__":
    before = tuned(1)
    compiling, forked = server(), server().fork()
    forked.ask("1", 60)
    fork_servers.give_back(compiling)
    own = close_all()
    lost = []
    for use in (lambda: forked.ask("1", 60), compiling.fork):
        try:
            use()
        except (OSError, EOFError) as error:
            lost.append(True)
    words = forked.last_words()
    after = tuned(3)
    fork_servers.give_back(compiling)
    other = server()
    again = other is not compiling and other.fork().ask("6 * 7", 60)
    forked.close()
    release_processes()
    other.close()
    show(before=before, after=after, lost=lost, words=words, again=again, whole=whole(*own))
""")  # fmt: skip
    assert seen == {
        "before": ["ok", "ok"], "after": ["ok", "ok"], "lost": [True, True], "words": "is gone", "again": 42,
        "whole": True,
    }  # fmt: skip


def test_a_program_whose_rights_cannot_be_told_has_not_changed(monkeypatch, tmp_path):
    pid, rights = Program.here()
    assert not Program(pid, rights).changed
    assert Program(pid, {**rights, "root": "elsewhere"}).changed
    hidden = {name: "" if name.startswith("ns/") else value for name, value in rights.items()}
    with monkeypatch.context() as changed:
        changed.setattr(Process, "rights", hidden)
        assert not Program(pid, rights).changed, "what could not be told from the start"
    monkeypatch.setattr(Process, "PLACE", str(tmp_path))
    assert not Program(*Program.here()).changed
