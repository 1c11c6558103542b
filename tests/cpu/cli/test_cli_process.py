"""The command as a process: exit codes, Ctrl-C, terminals, pipes, and folders that may not be written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from benchmarks.robustness.process_kills import PROGRAM

import triton_ops
from tests.limits import ENOUGH_S
from tests.records import record
from triton_ops.records.store import open_store

pytestmark = pytest.mark.processes

UNSET = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PYTHONUNBUFFERED")  # what a user's shell does not set
DOUBT = re.compile(r"^warning: (low confidence|unproven): .*\n", re.MULTILINE)  # at times where others run too
# With every right but those of its user taken away; first run once, so that everything is imported while it may be.
NOBODY = """
import os, sys, tempfile
from triton_ops.cli.app import main
with tempfile.TemporaryDirectory() as folder:
    assert main([*sys.argv[1:], "--cache-dir", folder, "--json"]) == 0
sys.stdout.flush()
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print("-----", flush=True)
print("-----", file=sys.stderr, flush=True)
code = main(sys.argv[1:])
again = main(sys.argv[1:])
sys.exit(code or again)
"""
TARGET = """
import os, time
from pathlib import Path

def slept(seconds, a):
    with Path(os.environ["CALLS"]).open("a") as log:
        log.write(f"{a}\\n")
    time.sleep(seconds)

def short(*, a, b=0):
    slept(0.002 + a * 1e-4, a)

def long(*, a):
    slept(0.03, a)

def endless(*, a):
    while True:  # a signal that comes just before a sleep begins is heard when it ends
        slept(0.05, a)

def broken(*, a):
    raise ValueError(a)
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a target; calls are logged there, records kept there."""
    (tmp_path / "target.py").write_text(TARGET)
    return tmp_path


def environment(place, **more):
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {
        **kept,
        "PYTHONPATH": str(Path(triton_ops.__file__).parents[1]),
        "TRITON_OPS_CACHE_DIR": str(place / "cache"),
        "CALLS": str(place / "calls"),
        **more,
    }


def start(place, *words, **options):
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(place), **options}
    return subprocess.Popen(command, text=True, **pipes)


def run(place, *words, **options):
    code, out, err = ended(start(place, *words, **options), 120)
    return code, out, DOUBT.sub("", err or "")


def ended(process, timeout_s):
    """The exit code of a process that ends in time, and what it wrote."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it did not end within {timeout_s} s: {process.communicate()}")
    return process.returncode, out, err


def tune(place, name, count, *words):
    space = ",".join(map(str, range(count)))
    return ["tune", f"{place / 'target.py'}:{name}", "--space", f"a={space}", "--device", "cpu", *words]


def called(place):
    log = place / "calls"
    return set(log.read_text().split()) if log.exists() else set()


def trials(place):
    """How many trials are in the run logs."""
    return sum(path.read_text().count('"type": "trial"') for path in place.glob("cache/runs/*/*.jsonl"))


def wait_until(done, process, what):
    while not done():
        assert process.poll() is None, f"it ended before {what}: {process.communicate()}"
        time.sleep(0.005)


def interrupted(process):
    process.send_signal(signal.SIGINT)
    return ended(process, 60)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, ["cache", "show"]),
        (1, ["tune", "{target}:broken", "--space", "a=1", "--device", "cpu"]),
        (2, ["tune", "{target}:nothing", "--space", "a=1"]),
        (3, ["tune", "{target}:short", "--space", "a=1", "--device", "tpu"]),
        (4, ["cache", "show", "--cache-dir", "{target}"]),
    ],
)
def test_exit_codes(place, code, words):
    ran = run(place, *(word.format(target=place / "target.py") for word in words))
    assert (ran[0], ran[1]) == (code, "")
    assert ran[2].count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_nobody_thought_of_is_an_internal_error(place):
    with Path("/dev/full").open("w") as full:
        code, _, err = run(place, "cache", "path", stdout=full)
        assert code == 70
        assert re.fullmatch(r"error: unexpected OSError: .+ \(hint: -v shows the trace\)\n", err)
        code, _, err = run(place, "cache", "path", "-v", stdout=full)
    assert code == 70
    assert err.startswith("Traceback (most recent call last):\n")


def test_packages_that_cannot_be_imported_are_reported_and_plain_functions_are_tuned_without_them(place):
    for name in ("torch", "triton"):
        (place / "broken" / name).mkdir(parents=True)
        (place / "broken" / name / "__init__.py").write_text(f"raise OSError('lib{name}.so is missing')")
    broken = environment(place)
    broken["PYTHONPATH"] = f"{place / 'broken'}{os.pathsep}{broken['PYTHONPATH']}"
    code, out, err = run(place, "doctor", "--json", env=broken)
    assert (code, err) == (0, "")
    parts = {part["name"]: part for part in json.loads(out)["items"]}
    for name, part in (("torch", parts["torch"]), ("triton", parts["Triton"])):
        assert not part["ok"]
        assert f"cannot be imported: OSError: lib{name}.so is missing" in part["found"]
    assert "libtorch.so is missing" in parts["GPU"]["found"]
    target = f"{place / 'target.py'}:short"
    assert run(place, "tune", target, "--space", "a=0,1", env=broken)[0] == 0
    bench = run(place, "bench", target, "--config", "a=0", "--config-b", "a=1", "--seconds", "0.1", env=broken)
    assert bench[0] == 0, bench[2]
    code, _, err = run(place, "tune", "matmul", "--shape", "64x64x64", env=broken)
    assert (code, err.count("\n")) == (3, 1)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(place, closed):
    open_store(place / "cache").put(record())
    command = f"exec {shlex.quote(sys.executable)} -m triton_ops cache show {closed}"
    ran = subprocess.run(["sh", "-c", command], env=environment(place), capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_libraries_say_nothing_when_the_program_ends(place):
    (place / "target.py").write_text(
        "import atexit, os\n"
        "class Library:\n    def __del__(self):\n        os.write(2, b'leaked')\n"
        "library = Library()\n"
        "def nothing(*, a): pass\n"
        "atexit.register(os.write, 2, b'what is registered is called\\n')\n"
    )
    command = [sys.executable, "-m", "triton_ops", "tune", f"{place / 'target.py'}:nothing"]
    ran = subprocess.run(command, env=environment(place), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.endswith("what is registered is called\n")


@pytest.mark.parametrize("words", [["-v", "tune"], ["tune", "-v"]])
def test_verbose_is_heard_before_and_after_the_command(place, words):
    (place / "target.py").write_text("raise ValueError('at import')")
    code, _, err = run(place, *words, f"{place / 'target.py'}:short", "--space", "a=1")
    assert code == 2
    assert err.startswith("Traceback (most recent call last):\n")


def test_a_config_that_ends_the_tuning_process_is_named_by_the_next_run(place):
    words = tune(place, "short", 3)
    fatal = (
        place / "target.py"
    ).read_text() + "\n\ndef fatal(*, a):\n    if a == 2:\n        os._exit(9)\n    short(a=a)\n"
    (place / "target.py").write_text(fatal)
    words[1] = words[1].replace(":short", ":fatal")
    assert run(place, *words)[0] == 9
    code, _, err = run(place, *words)
    assert code == 9
    assert "ended while config (a=2) ran in it" in err
    assert "--isolate" in err
    [log] = place.glob("cache/runs/*/*.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["config"] == {"a": 2}


DIES_IN_THE_RACE = """

calls = []

def fatal(*, a):
    calls.append(a)
    if list(zip(calls, calls[1:])).count((1, 2)) == 4:  # trials run a config beside the first one only
        os._exit(9)
    short(a=0)
"""


def test_a_config_that_ends_the_process_in_the_last_comparison_is_named_by_the_next_run(place):
    with (place / "target.py").open("a") as target:
        target.write(DIES_IN_THE_RACE)
    words = tune(place, "short", 3)
    words[1] = words[1].replace(":short", ":fatal")
    assert run(place, *words)[0] == 9
    [log] = place.glob("cache/runs/*/*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["trial"]["status"] for line in lines if line["type"] == "trial"] == ["ok"] * 3
    assert (lines[-1]["type"], lines[-1]["config"]) == ("begun", {"a": 2})
    assert "ended while config (a=2) ran in it" in run(place, *words)[2]


def test_sigterm_while_a_config_runs_ends_the_tune_and_is_no_failure_of_the_config(place):
    target = (
        place / "target.py"
    ).read_text() + "\n\ndef ended(*, a):\n    os.kill(os.getpid(), 15)\n    time.sleep(60)\n"
    (place / "target.py").write_text(target)
    words = tune(place, "short", 3)
    assert run(place, words[0], words[1].replace(":short", ":ended"), *words[2:])[0] == -signal.SIGTERM
    assert trials(place) == 0


def test_ctrl_c_and_on(place):
    words = tune(place, "short", 60)
    process = start(place, *words)
    wait_until(lambda: trials(place) >= 15, process, "15 trials")
    code, out, err = interrupted(process)
    assert code == 130, err
    assert re.search(r"^winner  a=\d+$", out, re.MULTILINE), "the best so far is told"
    assert re.search(r"^\d+ trials: \d+ ok; interrupted, ", out, re.MULTILINE)
    assert err == "interrupted: this is the best so far; the same command goes on where it stopped\n"
    assert not list((place / "cache").glob("*.record.json")), "what was not finished is not remembered"
    first = called(place)
    assert 15 <= len(first) < 60

    (place / "calls").unlink()
    code, out, err = run(place, *words, "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["totals"] == {"ok": 60}
    assert result["stopped"] == "complete"
    second = called(place)
    assert first | second == {str(a) for a in range(60)}
    assert len(first & second) <= 10, "only finalists, the default and the trial in flight run again"

    (place / "calls").unlink()
    assert json.loads(run(place, *words, "--json")[1])["from_cache"]
    assert not (place / "calls").exists()


def test_ctrl_c_in_the_last_comparison(place):
    process = start(place, *tune(place, "long", 3, "--json"))
    wait_until(lambda: trials(place) == 3, process, "the search")
    searched = len((place / "calls").read_text().split())
    wait_until(lambda: len((place / "calls").read_text().split()) > searched + 9, process, "the comparison")
    code, out, err = interrupted(process)
    assert code == 130, err
    assert json.loads(out)["stopped"] == "interrupted"
    assert json.loads(out)["totals"] == {"ok": 3}
    assert err.startswith("interrupted: ")
    assert not list((place / "cache").glob("*.record.json"))


def test_ctrl_c_before_anything_ran(place):
    process = start(place, *tune(place, "endless", 3))
    wait_until(lambda: called(place), process, "the first call")
    code, out, err = interrupted(process)
    assert (code, out) == (130, "")
    assert err == "interrupted before any config ran; the same command goes on where it stopped\n"


def test_files_and_pipes_get_no_escape_codes_and_no_progress_bar(place):
    for more in ({}, {"FORCE_COLOR": "1"}):
        code, out, err = run(place, *tune(place, "short", 3, "--force"), env=environment(place, **more))
        assert (code, err) == (0, "")
        assert "\x1b" not in out
    assert "\x1b" not in run(place, "cache", "show", "nothing")[2]
    assert "\x1b" not in run(place, "cache", "rm")[2]


def on_terminal(place, *words, columns=80, **more):
    """The exit code of a command, and what it writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = environment(place, **{"TERM": "xterm-256color", **more})
    process = start(place, *words, stdout=theirs, stderr=theirs, stdin=theirs, env=variables)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # what Linux answers when the other side is closed
        while part := os.read(ours, 65536):
            written += part
    os.close(ours)
    return process.wait(timeout=ENOUGH_S), written.decode().replace("\r\n", "\n")


def frames(text):
    """What stood in a line of the terminal at some time, without colours and doubts: messages are of any width."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    result = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", plain)
    return [frame for frame in result if frame.strip() and not DOUBT.match(f"{frame}\n")]


def test_a_terminal_gets_a_progress_bar_that_fits(place):
    code, text = on_terminal(place, *tune(place, "short", 20))
    assert code == 0
    seen = frames(text)
    assert re.fullmatch(r"target:short on .+ \(cpu\): 20 configs, 20 valid; search auto *", seen[0]), seen[0]
    bar = r" *\d+/20 trials \S+ +best [\d.]+ ms \([\d.]+x the default\) [\d:-]+ left *"
    assert any(re.fullmatch(bar, frame) for frame in seen), seen
    assert any(frame.startswith("20 trials, comparing the best ") for frame in seen), seen
    assert max(map(len, seen)) <= 80
    assert "\nwinner  a=" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_is_never_written_beyond_its_width(place):
    store = open_store(place / "cache")
    names = [f"A_TUNABLE_WITH_A_NAME_{n}" for n in range(9)]
    store.put(record("a", winner=dict.fromkeys(names, 128)))
    store.put(record("b", winner=dict.fromkeys(names, 64)))
    for columns in (80, 140):
        code, text = on_terminal(place, "cache", "show", columns=columns, NO_COLOR="1")
        assert code == 0
        assert "\x1b" not in text, "NO_COLOR"
        assert "\x1b" not in on_terminal(place, "cache", "show", columns=columns, TERM="dumb")[1]
        assert max(map(len, text.splitlines())) <= columns
        assert all(f"{name}=128" in text.split() and f"{name}=64" in text.split() for name in names)
    assert "\x1b[1m" in on_terminal(place, "cache", "show")[1], "names stand out where colours are allowed"


def test_a_warning_does_not_tear_the_progress_bar(place):
    words = tune(place, "short", 3)
    assert run(place, *words)[0] == 0
    [path] = (place / "cache").glob("*.record.json")
    path.write_text("{")
    code, text = on_terminal(place, *words, columns=200)
    assert code == 0
    assert re.search(rf"^(\x1b\S*)*warning: (\x1b\S*)*{re.escape(str(path))} is ignored", text, re.MULTILINE)


def test_a_reader_that_goes_away_is_no_error(place):
    open_store(place / "cache").put(record())
    read, write = os.pipe()
    os.close(read)
    for words in (["cache", "show"], ["cache", "show", "--json"]):
        code, _, err = run(place, *words, stdout=write)
        assert (code, err) == (0, ""), words
    os.close(write)


@pytest.fixture
def open_place():
    """As `place`, but every user may look into it."""
    folder = Path(tempfile.mkdtemp(prefix="triton-ops-"))
    folder.chmod(0o755)
    (folder / "target.py").write_text("import time\ndef plain(*, a):\n    time.sleep(1e-3)\n")
    (folder / "target.py").chmod(0o644)
    yield folder
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):
            path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(place, *words):
    """A command twice in one process, without the right to write where it may not; code, stdout, stderr."""
    command = [sys.executable, "-c", NOBODY, *map(str, words)]
    ran = subprocess.run(command, env=environment(place), capture_output=True, text=True, check=False)
    return ran.returncode, *(DOUBT.sub("", text.partition("-----\n")[2]) for text in (ran.stdout, ran.stderr))


def test_a_read_only_cache_is_a_warning(open_place):
    cache = open_place / "cache"
    cache.mkdir()
    cache.chmod(0o555)
    code, out, err = as_nobody(open_place, *tune(open_place, "plain", 3), "--force")
    assert code == 0, err
    assert out.count("3 trials: 3 ok") == 2
    assert err.splitlines()[:2] == [
        f"warning: {cache} cannot be written: this tune will be neither stored nor resumable",
        f"warning: {cache} takes no new entries: {os.strerror(errno.EACCES)}",
    ]
    assert list(cache.iterdir()) == []


def test_a_read_only_cache_still_answers(open_place):
    words = tune(open_place, "plain", 3)
    assert run(open_place, *words)[0] == 0
    for path in ((open_place / "cache"), *(open_place / "cache").rglob("*")):
        path.chmod(0o555)
    code, out, err = as_nobody(open_place, *words)
    assert (code, err) == (0, "")
    assert out.count("from the cache, not measured again") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_cache_of_another_user_is_a_warning(open_place):
    cache = open_place / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    words = [*tune(open_place, "plain", 3), "--force"]
    assert run(open_place, *words)[0] == 0  # leaves a lock that only this user may write
    code, out, err = as_nobody(open_place, *words)
    assert code == 0, err
    assert out.count("3 trials: 3 ok") == 2
    assert "cannot be resumed" in err
