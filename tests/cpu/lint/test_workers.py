"""Workers of which a copy answers each question."""

from __future__ import annotations

import sys

import pytest

from triton_ops.processes import WorkerLostError
from triton_ops_lint.workers import Workers

LONG_S = 600.0


@pytest.mark.processes
def test_copies_of_one_worker_answer_with_the_surroundings_of_who_asks_until_one_answers_wrongly(monkeypatch):
    workers = Workers("tests.evaluating_worker", (), lambda: {"GIVEN": "1"})

    def asked(text, answer=int, words=None):
        return workers.ask(text, answer, LONG_S, {}, words)

    pid = asked("os.getppid()")
    monkeypatch.setattr(sys, "argv", ["program"])
    assert asked("os.environ['GIVEN'], sys.argv", tuple) == ("1", ["program"])
    assert asked("sys.argv", list, words=("own", "words")) == ["own", "words"]
    with pytest.raises(WorkerLostError, match="exited with code 3 during its start"):
        asked("os._exit(3)")
    assert asked("os.getppid()") == pid
    with pytest.raises(WorkerLostError, match="wrote an answer to another question, str"):
        asked("'text'")
    assert asked("os.getppid()") != pid
