"""Two tiers of tests: what starts a Python process or a fork, or computes for long, carries the mark `processes`.

An unmarked test fails that starts such a process, forks, or takes over a process that another test has left: the order
of tests then does not matter. Compilers do not count. With `--times` an unmarked test fails that takes longer than
`MOST_S`.
"""

import contextlib
import functools
import multiprocessing.util
import os
import re
import resource
import shutil
import sys
import time
from importlib import _bootstrap
from pathlib import Path

import pytest

from triton_ops.processes import IdleProcesses, WorkerProcess
from triton_ops.processes.fork_server import ForkServer

DOCUMENTS = Path(__file__).parent / "docs"  # `make docs` runs all of their tests
STARTERS = {"shared_fork_server", "own_fork_server"}  # fixtures whose users are marked by that
MOST_S = 1.5  # of the CPU of a machine on which `calibration_s` is `REFERENCE_S`
REFERENCE_S = 0.16
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_FORKS = ("os.fork", "os.forkpty")
_COMMANDS = ("subprocess.Popen", "os.posix_spawn")  # their first two arguments are the program and its words

_starts: list[str] = []  # of the test that runs
_clock = {"imports": 0.0, "begun": 0.0}  # CPU seconds


def is_python(program) -> bool:
    """True for an interpreter of Python, and for a script that names one in its first line."""
    path = shutil.which(os.fsdecode(program))
    if path is None:
        return False
    with Path(path).open("rb") as file:
        first = file.readline(200)
    return bool(_PYTHON.fullmatch(Path(path).name)) or (first.startswith(b"#!") and b"python" in first)


def starts_python(executable, words) -> bool:
    """True if a command is Python's, or has a shell or another program start it."""
    words = [words] if isinstance(words, str | bytes | os.PathLike) else list(words)
    texts = [os.fsdecode(word) for word in words[1:]]
    further = [word for text in texts for word in text.split() if _PYTHON.fullmatch(Path(word).name)]
    return any(map(is_python, [executable, *further]))


def _heard(event, args):
    if event in _FORKS:
        _starts.append(event)
    elif event in _COMMANDS and starts_python(*args[:2]):
        _starts.append(f"{event} of {str(args[1])[:80]}")
    elif event == "os.system" and starts_python("sh", ["sh", args[0]]):
        _starts.append(f"{event} of {args[0]!r}")


def _noted(method, what, counts=lambda answer: True):
    """A method that counts as a start, too."""

    @functools.wraps(method)
    def noting(*args, **kwargs):
        answer = method(*args, **kwargs)
        if counts(answer):
            _starts.append(what)
        return answer

    return noting


def _timed(imported):
    """The function that imports what is not there yet, with the CPU time of the outermost call counted."""
    depth = 0

    @functools.wraps(imported)
    def importing(*args):
        nonlocal depth
        begun_s, depth = cpu_s(), depth + 1
        try:
            return imported(*args)
        finally:
            depth -= 1
            if not depth:
                _clock["imports"] += cpu_s() - begun_s

    return importing


@contextlib.contextmanager
def shared():
    """What starts meanwhile serves all tests of this process, and counts for none."""
    earlier, begun_s = len(_starts), cpu_s()
    yield
    del _starts[earlier:]
    _clock["imports"] += cpu_s() - begun_s


def cpu_s() -> float:
    """CPU seconds of this process, of those that it has waited for, and of its children that run."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_child_s, _children()))


def _children():
    files = Path("/proc/self/task").glob("*/children")
    return [pid for file in files for pid in file.read_text().split()]


def _child_s(pid):
    with contextlib.suppress(OSError):
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def calibration_s() -> float:
    """CPU seconds that a fixed loop takes here and now."""
    begun_s, total = time.thread_time(), 0
    for number in range(3_000_000):
        total += number * number % 7
    return time.thread_time() - begun_s


def pytest_addoption(parser):
    parser.addoption(
        "--times", action="store_true", help="fail unmarked tests that take more CPU seconds than they may"
    )


def pytest_configure(config):
    sys.addaudithook(_heard)
    real = ForkServer, WorkerProcess
    IdleProcesses.take = _noted(IdleProcesses.take, "work in a process that waited", lambda it: isinstance(it, real))
    ForkServer.fork = _noted(ForkServer.fork, "a fork of a fork server")
    multiprocessing.util.spawnv_passfds = _noted(multiprocessing.util.spawnv_passfds, "a process of multiprocessing")
    if config.getoption("--times"):
        _bootstrap._find_and_load = _timed(_bootstrap._find_and_load)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if STARTERS & {*getattr(item, "fixturenames", ())} or DOCUMENTS in item.path.parents:
            item.add_marker("processes")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    _starts.clear()
    if item.config.getoption("--times"):  # which asks the system for all children: three milliseconds
        _clock.update(imports=0.0, begun=cpu_s())
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    result = yield
    _judge(item)
    if item.config.getoption("--times") and not _is_marked(item):
        _judge_time(cpu_s() - _clock["begun"] - _clock["imports"])
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    result = yield
    _judge(item)
    return result


def _is_marked(item):
    return any(item.get_closest_marker(mark) for mark in ("processes", "extras", "gpu"))


def _judge(item):
    starts, _starts[:] = tuple(_starts), ()
    if starts and not _is_marked(item):
        pytest.fail(f"it starts {starts[0]}: mark it `processes`, or ask without a process", pytrace=False)


def _judge_time(seconds):
    scale = seconds > MOST_S / 2 and calibration_s() / REFERENCE_S
    if scale and seconds > MOST_S * scale:
        pytest.fail(
            f"it takes {seconds / scale:.2f} CPU seconds of the reference machine, more than {MOST_S}: make it "
            "cheaper, or mark it `processes`",
            pytrace=False,
        )
