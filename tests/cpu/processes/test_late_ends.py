"""A process that has closed its connection and ends late, as on a busy machine: how it ended, and by whom."""

import os
import signal

import pytest

from triton_ops.base import OwnFile
from triton_ops.processes import WorkerLostError, WorkerProcess, worker_process
from triton_ops.processes import fork_server as fork_servers
from triton_ops.processes.fork_server import ForkedProcess

NOBODY = 2**31 - 1  # the number of no process


class Late:
    """A fork server that tells the end of its process at the second question."""

    alive = True

    def __init__(self, code):
        self._answers = iter([None, code])

    def code_of(self, pid):
        return next(self._answers)


@pytest.mark.parametrize(
    ("number", "words", "outside"),
    [
        (signal.SIGABRT, "ended by SIGABRT: last line", False),
        (signal.SIGTERM, "ended by SIGTERM: last line", True),
        (40, "ended by signal 40: last line", False),  # a real-time signal, for which Python has no name
        (signal.SIGKILL, "is gone: last line", False),
    ],
)
def test_the_own_kill_of_a_late_process_is_neither_its_end_nor_that_of_others(
    monkeypatch, number, words, outside, tmp_path
):
    monkeypatch.setattr(fork_servers, "_EXIT_S", 0.0)
    (tmp_path / "errors").write_text("last line")
    errors = OwnFile(os.open(tmp_path / "errors", os.O_RDWR))
    process = ForkedProcess(Late(-number), NOBODY, None, errors)
    assert process.last_words() == words
    assert process.last_words() == words
    assert process.ended_from_outside is outside


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "how", "outside"),
    [
        (signal.SIGABRT, "was killed by SIGABRT", False),
        (signal.SIGTERM, "was killed by SIGTERM", True),
        (signal.SIGKILL, "stopped answering", False),
    ],
)
def test_a_late_worker_has_ended_by_itself_or_stopped_answering(monkeypatch, number, how, outside):
    monkeypatch.setattr(worker_process, "_EXIT_S", -1.0)
    monkeypatch.setattr(WorkerProcess, "alive", True)
    worker = WorkerProcess(program="tests.evaluating_worker")
    with pytest.raises(WorkerLostError, match=f"its process {how} during its end") as caught:
        worker.ask(f"os.kill(os.getpid(), {int(number)}) or signal.pause()", 60.0, {}, "end")
    assert caught.value.outside is outside
