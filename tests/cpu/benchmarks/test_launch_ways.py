"""The rows of `python -m benchmarks.launch_cost`: every public way to call a kernel is known, and held to its limit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks import launch_cost  # noqa: E402
from benchmarks.launch import ways  # noqa: E402

from tests.launches import cpu_as_gpu, launches_that_do_nothing, ordinary_launches  # noqa: E402


@pytest.mark.processes
@pytest.mark.triton
def test_no_row_launches_in_the_ordinary_way():
    with launches_that_do_nothing() as launched, cpu_as_gpu(), ordinary_launches() as ordinary:
        rows = ways.rows("cpu", launch_cost.add, launch_cost.by_blocks)
        ordinary.clear()
        for name, row in rows.items():
            before = len(launched.made)
            row.call()
            assert len(launched.made) > before, name
            assert not ordinary, name
    assert len(rows) >= 14


def test_a_row_above_its_limit_fails():
    times = {"call": 3.0, "rival": 2.0}
    assert not launch_cost.told_ways({"one": (times, 1.25), "two": (times, 2.0)})
    assert launch_cost.told_ways({"two": (times, 2.0)})
    assert ways.ratio({**times, "beyond": 1.0}) == 1.0
