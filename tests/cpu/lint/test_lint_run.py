"""What the lint sees when Triton's interpreter runs kernels in a process of its own."""

import json
import re
from pathlib import Path

import pytest

from tests.cpu.lint import watched_kernels
from triton_ops.cli.app import main
from triton_ops_lint.apart import run_watched
from triton_ops_lint.engine import lint
from triton_ops_lint.memory_watch import CONFLICT

pytestmark = pytest.mark.triton
SOURCE = Path(watched_kernels.__file__)


@pytest.mark.processes
def test_a_run_shows_each_planted_fault_in_its_line_and_nothing_else():
    record = run_watched(watched_kernels.together)
    assert record.whole == ""
    lines = enumerate(SOURCE.read_text().splitlines(), start=1)
    marked = [(at, result[1]) for at, text in lines if (result := re.search(r"# shows: ([\w, ]+)", text))]
    planted = sorted((at, kind.strip()) for at, kinds in marked for kind in kinds.split(","))
    assert sorted((one.line, one.kind) for one in record.observations) == planted
    assert {one.file for one in record.observations} == {str(SOURCE)}
    message = {one.kind: one.evidence for one in record.observations if one.kernel in ("gather_bad", "fill_rows_bad")}
    assert "outside of table" in record.observations[0].evidence
    far = [one.evidence for one in record.observations if one.kernel == "far_bad"]
    assert "outside of small, the first 999937 past its last; 64 elements in all" in far[0]
    assert "of the 185 elements" in message["unwritten"]
    assert "may wait for each other" in record.why_open(CONFLICT, "take_turns")
    assert record.why_open(CONFLICT, "gather_good") == ""
    assert record.why_open(CONFLICT, "endless") == "the run does not launch it"


@pytest.mark.processes
def test_an_operation_is_run_on_odd_extents_and_what_it_leaves_out_is_a_finding():
    report = lint(watched_kernels.half, rules=["never-written", "outside-tensor"], run=True)
    (one,) = report.findings
    assert (one.rule, one.kernel, one.level) == ("never-written", "gather_good", "run")
    assert one.evidence == ("run on half 131: 66 of the 131 elements of out are never written, the first at (65,)")
    assert report.undecided == ()


@pytest.mark.processes
def test_an_operation_is_run_on_the_shape_that_is_asked_for(capsys):
    words = ["--run", "--shape", "10", "--rule", "never-written", "--rule", "outside-tensor", "--json"]
    assert main(["lint", f"{SOURCE}:half", *words]) == 5
    result = json.loads(capsys.readouterr().out)
    (one,) = result["findings"]
    assert one["evidence"].startswith("run on half 10: 5 of the 10 elements")
    assert result["undecided"] == []


@pytest.mark.processes
def test_a_run_that_does_not_end_leaves_its_rules_undecided():
    record = run_watched(watched_kernels.never_ends, limit_s=0.3)
    assert record.observations == ()
    limits = ("0.3 s of a CPU", "1.8 s of the clock")  # the second where other programs have the CPUs
    assert record.whole in [f"the interpreter did not end within {limit}" for limit in limits]


def test_a_kernel_whose_arguments_are_not_known_is_not_run():
    report = lint(watched_kernels.gather_bad, rules=["outside-tensor"], run=True)
    assert [one.why for one in report.undecided] == [
        "its arguments are not known: to run it, name an Operation, or a function without parameters"
    ]
    assert lint(watched_kernels.gather_bad, rules=["outside-tensor"]).undecided == ()
