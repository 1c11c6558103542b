"""The progress bar's line about the run: it fits the terminal, whatever the device is called."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from triton_ops.benchmark.comparing import rounds_bar
from triton_ops.request import Budget
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import ProgressBar, RunPlan, RunProgress
from triton_ops.values import Problem, Status, Trial

LONG = "Intel(R) Xeon(R) Platinum 8480C with Every Letter That Its Maker Could Think Of @ 2.00GHz"


def plan(name):
    size, device = ConfigSpace({"a": list(range(20))}).size, f"{name} (cuda:0)"
    return RunPlan(problem=Problem("add"), size=size, search="auto", budget=Budget(trials=20), device=device)


def line(name, columns):
    """What a terminal of that width shows before the first trial, for a device of that name."""
    written = io.StringIO()
    bar = ProgressBar(Console(file=written, force_terminal=True, width=columns, color_system=None))
    bar.started(plan(name))
    bar.ended(None)
    return written.getvalue().split("\n")[0].split("\x1b")[0]


@given(
    st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1).map(str.strip).filter(bool), st.integers(70, 200)
)
def test_the_line_fits_whatever_the_device_is_called(name, columns):
    shown = line(name, columns)
    assert cell_len(shown) <= columns
    assert shown.endswith(" (cuda:0): 20 configs, 20 valid; search auto"), shown


def test_a_device_name_is_whole_where_it_fits_and_ends_in_dots_where_not():
    assert line(LONG, 200) == f"add on {LONG} (cuda:0): 20 configs, 20 valid; search auto"
    assert line(LONG, 80) == f"add on {LONG[:25].rstrip()}... (cuda:0): 20 configs, 20 valid; search auto"


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal_wraps_the_line(columns):
    assert cell_len(line(LONG, columns)) <= columns


def drawn(listener_use):
    """What a listener wrote on a terminal of 120 columns, without colours."""
    text = io.StringIO()
    listener_use(Console(file=text, force_terminal=True, width=120, color_system=None))
    return text.getvalue()


def test_the_bar_counts_the_trials_that_failed():
    wrong = Trial(Config(n=1), Status.WRONG, error="no")

    def use(console):
        bar = ProgressBar(console)
        bar.started(plan("a device"))
        bar.tried(wrong, RunProgress(3, None, None, 0.1, failed=2))
        bar._progress.refresh()
        bar.ended(None)

    assert "3/20 trials, 2 failed" in drawn(use)


def test_a_comparison_shows_its_rounds():
    def use(console):
        with rounds_bar(("new", "old"), 10.0, console) as follow:
            follow(1, 0.1)
            follow(7, 2.0)

    text = drawn(use)
    assert "new and old" in text
    assert "7 rounds" in text
    with rounds_bar(("new", "old"), 10.0, Console(file=(quiet := io.StringIO()))) as follow:
        follow(1, 0.1)
    assert quiet.getvalue() == ""
