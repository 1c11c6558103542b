"""What a candidate starts ends with the tune, wherever it went; pauses and closed streams harm no tune."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.limits import ENOUGH_S, eventually
from tests.torchless import hides_a_process, leaves_processes
from triton_ops import release_processes, tune
from triton_ops.base import Process
from triton_ops.processes import child as family
from triton_ops.processes.child import end_family, members, new_mark

SOURCE = Path(__file__).parents[3]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def program(folder, text, *words, **environment):
    """A process that runs a program with a target module beside it, marked by its environment."""
    (folder / "program.py").write_text(text)
    path = f"{SOURCE / 'src'}{os.pathsep}{SOURCE}"
    variables = {**os.environ, "PYTHONPATH": path, "TRITON_OPS_CACHE_DIR": str(folder / "cache"), **environment}
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), *words], env=variables, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.processes
@linux
@pytest.mark.parametrize("how", ["session", "daemon"])
def test_what_left_its_group_or_its_parent_ends_with_the_tune(how, monkeypatch):
    mark = new_mark()
    monkeypatch.setenv("OF_THIS_TEST", mark)
    seen = []
    monkeypatch.setattr(family, "members", lambda wanted: seen.append(members(wanted)) or seen[-1])
    tune(leaves_processes, space={"how": [how, "none"]}, device="cpu", isolate=True)
    release_processes()
    assert max(map(len, seen)) >= 3, "the worker, its guard, and what left them"
    assert members(mark) == set()


@pytest.mark.processes
@linux
def test_what_hides_its_mark_and_leaves_its_parent_ends_with_the_tune(tmp_path):
    tune(hides_a_process, space={"file": [str(tmp_path / "a")]}, device="cpu", isolate=True)
    release_processes()
    assert Process(int((tmp_path / "a").read_text())).ended


LEAVES = """
from tests.torchless import leaves_processes
from triton_ops import tune

def leaves(*, n):
    leaves_processes(how="daemon")
    print("left", flush=True)
    open("left", "w").close()
    import time
    time.sleep(600)

if __name__ == "__main__":
    tune(leaves, space={"n": [1, 2]}, device="cpu", isolate=True)
"""


@pytest.mark.processes
@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
def test_what_left_its_parent_ends_when_the_tune_is_killed(tmp_path, number, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark = new_mark()
    with program(tmp_path, LEAVES, OF_THIS_TEST=mark) as process:
        eventually((tmp_path / "left").exists)
        assert len(members(mark)) >= 4, "the program, its worker, the guard, and what left them"
        process.send_signal(number)
        eventually(lambda: members(mark) == set())


@pytest.mark.processes
@linux
def test_children_without_the_mark_are_found_below_their_parents():
    mark = new_mark()
    # It does not end by itself when its child has.
    nested = (
        "import subprocess, time; subprocess.run(['sleep', '600'], env={}, start_new_session=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", nested], env={**os.environ, "MARK": mark}) as process:
        eventually(lambda: len(members(mark)) == 2)
        assert process.pid in members(mark)
        end_family(mark)
        assert members(mark) == set()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.processes
@linux
def test_processes_that_neither_have_the_mark_nor_such_a_parent_are_no_members():
    mark, waits = new_mark(), ["-c", "import os; os.fork(); os.read(0, 1)"]
    marked = {**os.environ, "MARK": mark}
    programs = [
        subprocess.Popen([sys.executable, *waits], env=environment, stdin=subprocess.PIPE)
        for environment in (marked, os.environ, marked)
    ]
    try:
        eventually(lambda: len(members(mark)) >= 4)
        parents = {pid: Process(pid).parent for pid in members(mark)}
        own = {programs[0].pid, programs[2].pid}
        assert own < parents.keys()
        assert {pid for pid, parent in parents.items() if parent in own} == parents.keys() - own
        assert len(parents) == 4
    finally:
        for program_of in programs:
            program_of.stdin.close()
            program_of.wait()


def test_without_proc_there_is_no_family(monkeypatch, tmp_path):
    monkeypatch.setattr(Process, "PLACE", str(tmp_path / "missing"))
    assert members(new_mark()) == set()


def test_ids_of_another_namespace_are_no_family(monkeypatch, tmp_path):
    (tmp_path / "self").symlink_to("99999999")
    (tmp_path / str(os.getppid())).mkdir()
    mark = new_mark()
    (tmp_path / str(os.getppid()) / "environ").write_text(f"MARK={mark}")
    (tmp_path / str(os.getppid()) / "stat").write_text("1 (sh) S 1")
    monkeypatch.setattr(Process, "PLACE", str(tmp_path))
    assert members(mark) == set()
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to(str(os.getpid()))
    assert members(mark) == {os.getppid()}


GUARDED = """
import os, sys, time
from triton_ops.processes import child

if sys.argv[1] == "fails":
    def fails(*_):
        raise RuntimeError("the guard fails")
    os.closerange = fails
child.guarded(child.Leftovers())
os.system("sleep 600 >/dev/null 2>&1 & echo $!")
time.sleep(0.2)  # the guard is at its sleep, or has failed
os.write(2, b"alive")
os.close(2)
time.sleep(600)
"""


@pytest.mark.processes
@linux
def test_a_guard_holds_nothing_open_and_ends_the_group_with_its_process(tmp_path):
    with program(tmp_path, GUARDED, "works") as process:
        started = int(process.stdout.readline())
        assert process.stderr.read() == "alive", "it ends when the guard holds it open no more"
        assert process.poll() is None
        process.kill()
        process.wait()
        eventually(lambda: Process(started).ended)


@pytest.mark.processes
@linux
def test_a_guard_that_fails_harms_no_process_of_its_group(tmp_path):
    with program(tmp_path, GUARDED, "fails") as process:
        started = int(process.stdout.readline())
        assert process.stderr.read().endswith("alive")
        assert not Process(started).ended
        os.killpg(process.pid, signal.SIGKILL)


WITHOUT_PROC = """
from tests.torchless import crashes_beside_a_child
from triton_ops import tune

if __name__ == "__main__":
    result = tune(crashes_beside_a_child, space={"deadly": [0, 1]}, device="cpu", isolate=True)
    print([str(trial.status) for trial in result.trials])
"""


@pytest.mark.processes
@linux
def test_an_isolated_tune_without_proc_tells_crashes_as_ever(tmp_path):
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not hide /proc")
    (tmp_path / "program.py").write_text(WITHOUT_PROC)
    path = f"{SOURCE / 'src'}{os.pathsep}{SOURCE}"
    variables = {**os.environ, "PYTHONPATH": path, "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")}
    words = [*hidden, sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout == "['ok', 'crash']\n", done.stderr


PAUSED = """
import time
from triton_ops import tune
from triton_ops.request import Patience

def naps(*, n):
    open(f"begun-{n}", "a").close()
    time.sleep(0.05)

if __name__ == "__main__":
    result = tune(naps, space={"n": [1, 2, 3]}, device="cpu", isolate=True, patience=Patience(launch_s=2.0))
    print(sorted(str(trial.status) for trial in result.trials))
"""


@pytest.mark.processes
@linux
def test_a_pause_of_all_processes_puts_no_config_in_quarantine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark = new_mark()
    with program(tmp_path, PAUSED, OF_THIS_TEST=mark) as process:
        for n in (1, 2):
            eventually((tmp_path / f"begun-{n}").exists)
            paused = members(mark)
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(2.4)
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
        out, err = process.communicate()
    assert out == "['ok', 'ok', 'ok']\n", err
    assert not list((tmp_path / "cache").glob("quarantine/*"))


CLOSED = """
import os, sys
from pathlib import Path
from tests.torchless import leaves_processes
from triton_ops import tune

if __name__ == "__main__":
    os.closerange(0, 3)
    if sys.argv[1] == "reopened by others":
        kept = [os.open(os.devnull, os.O_RDWR)]
    result = tune(leaves_processes, space={"how": ["a", "b"]}, device="cpu", isolate=True)
    Path("said").write_text(f"{[str(trial.status) for trial in result.trials]} {result.place}")
    os._exit(0)
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["closed", "reopened by others"])
def test_an_isolated_tune_of_a_daemon_without_standard_streams_works(tmp_path, how, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with program(tmp_path, CLOSED, how) as process:
        assert process.wait(ENOUGH_S) == 0
    assert (tmp_path / "said").read_text() == "['ok', 'ok'] in a process of its own"
