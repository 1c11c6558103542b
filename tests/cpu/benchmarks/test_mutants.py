"""Wrong changes that `benchmarks/robustness/mutants.py` makes: each kind, none of what is only said, repeatable."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest
from benchmarks.robustness.mutants import CONFINED, EQUIVALENT, PACKAGE, PROJECT, changes_in, drawn

SOURCE = '''
"""A text with 1 < 2."""
LEAST = max(1, 2)

def first(values: list[int], most: int = 1 + 1) -> int:
    """Another text with `x < 3`."""
    log.warning("of %s", values[0] + 1)
    if not values:
        raise ValueError(f"{len(values) < 1}")
    values.sort()
    return min(value for value in values if value < most)

class Pair:
    def add(self, one, other):
        return one + 1 if one in other and other else combine(one, other)
'''


def forms(function, source=SOURCE):
    return {
        (change.kind, change.before, change.after)
        for change in changes_in(source.encode(), "file.py")
        if change.function == function
    }


def test_what_runs_is_changed_in_every_way():
    assert forms("first") == {
        ("condition", "not values", "values"), ("condition", "not values", "False"), ("call", "values.sort()", "pass"),
        ("bound", "min", "max"),
        ("condition", "(value for value in values if value < most)", "(value for value in values)"),
        ("bound", "value < most", "value <= most"), ("comparison", "value < most", "value >= most"),
    }  # fmt: skip
    assert forms("Pair.add") == {
        ("condition", "one + 1 if one in other and other else combine(one, other)", "one + 1"),
        ("condition", "one + 1 if one in other and other else combine(one, other)", "combine(one, other)"),
        ("condition", "one in other and other", "one in other"), ("condition", "one in other and other", "other"),
        ("comparison", "one in other", "one not in other"), ("off by one", "1", "2"),
        ("arguments", "combine(one, other)", "combine(other, one)"),
    }  # fmt: skip


def test_a_change_is_made_in_its_place_alone():
    for changed in changes_in(SOURCE.encode(), "file.py").values():
        lines, before = changed.text.splitlines(), SOURCE.splitlines()
        assert [line for line, old in zip(lines, before, strict=True) if line != old] == [lines[changed.line - 1]]
        ast.parse(changed.text)


def test_equal_places_are_told_apart_and_other_functions_change_nothing():
    twice = "def f(x):\n    return x < 1, x < 1\n"
    bounds = [change.nth for change in changes_in(twice.encode(), "file.py") if change.kind == "bound"]
    assert bounds == [0, 1]
    more = "def g(x):\n    return x < 1\n" + twice
    ranks = [{change: change.rank(3) for change in changes_in(text.encode(), "file.py")} for text in (twice, more)]
    assert ranks[0].items() <= ranks[1].items()


@pytest.mark.parametrize("room", ["space", "settings"])
def test_a_seed_draws_the_same_changes_of_all_kinds_and_another_seed_others(room):
    changes = drawn(room, 1, 10)
    assert [*changes] == [*drawn(room, 1, 10)]
    assert [*drawn(room, 1, 4)] == [*changes][:4]
    assert [*changes] != [*drawn(room, 2, 10)]
    assert len({change.kind for change in changes}) == 6
    for change, changed in changes.items():
        compile(changed.text, change.file, "exec")


def test_changes_that_change_nothing_are_told_with_the_reason_and_are_those_of_the_code():
    for row in json.loads(EQUIVALENT.read_text(encoding="utf-8")):
        assert row.pop("why")
        file = PROJECT / PACKAGE / row["file"]
        assert row in [change.__dict__ for change in changes_in(file.read_bytes(), row["file"])], row


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid(), reason="it needs root, and Linux")
def test_what_a_changed_test_runs_can_end_no_process_outside():
    program = "import os, sys\ntry: os.kill(int(sys.argv[1]), 0)\nexcept ProcessLookupError: print(os.getpid())"
    words = [*CONFINED, sys.executable, "-c", program, str(os.getpid())]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this container may not make a namespace of processes")
    assert done.stdout == "2\n"
    assert subprocess.run([*CONFINED, "false"], check=False).returncode == 1
