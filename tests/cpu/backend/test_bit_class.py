"""Classes of configs whose results are the same expressions, from what is compiled for a GPU that is not here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops import TensorSpec, TritonKernel  # noqa: E402
from triton_ops.backend import Arguments, Compiler, LauncherKernel, TritonCompiler  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.kernel_ir import BitClass  # noqa: E402
from triton_ops.kernel_ir.layouts import Layouts  # noqa: E402
from triton_ops.space import Config  # noqa: E402

pytestmark = pytest.mark.triton


@triton.jit
def product(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr = 1,
    STRIDED: tl.constexpr = False,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.cdiv(K, SPLIT)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(tl.program_id(2) * BK if STRIDED else 0, K if STRIDED else part, BK * SPLIT if STRIDED else BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def counted_product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def onto(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, APART: tl.constexpr, KIND: tl.constexpr):
    m, n, k = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    total = tl.zeros((BM, BN), KIND)
    for first in range(0, 1024, BK):
        left = tl.load(a + m * 1024 + first + k[None, :])
        right = tl.load(b + (first + k[:, None]) * 1024 + n)
        total = total * 2
        product = tl.dot(left, right, out_dtype=KIND)
        total = total + product if APART else tl.dot(left, right, total, out_dtype=KIND)
    tl.store(c + m * 1024 + n, total)


@triton.jit
def row_sums(x, out, COLUMNS, BLOCK: tl.constexpr, ROWS: tl.constexpr, KIND: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(0, COLUMNS, BLOCK):
        column = first + tl.arange(0, BLOCK)[None, :]
        part = tl.load(x + row * COLUMNS + column, mask=column < COLUMNS, other=0.0)
        if KIND == "max":
            total = tl.maximum(total, tl.max(part, 1))
        else:
            total += tl.sum(part, 1) * 3.0
    tl.store(out + tl.program_id(0) * ROWS + tl.arange(0, ROWS), total)


@triton.jit
def undecided(x, out, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.load(x + at)
    if KIND == "add":
        tl.atomic_add(out, tl.sum(part, 0))
    elif KIND == "exchange":
        tl.atomic_xchg(out + at, part)
    elif KIND == "random":
        tl.store(out + at, part * tl.rand(1, at))
    elif KIND == "compare":
        tl.atomic_cas(out + at, part * 0, part)
    elif KIND == "while":
        while tl.sum(part, 0) > 1:
            part *= 0.5
        tl.store(out + at, part)
    elif KIND == "largest":
        tl.atomic_max(out + at, part.to(tl.int32))
    else:
        asm: tl.constexpr = "mov.b32 $0, $1;"
        tl.store(out + at, tl.inline_asm_elementwise(asm, "=r,r", [part], tl.float32, True, 1))


@triton.jit
def running(x, out, last, rows, ROWS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr):
    row = tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    total = tl.cumsum(tl.load(x + row * BLOCK + lane), 1)
    tl.store(out + row * BLOCK + lane, total)
    if KIND == "last":
        chosen = lane == BLOCK - 1
    elif KIND == "each row's":
        chosen = lane == tl.load(rows + row)
    elif KIND == "a row":
        chosen = row + lane * 0 == ROWS - 1
    else:
        chosen = lane >= BLOCK - 2
    tl.store(last + tl.arange(0, ROWS), tl.sum(tl.where(chosen, total, 0.0), 1))


@triton.jit
def power(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp2(tl.load(x + at)))


@triton.jit
def walked(  # noqa: C901 - one branch for each way
    a, b, out, pages, K, BM: tl.constexpr, BK: tl.constexpr, WAY: tl.constexpr, FILL: tl.constexpr = 0.0
):  # fmt: skip
    m, n, k = tl.arange(0, BM)[:, None], tl.arange(0, 64)[None, :], tl.arange(0, BK)
    left, right = a + m * K + k[None, :], b + k[:, None] * 64 + n
    total, place = tl.zeros((BM, 64), tl.float32), 0
    if WAY == "pointers, backwards":
        left, right, place = left + (K - BK), right + (K - BK) * 64, K - BK
    for first in range(0, K, BK):
        at = first
        if WAY == "backwards":
            at = K - BK - first
        elif WAY == "rotated":
            at = (first + 512) % K
        elif WAY == "by pages":
            at = tl.load(pages + first // BK) * BK
        elif WAY == "by pages, backwards":
            at = tl.load(pages + (K - first) // BK) * BK
        elif WAY == "counted" or WAY == "counted, backwards":
            at = place
        if WAY == "pointers" or WAY == "pointers, backwards":
            total = tl.dot(tl.load(left), tl.load(right), total)
        else:
            inside = at + k < K
            x = tl.load(left + at, mask=inside[None, :], other=FILL)
            total = tl.dot(x, tl.load(right + at * 64, mask=inside[:, None], other=0.0), total)
        if WAY == "pointers, backwards":
            left, right = left - BK, right - BK * 64
        else:
            left, right = (left + BK, right + BK * 64) if WAY == "pointers" else (left, right)
        place += -BK if WAY == "counted, backwards" else BK
    tl.store(out + m * 64 + n, total)


@triton.jit
def column_sums(x, out, rows, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr = 1):
    column, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        total += tl.load(x + row * BLOCK + column)
    tl.store(out + tl.program_id(0) * BLOCK + column, total)


def summed_in_parts(x, out, *, BLOCK, PARTS, num_warps):
    column_sums[(1,)](x, out, len(x) // PARTS, BLOCK=BLOCK, num_warps=num_warps)


def summed_once_compiled(x, out, *, BLOCK, PARTS, num_warps):
    column_sums.warmup(x, out, 1, BLOCK=BLOCK, num_warps=num_warps, grid=(1,))
    summed_in_parts(x, out, BLOCK=BLOCK, PARTS=PARTS, num_warps=num_warps)


BF16, F32 = TensorSpec((1000, 1000), "bfloat16"), TensorSpec((1000, 1000), "float32")
I8, I32 = TensorSpec((1000, 1000), "int8"), TensorSpec((1000, 1000), "int32")
RUNNING = {"x": F32, "out": F32, "last": F32, "rows": I32}
PRODUCT = {"a": BF16, "b": BF16, "c": BF16, "M": 1000, "N": 1000, "K": 1000}
ROWS = {"x": TensorSpec((64, 3000), "float32"), "out": TensorSpec((64,), "float32"), "COLUMNS": 3000}
CELLS = {"x": TensorSpec((4096,), "float32"), "out": TensorSpec((4096,), "float32"), "BLOCK": 256}
BASE = {"BM": 64, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 2}


def class_of(kernel, arguments, arch="sm_90", pairs=False, **config):
    arguments = {name: value for name, value in arguments.items() if name in kernel.arg_names}
    described = Arguments(keyword=arguments).described()
    compiler = TritonCompiler(TritonKernel(kernel, lambda _: (1,)), described, Target.named(arch))
    (built,) = compiler.built(Config(config))
    return BitClass.of(built.stages, pairs=pairs)


@pytest.mark.parametrize("kernel", [product, counted_product])
def test_tiles_warps_and_stages_change_no_bit_of_a_product(kernel):
    others = [{"BM": 128}, {"BN": 64}, {"BK": 32}, {"num_stages": 1}, {"BM": 128, "num_warps": 8}]
    (found,) = {class_of(kernel, PRODUCT, **{**BASE, **other}) for other in [{}, *others]}
    assert found.key
    assert len(found.orders) == 1
    assert str(found.orders[0]).startswith("products of bf16 by mma.sync or wgmma at line ")


def test_a_narrow_product_by_another_instruction_is_of_the_same_class_and_one_of_single_terms_is_not():
    found, narrow = (class_of(product, PRODUCT, **{**BASE, **other}) for other in ({}, {"BM": 16}))
    exact = class_of(product, {**PRODUCT, "a": F32, "b": F32}, **{**BASE, "BK": 32})
    assert found == narrow
    assert "term by term" in str(exact.orders[0])


def test_products_on_tensor_cores_belong_to_one_architecture_and_sums_by_threads_to_all():
    hopper, ampere, blackwell = (class_of(product, PRODUCT, arch, **BASE) for arch in ("sm_90", "sm_80", "sm_100"))
    assert ampere.beside(hopper) == ["products or functions of sm_80"]
    assert len({hopper.key, ampere.key, blackwell.key}) == 3
    assert blackwell.orders[0].words == "products of bf16 by tcgen05"
    sums = {"BLOCK": 512, "ROWS": 1, "num_warps": 4, "num_stages": 2, "KIND": "sum"}
    assert len({class_of(row_sums, ROWS, arch, **sums).key for arch in ("sm_80", "sm_90", "sm_100", "sm_120")}) == 1


def test_threads_add_up_in_another_order_from_a_release_on():
    sums = {"BLOCK": 512, "ROWS": 1, "num_warps": 4, "num_stages": 2, "KIND": "sum"}
    before, after = (class_of(row_sums, ROWS, pairs=pairs, **sums) for pairs in (False, True))
    assert after.beside(before)[0].startswith("a sum over 512: 32 lanes, 4 warps, 4 in a thread by pairs at line ")
    assert class_of(product, PRODUCT, pairs=True, **BASE) == class_of(product, PRODUCT, **BASE)


def test_approximations_belong_to_one_architecture():
    powers = [class_of(power, CELLS, arch, num_warps=4) for arch in ("sm_80", "sm_90")]
    assert [one.hardware for one in powers] == ["sm_80", "sm_90"]
    assert powers[0].expression == powers[1].expression


def test_the_name_of_a_class_is_the_same_with_every_version_of_triton():
    sums = {"BLOCK": 512, "ROWS": 1, "num_warps": 4, "num_stages": 2, "KIND": "sum"}
    names = class_of(row_sums, ROWS, **sums).key, class_of(product, PRODUCT, **BASE).key
    assert names == ("0bbb6ea9d3be9852", "a07053303d3c0ac5"), "lockfiles have such names, also in years"


def test_a_split_sum_is_another_class_of_a_product():
    found, split = (class_of(product, PRODUCT, **{**BASE, **other}) for other in ({}, {"SPLIT": 2}))
    assert found.beside(split) == ["other operations"]
    assert found.beside(found) == []
    assert found.key != split.key


def test_parts_that_are_an_instructions_tiles_apart_are_not_taken_for_the_whole():
    base = {**BASE, "BK": 32, "STRIDED": True}  # steps of 64 and 128, as the sides of tiles
    classes = [class_of(product, PRODUCT, **{**base, "BN": 128, "SPLIT": parts}) for parts in (1, 2, 4)]
    assert len({one.key for one in classes}) == 3


def test_products_onto_a_sum_that_is_scaled_are_grouped_by_their_terms_and_those_of_whole_numbers_are_exact():
    floats, whole = {"a": BF16, "b": BF16, "c": F32, "KIND": tl.float32}, {"a": I8, "b": I8, "c": I32, "KIND": tl.int32}
    base = {**BASE, "APART": False}
    found, apart, deep = (class_of(onto, floats, **{**base, **other}) for other in ({}, {"APART": True}, {"BK": 32}))
    assert [order.words for order in found.orders][-1] == "sums of 64 terms after others"
    assert found == apart  # Triton makes one of both
    assert found.key != deep.key
    assert len({class_of(onto, whole, **{**base, **other}).key for other in ({}, {"BK": 32}, {"num_warps": 8})}) == 1


WALKED = {"a": BF16, "b": BF16, "out": F32, "pages": I32, "K": 1024}


def classes_of(kernel, arguments, *configs):
    described = Arguments(keyword=arguments).described()
    compiler = Compiler.of(kernel, described, Target.named("sm_90"), {})
    return [compiler.bit_class(Config({"BLOCK": 256, "num_warps": 4, **config})) for config in configs]


def test_sums_that_go_by_the_number_of_programs_are_classed_with_it():
    kernel = TritonKernel(column_sums, lambda at: (at["PROGRAMS"],))
    found, same, other = classes_of(
        kernel, {"x": F32, "out": F32, "rows": 1000}, {"PROGRAMS": 8}, {"PROGRAMS": 8, "num_warps": 8}, {"PROGRAMS": 16}
    )
    assert found.key == same.key != other.key
    assert other.beside(found) == ["sums by number of programs (16, 1, 1)"]


def test_where_a_grid_asks_for_a_device_sums_by_the_number_of_programs_cannot_be_told():
    kernel = TritonKernel(column_sums, lambda at: (at["x"].device.processors,))
    (found,) = classes_of(kernel, {"x": F32, "out": F32, "rows": 1000}, {"PROGRAMS": 8})
    assert found.key == ""
    assert found.silent.startswith("its grid cannot be told: AttributeError")


def test_sums_of_so_many_terms_as_a_launcher_says_are_classed_with_that():
    found, same, other = classes_of(
        LauncherKernel(summed_in_parts), {"x": F32, "out": F32},
        {"PARTS": 2}, {"PARTS": 2, "num_warps": 8}, {"PARTS": 4},
    )  # fmt: skip
    assert found.key == same.key != other.key
    assert other.beside(found) == ["sums by number of programs (1, 1, 1), rows 250"]


def test_a_launcher_that_compiles_more_than_it_launches_has_no_class():
    (found,) = classes_of(LauncherKernel(summed_once_compiled), {"x": F32, "out": F32}, {"PARTS": 2})
    assert found.silent == "it compiles kernels that it does not launch at once"


def test_the_order_in_which_a_loop_reads_is_part_of_the_class():
    base = {"BM": 64, "BK": 32, "num_warps": 4}
    found = {way: class_of(walked, WALKED, **base, WAY=way) for way in (
        "forwards", "counted", "pointers", "backwards", "pointers, backwards", "counted, backwards", "rotated",
        "by pages", "by pages, backwards",
    )}  # fmt: skip
    own, *others = found
    same = [way for way in others if found[way].key == found[own].key]
    assert same == ["counted", "pointers"]
    assert len({found[way].key for way in ("forwards", "backwards", "rotated", "by pages", "by pages, backwards")}) == 5
    for way in ("backwards", "rotated", "pointers, backwards", "counted, backwards"):
        others = ({"BK": 64}, {"BM": 128, "BK": 128, "num_warps": 8, "num_stages": 2})
        assert {class_of(walked, WALKED, **{**base, **other}, WAY=way).key for other in others} == {found[way].key}, way


def test_what_stands_for_elements_outside_is_part_of_the_class_unless_it_is_zero():
    base = {"BM": 64, "BK": 32, "num_warps": 4}
    found, filled, whole = (
        class_of(walked, WALKED, **base, **way)
        for way in ({"WAY": "forwards"}, {"WAY": "forwards", "FILL": 1.0}, {"WAY": "pointers"})
    )
    assert found.key != filled.key
    assert found.key == whole.key


def test_blocks_of_a_cluster_are_not_read():
    assert "clusters" in class_of(product, PRODUCT, **BASE, num_ctas=2).silent


def test_blocks_and_warps_order_a_sum_and_rows_and_stages_do_not():
    base = {"BLOCK": 512, "ROWS": 1, "num_warps": 4, "num_stages": 2, "KIND": "sum"}
    found, stages, rows, block, warps = (
        class_of(row_sums, ROWS, **{**base, **other})
        for other in ({}, {"num_stages": 3}, {"ROWS": 2, "num_warps": 8}, {"BLOCK": 1024}, {"num_warps": 2})
    )
    assert stages == found
    assert found.key not in (block.key, warps.key)
    assert found.beside(block)[0].startswith("a sum over 512: 32 lanes, 4 warps, 4 in a thread at line ")
    assert block.beside(found)[0].startswith("a sum over 1024: ")
    assert rows.expression == found.expression


def test_the_largest_of_a_row_is_of_one_class_whatever_the_block():
    base = {"BLOCK": 512, "ROWS": 1, "num_warps": 4, "KIND": "max"}
    found = {class_of(row_sums, ROWS, **{**base, **other}).key for other in ({}, {"BLOCK": 1024}, {"num_warps": 2})}
    assert len(found) == 1


@pytest.mark.parametrize(("kind", "classes"), [("last", 1), ("each row's", 1), ("a row", 3), ("more", 3)])
def test_parts_of_a_running_sum_follow_in_order_and_a_sum_of_one_element_has_none(kind, classes):
    base = {"ROWS": 4, "BLOCK": 1024, "KIND": kind}
    found = [class_of(running, RUNNING, **base, num_warps=warps) for warps in (1, 2, 4)]
    assert len({one.key for one in found}) == classes
    assert found[0].orders[0].words == "a running sum over 1024: 4 in a thread, 32 lanes, 8 parts in order"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("add", "it adds floating point atomically"), ("exchange", "atomically"), ("random", "random numbers"),
        ("assembly", "inline assembly"), ("compare", "exchanges values atomically"),
        ("while", "a loop ends by what it computes"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_is_a_class_of_its_own_with_the_reason(kind, reason):
    found = class_of(undecided, CELLS, KIND=kind)
    assert reason in found.silent
    assert found.key == ""
    assert found.beside(found) == [found.silent]


def test_atomics_of_whole_numbers_whose_order_does_not_matter_are_decided():
    assert class_of(undecided, CELLS, KIND="largest").key


def test_nothing_is_said_of_a_text_for_another_vendor_nor_of_gluon():
    assert "no ptx" in BitClass.of({"ttir": "", "ttgir": "", "amdgcn": ""}).silent
    assert "no ttir" in BitClass.of({"ttgir": "", "ptx": "", "cubin": b""}).silent


POWERS = st.sampled_from([1, 2, 4, 8, 16, 32])


@given(st.tuples(POWERS, POWERS, POWERS), st.sampled_from([1, 2, 16, 128, 4096]))
def test_holders_of_an_axis_hold_all_of_it_once(holders, extent):
    each, lanes, warps = holders
    layout = (
        f"#ttg.blocked<{{sizePerThread = [1, {each}], threadsPerWarp = [1, {lanes}], warpsPerCTA = [1, {warps}], "
        "order = [1, 0]}>"
    )
    counts = [int(part.split()[0]) for part in Layouts({}).order(layout, 1, extent).split(", ") if part]
    found = 1
    for count in counts:
        found *= count
    assert found == extent


def blocked(each, lanes, warps):
    return (
        f"#ttg.blocked<{{sizePerThread = [{each}], threadsPerWarp = [{lanes}], warpsPerCTA = [{warps}], order = [0]}}>"
    )


def test_whoever_holds_the_halves_of_a_sum_they_are_added_alike():
    assert {Layouts({}).order(blocked(*holders), 0, 2) for holders in ((2, 1, 1), (1, 2, 1), (1, 1, 2))} == {
        "2 by halves"
    }
    assert Layouts({}).order(blocked(1, 1, 4), 0, 4) == Layouts({}).order(blocked(1, 2, 1), 0, 4) == "4 by halves"
    assert Layouts({}).order(blocked(2, 2, 1), 0, 4) == "2 in a thread, 2 lanes"
    assert Layouts({}).order(blocked(4, 1, 1), 0, 4) == "4 in a thread"
    assert Layouts({}).order(blocked(1, 2, 2), 0, 4) == "2 lanes, 2 warps"


def test_parts_of_a_running_sum_are_told_though_one_thread_holds_them_all():
    found = [Layouts({}).order(blocked(each, 1, 1), 0, 16, scans=True) for each in (4, 16)]
    assert found == ["4 in a thread, 4 parts in order", "16 in a thread"]


LINEAR = (
    "#ttg.linear<{register = [[0, 1], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>"
)


@pytest.mark.parametrize(
    ("layout", "axis", "extent", "words"),
    [
        (LINEAR, 1, 16, "2 in a thread, 4 lanes, 2 in a thread"), (LINEAR, 0, 8, "8 by halves"),
        ("#ttg.slice<{dim = 0, parent = #mma}>", 0, 64, "2 in a thread, 4 lanes, 4 in a thread, 2 warps"),
        ("#mma", 0, 64, "8 lanes, 2 in a thread, 4 warps"), ("#ttg.odd<{}>", 0, 8, "#ttg.odd<{}>"),
    ],
)  # fmt: skip
def test_each_kind_of_layout_tells_who_holds_neighbours(layout, axis, extent, words):
    mma = "versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 2], instrShape = [16, 32, 16]"
    assert Layouts.of(f"#mma = #ttg.nvidia_mma<{{{mma}}}>").order(layout, axis, extent) == words
