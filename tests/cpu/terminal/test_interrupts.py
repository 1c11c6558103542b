"""Ctrl-C: whether it raises, ends the process, or is taken for the one before."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import pytest

from triton_ops.terminal import interrupts


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def handled(monkeypatch):
    """A program that may be interrupted; what ends it raises, with what it says."""
    now = [100.0]

    def end(line):
        raise Ended(line)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupts, "_exit", end)
    monkeypatch.setattr(interrupts, "_state", SimpleNamespace(first_s=None, program=""))
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(interrupts.sys, "unraisablehook", interrupts.sys.unraisablehook)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield now
    signal.signal(signal.SIGINT, before)


def interrupt():
    """What a Ctrl-C comes to."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return "raised"
    except Ended as end:
        return f"ended: {end}".strip()
    return "nothing"


def test_before_a_command_begins_the_program_ends_at_once(handled):
    interrupts.end_at_once_when_interrupted()
    assert interrupt() == "ended: interrupted"
    assert not interrupts.was_interrupted()


def test_a_command_is_raised_into_once_and_a_second_one_soon_after_is_the_same(handled):
    interrupts.end_at_once_when_interrupted()
    with interrupts.raised_when_interrupted("program.py"):
        assert interrupt() == "raised"
        assert interrupts.was_interrupted()
        handled[0] += 3.0
        assert interrupt() == "nothing"
        handled[0] += 0.1
        assert interrupt() == "ended: interrupted"
    handled[0] = 100.0
    assert interrupt() == "nothing", "what was told ends in silence"
    handled[0] = 104.0
    assert interrupt() == "ended:"


def test_within_an_import_of_the_command_the_program_ends_at_once(handled):
    interrupts.end_at_once_when_interrupted()
    code = compile("interrupt()", "<frozen importlib._bootstrap>", "exec")
    outcome = []
    with interrupts.raised_when_interrupted("program.py"):
        exec(code, {"interrupt": lambda: outcome.append(interrupt())})
    assert outcome == ["ended: interrupted"]
    with interrupts.raised_when_interrupted(__file__):
        exec(code, {"interrupt": lambda: outcome.append(interrupt())})
    assert outcome[1:] == ["raised"], "the program itself may be within an import"


def test_what_others_do_with_an_interrupt_stays(handled):
    others = lambda number, frame: None  # noqa: E731 - a handler
    signal.signal(signal.SIGINT, others)
    interrupts.end_at_once_when_interrupted()
    assert signal.getsignal(signal.SIGINT) is others
    with interrupts.raised_when_interrupted("program.py"):
        assert signal.getsignal(signal.SIGINT) is others


def test_another_thread_sets_no_handler(handled):
    thread = threading.Thread(target=interrupts.end_at_once_when_interrupted)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_nobody_can_catch_ends_the_process_and_other_errors_are_printed(handled, monkeypatch):
    printed = []
    monkeypatch.setattr(interrupts.sys, "__unraisablehook__", printed.append)
    interrupts.end_at_once_when_interrupted()
    with pytest.raises(Ended, match="interrupted"):
        interrupts.sys.unraisablehook(SimpleNamespace(exc_type=KeyboardInterrupt))
    assert not printed
    error = SimpleNamespace(exc_type=ValueError)
    interrupts._unraisable(error)
    assert printed == [error]
