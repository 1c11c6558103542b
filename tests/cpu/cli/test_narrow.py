"""A narrow terminal: lines of help, tables, texts and messages end between words."""

from __future__ import annotations

import io
import shlex
import sys

import pytest
from rich.console import Console

from triton_ops.cli.tune import _add_ranking
from triton_ops.space import Config
from triton_ops.terminal import Facts, followed, tell
from triton_ops.values import KernelMetrics, Measurement, Status, Trial, TuningResult

COMMAND = shlex.join(["triton-ops", "explain", "profile", "run", "--", "python", "a file.py", "--with", "w" * 30])


@pytest.mark.parametrize("command", ["", "tune", "exchange export", "lock verify"])
def test_help_fits(cli, command):
    narrow, wide = (cli(*command.split(), "--help", columns=columns).out for columns in (60, 2000))
    assert max(map(len, narrow.splitlines())) <= 60
    assert set(narrow.split()) <= set(wide.split())


def test_cells_stand_below_each_other_where_a_row_has_no_room():
    facts = Facts("test").table(("kernel", "problem", "gain"), [["k" * 30, "4096x4096 bfloat16", "1.2"]])
    assert facts.printed(60)[1:] == ["k" * 30 + "  4096x4096 bfloat16  1.2"] == facts.printed(None)[1:]
    assert facts.printed(40) == ["k" * 30, "  problem  4096x4096 bfloat16", "  gain     1.2"]


def test_a_text_stands_below_a_head_that_leaves_no_room():
    assert Facts("test").text("missing-mask in kernel", "path/" * 8).printed(60) == [
        "path/" * 8, "    missing-mask in kernel",
    ]  # fmt: skip


def test_the_first_line_of_each_row_is_bold_where_cells_stand_in_lines(monkeypatch):
    monkeypatch.setattr("triton_ops.terminal.facts.bold", "*{}*".format)
    table = Facts("test").table(("kernel", "seconds"), [("add" * 20, "1.0"), ("mul" * 20, "2.0")])
    assert [line for line in table.printed(60) if "*" in line] == [f"*{'add' * 20}*", f"*{'mul' * 20}*"]
    assert [line for line in table.printed(80) if "*" in line] == [f"*{'kernel'.ljust(60)}  seconds*"]


def test_a_command_of_a_shell_goes_on_after_a_backslash_and_no_word_of_it_is_broken():
    lines = Facts("test").lines(COMMAND, end=" \\").printed(60)
    assert max(map(len, lines)) <= 60
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)
    assert len(lines) > 1
    assert Facts("test").lines(COMMAND, end=None).printed(60) == [COMMAND]


def test_a_script_for_a_shell_stays_as_it_is(cli):
    assert cli("completion", "bash", columns=20).out == cli("completion", "bash").out


def test_a_message_is_wrapped_in_a_terminal_alone(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    tell("word " * 30, "error")
    assert written.getvalue().count("\n") == 1
    monkeypatch.setattr(written, "isatty", lambda: True)
    written.truncate(0)
    tell("word " * 30, "error")
    lines = written.getvalue().strip("\0").splitlines()
    assert [lines[0][:12], lines[1][:12], max(map(len, lines))] == ["error: word ", "       word ", 56]


def test_a_bar_is_drawn_only_while_an_item_is_waited_for(monkeypatch):
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=60)
    monkeypatch.setattr("triton_ops.terminal.console.bar_console", lambda: console)
    stdout = sys.stdout
    seen = [(item, sys.stdout is stdout) for item in followed(iter("ab"), 2, "targets")]
    assert seen == [("a", True), ("b", True)]
    assert "2 targets" in drawn.getvalue()


def test_the_default_stands_among_the_screened_by_its_time_though_it_raced():
    def trial(n, ms, raced):
        times = Measurement((ms,), "host")
        return Trial(Config(n=n), Status.OK, times, final=times if raced else None)

    trials = [
        trial(1, 9.0, True),
        trial(2, 1.0, True),
        trial(3, 2.0, True),
        trial(4, 1.5, False),
        trial(5, 12.0, False),
    ]
    facts = Facts("tune")
    _add_ranking(facts, TuningResult({"n": 2}, KernelMetrics(1.0), trials=tuple(trials), default=trials[0]))
    ranked = [(line.split()[-1], "default" in line) for line in facts.printed(None)[1:]]
    assert ranked == [("n=2", False), ("n=3", False), ("n=4", False), ("n=1", True), ("n=5", False)]


def test_times_and_gains_of_a_table_are_of_one_sample_and_rows_say_what_they_are():
    def trial(n, screened_ms, raced_ms=None):
        final = None if raced_ms is None else Measurement(raced_ms, "host", len(raced_ms))
        return Trial(Config(n=n), Status.OK, Measurement((screened_ms,), "host"), final=final)

    # A round that was disturbed moves the medians of the times, and not those of their ratios.
    trials = (
        trial(1, 9.0, (8.0, 16.0, 8.0)),
        trial(2, 0.5, (4.0, 4.0, 4.1)),
        trial(3, 0.1, (4.1, 9.0, 4.2)),
        trial(4, 7.0),
    )
    result = TuningResult(
        {"n": 2}, KernelMetrics(4.0), trials=trials, default=trials[0], winner=trials[1], raced_gain=2.0,
        ties=(Config(n=2), Config(n=3)),
    )  # fmt: skip
    facts = Facts("tune")
    _add_ranking(facts, result)
    rows = [line.split() for line in facts.printed(None)[1:]]
    assert [(row[1:-4], row[-1]) for row in rows] == [
        (["winner"], "n=2"), (["tie"], "n=3"), (["screened"], "n=4"), (["default"], "n=1"),
    ]  # fmt: skip
    for row in rows:
        assert float(row[-4]) * float(row[-2].rstrip("x")) == pytest.approx(8.0, rel=0.01)
