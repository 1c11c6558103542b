"""The progress bar's line about the run: it fits the terminal, whatever the device is called."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from triton_ops.runner.events import RunPlan
from triton_ops.runner.progress import ProgressBar
from triton_ops.space import ConfigSpace
from triton_ops.task.budget import Budget
from triton_ops.trial import Problem

LONG = "Intel(R) Xeon(R) Platinum 8480C with Every Letter That Its Maker Could Think Of @ 2.00GHz"


def line(name, columns):
    """What a terminal of that width shows before the first trial, for a device of that name."""
    written = io.StringIO()
    bar = ProgressBar(Console(file=written, force_terminal=True, width=columns, color_system=None))
    size = ConfigSpace({"a": list(range(20))}).size
    budget, device = Budget(trials=20), f"{name} (cuda:0)"
    bar.started(RunPlan(problem=Problem("add"), size=size, search="auto", budget=budget, device=device))
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
