"""Tiles that a kernel takes apart again, in many spellings: pixels of images, and groups of elements with one scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from tests.drawn_kernels import jitted
from triton_ops.backend import ReadSpace
from triton_ops.values import TensorSpec

pytestmark = pytest.mark.triton

HALF = TensorSpec((4096, 4096), "float16")
SIDES = (16, 32, 64, 128, 256)
PIXELS = {"images": 32, "height": 56, "width": 56, "channels": 128, "filters": 512}


COORDINATES = st.sampled_from([
    "image, rest = m // (height * width), m % (height * width)\ny, x = rest // width, rest % width",
    "x = m % width\ny = (m // width) % height\nimage = m // width // height",
    "image = m // (height * width)\ny = m % (height * width) // width\nx = (m % (height * width)) % width",
    "row = m // width\nx, image = m - row * width, row // height\ny = row - image * height",
    "image = m // (height * width)\nrest = m - image * height * width\ny = rest // width\nx = rest - width * y",
])  # fmt: skip
TAPS = st.sampled_from([
    ("for tap in range(9):", "down, right = y + tap // 3 - 1, x + tap % 3 - 1"),
    ("for tap in tl.static_range(9):", "down = y + (tap // 3 - 1)\n    right = x + (tap % 3 - 1)"),
    ("for tap in range(9):", "down = y - 1 + tap // 3\n    right = x - 1 + tap % 3"),
])  # fmt: skip
INSIDE = st.sampled_from([
    "(right >= 0) & (right < width) & (down >= 0) & (down < height) & (m < images * height * width)",
    "(m < images * height * width) & (down < height) & (0 <= down) & (width > right) & (0 <= right)",
])  # fmt: skip
PLACES = st.sampled_from(["tl.program_id(0) * BM + tl.arange(0, BM)", "tl.arange(0, BM) + BM * tl.program_id(0)"])


@given(coordinates=COORDINATES, taps=TAPS, inside=INSIDE, places=PLACES)
def test_tiles_of_pixels_are_as_large_as_others_however_narrow_the_images_are(coordinates, taps, inside, places):
    loop, moved = taps
    kernel = jitted(
        "a, w, out, images, height, width, channels, filters, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr",
        f"m = {places}\n{coordinates}\n"
        "n = tl.program_id(1) * BN + tl.arange(0, BN)\ntotal = tl.zeros((BM, BN), tl.float32)\n"
        f"{loop}\n    {moved}\n    inside = {inside}\n"
        "    for first in range(0, channels, BK):\n        k = first + tl.arange(0, BK)\n"
        "        at = ((image * height + down) * width + right) * channels\n"
        "        left = tl.load(a + at[:, None] + k[None, :], mask=inside[:, None] & (k < channels)[None, :])\n"
        "        rows = (tap * channels + k)[:, None] * filters\n"
        "        right_side = tl.load(w + rows + n[None, :], mask=(k < channels)[:, None] & (n < filters)[None, :])\n"
        "        total = tl.dot(left, right_side, total)\n"
        "tl.store(out + m[:, None] * filters + n[None, :], total, mask=(m < images * height * width)[:, None])\n",
    )
    read = ReadSpace.of(kernel, {**PIXELS, "a": HALF, "w": HALF, "out": HALF})
    assert {name: tile.values for name, tile in read.tunables.items()} == {"BM": SIDES, "BN": SIDES, "BK": SIDES[:-1]}


JOINTS = st.sampled_from([
    # a product of rows and columns, the side that it is, and whether that is one of both
    ("", "BH * BW", True),
    ("PIXELS: tl.constexpr = BH * BW", "PIXELS", True),
    ("BOTH: tl.constexpr = BW * BH\nPIXELS: tl.constexpr = BOTH", "PIXELS", True),
    ("", "BW", False),
])  # fmt: skip


@given(joint=JOINTS)
def test_rows_and_columns_whose_product_is_a_side_are_below_the_least_side_but_their_product_is_not(joint):
    product, side, is_joined = joint
    rows = "row[:, None, None]" if is_joined else "tl.sum(row)"
    kernel = jitted(
        "x, w, out, height, width, channels, filters, "
        "BH: tl.constexpr, BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr",
        f"{product or 'pass'}\n"
        "row = tl.program_id(0) * BH + tl.arange(0, BH)\ncolumn = tl.program_id(1) * BW + tl.arange(0, BW)\n"
        f"n = tl.arange(0, BN) + tl.program_id(2) * BN\ntotal = tl.zeros(({side}, BN), tl.float32)\n"
        "for first in range(0, channels, BK):\n    k = first + tl.arange(0, BK)\n"
        f"    inside = ({rows} < height) & (column[None, :, None] < width) & (k < channels)\n"
        f"    a = tl.load(x + ({rows} * width + column[None, :, None]) * channels + k, mask=inside)\n"
        "    b = tl.load(w + k[:, None] * filters + n, mask=(k < channels)[:, None] & (n < filters))\n"
        f"    total = tl.dot(tl.reshape(a, ({side}, BK)), b, total)\n"
        f"tl.store(out + tl.arange(0, {side})[:, None] * filters + n, total, mask=n < filters)\n",
    )
    read = ReadSpace.of(kernel, {**PIXELS, "x": HALF, "w": HALF, "out": HALF})
    assert read.tunables["BW"].values == ((1, 2, 4, 8, 16, 32, 64) if is_joined else (16, 32, 64))
    assert (read.tunables["BN"].values, read.tunables["BK"].values) == (SIDES, SIDES[:-1])
    config = {"BN": 64, "BK": 64, "num_warps": 4, "num_stages": 3}
    if is_joined:
        assert read.tunables["BH"].values == read.tunables["BW"].values
        assert read.space.why_not({**config, "BH": 2, "BW": 8}) is None
        assert "under 16" in read.space.why_not({**config, "BH": 2, "BW": 4})


SCALES = st.sampled_from([
    # the statements of a turn, its loop, and what is loaded
    ("for k in range(0, tl.cdiv(K, BK)):", "first = k * BK\n    group = first // GROUP", "group * N + n"),
    ("for k in range(tl.cdiv(K, BK)):", "group = (k * BK) // GROUP", "group * N + n"),
    ("for first in range(0, K, BK):", "group = first // GROUP", "n + N * group"),
    ("for first in tl.range(0, K, BK, num_stages=2):", "pass", "(first // GROUP) * N + n"),
    ("for first in range(0, K, BK):", "here = scales + first // GROUP * N", None),
    ("for first in range(0, K, BK):", "first = tl.multiple_of(first, BK)\n    group = first // GROUP", "group * N + n"),
])  # fmt: skip
GROUPS = st.sampled_from([32, 64, 128])
WAYS = st.sampled_from(["argument", "constant", "number"])
BODY = """
n = tl.program_id(0) * BN + tl.arange(0, BN)
rows, inner = tl.arange(0, 16), tl.arange(0, BK)
total = tl.zeros((16, BN), tl.float32)
left, right{before} = a + rows[:, None] * K + inner[None, :], b + inner[:, None] * N + n[None, :]{begin}
{loop}
    {turn}
    total += tl.dot(tl.load(left), tl.load(right)) * {scale}
    left += BK
    right += BK * N{after}
tl.store(out + rows[:, None] * N + n[None, :], total, mask=n[None, :] < N)
"""
PARAMETERS = "a, b, scales, out, N, K, {group}, BN: tl.constexpr, BK: tl.constexpr"


def products(how, part, loop, turn, scale, *, before="", begin="", after=""):
    """The values of BK that are read of a product with scales of groups of elements."""
    body = BODY.format(loop=loop, turn=turn, scale=scale, before=before, begin=begin, after=after)
    body = body.replace("GROUP", str(part)) if how == "number" else body
    kernel = jitted(PARAMETERS.format(group="GROUP: tl.constexpr" if how == "constant" else "GROUP"), body)
    read = ReadSpace.of(kernel, {"a": HALF, "b": HALF, "N": 4096, "K": 4096, "GROUP": part})
    assert read.tunables["BN"].values == SIDES
    return read.tunables["BK"].values, read.space.default_config["BK"]


@given(scales=SCALES, part=GROUPS, how=WAYS)
def test_a_tile_that_loads_one_scale_divides_its_group(scales, part, how):
    loop, turn, at = scales
    scale = "tl.load(here + n)[None, :]" if at is None else f"tl.load(scales + {at})[None, :]"
    values, first = products(how, part, loop, turn, scale)
    assert values == tuple(side for side in SIDES if part % side == 0)
    assert first == min(part, 64)


ELEMENTS = st.sampled_from([
    ("pass", "tl.sum(tl.load(scales + ((first + inner) // GROUP)[:, None] * N + n[None, :]), axis=0)[None, :]"),
    ("k = first + inner", "tl.sum(tl.load(scales + (k // GROUP)[:, None] * N + n[None, :]), axis=0)[None, :]"),
    ("pass", "tl.sum(tl.load(scales + (first // GROUP + inner // GROUP)[:, None] * N + n), axis=0)[None, :]"),
])  # fmt: skip


@given(elements=ELEMENTS, part=GROUPS, how=WAYS)
def test_a_tile_that_loads_a_scale_for_each_element_is_bound_to_no_group(elements, part, how):
    turn, scale = elements
    assert products(how, part, "for first in range(0, K, BK):", turn, scale) == (SIDES, 64)


@given(part=GROUPS, how=WAYS)
def test_a_kernel_that_knows_of_tiles_in_several_groups_is_bound_to_none(part, how):
    turn = """if BK <= GROUP:
        scale = tl.load(scales + first // GROUP * N + n)[None, :]
    else:
        scale = tl.sum(tl.load(scales + ((first + inner) // GROUP)[:, None] * N + n[None, :]), axis=0)[None, :]"""
    assert products(how, part, "for first in range(0, K, BK):", turn, "scale") == (SIDES, 64)


@given(
    part=GROUPS,
    count=st.sampled_from(["max(BK // GROUP, 1)", "BK // GROUP if BK > GROUP else 1", "tl.cdiv(BK, GROUP)"]),
)
def test_a_count_of_groups_that_is_one_at_least_bounds_no_tile(part, count):
    turn = f"""COUNT: tl.constexpr = {count}
    groups = ((first + tl.arange(0, COUNT) * GROUP) // GROUP)[:, None]"""
    scale = "tl.sum(tl.load(scales + groups * N + n), axis=0)[None, :]"
    assert products("constant", part, "for first in range(0, K, BK):", turn, scale) == (SIDES, 64)


STEPS = st.sampled_from([
    (", here", ", scales + n", "for _ in range(tl.cdiv(K, BK)):", "\n    here += (BK // GROUP) * N"),
    (", here, step", ", scales + n, BK // GROUP", "for _ in range(0, K, BK):", "\n    here += step * N"),
])  # fmt: skip


@given(steps=STEPS, part=GROUPS, how=WAYS)
def test_a_tile_that_goes_on_to_the_next_scale_is_one_group(steps, part, how):
    """Smaller ones would stay at the first scale, all with one wrong result."""
    before, begin, loop, after = steps
    scale = "tl.load(here)[None, :]"
    values = products(how, part, loop, "pass", scale, before=before, begin=begin, after=after)
    assert values == ((part,), part)


COUNTS = st.sampled_from(["for turn in range(BLOCK // GROUP):", "for turn in tl.static_range(0, BLOCK // GROUP):",
                          "count = BLOCK // GROUP\nfor turn in range(count):"])  # fmt: skip


@given(loop=COUNTS, part=GROUPS)
def test_a_tile_whose_groups_a_loop_goes_through_is_a_multiple_of_one(loop, part):
    kernel = jitted("x, out, scales, n, BLOCK: tl.constexpr, GROUP: tl.constexpr", f"""
{loop}
    at = tl.program_id(0) * BLOCK + turn * GROUP + tl.arange(0, GROUP)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(scales + tl.program_id(0) * (BLOCK // GROUP) + turn, tl.max(values, axis=0))
whole = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
tl.store(out + whole, tl.load(x + whole, mask=whole < n), mask=whole < n)
""")  # fmt: skip
    sides = ReadSpace.of(kernel, {"x": HALF, "n": 10**6, "GROUP": part}).tunables["BLOCK"].values
    assert min(sides) == part < max(sides)


def test_a_tile_that_is_divided_into_tiles_is_not_bound_to_the_default_of_these():
    kernel = jitted("x, out, n, CHUNK: tl.constexpr, STEP: tl.constexpr = 64", """
        whole = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
        tl.store(out + whole, tl.load(x + whole, mask=whole < n), mask=whole < n)
        for turn in range(CHUNK // STEP):
            place = tl.program_id(0) * CHUNK + turn * STEP + tl.arange(0, STEP)
            tl.atomic_add(out + n, tl.sum(tl.load(x + place, mask=place < n), axis=0))
    """)  # fmt: skip
    read = ReadSpace.of(kernel, {"x": HALF, "n": 10**6})
    assert 32 in read.tunables["CHUNK"].values
    assert all(config["CHUNK"] % config["STEP"] == 0 for config in read.space.take(200))
    assert ReadSpace.of(kernel, {"x": HALF, "n": 10**6, "STEP": 64}).tunables["CHUNK"].values[0] == 64


@given(part=st.sampled_from([32, 64]))
def test_a_tile_of_several_groups_is_a_multiple_of_one(part):
    scale = "tl.sum(tl.load(scales + (first // GROUP + tl.arange(0, BK // GROUP))[:, None] * N + n), axis=0)[None, :]"
    values, first = products("constant", part, "for first in range(0, K, BK):", "pass", scale)
    assert (values, first) == (tuple(side for side in SIDES if side >= part), 64)


PAGED = """
head, at, total = tl.program_id(0), tl.arange(0, {width}), tl.zeros(({width},), tl.float32)
for start in range(0, count, BLOCK):
    {page}
    total += tl.sum(tl.load(cache + rows[:, None] * {width} + at[None, :], mask=(rows < count)[:, None], other=0.0), 0)
tl.store(out + head * {width} + at, total)
"""
PAGES = [
    "page = tl.load(table + start // PAGE)\n    rows = page * PAGE + start % PAGE + tl.arange(0, BLOCK)",
    "which, here = start // PAGE, start % PAGE\n    rows = tl.load(table + which) * PAGE + here + tl.arange(0, BLOCK)",
]
EACH = "n = start + tl.arange(0, BLOCK)\n    rows = tl.load(table + n // PAGE) * PAGE + n % PAGE"


@given(page=st.sampled_from([*PAGES, EACH]), size=st.sampled_from([8, 16, 64, 256]), width=st.sampled_from([64, 128]))
def test_a_tile_that_loads_one_number_of_a_page_lies_in_it(page, size, width):
    kernel = jitted("cache, table, out, count, PAGE, BLOCK: tl.constexpr", PAGED.format(width=width, page=page))
    sides = ReadSpace.of(kernel, {"count": 3000, "PAGE": size, "cache": HALF}).tunables["BLOCK"].values
    assert max(sides) == (4096 if page == EACH else size)
    assert page == EACH or all(size % side == 0 for side in sides)


@given(part=st.sampled_from([96, 100, 1]))
def test_a_group_that_no_tile_divides_forbids_no_tile(part):
    values, _ = products(
        "argument", part, "for first in range(0, K, BK):", "group = first // GROUP", "tl.load(scales + group)"
    )
    assert values == (tuple(side for side in SIDES if part % side == 0) or SIDES)
