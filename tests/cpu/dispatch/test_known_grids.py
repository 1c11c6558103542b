"""Grid functions that only calculate are asked once for each set of numbers; all others are called each time."""

from __future__ import annotations

import math

import pytest

triton = pytest.importorskip("triton")

from triton_ops.dispatch.fast_launch import KnownGrids  # noqa: E402

pytestmark = pytest.mark.triton

UNITS = 7


def helper(n):
    return n


@pytest.fixture
def grids():
    return KnownGrids(("n", "m", "BLOCK", "x"))


def known(grids):
    return sum(len(plan.known) for plan in grids._plans.values() if plan is not None)


def made(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def test_what_only_calculates_is_known_by_its_numbers(grids):
    for n, block in [(100, 32), (100, 32), (128, 32), (100, 64)]:
        assert grids.of(made(n), {"BLOCK": block, "n": 1}) == (triton.cdiv(n, block),)
    assert known(grids) == 3
    two = lambda meta: (math.ceil(meta["n"] / meta["BLOCK"]), min(meta["m"], 3))  # noqa: E731
    for m in (1, 9, 1):
        assert grids.of(two, {"BLOCK": 32, "n": 100, "m": m}) == (4, min(m, 3))
    assert known(grids) == 5


def described(meta):
    """A docstring is no name that is looked up."""
    return (meta["n"],)


def test_a_grid_with_a_docstring_is_known(grids):
    assert [grids.of(described, {"n": n}) for n in (3, 3, 4)] == [(3,), (3,), (4,)]
    assert known(grids) == 2


def counted(calls):
    def grid(meta):
        calls.append(1)
        return (meta["n"],)

    return grid


@pytest.mark.parametrize(
    "grid",
    [
        lambda meta: (UNITS,),
        lambda meta: (helper(meta["n"]),),
        lambda meta: (meta.get("n"),),
        lambda meta: tuple(meta[name] for name in ("n",)),
        lambda meta, more=1: (meta["n"] + more,),
        lambda *metas: (metas[0]["n"],),
        lambda meta: (meta["n"], meta["num_warps"]),
        lambda meta: (len(meta),),
    ],
)
def test_anything_else_is_called_each_time(grids, grid):
    for n in (3, 4, 3):
        meta = {"n": n, "num_warps": 4}
        assert grids.of(grid, meta) == grid(meta)
    assert known(grids) == 0


def test_objects_with_state_and_numbers_of_other_types_are_called_each_time(grids):
    calls = []
    for _ in range(3):
        assert grids.of(counted(calls), {"n": 3}) == (3,)
    assert len(calls) == 3
    for n in (3.0, True, [3]):
        assert grids.of(lambda meta: (meta["n"],), {"n": n}) == (n,)
    assert grids.of(math.prod, (2, 3)) == 6
    assert known(grids) == 0


def test_a_name_that_means_something_else_now_is_seen(grids, monkeypatch):
    grid = lambda meta: (triton.cdiv(meta["n"], 2), min(meta["n"], 5))  # noqa: E731
    assert grids.of(grid, {"n": 9}) == (5, 5)
    monkeypatch.setitem(globals(), "min", max)
    assert grids.of(grid, {"n": 9}) == (5, 9)
