"""A program's twin becomes its worker, knows nothing of the program, and outlives neither it nor a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triton_ops.base import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no twin is forked elsewhere")
SOURCE = Path(__file__).parents[3]
KERNEL = """
import triton, triton.language as tl, triton_ops
MARK = "the user's"
@triton_ops.autotune([triton.Config({"BLOCK": size}) for size in (128, 256)], key=["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, at < n), at < n)
"""
BEGIN = """
import json, os, signal, sys, tempfile, threading, time, logging
import torch, triton
from pathlib import Path
from triton_ops.base import Process
from triton_ops.evaluation import idle_worker
from triton_ops.processes import WorkerProcess, twin
idle_worker._DRIVER = os.devnull
def told(**values):
    print(json.dumps(values), flush=True)
def worker(**given):
    return WorkerProcess(("torch",), "cuda", program="tests.evaluating_worker", **given)
def ask(of, text):
    return of.ask(text, 60, {}, "")
def pid():
    return twin._twins[os.getpid()][0].pid
"""


def program(folder, text, wait=True, **variables):
    (folder / "users_kernel.py").write_text(KERNEL)
    (folder / "program.py").write_text(BEGIN + text)
    path = os.pathsep.join((str(SOURCE / "src"), str(SOURCE)))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_OPS_CACHE_DIR": str(folder / "cache"), **variables}
    process = subprocess.Popen(
        [sys.executable, str(folder / "program.py")], env=environment, cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if not wait:
        return process
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(output)


def eventually(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.02)


def test_a_twin_is_the_worker_and_knows_nothing_of_the_program_but_what_it_is_now(tmp_path):
    seen = program(tmp_path, """
folder = tempfile.TemporaryDirectory()
file = open("log", "w"); file.write("once ")
logging.basicConfig(handlers=[logging.FileHandler("logged")])
signal.signal(signal.SIGTERM, lambda *_: None)
os.environ["BEFORE"] = "1"
import users_kernel
forked, copies = pid(), len(twin._twins)
del os.environ["BEFORE"]
os.environ["LATER"] = "1"
os.mkdir("elsewhere"); os.chdir("elsewhere"); sys.path.insert(0, "/later")
one = worker()
tell = lambda text: ask(one, text)
seen = dict(
    copies=copies, is_twin=one.is_twin, same=one.pid == forked == tell("os.getpid()"),
    modules=[tell(f"{name!r} in sys.modules") for name in ("users_kernel", "torch", "triton")],
    main=tell("hasattr(sys.modules['__main__'], 'told')"), files=tell("open_files()"),
    environment=[tell(f"os.environ.get({name!r})") for name in ("BEFORE", "LATER")],
    folder=tell("os.getcwd()").endswith("elsewhere"), path="/later" in tell("sys.path"), words=tell("sys.argv[-1]"),
    term=tell("signal.getsignal(15) == 0"), handlers=tell("logging.getLogger().handlers"),
    cuda=tell("importlib.import_module('torch').cuda.is_initialized()"), threads=tell("threading.active_count()"),
    temporary=tell("tempfile.gettempdir()") != tempfile.gettempdir(),
    marked=one._family.encode() in Process(one.pid).environment,
)
other = worker()
seen["other"] = other.is_twin
other.kill(); one.kill(); file.close()
seen["left"] = [os.path.isdir(folder.name), Path("../log").read_text()]
told(**seen)
""")  # fmt: skip
    assert seen == {
        "copies": 1, "is_twin": True, "same": True, "modules": [False, True, True], "main": False,
        "environment": [None, "1"], "folder": True, "path": True, "words": "torch", "term": True, "handlers": [],
        "files": [os.devnull], "cuda": False, "threads": 1, "temporary": True, "marked": True, "other": False,
        "left": [True, "once "],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "twins"),
    [("", 1), ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", 0),
     ("torch.set_default_dtype(torch.float64)", 0), ("torch.set_default_device('meta')", 0),
     ("sys.setprofile(lambda *_: None)", 0), ("os.environ['RANK'] = '0'", 0), ("twin._MOST_BYTES = 1", 0),
     ("twin._DEVICES = ('/dev/null',); file = open(os.devnull)", 0), ("idle_worker._DRIVER = '/nonexistent'", 0),
     ("os.environ['TRITON_OPS_LOCKFILE'] = 'somewhere'", 0), ("os.environ['TRITON_OPS_ON_MISS'] = 'default'", 0),
     ("torch.set_num_threads(4); torch.randn(2000, 2000) @ torch.randn(2000, 2000)", None),
     ("fork = os.fork; os.fork = lambda: fork()", 0)],
)  # fmt: skip
def test_a_twin_is_forked_where_no_fork_does_harm_and_launches_may_tune(before, twins, tmp_path):
    seen = program(tmp_path, f"""
{before}
import users_kernel
told(twins=len(twin._twins), alone=len(os.listdir("/proc/self/task")) == 1)
os._exit(0)
""")  # fmt: skip
    assert seen["twins"] == (int(seen["alone"]) if twins is None else twins)


def test_a_twin_ends_with_its_program_however_that_ends_and_starts_nothing_before(tmp_path):
    process = program(tmp_path, """
import users_kernel
told(pid=pid())
time.sleep(600)
""", wait=False)  # fmt: skip
    pid = json.loads(process.stdout.readline())["pid"]
    assert not Process(pid).ended
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    process.kill()
    process.communicate()
    eventually(lambda: Process(pid).ended)


def test_a_worker_is_a_new_process_where_the_twin_has_ended_or_is_another_programs(tmp_path):
    seen = program(tmp_path, """
import users_kernel
first = pid()
child = os.fork()
if not child:
    one = worker()
    os._exit(0 if not one.is_twin and ask(one, "1 + 1") == 2 else 1)
code = os.waitpid(child, 0)[1]
os.kill(first, signal.SIGKILL)
one = worker()
told(code=code, two=ask(one, "1 + 1"), is_twin=one.is_twin, gone=not os.path.exists(f"/proc/{first}"))
one.kill()
""")  # fmt: skip
    assert seen == {"code": 0, "two": 2, "is_twin": False, "gone": True}


def test_five_programs_have_a_twin_each_whose_worker_ends_with_them(tmp_path):
    processes = []
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes.append(program(folder, """
import users_kernel
one = worker()
told(pid=one.pid, is_twin=one.is_twin, parent=ask(one, "__import__('os').getppid()") == os.getpid())
sys.stdin.read()
""", wait=False))  # fmt: skip
    seen = [json.loads(each.stdout.readline()) for each in processes]
    assert [(each["is_twin"], each["parent"]) for each in seen] == [(True, True)] * 5
    assert len({each["pid"] for each in seen}) == 5
    for each in processes:
        each.kill()
        each.communicate()
    eventually(lambda: all(Process(each["pid"]).ended for each in seen))


def test_a_task_that_fails_in_the_twin_is_loaded_by_a_new_process(tmp_path):
    """A module that torch lets be imported once in a process, by the program, before the fork."""
    (tmp_path / "once.py").write_text(
        "import torch\n_library = torch.library.Library('once', 'DEF')\ndef work(size):\n    pass\n"
    )
    seen = program(tmp_path, """
import once, users_kernel
from triton_ops import release_processes, tune
from triton_ops.processes import worker_process
begun, begin = [], worker_process.begin
def noted(words, output, files, env, in_twin):
    begun.append(begin(words, output, files, env, True))  # a GPU's worker or not
    return begun[-1]
worker_process.begin = noted
result = tune(once.work, space={"size": [1, 2]}, device="cpu", isolate=True)
release_processes()
told(twins=[isinstance(each, twin.Forked) for each in begun], trials=[each.status.value for each in result.trials])
""")  # fmt: skip
    assert seen == {"twins": [True, False], "trials": ["ok", "ok"]}
