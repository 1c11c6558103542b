"""What killed processes leave behind: nothing in the folder for temporary files, and what they must leave is swept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shlex import quote

import pytest

from tests.limits import eventually
from tests.torchless import littered
from triton_ops import tune
from triton_ops.base import TemporaryFolder
from triton_ops.base.code_folders import sweep_temporary
from triton_ops.processes.child import environment
from triton_ops.request import Patience

PROJECT = Path(__file__).parents[3]
NOBODY = 65534
# As `python -m triton_ops`, which hears Ctrl-C and the end of its terminal even where this process, such as one in the
# background or under `nohup`, ignores them.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); import triton_ops.__main__"
)
LITTERS = '''
"""A call that leaves a temporary file each time, as an assembler does that is killed; the first tells that it began."""
import os, tempfile, time

def litters(*, n):
    os.close(tempfile.mkstemp(suffix=".ptx")[0])
    with open(os.environ["BEGUN"], "a") as log:
        log.write(f"{tempfile.gettempdir()}\\n")
    time.sleep(0.05)
'''


@pytest.fixture
def place(tmp_path):
    """Folders for one command: its target, its temporary files, its cache."""
    (tmp_path / "target.py").write_text(LITTERS)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def started(place, *words):
    """A command that has begun to run its target."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, words[0], f"{place / 'target.py'}:litters", "--space", "n=1,2,3,4,5,6,7,8,9",
         "--device", "cpu", *words[1:]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place,
        env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}", "TMPDIR": str(place / "tmp"),
             "TRITON_OPS_CACHE_DIR": str(place / "cache"), "BEGUN": str(place / "begun")},
    )  # fmt: skip
    eventually(lambda: (place / "begun").exists() or process.poll() is not None)
    return process


SIGNALS = {
    "TERM": [signal.SIGTERM],
    "HUP": [signal.SIGHUP],
    "INT": [signal.SIGINT],
    "INT twice": [signal.SIGINT, signal.SIGINT],
    "KILL": [signal.SIGKILL],
}


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", SIGNALS)
def test_a_recording_that_is_ended_leaves_no_file(place, sent):
    process = started(place, "record", "--out", str(place / "out.json.gz"))
    for number in SIGNALS[sent]:
        process.send_signal(number)
        time.sleep(0.02)
    _, err = process.communicate()
    assert process.returncode in (130, -signal.SIGINT) if "INT" in sent else process.returncode < 0, err
    if sent == "INT":
        assert process.returncode == 130
        assert err.startswith("interrupted: "), err
    files = {path.name for path in place.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}
    litter = {name for name in files if name.endswith(".ptx")}  # the target's own, in its own process
    assert files - litter == {"target.py", "tmp", "begun"}


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", ["TERM", "INT", "KILL"])
def test_an_isolated_tune_that_is_ended_leaves_no_temporary_file(place, sent):
    process = started(place, "tune", "--isolate")
    [number] = SIGNALS[sent]
    process.send_signal(number)
    process.communicate()
    used = set((place / "begun").read_text().splitlines())
    assert all(Path(folder).parent == place / "tmp" for folder in used)
    eventually(lambda: not list((place / "tmp").iterdir()))


@pytest.mark.processes
def test_ordinary_ends_crashes_and_time_limits_leave_no_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()
    result = tune(
        littered, space={"n": [1, 2, 3]}, device="cpu", isolate=True, cache_dir=tmp_path / "cache",
        patience=Patience(launch_s=0.5),
    )  # fmt: skip
    assert {trial.config["n"]: str(trial.status) for trial in result.trials} == {1: "ok", 2: "crash", 3: "timeout"}
    assert not list((tmp_path / "tmp").iterdir())


COMPILING = """
import os
from tests.planted_kernels import grid, planted
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend import TritonCompiler
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec

kernel, x = TritonKernel(planted, grid, outputs=("x",)), Arguments((TensorSpec((1000,), "float32"), 1000))
with CompilePool(TritonCompiler(kernel, x, Target.named("sm_90")), workers=2, timeout_s={timeout_s}) as pool:
    print(pool.submit(Config(KIND="good", BLOCK=256)).result().status, flush=True)
"""
PTXAS = """#!/bin/sh
case "$*" in *--version*) exec {real} "$@" ;; esac
echo $$ > {new}; mv {new} {begun}; exec sleep 100
"""


@pytest.mark.processes
@pytest.mark.triton
@pytest.mark.timeout(90)
@pytest.mark.parametrize("ended", ["by its time limit", "TERM", "KILL", "ptxas is killed"])
def test_an_assembler_that_does_not_end_leaves_no_temporary_file(tmp_path, ended):
    triton = pytest.importorskip("triton")
    real = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    slow, begun, temporary = tmp_path / "ptxas", tmp_path / "begun", tmp_path / "tmp"
    slow.write_text(PTXAS.format(real=quote(str(real)), begun=quote(str(begun)), new=quote(f"{begun}.new")))
    slow.chmod(0o755)
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILING.format(timeout_s=1 if "limit" in ended else 60)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}", "TMPDIR": str(temporary),
             "TRITON_PTXAS_PATH": str(slow), "TRITON_CACHE_DIR": str(tmp_path / "compiled")},
    )  # fmt: skip
    eventually(lambda: begun.exists() or process.poll() is not None)
    assert begun.exists(), process.communicate()
    if "limit" not in ended:
        assert [path.suffix for path in temporary.rglob("*.ptx")] == [".ptx"], "Triton keeps none here any more"
    if ended in SIGNALS:
        process.send_signal(SIGNALS[ended][0])
    elif "killed" in ended:
        os.kill(int(begun.read_text()), signal.SIGKILL)
    out, err = process.communicate()
    assert out.strip() == {"by its time limit": "timeout", "ptxas is killed": "compile"}.get(ended, ""), err
    eventually(lambda: not list(temporary.iterdir()))


# The folder itself


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


OLD_S = 3600


def old(folder):
    os.utime(folder, (time.time() - OLD_S, time.time() - OLD_S))
    return folder


def test_a_temporary_folder_is_private_and_removed_once(temporary):
    folder = TemporaryFolder()
    assert folder.path.parent == temporary
    assert not folder.path.exists(), "a kill leaves nothing before there is a child with a guard"
    TemporaryFolder.make(folder.path)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "below").mkdir()
    (folder.path / "below" / "file").touch()
    folder.remove()
    folder.remove()
    assert not list(temporary.iterdir())
    TemporaryFolder.discard(temporary)
    assert temporary.is_dir(), "no folder of another name is removed"


def test_folders_of_killed_processes_are_swept_and_no_others(temporary):
    def made(name):
        folder = temporary / name
        folder.mkdir()
        (folder / "file").touch()
        return old(folder)

    made("triton-ops-run-0123456789abcdef")
    kept = {made("triton-ops-run-users"), made("triton-ops-1000"), made("x-triton-ops-run-0123456789abcdef")}
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "file").touch()
    link = temporary / "triton-ops-run-0000000000000000"
    link.symlink_to("elsewhere")
    kept |= {link, temporary / "elsewhere"}
    if os.geteuid() == 0:
        of_another = made("triton-ops-run-1111111111111111")
        os.chown(of_another, NOBODY, NOBODY)
        kept.add(of_another)
    young = temporary / "triton-ops-run-2222222222222222"
    young.mkdir()
    held = TemporaryFolder()
    TemporaryFolder.make(held.path)
    old(held.path)
    sweep_temporary(temporary)
    assert set(temporary.iterdir()) == {*kept, young, held.path}
    assert (temporary / "elsewhere" / "file").exists()
    held.remove()
    sweep_temporary(temporary, now_s=time.time() + OLD_S)
    assert set(temporary.iterdir()) == kept
    sweep_temporary(temporary / "nowhere")


def test_without_a_place_for_temporary_files_there_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    folder = TemporaryFolder()
    assert folder.path is None
    folder.remove()


@pytest.mark.processes
def test_a_folder_that_another_user_made_first_is_not_a_childs(temporary):
    """Its name stands among the arguments of the child, which everybody can read."""
    taken = temporary / "triton-ops-run-3333333333333333"
    taken.mkdir(mode=0o777)
    program = (
        "from pathlib import Path; from triton_ops.processes.child import Leftovers, guarded; import os, tempfile\n"
        f"guarded(Leftovers(None, Path({str(taken)!r}))); print(tempfile.gettempdir(), os.environ['TMPDIR'])"
    )
    environment_of_child = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "TMPDIR": str(taken)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment_of_child, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(temporary)] * 2


def test_what_torch_compiles_is_kept_where_it_was(tmp_path, monkeypatch):
    directories = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = environment({"A": "1"}, "mark", tmp_path)
    assert (result["A"], result["TMPDIR"]) == ("1", str(tmp_path))
    assert result["TORCHINDUCTOR_CACHE_DIR"] == directories.default_cache_dir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "named"))
    assert environment({}, "mark", tmp_path)["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "named")
    assert "TMPDIR" not in set(environment({}, "mark")) - set(os.environ)


@pytest.mark.processes
def test_a_folder_of_any_depth_is_removed(tmp_path):
    """A candidate may leave one, which must not end the process that removes it."""
    folder = tmp_path / f"triton-ops-run-{'0' * 16}"
    code = f"""
import os, time
from pathlib import Path
from triton_ops.base.code_folders import sweep_temporary
Path({str(folder)!r}).mkdir()
os.chdir({str(folder)!r})
for _ in range(3000):
    os.mkdir("deep")
    os.chdir("deep")
os.chdir("/")
sweep_temporary(Path({str(tmp_path)!r}), now_s=time.time() + {OLD_S})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    gone = not folder.exists()
    subprocess.run(["rm", "-rf", folder], check=True)  # too deep for what removes the folders of tests
    assert (done.returncode, done.stderr, gone) == (0, "", True)
