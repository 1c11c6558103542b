"""Rows whose width is a number: their products of 32 bits are undecided, and those of blocks are not."""

import pytest

from triton_ops_lint.engine import lint

pytestmark = [pytest.mark.triton, pytest.mark.processes]
HEAD = """
import torch
import triton
import triton.language as tl

WIDTH = tl.constexpr(5120)

@triton.jit
def first_of(row, W: tl.constexpr):
    return row * W
"""
KERNEL = """
@triton.jit
def {name}(x, y, n, W: tl.constexpr, B: tl.constexpr):
    row, c, r = tl.program_id(0), tl.arange(0, B), tl.program_id(0) * 16 + tl.arange(0, 16)
    at, mask = {at}, {mask}
    tl.store(y + at, tl.load(x + at, mask=mask), mask=mask)
"""
LAUNCH = """
def launch_{name}(x, y):
    {name}[(x.shape[0],)](x, y, x.numel(), W=4096, B=4096)
"""
ROWS = {
    "of_a_constant": ("row * W + c", "c < W"),
    "of_a_constant_with_a_launch": ("row * W + c", "c < W"),
    "of_a_constant_as_wide_as_the_block_with_a_launch": ("row * W + c", "None"),
    "of_a_literal": ("row * 4096 + c", "c < 4096"),
    "of_a_product_of_literals": ("row * 70000 * 70000 + c", "c < n"),
    "of_a_global": ("row * WIDTH + c", "c < WIDTH"),
    "by_a_shift": ("(row << 12) + c", "c < 4096"),
    "by_a_function": ("first_of(row, W) + c", "c < W"),
    "of_several": ("r[:, None] * W + tl.arange(0, 64)[None, :]", "(r < n)[:, None]"),
    "of_parts": ("(row // 8) * W + c", "c < W"),
    "as_wide_as_the_block": ("row * B + c", "c < n"),
}
NO_ROWS = {
    "blocks": ("row * B + c", "row * B + c < n"),
    "blocks_of_a_literal": ("row * 4096 + tl.arange(0, 4096)", "row * 4096 + tl.arange(0, 4096) < n"),
    "blocks_without_a_mask": ("row * B + c", "None"),
    "wide_rows": ("row.to(tl.int64) * W + c", "c < W"),
    "narrow_rows": ("row * 8 + tl.arange(0, 8)", "tl.arange(0, 8) < n"),
    "heads": ("row.to(tl.int64) * n + (row % 8) * W + c", "c < W"),
}

UNSIGNED = """
@triton.jit
def places_of_random_numbers(x, y, stride, n, seed, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    drawn = tl.rand(seed, (row * stride + c).to(tl.uint32))
    at = row.to(tl.int64) * stride + c
    tl.store(y + at, tl.load(x + at, mask=c < n) * drawn, mask=c < n)


@triton.jit
def unsigned_places(x, y, stride, n, B: tl.constexpr):
    c = tl.arange(0, B)
    at = ((tl.program_id(0) * stride).to(tl.uint32) + c).to(tl.int64)
    tl.store(y + at, tl.load(x + at, mask=c < n), mask=c < n)


@triton.jit
def narrow_beside_wide(x, y, stride, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    wide = row.to(tl.int64) * stride
    tl.store(y + wide + c, tl.load(x + row * stride + c, mask=c < n), mask=c < n)
"""


def test_a_product_that_becomes_unsigned_is_no_overflow_of_an_address(tmp_path):
    (tmp_path / "places.py").write_text(HEAD + UNSIGNED)
    report = lint(tmp_path / "places.py", rules=["offset-overflow"])
    assert [one.kernel for one in report.findings] == ["narrow_beside_wide"]
    assert [one.kernel for one in report.undecided] == ["unsigned_places"]


def test_rows_of_a_number_are_undecided_and_blocks_are_not(tmp_path):
    kernels = [KERNEL.format(name=name, at=at, mask=mask) for name, (at, mask) in {**ROWS, **NO_ROWS}.items()]
    launches = [LAUNCH.format(name=name) for name in ROWS if name.endswith("with_a_launch")]
    (tmp_path / "rows.py").write_text("".join((HEAD, *kernels, *launches)))
    report = lint(tmp_path / "rows.py", rules=["offset-overflow"])
    assert not report.findings
    assert len(report.kernels) == len(ROWS) + len(NO_ROWS)
    assert {one.kernel for one in report.undecided} == set(ROWS)
    assert all("is multiplied in 32 bits" in one.why for one in report.undecided)
