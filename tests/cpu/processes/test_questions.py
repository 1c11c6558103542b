"""A worker that is asked: its answers and those of its copies, its time limits, its last words, and its end."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.limits import eventually
from triton_ops.base import Process
from triton_ops.processes import WorkerLostError, WorkerProcess, worker_process
from triton_ops.processes.worker_process import StepStarted

LONG_S = 600.0
PROGRAM = "tests.evaluating_worker"


@pytest.fixture
def worker():
    process = WorkerProcess(program=PROGRAM)
    yield process
    process.kill()


def asked(worker, text, step="try"):
    return worker.ask(text, LONG_S, {}, step)


def lost(worker, text, whole_s=LONG_S, limits_s=None, step="try"):
    """The error of a question that has no answer."""
    with pytest.raises(WorkerLostError) as caught:
        worker.ask(text, whole_s, limits_s or {}, step)
    return caught.value


def opened():
    return len(list(Path("/proc/self/fd").iterdir()))


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


# Answers


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_a_copy_changes_is_gone_and_how_it_ends_is_told_while_the_worker_lives_on(worker):
    def of_copy(expression):
        return f"child.send_from_copy(lambda: {expression}) or ..."

    asked(worker, "1")
    before = children(worker.pid)
    assert asked(worker, of_copy("os.getpid()")) != worker.pid == asked(worker, "os.getpid()")
    assert asked(worker, of_copy("os.environ.setdefault('LEFT', '1')")) == "1"
    assert asked(worker, "os.environ.get('LEFT')") is None
    endings = {
        "os._exit(0)": "exited with code 0 during its try",
        "os._exit(3)": "exited with code 3 during its try",
        "os.kill(os.getpid(), 11)": "was killed by SIGSEGV during its try",
        "1 / 0": "exited with code 1 during its try: ZeroDivisionError: division by zero",
    }
    for text, ending in endings.items():
        error = lost(worker, of_copy(text))
        assert (str(error), error.hung, error.outside) == (f"its process {ending}", False, False)
        assert asked(worker, "7") == 7, "the worker lives on, and its next answer has nothing of the copy's"
    eventually(lambda: children(worker.pid) == before)


@pytest.mark.processes
def test_a_process_that_the_users_code_forks_never_answers_for_the_worker(worker):
    assert asked(worker, "[os.fork(), 7][1]") == 7
    assert asked(worker, "os.waitstatus_to_exitcode(os.wait()[1])") == 1
    assert asked(worker, "os.getpid()") == worker.pid


@pytest.mark.processes
def test_a_question_may_be_begun_before_it_is_asked(worker):
    worker.begin("os.getpid()")
    eventually(lambda: worker.has_written)
    assert asked(worker, "os.getpid()") == worker.pid
    assert not worker.has_written
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not worker.alive)
    assert worker.has_written, "its end"
    worker.begin("1")
    assert "was killed by SIGKILL during its try" in str(lost(worker, "1"))


@pytest.mark.processes
def test_an_answer_that_does_not_fit_ends_the_worker(worker):
    with pytest.raises(WorkerLostError, match=r"wrote an answer to another question, int, .* during its try") as caught:
        worker.ask("1", LONG_S, {}, "try", fits=lambda answer: isinstance(answer, str))
    assert not caught.value.outside
    assert not worker.alive


@pytest.mark.processes
def test_each_side_of_a_connection_for_both_speaks_when_it_likes():
    worker = WorkerProcess(program=PROGRAM, duplex=True)
    try:
        assert worker.hear(0.0) is None
        worker.tell("1 + 1")
        worker.tell("2 + 2")
        assert [worker.hear(LONG_S), worker.hear(LONG_S), worker.hear(0.0)] == [2, 4, None]
        worker.tell("os._exit(0)")
        with pytest.raises(WorkerLostError, match="exited with code 0"):
            worker.hear(LONG_S)
    finally:
        worker.kill()


@pytest.mark.processes
def test_code_that_closes_all_files_ends_its_worker_and_keeps_its_own(worker, tmp_path):
    own = f"[open(f'{tmp_path}/own{{n}}', 'w') for n in range(20)]"
    error = lost(worker, f"os.closerange(3, 100) or setattr(sys, 'own', {own})")
    assert str(error).startswith("its process exited with code 1 during its try")
    assert [path.read_text() for path in tmp_path.iterdir()] == [""] * 20


@pytest.mark.processes
@pytest.mark.parametrize("early_s", [0.0, 60.0])
def test_a_worker_is_told_what_to_import_and_to_ready_and_where_it_begins(early_s, monkeypatch):
    monkeypatch.setenv("OF_THE_PROGRAM", "1")
    worker = WorkerProcess(["colorsys", "wave"], "cpu", program=PROGRAM, changes={"OWN": "2"}, early_s=early_s)
    try:
        assert worker.stay()
        assert worker.equipment == (("colorsys", "wave"), "cpu")
        assert asked(worker, "child.device, child.packages, child.early") == ("cpu", worker.equipment[0], early_s > 0)
        assert asked(worker, "import_heavy(child.packages, 'a test') or 'wave' in sys.modules") is True
        assert asked(worker, "[os.environ[name] for name in ('OF_THE_PROGRAM', 'OWN')]") == ["1", "2"]
        assert asked(worker, "os.getsid(0) == os.getpid() and strays()") == set()
        assert asked(worker, "signal.getsignal(signal.SIGINT) is signal.SIG_IGN")
        assert Path(asked(worker, "tempfile.gettempdir()")) == worker._temporary.path
    finally:
        worker.kill()


# Time limits


class Clock:
    """A clock that stands still but for what a scripted connection takes."""

    def __init__(self, watch=None):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def go_back(self, seconds):
        self.seconds = seconds


class Scripted:
    """A connection by which messages come after given seconds each."""

    def __init__(self, *messages):
        self._messages, self.question = list(messages), None

    def begin(self, question):
        self.question = question

    def finish(self, _clock, _until):
        pass

    def receive(self, clock, until):
        seconds, message = self._messages.pop(0)
        if clock.now() + seconds > until:
            raise TimeoutError
        clock.seconds += seconds
        return message


TRY, LAUNCH, QUEUE = StepStarted("try"), StepStarted("launch"), StepStarted("queue")
LIMITS = [
    ([(10, "answer")], 10, {}, "answer"),
    ([(11, "answer")], 10, {}, "its start did not end within 10 s"),
    ([(6, LAUNCH), (5, "answer")], 20, {"launch": 5}, "answer"),
    ([(6, LAUNCH), (6, "answer")], 20, {"launch": 5}, "its launch did not end within 5 s"),
    ([(6, "answer")], 20, {"": 5}, "its start did not end within 5 s"),
    ([(6, "answer")], 20, {"": 5, "start": 7}, "answer"),
    ([(6, TRY), (6, LAUNCH), (6, "answer")], 20, {"": 7}, "answer"),
    ([(6, TRY), (6, "answer")], 10, {"": 7}, "its trial did not end within 10 s"),
    ([(6, TRY), (6, "answer")], 12, {"": 6}, "answer"),
    ([(6, TRY), (7, "answer")], 12, {"": 6}, "its try did not end within 6 s"),
    ([(1, QUEUE), (1000, LAUNCH), (9, "answer")], 10, {"queue": math.inf}, "answer"),
    ([(1, QUEUE), (1000, LAUNCH), (10, "answer")], 10, {"queue": math.inf}, "its trial did not end within 10 s"),
    ([(1, QUEUE), (1000, LAUNCH), (6, "answer")], 10, {"queue": math.inf, "": 5}, "its launch did not end within 5 s"),
]


@pytest.mark.parametrize(("messages", "whole_s", "limits_s", "expected"), LIMITS)
def test_the_whole_answer_and_each_step_of_it_have_their_limits(messages, whole_s, limits_s, expected, monkeypatch):
    monkeypatch.setattr(worker_process, "AwakeClock", Clock)
    worker, kills = object.__new__(WorkerProcess), []
    worker._channel, worker._question_begun, worker._lines = Scripted(*messages), None, []
    worker.kill = lambda: kills.append(worker.step)
    if expected == "answer":
        assert worker.ask("question", whole_s, limits_s, "start") == "answer"
        assert (worker._channel.question, kills) == ("question", [])
        return
    error = lost(worker, "question", whole_s, limits_s, "start")
    assert (str(error), error.hung, error.during) == (expected, True, worker.step)
    assert kills == [worker.step]


@pytest.mark.processes
def test_a_worker_that_does_not_answer_in_time_is_killed(worker):
    error = lost(worker, "signal.pause()", LONG_S, {"try": 0.1})
    assert (str(error), error.hung, error.during) == ("its try did not end within 0.1 s", True, "try")
    assert not worker.alive
    assert "during its next" in str(lost(worker, "1", step="next"))


# The end


@pytest.mark.processes
def test_output_of_any_length_stops_no_worker_and_its_last_line_is_told(worker):
    assert asked(worker, "sys.stderr.write('x' * (1 << 20)) and sys.stdout.write('y' * (1 << 20))") == 1 << 20
    text = "'first\\n  the   last ' + 'z' * 300 + '\\n\\n \\n'"
    error = lost(worker, f"[sys.stderr.write({text}), sys.stderr.flush(), os._exit(3)]")
    assert str(error) == f"its process exited with code 3 during its try: {('the last ' + 'z' * 300)[:200]}"


@pytest.mark.processes
def test_output_before_an_answer_says_nothing_of_a_later_end(worker):
    worker._lines.append("of the first")
    asked(worker, "1")
    assert str(lost(worker, "os._exit(3)")) == "its process exited with code 3 during its try"


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("early_s", [0.0, 60.0])
def test_a_worker_that_is_killed_leaves_no_process_and_no_open_file(early_s):
    before = opened()
    worker = WorkerProcess(program=PROGRAM, early_s=early_s)
    pid = worker.pid
    assert worker.stay()
    started = asked(worker, "os.posix_spawn('/bin/sleep', ['sleep', '600'], os.environ)")
    worker.kill()
    worker.kill()
    assert opened() == before, "with the handle still there"
    assert not worker.alive
    eventually(lambda: Process(pid).ended and Process(started).ended)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_early_worker_that_ends_by_itself_leaves_no_open_file():
    before = opened()
    worker = WorkerProcess(program=PROGRAM, early_s=0.01)
    eventually(lambda: not worker.alive)
    worker.kill()
    assert opened() == before


@pytest.mark.processes
def test_a_program_that_waits_for_all_of_its_children_takes_the_workers_end_too(worker):
    pid = worker.pid
    assert worker.alive
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[0] == pid
    assert not worker.alive
    assert "during its try" in str(lost(worker, "1"))
