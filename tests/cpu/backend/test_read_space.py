"""What is read of a kernel without a list: tiles, derived constants, what is left alone, and the reason of each."""

from __future__ import annotations

import importlib
import itertools
import sys

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from triton_ops.backend import ReadSpace
from triton_ops.backend.constant_roles import _DEEPEST
from triton_ops.device import Target
from triton_ops.exceptions import KernelTypeError
from triton_ops.values import TensorSpec

pytestmark = pytest.mark.triton

SIZES = [16, 32]


@triton.jit
def place(pid, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    width = GROUP * tl.cdiv(n, BN)
    first = pid // width * GROUP
    size = min(tl.cdiv(m, BM) - first, GROUP)
    return first + (pid % width) % size, (pid % width) // size


@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
            ACT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, FLAG: tl.constexpr):  # fmt: skip
    tl.static_assert(BM >= BN)
    row, column = place(tl.program_id(0), m, n, BM, BN, GROUP)
    rows, columns, inner = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, tl.cdiv(k, BK), num_stages=STAGES):
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k - step * BK)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < k - step * BK)
        total = tl.dot(left, right, total, input_precision=PRECISION)
        a += BK
        b += BK * n
    if ACT == "relu":
        total = tl.maximum(total, 0)
    if FLAG:
        total = tl.maximum(total, 0)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def split(a, b, c, m, n, k, B: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, 16)
    inner = tl.program_id(1) * BK + tl.arange(0, BK)
    total = tl.zeros((B, 16), tl.float32)
    for _ in range(tl.cdiv(k, BK * SPLIT)):
        total += tl.dot(tl.load(a + rows[:, None] * k + inner[None, :]), tl.load(b + inner[:, None] * n + columns))
        a += BK * SPLIT
        b += BK * SPLIT * n
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def persistent(x, y, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK), PROGRAMS):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(y, x, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride + at, mask=at < n, other=-float("inf"))
    top = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + tl.program_id(0) * stride + at, top / tl.sum(top, axis=0), mask=at < n)


@triton.jit
def heads(x, y, rows, HEADS: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr, SCALE: tl.constexpr):
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    at, across = row * B + tl.arange(0, B), tl.arange(0, WIDTH)
    places = at[:, None] * HEADS * WIDTH + head * WIDTH + across[None, :]
    block = tl.load(x + places, mask=at[:, None] < rows)
    tl.store(y + places, block * SCALE, mask=at[:, None] < rows)


@triton.jit
def in_turn(x, y, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    tile = tl.program_id(0)
    while tile < tl.cdiv(n, BLOCK):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
        tile += PROGRAMS


@triton.jit
def from_number(x, y, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    first = tl.program_id(0)
    for tile in range(first, tl.cdiv(n, BLOCK), PROGRAMS):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def row_sums(x, y, columns, STEP: tl.constexpr, ROWS: tl.constexpr):
    at = tl.program_id(0) * ROWS * columns + tl.arange(0, ROWS)[:, None] * columns + tl.arange(0, STEP)[None, :]
    sums = tl.zeros((ROWS,), tl.float32)
    for _ in range(tl.cdiv(columns, STEP)):
        sums += tl.sum(tl.load(x + at), axis=1)
        at += STEP
    tl.store(y + tl.program_id(0) * ROWS + tl.arange(0, ROWS), sums)


@triton.jit
def widths(x, y, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def quantized(x, q, scales, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(x + at, mask=at < n)
    scale = tl.max(tl.abs(block), axis=0)
    tl.store(q + at, block / scale, mask=at < n)
    tl.store(scales + tl.program_id(0), scale)


@triton.jit
def grouped(x, scales, y, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * tl.load(scales + at // GROUP), mask=at < n)


@triton.jit
def summed(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(tl.program_id(0) * 0, n, BLOCK):
        total += tl.load(x + at + tl.arange(0, BLOCK), mask=at + tl.arange(0, BLOCK) < n)
    tl.store(y, tl.sum(total, axis=0))


@triton.jit
def bounded_by_data(x, y, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    at = tl.arange(0, BLOCK)
    count = tl.sum(tl.load(x + at, mask=at < n))
    for part in range(tl.cdiv(count, PART)):
        here = part * PART + tl.arange(0, PART)
        tl.store(y + here, part, mask=here < count)


@triton.jit
def polynomial(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    b = (a + 1) * (a + 2) * (a + 3) * (a + 4)
    c = (b + 1) * (b + a) * (b + 3) * (b + a)
    d = (c + b) * (c + a) * (c + 3) * (c + b)
    e = (d + c) * (d + b) * (d + a) * (d + c)
    tl.store(y + at, (e + d) * (e + c) * (e + b) * (e + a), mask=at < n)


@triton.jit
def rows_of(x, y, m, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (row[:, None] < m) & (at[None, :] < n)
    block = tl.load(x + row[:, None] * n + at[None, :], mask=mask)
    tl.store(y + row[:, None] * n + at[None, :], block - tl.max(block, axis=1)[:, None], mask=mask)


@triton.jit
def unmasked(x, y, n, ROWS: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n, STEP):
        total += tl.sum(tl.load(x + rows[:, None] * n + start + tl.arange(0, STEP)[None, :]), axis=1)
    tl.store(y + rows, total)


@triton.jit
def numbers(m, n, B: tl.constexpr, GROUP: tl.constexpr):
    width = GROUP * tl.cdiv(n, B)
    first = tl.program_id(0) // width * GROUP
    GROUP = min(tl.cdiv(m, B) - first, GROUP)
    return first + (tl.program_id(0) % width) % GROUP, (tl.program_id(0) % width) // GROUP


@triton.jit
def restored_by_a_helper(x, y, m, n, GROUP: tl.constexpr, SIZE: tl.constexpr):
    row, column = numbers(m, n, GROUP, SIZE)
    at, beside = row * GROUP + tl.arange(0, GROUP), column * GROUP + tl.arange(0, GROUP)
    inside = (at[:, None] < m) & (beside[None, :] < n)
    tl.store(y + at[:, None] * n + beside[None, :], tl.load(x + at[:, None] * n + beside[None, :], mask=inside), inside)


@triton.jit
def restored(x, y, m, n, B: tl.constexpr, GROUP: tl.constexpr):
    width = GROUP * tl.cdiv(n, B)
    first = tl.program_id(0) // width * GROUP
    GROUP = min(tl.cdiv(m, B) - first, GROUP)
    row, column = first + (tl.program_id(0) % width) % GROUP, (tl.program_id(0) % width) // GROUP
    at, beside = row * B + tl.arange(0, B), column * B + tl.arange(0, B)
    inside = (at[:, None] < m) & (beside[None, :] < n)
    tl.store(y + at[:, None] * n + beside[None, :], tl.load(x + at[:, None] * n + beside[None, :], mask=inside), inside)


@triton.jit
def described(a, y, k, BM: tl.constexpr, BK: tl.constexpr):
    total = tl.zeros((BM,), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        total += tl.sum(a.load([tl.program_id(0) * BM, step * BK]), axis=1)
    tl.store(y + tl.program_id(0) * BM + tl.arange(0, BM), total)


@triton.jit
def advanced(x, y, m, k, BM: tl.constexpr, BK: tl.constexpr):
    block = tl.make_block_ptr(x, (m, k), (k, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    total = tl.zeros((BM, BK), tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        total += tl.load(block)
        block = tl.advance(block, (0, BK))
    tl.store(y + tl.program_id(0) * BM + tl.arange(0, BM), tl.sum(total, axis=1))


@triton.jit
def causal(q, k, y, n, BM: tl.constexpr, BN: tl.constexpr):
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, first + BM, BN):
        total += tl.sum(tl.load(q + rows)[:, None] * tl.load(k + start + tl.arange(0, BN))[None, :], axis=1)
    tl.store(y + rows, total)


@triton.jit
def two_products(q, k, v, y, n, width, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr):
    rows, ends = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, 32)
    total = tl.zeros((BM, 32), tl.float32)
    for start in tl.range(0, n, BN, num_stages=STAGES):
        columns = start + tl.arange(0, BN)
        scores = tl.zeros((BM, BN), tl.float32)
        for first in range(0, width, BD):
            inner = first + tl.arange(0, BD)
            left = tl.load(q + rows[:, None] * width + inner[None, :], mask=inner[None, :] < width)
            right = tl.load(k + columns[None, :] * width + inner[:, None], mask=inner[:, None] < width)
            scores = tl.dot(left, right, scores)
        values = tl.load(v + columns[:, None] * 32 + ends[None, :], mask=columns[:, None] < n)
        total = tl.dot(scores.to(tl.float16), values, total)
    tl.store(y + rows[:, None] * 32 + ends[None, :], total)


@triton.autotune([triton.Config({"B": B}) for B in SIZES], key=["n"])
@triton.jit
def listed(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, 0, mask=at < n)


@triton.heuristics({"EVEN": lambda values: values["n"] % 2 == 0})
@triton.jit
def computed(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, EVEN, mask=at < n)


def test_a_product_has_tiles_and_a_group_and_all_else_has_a_meaning():
    read = ReadSpace.of(product, {"m": 512, "n": 100, "k": 4096, "a": TensorSpec((512, 4096), "float16"), "FLAG": True})
    assert set(read.tunables) == {"BM", "BN", "BK", "GROUP", "STAGES"}
    assert read.tunables["BM"].values == (16, 32, 64, 128, 256)
    assert read.tunables["BN"].values == (16, 32, 64, 128)  # no wider than the padded extent
    assert read.tunables["GROUP"].values == (1, 2, 4, 6, 8, 12, 16)
    assert "rounded" in read.meaning["PRECISION"]
    assert "branches" in read.meaning["ACT"]
    assert "what is computed" in read.meaning["FLAG"]
    assert read.options["num_stages"].values == (2, 3, 4, 5, 6)
    assert read.space.default_config["num_warps"] == 4


def test_rules_say_what_the_kernel_asserts_and_what_the_device_holds():
    read = ReadSpace.of(product, {"a": TensorSpec((512, 4096), "float32")}, Target.named("sm_90"))
    rules = {rule.name: rule for rule in read.constraints}
    config = {"BM": 64, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 3}
    assert not rules["assert_1"].kept_by(config)
    assert "BM >= BN" in rules["assert_1"].reason
    assert rules["limits"].kept_by(config)
    assert not rules["limits"].kept_by({**config, "BM": 256, "BN": 256})
    assert rules["shared"].kept_by(config)
    assert not rules["shared"].kept_by({**config, "BM": 256, "BK": 256})
    assert read.space.why_not(read.space.default_config) is None


def test_of_several_products_the_least_that_they_load_ahead_has_to_fit():
    """The smaller side of each sum, and the smallest step: one of them may need no more."""
    given = {"q": TensorSpec((4096, 512), "float16"), "n": 4096, "width": 512}
    read = ReadSpace.of(two_products, given, Target.named("sm_90"))
    [shared] = (rule for rule in read.constraints if rule.name == "shared")
    room, verdicts = Target.named("sm_90").shared_bytes_per_block, set()
    for m, n, d, stages in itertools.product((16, 64, 256), (16, 64, 256), (16, 64, 256), (2, 16, 40)):
        needed = 2 * min(m, n, 32) * min(n, d) * (stages - 1)
        assert shared.kept_by({"BM": m, "BN": n, "BD": d, "num_stages": stages}) == (needed <= room)
        verdicts.add(needed <= room)
    assert verdicts == {True, False}


@pytest.mark.parametrize(("dtype", "least"), [("int8", 32), ("float8_e4m3fn", 32), ("float16", 16)])
def test_a_product_of_bytes_adds_up_at_least_32_of_them(dtype, least):
    read = ReadSpace.of(product, {"a": TensorSpec((512, 4096), dtype), "c": TensorSpec((512, 512), "float32")})
    assert [min(read.tunables[name].values) for name in ("BM", "BN", "BK")] == [16, 16, least]


def test_a_flag_that_no_call_gives_is_a_tunable_whose_results_must_agree():
    read = ReadSpace.of(product, {})
    assert read.tunables["FLAG"].values == (False, True)
    assert "results must agree" in read.reasons["FLAG"]


def test_a_split_takes_other_numbers_than_powers_of_two():
    read = ReadSpace.of(split, {"k": 4096})
    assert set(read.tunables) == {"B", "BK", "SPLIT"}
    assert 3 in read.tunables["SPLIT"]
    assert "among programs" in read.reasons["SPLIT"]


@pytest.mark.parametrize("kernel", [in_turn, from_number])
def test_tiles_that_programs_take_in_turn_are_no_matter_of_the_grid(kernel):
    read = ReadSpace.of(kernel, {"n": 10**6}, grid=(132,))
    assert (set(read.tunables), read.grid) == ({"BLOCK", "PROGRAMS"}, ())
    assert "number of programs" in read.reasons["PROGRAMS"]


def test_the_number_of_programs_is_told_from_a_tile():
    read = ReadSpace.of(persistent, {"n": 10**6, "PROGRAMS": 132}, grid=(132,))
    assert set(read.tunables) == {"BLOCK"}
    assert "number of programs" in read.meaning["PROGRAMS"]
    assert read.grid == ()


def test_one_block_that_covers_a_row_is_derived():
    read = ReadSpace.of(softmax, {"n": 1000})
    assert read.derived == {"BLOCK": 1024}
    assert not read.tunables
    assert read.space.tunables["BLOCK"].values == (1024,)
    assert "covers n" in read.reasons["BLOCK"]
    assert "no loop loads" in read.meaning["num_stages"]
    assert ReadSpace.of(softmax, {}).derived == {"BLOCK": None}


@pytest.mark.parametrize(("n", "most", "first"), [(1000, 64, 32), (300_000, 1, 1)])
def test_rows_are_as_many_as_a_block_may_hold_unless_one_is_too_many(n, most, first):
    read = ReadSpace.of(rows_of, {"m": 4096, "n": n})
    assert read.derived["WIDTH"] == 1 << (n - 1).bit_length()
    assert max(config["ROWS"] for config in read.space.take(2000)) == most
    assert read.space.default_config["ROWS"] == first


@pytest.mark.parametrize("width", [{}, {"WIDTH": 1024}])
def test_a_thread_has_no_more_elements_than_registers_whoever_says_how_wide_a_row_is(width):
    space = ReadSpace.of(rows_of, {"m": 4096, "n": 1000, **width}).space
    most = dict.fromkeys(space.tunables["num_warps"].values, 0)
    for config in space.take(2000):
        most[config["num_warps"]] = max(most[config["num_warps"]], config["ROWS"])
    assert most == {1: 8, 2: 16, 4: 32, 8: 64, 16: 64, 32: 64}


def test_widths_heads_and_scales_have_a_meaning():
    read = ReadSpace.of(heads, {"rows": 4096})
    assert set(read.tunables) == {"B"}
    assert {name: read.meaning[name].partition(":")[0] for name in ("HEADS", "WIDTH", "SCALE")} == {
        "HEADS": "it is a stride", "WIDTH": "it is a stride", "SCALE": "it enters the arithmetic on data"}  # fmt: skip


@pytest.mark.parametrize(("kernel", "name", "why"), [(quantized, "BLOCK", "numbered"), (grouped, "GROUP", "groups")])
def test_a_constant_that_is_part_of_the_result_is_left_alone(kernel, name, why):
    read = ReadSpace.of(kernel, {"n": 4096, name: 128})
    assert name not in read.tunables
    assert why in read.meaning[name]


def test_a_width_that_nothing_bounds_is_of_doubt_and_the_grid_decides():
    assert "may be a width" in ReadSpace.of(widths, {}).reasons["WIDTH"]
    assert "may be a width" in ReadSpace.of(widths, {"WIDTH": 64}).meaning["WIDTH"]
    assert "ignores it" in ReadSpace.of(widths, {}, grid=lambda _: (32,)).meaning["WIDTH"]


def test_a_block_whose_results_are_numbered_is_asked_for_since_equal_numbers_would_agree_with_any():
    assert "numbered in memory" in ReadSpace.of(quantized, {"n": 4096}).meaning["BLOCK"]


def test_a_grid_of_one_program_ignores_no_tile_where_the_problem_is_small():
    read = ReadSpace.of(listed, {}, grid=lambda values: (triton.cdiv(50, values["B"]),))
    assert (set(read.tunables), read.grid) == ({"B"}, ())
    assert ReadSpace.of(listed, {}, grid=(1,)).grid


STEPPED = [
    (summed, {"BLOCK"}),
    (bounded_by_data, {"PART"}),
    (polynomial, {"BLOCK"}),
    (described, {"BM", "BK"}),
    (advanced, {"BM", "BK"}),
]


@pytest.mark.parametrize(("kernel", "names"), STEPPED)
def test_every_way_to_step_makes_a_tile(kernel, names):
    assert set(ReadSpace.of(kernel, {}).tunables) == names


def test_a_loop_that_ends_at_a_tile_ties_its_step_to_it():
    read = ReadSpace.of(causal, {"n": 4096})
    assert [rule.names for rule in read.constraints if rule.name == "BM_by_BN"] == [("BM", "BN")]
    assert all(config["BM"] % config["BN"] == 0 for config in read.space.take(200))
    assert read.tunables["BM"].values == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def test_names_in_a_list_of_configs_are_none_of_the_kernels_own():
    assert set(ReadSpace.of(listed, {}).tunables) == {"B"}


def test_what_heuristics_compute_is_left_alone():
    assert ReadSpace.of(computed, {}).meaning["EVEN"] == "the kernel's heuristics compute it"


@pytest.mark.parametrize(("grid", "word"), [((4,), "fixed numbers"), (lambda values: (values["n"],), "ignores it")])
def test_a_grid_that_does_not_follow_a_tile_is_told(grid, word):
    read = ReadSpace.of(listed, {"n": 4096}, grid=grid)
    assert not read.tunables
    assert word in read.grid[0]
    assert word in read.meaning["B"]


def test_a_grid_that_follows_a_tile_is_asked_with_its_values():
    read = ReadSpace.of(listed, {"n": 4096}, grid=lambda values: (triton.cdiv(values["n"], values["B"]),))
    assert set(read.tunables) == {"B"}
    assert read.grid == ()


def test_a_place_that_a_loop_moves_on_is_no_number_of_the_program():
    read = ReadSpace.of(row_sums, {"columns": 4096}, grid=(512,))
    assert set(read.tunables) == {"STEP"}
    assert (
        read.meaning["ROWS"]
        == read.grid[0]
        == ("ROWS decides how many programs there must be, and the grid is fixed numbers")
    )


def test_a_tile_without_a_mask_reads_no_further_than_the_grid_covers():
    read = ReadSpace.of(unmasked, {"n": 96}, grid=lambda values: (triton.cdiv(96, values["ROWS"]),))
    assert read.tunables["ROWS"].values == (1, 2, 4, 8, 16, 32)
    assert read.tunables["STEP"].values == (1, 2, 4, 8, 16, 32)
    assert ReadSpace.of(unmasked, {"n": 96}).tunables["ROWS"].values[-1] == 1024  # no grid is known


@pytest.mark.parametrize(
    ("kernel", "group", "tile"), [(restored, "GROUP", "B"), (restored_by_a_helper, "SIZE", "GROUP")]
)
def test_a_group_that_is_stored_under_its_own_name_is_a_group(kernel, group, tile):
    read = ReadSpace.of(kernel, {"m": 4096, "n": 4096})
    assert set(read.tunables) == {group, tile}
    assert "groups neighbouring programs" in read.reasons[group]
    assert "groups neighbouring programs" not in read.reasons[tile]


def test_names_that_follow_from_each_other_by_the_hundred_are_not_understood(tmp_path, monkeypatch):
    steps = "".join(f"    a{n + 1} = a{n} * a{n} + a{n}\n" for n in range(1500))
    head = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef deep(x, y, B: tl.constexpr):\n"
    begin = "    at = tl.program_id(0) * B + tl.arange(0, B)\n    a0 = tl.load(x + at)\n"
    (tmp_path / "deep_kernel.py").write_text(f"{head}{begin}{steps}    tl.store(y + at, a1500)\n")
    monkeypatch.syspath_prepend(tmp_path)
    deep = importlib.import_module("deep_kernel").deep
    assert ReadSpace.of(deep, {}).meaning["B"] == "what it does is not understood"


def test_names_that_follow_from_a_constant_are_read_down_to_a_depth(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def role(count):
        lines = ["import triton", "import triton.language as tl", "", "@triton.jit"]
        lines += [f"def chain{count}(x, y, B: tl.constexpr):", "    a0 = B"]
        lines += [f"    a{n + 1} = a{n}" for n in range(count)]
        lines += [f"    if a{count} > 3:", "        tl.store(y + tl.arange(0, 16), 0.0)"]
        path = tmp_path / f"chain{count}_kernel.py"
        path.write_text("\n".join([*lines, ""]))
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
        return ReadSpace.of(getattr(importlib.import_module(path.stem), f"chain{count}"), {}).meaning["B"]

    most = _DEEPEST - 2  # beside the comparison and the constant itself
    assert (role(most), role(most + 1)) == ("the kernel branches on it", "what it does is not understood")


def test_a_kernel_without_source_is_refused():
    namespace = {}
    exec(compile("def built(x, B: 'tl.constexpr'):\n    pass", "<built>", "exec"), {"tl": tl}, namespace)
    with pytest.raises((KernelTypeError, OSError, ValueError)):
        ReadSpace.of(triton.jit(namespace["built"]), {})
