"""Copies of a program become its worker and its fork server, know nothing of it, and end with it or after a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triton_ops.base import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no copy is forked elsewhere")
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
from triton_ops.processes import WorkerProcess, copies
idle_worker._DRIVER = os.devnull
def show(**values):
    print(json.dumps(values), flush=True)
def worker(**given):
    return WorkerProcess(("torch",), "cuda", program="tests.evaluating_worker", **given)
def ask(of, text):
    return of.ask(text, 60, {}, "")
def pid():
    return copies._copies[os.getpid(), "worker"][0].pid
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


def test_a_copy_is_the_worker_and_knows_nothing_of_the_program_but_what_it_is_now(tmp_path):
    seen = program(tmp_path, """
folder = tempfile.TemporaryDirectory()
file = open("log", "w"); file.write("once ")
logging.basicConfig(handlers=[logging.FileHandler("logged")])
signal.signal(signal.SIGTERM, lambda *_: None)
runtime = triton.knobs.runtime
runtime.launch_enter_hook.add(print)
runtime.add_stages_inspection_hook = print
os.environ["BEFORE"] = "1"
import users_kernel
forked, forks = pid(), len(copies._copies)
del os.environ["BEFORE"]
os.environ["LATER"] = "1"
os.mkdir("elsewhere"); os.chdir("elsewhere"); sys.path.insert(0, "/later")
one = worker()
tell = lambda text: ask(one, text)
seen = dict(
    forks=forks, is_copy=one.is_copy, same=one.pid == forked == tell("os.getpid()"),
    modules=[tell(f"{name!r} in sys.modules") for name in ("users_kernel", "torch", "triton")],
    main=tell("hasattr(sys.modules['__main__'], 'show')"), files=tell("open_files()"),
    environment=[tell(f"os.environ.get({name!r})") for name in ("BEFORE", "LATER")],
    folder=tell("os.getcwd()").endswith("elsewhere"), path="/later" in tell("sys.path"), words=tell("sys.argv[-1]"),
    term=tell("signal.getsignal(15) == 0"), handlers=tell("logging.getLogger().handlers"),
    hooks=[tell(f"importlib.import_module('triton.knobs').runtime.{name}") for name in ("launch_enter_hook.calls",
           "add_stages_inspection_hook")], untouched=len(runtime.launch_enter_hook.calls),
    cuda=tell("importlib.import_module('torch').cuda.is_initialized()"), threads=tell("threading.active_count()"),
    temporary=tell("tempfile.gettempdir()") != tempfile.gettempdir(),
    marked=one._family.encode() in Process(one.pid).environment,
)
other = worker()
seen["other"] = other.is_copy
other.kill(); one.kill(); file.close()
seen["left"] = [os.path.isdir(folder.name), Path("../log").read_text()]
show(**seen)
""")  # fmt: skip
    assert seen == {
        "forks": 2, "is_copy": True, "same": True, "modules": [False, True, True], "main": False,
        "environment": [None, "1"], "folder": True, "path": True, "words": "torch", "term": True, "handlers": [],
        "hooks": [[], None], "untouched": 1,
        "files": [os.devnull], "cuda": False, "threads": 1, "temporary": True, "marked": True, "other": False,
        "left": [True, "once "],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "forks"),
    [("", 1), ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", 0),
     ("torch.set_default_dtype(torch.float64)", 0), ("torch.set_default_device('meta')", 0),
     ("sys.setprofile(lambda *_: None)", 0), ("os.environ['RANK'] = '0'", 0), ("copies._MOST_BYTES = 1", 0),
     ("copies._DEVICES = ('/dev/null',); file = open(os.devnull)", 0), ("idle_worker._DRIVER = '/nonexistent'", 0),
     ("os.environ['TRITON_OPS_LOCKFILE'] = 'somewhere'", 0), ("os.environ['TRITON_OPS_ON_MISS'] = 'default'", 0),
     ("torch.set_num_threads(4); torch.randn(2000, 2000) @ torch.randn(2000, 2000)", None),
     ("fork = os.fork; os.fork = lambda: fork()", 0)],
)  # fmt: skip
def test_copies_are_forked_where_no_fork_does_harm_and_launches_may_tune(before, forks, tmp_path):
    seen = program(tmp_path, f"""
{before}
import users_kernel
show(forks=len(copies._copies) // 2, alone=len(os.listdir("/proc/self/task")) == 1)
os._exit(0)
""")  # fmt: skip
    assert seen["forks"] == (int(seen["alone"]) if forks is None else forks)


def test_a_copy_ends_with_its_program_however_that_ends_and_starts_nothing_before(tmp_path):
    process = program(tmp_path, """
import users_kernel
show(pid=pid())
time.sleep(600)
""", wait=False)  # fmt: skip
    pid = json.loads(process.stdout.readline())["pid"]
    assert not Process(pid).ended
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    process.kill()
    process.communicate()
    eventually(lambda: Process(pid).ended)


def test_a_worker_is_a_new_process_where_the_copies_have_ended_or_is_another_programs(tmp_path):
    seen = program(tmp_path, """
import users_kernel
first = pid()
child = os.fork()
if not child:
    one = worker()
    os._exit(0 if not one.is_copy and ask(one, "1 + 1") == 2 else 1)
code = os.waitpid(child, 0)[1]
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
one = worker()
show(code=code, two=ask(one, "1 + 1"), is_copy=one.is_copy, gone=not os.path.exists(f"/proc/{first}"))
one.kill()
""")  # fmt: skip
    assert seen == {"code": 0, "two": 2, "is_copy": False, "gone": True}


def test_five_programs_have_a_copy_each_whose_worker_ends_with_them(tmp_path):
    processes = []
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes.append(program(folder, """
import users_kernel
one = worker()
show(pid=one.pid, is_copy=one.is_copy, parent=ask(one, "__import__('os').getppid()") == os.getpid())
sys.stdin.read()
""", wait=False))  # fmt: skip
    seen = [json.loads(each.stdout.readline()) for each in processes]
    assert [(each["is_copy"], each["parent"]) for each in seen] == [(True, True)] * 5
    assert len({each["pid"] for each in seen}) == 5
    for each in processes:
        each.kill()
        each.communicate()
    eventually(lambda: all(Process(each["pid"]).ended for each in seen))


def test_a_task_that_fails_in_the_copy_is_loaded_by_a_new_process(tmp_path):
    """A module that torch lets be imported once in a process, by the program, before the fork."""
    (tmp_path / "once.py").write_text(
        "import torch\n_library = torch.library.Library('once', 'DEF')\ndef work(size):\n    pass\n"
    )
    seen = program(tmp_path, """
import once, users_kernel
from triton_ops import release_processes, tune
from triton_ops.processes import worker_process
begun, begin = [], worker_process.begin
def noted(words, streams, files, env, role):
    begun.append(begin(words, streams, files, env, 'worker'))  # a GPU's worker or not
    return begun[-1]
worker_process.begin = noted
result = tune(once.work, space={"size": [1, 2]}, device="cpu", isolate=True)
release_processes()
show(copies=[isinstance(each, copies.Forked) for each in begun], trials=[each.status.value for each in result.trials])
""")  # fmt: skip
    assert seen == {"copies": [True, False], "trials": ["ok", "ok"]}


def test_compilers_of_a_copy_compile_as_those_of_a_new_process(tmp_path):
    compiled = [program(tmp_path, f"""
from tests.planted_kernels import grid, planted
{imported}
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec
kernel, x = TritonKernel(planted, grid, outputs=("x",)), Arguments((TensorSpec((1000,), "float32"), 1000))
compiler, forks = TritonCompiler(kernel, x, Target.named("sm_90")), len(copies._copies)
CompilePool.start_server(compiler.needs_on(compiler.target))
with CompilePool(compiler, workers=2) as pool:
    results = [pool.submit(Config(KIND="good", BLOCK=size)).result() for size in (256, 512)]
show(forks=forks, left=len(copies._copies), results=[[each.status, str(each.resources)] for each in results])
""", TRITON_CACHE_DIR=str(tmp_path / imported)) for imported in ("", "import users_kernel")]  # fmt: skip
    assert [(each["forks"], each["left"]) for each in compiled] == [(0, 0), (2, 1)]
    assert compiled[0]["results"] == compiled[1]["results"]
    assert [status for status, _ in compiled[1]["results"]] == ["ok", "ok"]
