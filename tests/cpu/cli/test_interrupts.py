"""Ctrl-C at any moment of a command, imports and its end included: one line on stderr, and exit code 130."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from benchmarks.robustness.process_kills import PROGRAM

from tests.cpu.ship.test_serving import record_of
from tests.limits import eventually
from triton_ops.device import probe
from triton_ops.records import lock_of
from triton_ops.typed import TypedTarget
from triton_ops.values import Problem

pytestmark = pytest.mark.processes

# Sends SIGINT to itself, once or twice, when a module of that name begins to be imported or a function is called.
AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            for _ in range({times}):
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = {words!r}
from triton_ops.__main__ import main
"""
TARGET = """
import os, signal, sys, time

def plain(*, n):
    time.sleep(1e-3)

def swallows(*, n):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except BaseException:
        raise RuntimeError("something else came of it")

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10))

def finalizes(*, n):
    Finalized()
    time.sleep(1e-3)

def twice(*, n):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1e-3)
"""


MEASURED = """
import os, signal, time
import triton_ops

calls = 0

@triton_ops.operation(name="measured", space={"step": [1, 2]}, arguments=lambda n=4: {"n": n}, device="cpu")
def measured(n, step):
    global calls
    calls += 1
    time.sleep(1e-3)
    if calls == %d:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except %s:
            pass
    return n
"""


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target.py").write_text(TARGET)
    return tmp_path / "target.py"


def ran(program, tmp_path):
    variables = {**os.environ, "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def tune(target, name):
    return ["tune", f"{target}:{name}", "--space", "n=1,2", "--device", "cpu", "--inline"]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["typer", "triton_ops.cli.app", "triton_ops.cli.tune", "triton_ops.tuner.tuning"])
def test_an_import_that_is_interrupted_is_one_line(name, times, target, tmp_path):
    words = tune(target, "plain")
    assert ran(AT_IMPORT.format(name=name, times=times, words=words), tmp_path) == (130, "interrupted\n")


def test_an_interrupt_in_the_targets_own_import_is_one_line(target, tmp_path):
    target.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n" + TARGET)
    words = tune(target, "plain")
    assert ran(AT_IMPORT.format(name="", times=0, words=words), tmp_path) == (130, "interrupted\n")


@pytest.mark.parametrize("name", ["finalizes", "twice"])
def test_an_interrupt_that_python_would_print_or_raise_again_is_one_line(name, target, tmp_path):
    code, err = ran(AT_IMPORT.format(name="", times=0, words=tune(target, name)), tmp_path)
    assert (code, err.count("\n")) == (130, 1), err
    assert err.startswith("interrupted")


def test_the_end_of_the_program_hears_it_too(target, tmp_path):
    target.write_text("import atexit\n" + TARGET + "\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n")
    code, err = ran(AT_IMPORT.format(name="", times=0, words=tune(target, "plain")), tmp_path)
    assert (code, err.splitlines()[-1]) == (130, "interrupted")


def test_a_later_ctrl_c_ends_what_did_not_listen_to_the_first(target, tmp_path):
    target.write_text(
        "import time\ndef deaf(*, n):\n    while True:\n        try:\n            open('deaf', 'w').close()\n"
        "            time.sleep(60)\n        except BaseException:\n            pass\n"
    )
    variables = {**os.environ, "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, *tune(target, "deaf")]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        eventually((tmp_path / "deaf").exists)
        first = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        at_once = time.monotonic() - first < 2.0  # where this process had to wait for a CPU it is a later one
        time.sleep(0.5)
        assert process.poll() is None or not at_once, "taken for the same"
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert (process.returncode, process.stderr.read()) == (130, "interrupted\n")


@pytest.mark.parametrize("swallowed", [(), KeyboardInterrupt])
@pytest.mark.parametrize("call", [1, 40])  # before any config has run, and after one has
def test_a_check_of_a_lockfile_ends_and_says_no_verdict(call, swallowed, tmp_path):
    work = tmp_path / f"measured_{call}_{bool(swallowed)}.py"  # modules of one name are imported once
    work.write_text(MEASURED % (call, getattr(swallowed, "__name__", "()")))
    result = TypedTarget(f"{work}:measured").object()
    records = [record_of(result, Problem("measured", (("n", n),)), probe("cpu"), {"step": 2}) for n in (4, 5, 6)]
    lock_of(records)[0].write(tmp_path / "lock.json")
    words = ["lock", "verify", str(tmp_path / "lock.json"), "--target", f"{work}:measured", "--json"]
    code, err = ran(AT_IMPORT.format(name="", times=0, words=words), tmp_path)
    assert (code, err.splitlines()[-1:]) == (130, ["interrupted"])


def test_where_it_is_ignored_it_stays_ignored(target, tmp_path):
    words = shlex.join([sys.executable, "-m", "triton_ops", *tune(target, "finalizes")])
    variables = {**os.environ, "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(["sh", "-c", f"trap '' INT; exec {words}"], env=variables, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_without_words_of_its_own_says_one_line(tmp_path):
    """The parser of commands would end on Ctrl-C in silence."""
    late = "import os, signal\nfrom triton_ops import settings\n"
    late += "settings.cache_dir = lambda: os.kill(os.getpid(), signal.SIGINT) or sum(range(9))\n"
    assert ran(late + AT_IMPORT.format(name="", times=0, words=["cache", "path"]), tmp_path) == (130, "interrupted\n")


def test_when_python_takes_itself_apart_the_work_is_done(tmp_path):
    late = "import os, signal, sys\nclass Last:\n    def __del__(self, kill=os.kill, me=os.getpid()):\n"
    late += "        kill(me, 2)\nsys.last = Last()\n"
    assert ran(late + AT_IMPORT.format(name="", times=0, words=["cache", "path"]), tmp_path) == (0, "")
