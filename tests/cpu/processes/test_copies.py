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
def in_programs(texts):
    # The exit code of each text, in a program of its own that has what this one has imported.
    codes = []
    for text in texts:
        if not (child := os.fork()):
            try:
                exec(text, globals())
            finally:
                os._exit(99)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes
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
    assert "Warning" not in errors
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
    cuda=tell("importlib.import_module('torch').cuda.is_initialized()"), threads=tell("threading.active_count()"),
    temporary=tell("tempfile.gettempdir()") != tempfile.gettempdir(),
    marked=one._family.encode() in Process(one.pid).environment,
)
other = worker()
seen["other"] = other.is_copy
other.kill(); one.kill(); file.close()
seen["left"] = [os.path.isdir(folder.name), Path("../log").read_text()]
folder.cleanup()
show(**seen)
""", PYTHONDEVMODE="1")  # fmt: skip
    assert seen == {
        "forks": 2, "is_copy": True, "same": True, "modules": [False, True, True], "main": False,
        "environment": [None, "1"], "folder": True, "path": True, "words": "torch", "term": True, "handlers": [],
        "files": [os.devnull], "cuda": False, "threads": 1, "temporary": True, "marked": True, "other": False,
        "left": [True, "once "],
    }  # fmt: skip


FORKED = "import users_kernel; os._exit(len(copies._copies))"
NOT_FORKED = [
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "torch.set_default_dtype(torch.float64)", "torch.set_default_device('meta')",
    "sys.setprofile(lambda *_: None)", "os.environ['RANK'] = '0'", "copies._MOST_BYTES = 1",
    "copies._DEVICES = ('/dev/null',); file = open(os.devnull)", "idle_worker._DRIVER = '/nonexistent'",
    "os.environ['TRITON_OPS_LOCKFILE'] = 'somewhere'", "os.environ['TRITON_OPS_ON_MISS'] = 'default'",
    "fork = os.fork; os.fork = lambda: fork()", "import cProfile; cProfile.Profile().enable()",
    "torch.backends.cudnn.allow_tf32 = False", "torch.backends.cuda.enable_flash_sdp(False)",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
    "triton.knobs.runtime.launch_enter_hook.add(print)", "triton.knobs.compilation.always_compile = True",
]  # fmt: skip


def test_copies_are_forked_where_no_fork_does_harm_and_launches_may_tune(tmp_path):
    threads = "torch.set_num_threads(4); torch.randn(2000, 2000) @ torch.randn(2000, 2000)"
    alone = "import users_kernel; os._exit(len(copies._copies) == 2 * (len(os.listdir('/proc/self/task')) == 1))"
    texts = [FORKED, *(f"{before}; {FORKED}" for before in NOT_FORKED), f"{threads}; {alone}"]
    seen = program(tmp_path, f"show(codes=in_programs({texts!r}))")
    assert dict(zip(texts, seen["codes"], strict=True)) == {**dict.fromkeys(texts, 0), texts[0]: 2, texts[-1]: 1}


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


def test_a_worker_begins_whatever_became_of_the_copies_and_of_the_programs_folder(tmp_path):
    ended = """
import users_kernel
first = pid()
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
one = worker()
two, is_gone = ask(one, "1 + 1"), not os.path.exists(f"/proc/{first}")
one.kill()
os._exit(two + 4 * is_gone + 8 * one.is_copy)
"""
    without_folder = """
import users_kernel
os.mkdir("short"); os.chdir("short"); os.rmdir(os.getcwd())
one = worker()
two = ask(one, "1 + 1")
one.kill()
os._exit(two + 8 * one.is_copy)
"""
    no_fork = """
def refuse(event, _):
    if event == "os.fork":
        raise RuntimeError("no forks here")
sys.addaudithook(refuse)
import users_kernel
one = worker()
two = ask(one, "1 + 1")
one.kill()
os._exit(two + 4 * len(copies._copies))
"""
    seen = program(tmp_path, f"show(codes=in_programs({[ended, without_folder, no_fork]!r}))")
    assert seen == {"codes": [2 + 4, 2 + 8, 2]}


def test_a_program_that_has_changed_what_it_may_do_gets_a_new_process(tmp_path):
    changes = {
        "os.umask(0o31)": "os.umask(0)", "os.nice(2)": "os.nice(0)",
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])": "len(os.sched_getaffinity(0))",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))":
            "list(importlib.import_module('resource').getrlimit(7))",
    }  # fmt: skip
    texts = [f"""
import importlib, users_kernel
{change}
one = worker()
is_new, is_same = not one.is_copy, ask(one, {read!r}) == {read}
one.kill()
os._exit(is_new + 2 * is_same + 4 * len(copies._copies))
""" for change, read in changes.items()]  # fmt: skip
    assert program(tmp_path, f"show(codes=in_programs({texts!r}))") == {"codes": [3] * len(changes)}


def test_a_program_waits_for_its_own_children_alone(tmp_path):
    seen = program(tmp_path, """
import users_kernel
waiting = [each.pid for each, _ in copies._copies.values()]
child, ended = os.fork(), []
if not child:
    os._exit(0)
try:
    while True:
        ended.append(os.wait()[0])
except ChildProcessError:
    show(own=ended == [child], ended=[not os.path.exists(f"/proc/{each}") for each in waiting])
""")  # fmt: skip
    assert seen == {"own": True, "ended": [True, True]}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_have_no_copies(method, tmp_path):
    seen = program(tmp_path, f"""
import multiprocessing, users_kernel
def look(answers):
    answers.put([len(copies._copies), len(copies._programs - {{os.getppid()}})])
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    context.set_forkserver_preload(["__main__"]) if {method!r} == "forkserver" else None
    answers = context.SimpleQueue()
    process = context.Process(target=look, args=(answers,))
    process.start()
    show(seen=answers.get())
    process.join()
""")  # fmt: skip
    assert seen == {"seen": [0, 0]}


def test_a_program_is_forked_once_however_many_kernels_it_decorates(tmp_path):
    texts = [f"""
forks = []
sys.addaudithook(lambda event, _: forks.append(event) if event == "os.fork" else None)
{before}
for _ in range(3):
    sys.modules.pop("users_kernel", None)
    import users_kernel
os._exit(len(forks) + 8 * len(copies._copies))
""" for before in ("torch.set_num_threads(2); torch.ones(10_000_000).add_(1)", "copies._MOST_BYTES = 1")]  # fmt: skip
    assert program(tmp_path, f"show(codes=in_programs({texts!r}))") == {"codes": [2, 0]}


def test_a_copy_belongs_to_one_program(tmp_path):
    seen = program(tmp_path, """
import users_kernel
first = pid()
child = os.fork()
if not child:
    one = worker()
    os._exit(0 if not one.is_copy and ask(one, "1 + 1") == 2 else 1)
code = os.waitpid(child, 0)[1]
show(code=code, left=len(copies._copies), gone=not os.path.exists(f"/proc/{first}"))
""")  # fmt: skip
    assert seen == {"code": 0, "left": 0, "gone": True}


def test_three_programs_have_a_copy_each_whose_worker_ends_with_them(tmp_path):
    processes = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes.append(program(folder, """
import users_kernel
one = worker()
show(pid=one.pid, is_copy=one.is_copy, parent=ask(one, "__import__('os').getppid()") == os.getpid())
sys.stdin.read()
""", wait=False))  # fmt: skip
    seen = [json.loads(each.stdout.readline()) for each in processes]
    assert [(each["is_copy"], each["parent"]) for each in seen] == [(True, True)] * 3
    assert len({each["pid"] for each in seen}) == 3
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


COMPILE = """
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec
kernel, x = TritonKernel(planted, grid, outputs=("x",)), Arguments((TensorSpec((1000,), "float32"), 1000))
compiler, forks = TritonCompiler(kernel, x, Target.named("sm_90")), len(copies._copies)
with CompilePool(compiler, workers=2) as pool:
    results = [pool.submit(Config(KIND="good", BLOCK=size)).result() for size in (256, 512)]
show(forks=forks, left=len(copies._copies), results=[[each.status, str(each.resources)] for each in results])
"""


def test_compilers_of_a_copy_compile_as_those_of_a_new_process(tmp_path):
    compiled = [program(tmp_path, f"""
from tests.planted_kernels import grid, planted
{imported}
{COMPILE}
""", TRITON_CACHE_DIR=str(tmp_path / imported)) for imported in ("", "import users_kernel")]  # fmt: skip
    assert [(each["forks"], each["left"]) for each in compiled] == [(0, 0), (2, 1)]
    assert compiled[0]["results"] == compiled[1]["results"]
    assert [status for status, _ in compiled[1]["results"]] == ["ok", "ok"]


@pytest.mark.parametrize(
    "before",
    ["os.nice = None; import users_kernel", "files = [open(os.devnull) for _ in range(1100)]; import users_kernel"],
    ids=["a copy that fails", "a program with many files"],
)
def test_compilers_start_whatever_the_program_is(before, tmp_path):
    """A copy fails where the program has replaced a function that it needs."""
    seen = program(tmp_path, f"""
from tests.planted_kernels import grid, planted
{before}
{COMPILE}
""", TRITON_CACHE_DIR=str(tmp_path / "triton"))  # fmt: skip
    assert [status for status, _ in seen["results"]] == ["ok", "ok"]
