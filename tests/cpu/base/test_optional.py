"""Optional packages and parts of the system: what is missing is said, and all else runs."""

import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tomllib

from triton_ops import tune
from triton_ops.base import bar_console, require
from triton_ops.cli import app
from triton_ops.exceptions import INSTALL, MissingDependencyError, SettingsError

PROJECT = Path(__file__).parents[3]


def test_a_package_and_its_module_are_imported_by_two_threads_at_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "slow_package"
    package.mkdir()
    # The other thread has time to begin with the module before the package imports it, and then waits for the package.
    (package / "__init__.py").write_text(
        "import time\ntime.sleep(0.3)\nneeded = 1\nfrom slow_package.part import wanted\n"
    )
    (package / "part.py").write_text("from slow_package import needed\nwanted = 2\n")
    failed = []

    def load(name):
        try:
            require(name, "a test")
        except MissingDependencyError as error:
            failed.append(error)

    threads = [threading.Thread(target=load, args=(name,)) for name in ("slow_package", "slow_package.part")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("slow_package", "slow_package.part"):
        sys.modules.pop(name, None)
    assert not failed


@pytest.mark.processes
def test_a_log_that_torch_does_not_have_is_the_reason_why_torch_cannot_be_imported():
    """Torch refuses to be imported, and a second attempt in the same process fails for another reason."""
    pytest.importorskip("torch")
    asked = [sys.executable, "-m", "triton_ops", "torch", "modes", "simple-mlp"]
    source = str(Path(__file__).parents[3] / "src")
    environment = {**os.environ, "TORCH_LOGS": "+inductr,perf_hints", "PYTHONPATH": source}
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be imported: TORCH_LOGS is '+inductr,perf_hints', and torch has no log 'inductr'" in done.stderr
    assert done.stderr.endswith("(hint: correct TORCH_LOGS; close are inductor)\n")
    assert len(done.stderr.splitlines()) == 1


def test_a_part_of_torch_that_cannot_be_imported_leaves_the_rest(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (tmp_path / "lame_part.py").write_text("raise OSError('no such library')")
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    for _ in range(2):
        with pytest.raises(MissingDependencyError, match="a test, and cannot be imported: OSError: no such library"):
            require("torch.lame_part", "a test")
    assert require("torch", "a test") is torch


TUNE, CLI, GPU = ("numpy", "scipy", "threadpoolctl"), ("rich", "typer", "click"), ("torch", "triton", "pynvml")
TARGET = "def work(n):\n    return 0\n"
WITHOUT = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"
CORE = """
import logging, triton_ops
logging.basicConfig(format="%(message)s")
for name in triton_ops.__all__:
    try:
        getattr(triton_ops, name)
    except triton_ops.MissingDependencyError as error:
        assert "pip install 'triton-ops[" in str(error), error
first, second = lambda n: n + 1, lambda n: 1 + n
chosen = triton_ops.choose({"first": first, "second": second}, name="one more", on_miss="tune", cache_dir=sys.argv[1])
print(chosen(2), chosen.why(2).found.rung)
try:
    triton_ops.tune
except triton_ops.MissingDependencyError as error:
    print(error)
for name in ("torch", "triton", "pynvml"):
    del sys.modules[name]
sys.path.insert(0, sys.argv[1])
import target
print(triton_ops.recall(target.work, space={"n": [1, 2]}, cache_dir=sys.argv[1]).winner["n"], "torch" in sys.modules)
"""


def ran_without(names, code, *words):
    program = WITHOUT.format(names=names) + code
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.mark.processes
def test_the_core_runs_known_configs_and_names_the_extra_of_all_else(tmp_path, monkeypatch, steady_clock):
    (tmp_path / "target.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = tune(importlib.import_module("target").work, space={"n": [1, 2]}, cache_dir=tmp_path, isolate=False)
    monkeypatch.delitem(sys.modules, "target")
    done = ran_without((*TUNE, *CLI, *GPU), CORE, tmp_path)
    assert done.returncode == 0, done.stderr
    error = "numpy is needed for triton_ops.tune, and is not installed (hint: pip install 'triton-ops[tune]')"
    assert done.stdout.splitlines() == ["3 default", error, f"{known.best_config['n']} False"]
    expected = "(hint: pip install 'triton-ops[tune]'); launches without a known winner run their default config"
    assert done.stderr.count(expected) == 1


EACH_NAME = """
import sys, traceback, triton_ops
for name in triton_ops.__all__:
    try:
        exec(f"from triton_ops import {name}")
    except triton_ops.MissingDependencyError as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        if len(lines) > 8 or "pip install 'triton-ops[" not in lines[-1]:
            sys.exit(f"{name}: {len(lines)} lines, the last {lines[-1]}")
        print(name)
"""


@pytest.mark.processes
def test_a_public_name_without_its_extra_is_a_traceback_of_few_lines():
    done = ran_without((*TUNE, *CLI, *GPU), EACH_NAME)
    assert done.returncode == 0, done.stderr
    assert {"tune", "tune_many", "rank", "softmax", "autotune", "serve_idle"} <= {*done.stdout.split()}


@pytest.mark.parametrize(("system", "hint"), [("linux", "triton-ops[compile]"), ("darwin", "wheels for Linux alone")])
def test_where_triton_has_no_wheels_no_command_is_named(system, hint, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    assert hint in str(MissingDependencyError.absent("triton.knobs", "compiling"))


@pytest.mark.processes
@pytest.mark.parametrize("names", [CLI, ("typer",)])
def test_the_program_without_its_extra_is_one_line(names):
    done = ran_without(names, "from triton_ops.cli import main\nmain()", "--version")
    line = "error: the command line needs typer, which is not installed (hint: pip install 'triton-ops[cli]')\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", line)


def test_a_command_names_the_extra_that_it_needs(monkeypatch, capsys, tmp_path):
    (tmp_path / "target.py").write_text(TARGET)
    monkeypatch.setitem(sys.modules, "scipy", None)
    space = '{"n": ' + str(list(range(100))) + "}"
    assert app.main(["tune", f"{tmp_path}/target.py:work", "--space", space, "--device", "cpu"]) == 3
    line = "error: this command needs scipy, which is not installed (hint: pip install 'triton-ops[tune]')\n"
    assert capsys.readouterr().err == line


def test_no_bar_is_drawn_without_rich_and_that_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert bar_console() is None
    assert bar_console() is None
    assert caplog.messages.count("rich.console is needed for a progress bar, and is not installed (hint: pip install "
                                 "'triton-ops[cli]')") == 1  # fmt: skip


def test_progress_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert bar_console() is not None
    monkeypatch.setenv("TRITON_OPS_PROGRESS", "off")
    assert bar_console() is None
    monkeypatch.setenv("TRITON_OPS_PROGRESS", "of")
    with pytest.raises(SettingsError, match="TRITON_OPS_PROGRESS is 'of'; allowed are on, off"):
        bar_console()


def test_the_table_of_extras_is_that_of_the_package():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for package, command in INSTALL.items():
        extra = re.search(r"triton-ops\[(\w+)\]", command)
        assert extra is None or any(text.startswith(package) for text in extras[extra[1]]), package


POSIX = {
    "os": ["fork", "getuid", "geteuid", "getgid", "register_at_fork", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "waitid",
           "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fchown", "memfd_create", "killpg", "setsid", "getpgrp",
           "sched_getaffinity", "sched_setaffinity", "nice", "set_blocking", "uname", "getloadavg", "setpgid"],
    "signal": ["SIGKILL", "SIGHUP", "SIGALRM", "SIGPROF", "pthread_sigmask", "setitimer", "sigwait", "alarm"],
    "select": ["poll", "epoll"], "socket": ["AF_UNIX", "send_fds", "recv_fds"], "time": ["tzset"],
}  # fmt: skip
"""What Windows lacks of the modules that it has."""
LACKING = """
import concurrent.futures.process, ctypes, importlib, importlib.metadata, logging, multiprocessing.connection, os
import pkgutil, platform, subprocess, tempfile, typer.main, rich.progress, numpy, http.server, sysconfig
sysconfig.get_config_vars()
for name in {gone!r}:
    sys.modules[name] = None
for module, names in {attributes!r}.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)
real = os.open
def opened(path, flags, mode=0o777):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real(path, flags, mode)
os.open = opened
sys.platform = {platform!r}
import triton_ops
from triton_ops.cli.app import main
for module in pkgutil.walk_packages(triton_ops.__path__, "triton_ops."):
    if not module.name.startswith(("triton_ops_kernels.", "triton_ops.__main__")):
        try:
            importlib.import_module(module.name)
        except triton_ops.MissingDependencyError:
            pass
logging.basicConfig(format="%(message)s")
def work(n):
    return n * 0
for _ in range(2):
    print(triton_ops.tune(work, space={{"n": [1, 2]}}, cache_dir=sys.argv[1], trials=2).from_cache)
try:
    triton_ops.tune(work, space={{"n": [1, 2, 3]}}, cache_dir=sys.argv[1], isolate=True)
except triton_ops.DeviceError as error:
    print(error)
print(main(["cache", "show", "--cache-dir", sys.argv[1], "--json"]), main(["--version"]))
print(main(["doctor", "--cache-dir", sys.argv[1]]))
"""


@pytest.mark.processes
def test_windows_imports_everything_and_tunes_inline(tmp_path):
    gone = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix")
    done = ran_without(GPU, LACKING.format(gone=gone, attributes=POSIX, platform="win32"), tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["False", "True"]
    assert lines[2].startswith("processes of their own, for configs, compilers and the lint, are for Linux and macOS")
    assert "0 0" in lines
    assert [line.split()[1] for line in lines[lines.index("0 0") :] if "for Linux" in line] == [
        "processes", "locks", "load", "Triton",
    ]  # fmt: skip
    assert lines[-1] == "0"
    assert done.stderr.count("locks are for Linux and macOS") == 1
