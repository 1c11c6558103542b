"""The work of kernels, read from their TTIR, beside the work that is counted by hand."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from triton_ops.backend import (  # noqa: E402
    Arguments,
    LauncherKernel,
    TritonKernel,
)
from triton_ops.backend.offline import kernel_work  # noqa: E402
from triton_ops.cost_model import work_in_words  # noqa: E402
from triton_ops.cost_model.inferred_rows import (  # noqa: E402
    least_bytes,
    passes_of,
    walk_of,
)
from triton_ops.device import Target  # noqa: E402
from triton_ops.kernel_ir import KernelWork  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import TensorSpec  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")]

M, N, K = 1000, 768, 1024
TILES = {"BM": 128, "BN": 64, "BK": 32}
TILE_ROWS, TILE_COLUMNS, STEPS = math.ceil(M / 128), math.ceil(N / 64), K // 32
FULL = 2.0 * TILE_ROWS * 128 * N * K  # of whole tiles, as the matrix units compute them


@pytest.fixture(autouse=True)
def _fused(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


def spec(*shape, dtype="bfloat16"):
    return TensorSpec(shape, dtype)


def read(function, given, config, grid, contents=None, arch="sm_90"):
    """The work of the only launch of a kernel."""
    result = kernel_work(
        TritonKernel(function, grid), Config(config), Arguments(tuple(given)).described(), Target.named(arch), contents
    )
    assert not result.silent
    (launch,) = result.launches
    return launch


def tiles(meta):
    return (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)


A, B, OUT = spec(M, K), spec(K, N), spec(M, N)
PLAIN = (A, B, OUT, M, N, K)


def near(value):
    return pytest.approx(value, rel=0.05)


def test_a_matmul_split_along_k_adds_up_by_atomics():
    result = read(
        kernels.split_matmul, (A, B, spec(M, N, dtype="float32"), M, N, K), {**TILES, "SPLIT": 4},
        lambda meta: (*tiles(meta), meta["SPLIT"]),
    )  # fmt: skip
    assert result.loops[0].turns == STEPS / 4
    assert result.flops == near(FULL)
    assert result.moved_bytes("atomic") == near(4 * 4.0 * TILE_ROWS * 128 * N)
    (added,) = (access for access in result.accesses if access.kind == "atomic")
    assert added.shared[-1] == TILE_ROWS * TILE_COLUMNS  # four programs add to each tile


def test_bounds_that_are_data_are_one_guess_for_all_configs_where_they_are_not_known():
    given = (A, spec(5, dtype="int32"), spec(4, K), K)
    small, large = (
        read(kernels.varlen_sum, given, {"BLOCK": block, "WIDTH": 1024}, lambda _: (4,)) for block in (16, 64)
    )
    assert small.loops[0].by_data
    assert small.loops[0].turns == 4 * large.loops[0].turns
    assert "the bounds of a loop are data" in small.notes[0]


def test_a_place_that_a_condition_on_data_moves_is_somewhere_and_holds_as_many_bytes():
    given = (A, spec(M, dtype="int32"), spec(8, dtype="int32"), spec(M, K), K)
    result = read(kernels.rows_to_groups, given, {"WIDTH": 1024}, lambda _: (M,))
    assert all(access.known for access in result.accesses)
    assert result.moved_bytes("store") == near(2.0 * M * K)
    assert result.accesses[-1].run_bytes == 2 * K


def test_the_second_product_of_attention_waits_for_the_first_and_a_matmul_waits_for_nothing():
    length, heads, width = 2048, 4, 64
    x = spec(heads, length, width)
    for function, given, config in (
        (kernels.causal_attention, (x, x, x, x, length, 0.125), {"HEADS": heads}),
        (kernels.two_loop_attention, (x, x, x, x, length), {"CAUSAL": False}),
    ):
        tile = {**config, "DIM": width, "BM": 128, "BN": 64}
        scores, values = read(function, given, tile, lambda meta: (length // meta["BM"], heads)).products
        assert (scores.after, scores.computed) == ((), False)
        assert (values.after, values.computed) == ((0,), True)
    (product,) = read(kernels.persistent_matmul, PLAIN, {**TILES, "PROGRAMS": 132}, lambda _: (132,)).products
    assert (product.after, product.computed) == ((), False)


def test_operands_that_are_computed_in_the_loop_are_told_from_those_that_were_scaled_before():
    given = (spec(512, 256), spec(256, 512, dtype="int8"), spec(512, 512), 256, 512)
    (product,) = read(kernels.dequantised_matmul, given, {"BM": 64, "BN": 64, "BK": 32}, lambda _: (8, 8)).products
    assert (product.after, product.computed) == ((), True)
    (product,) = read(kernels.scaled_before, (A, B, OUT, K, N), {"BM": 64, "BN": 64}, lambda _: (8, 12)).products
    assert not product.computed


def test_what_is_alive_at_a_reduction_is_counted_in_words():
    norm = read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,))
    assert norm.alive == 256  # the sum of squares
    rows = read(
        kernels.backward_rows, (A, A, spec(K), A, spec(K, dtype="float32"), M), {"WIDTH": 1024}, lambda _: (64,)
    )
    assert rows.alive == pytest.approx(1024 * (0.5 + 1 + 3 + 1), rel=0.1)  # weight, sum, and what the row still needs


def test_an_address_that_is_loaded_along_another_axis_than_its_use_is_read():
    given = (A, spec(K, dtype="int32"), OUT, M, K, N)
    result = read(kernels.mixed_columns, given, {"BM": 4, "BN": 128}, lambda _: (250, 6))
    assert [access.known for access in result.accesses] == [True, True, True]


def test_reductions_are_counted_per_program():
    assert read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,)).reductions == 1
    assert read(kernels.persistent_matmul, PLAIN, {**TILES, "PROGRAMS": 132}, lambda _: (132,)).reductions == 0
    x = spec(4, 2048, 64)
    tile = {"CAUSAL": False, "DIM": 64, "BM": 128, "BN": 64}
    result = read(kernels.two_loop_attention, (x, x, x, x, 2048), tile, lambda meta: (16, 4))
    assert result.reductions == 2 * 2048 // 64  # the highest score and the sum of weights, in each turn


def test_a_scan_is_told_with_what_makes_one_element_of_two():
    x = spec(8, 1024, 4096)
    result = read(kernels.scan, (x, x, x, 1024, 4096), {"BT": 32, "BD": 16}, lambda _: (256, 8))
    (scan,) = (one for one in result.reduced if one.scans)
    assert (scan.shape, scan.axis, scan.executions) == ((32, 16), 0, 1024 // 32)
    assert (scan.operands, scan.operations) == (2, 3)  # a * c, b * c + d


def test_whole_numbers_that_become_data_are_counted_and_those_of_places_are_not():
    size = 1 << 20
    x = spec(size)
    result = read(kernels.dropout, (x, x, size, 0.5, 42), {"BLOCK": 1024}, lambda _: (1024,))
    assert 50 < result.plain / 1024 < 70  # ten rounds of Philox, each of two high halves and four logical operations
    rows = read(kernels.swiglu, (spec(8, 2048), spec(8, 1024), 1024), {"BLOCK": 1024}, lambda _: (8, 1))
    assert (rows.plain + rows.special) / 1024 < 10


def test_words_that_are_alive_are_those_of_data_and_of_loads_on_the_way():
    best = read(kernels.argmax, (spec(8, 4096), spec(8, dtype="int32"), 4096), {"BLOCK": 1024}, lambda _: (8,))
    assert best.loaded == 2 * 1024  # the largest values, and their places
    tile = read(kernels.transpose, (A, A, M, K), {"BM": 32, "BN": 32}, lambda _: (32, 32))
    assert tile.loaded == 32 * 32 / 2  # 16 bits each, which nothing widens
    x = spec(2, 64, 256)
    taps = read(
        kernels.causal_conv, (x, spec(256, 4), spec(256), x, 64, 256), {"BL": 16, "BD": 64}, lambda _: (4, 4, 2)
    )
    assert taps.loaded > 4 * 16 * 64 / 2  # four taps outside of loops, all on the way together


def test_a_tile_and_one_element_at_its_beginning_are_not_the_same_places():
    result = read(
        kernels.highest, (spec(64, 128, dtype="float32"), spec(128, dtype="float32")), {"WIDTH": 128}, lambda _: (9,)
    )
    assert [access.again for access in result.accesses] == [-1, -1, -1]
    assert [(one.shape, one.axis) for one in result.reduced] == [((64, 128), 0), ((64, 128), 1), ((64,), 0)]


def test_chains_repeats_and_reductions_are_put_into_words():
    x = spec(4, 2048, 64)
    tile = {"CAUSAL": False, "DIM": 64, "BM": 128, "BN": 64}
    words = work_in_words(KernelWork((read(kernels.two_loop_attention, (x, x, x, x, 2048), tile, lambda _: (16, 4)),)))
    assert words["product 2"].endswith("in each iteration it waits for product")
    assert words["reductions"] == "64 per program"
    given = (spec(1000, 4096), spec(64), spec(1000, 4096), 1000, 4096)
    rows = read(kernels.scaled_rows, given, {"GROUP": 64, "BLOCK": 512}, lambda _: (100,))
    words = work_in_words(KernelWork((rows,)))
    assert words["load 3"].endswith("the same addresses as load 2")
    assert words["load 4"].endswith("the same addresses 10 times")


def test_what_a_program_reads_again_is_told_from_what_it_reads_anew():
    given = (spec(1000, 4096), spec(64), spec(1000, 4096), 1000, 4096)
    result = read(kernels.scaled_rows, given, {"GROUP": 64, "BLOCK": 512}, lambda _: (100,))
    first, again, once_more, scale, stored = result.accesses
    assert (first.again, again.again, once_more.again) == (1, -1, 1)  # a first chunk is a part of a pass
    assert passes_of(result) == 2
    assert again.repeats == 1
    assert scale.repeats == near(10)  # each of a program's ten rows takes the same scales
    assert scale.distinct == near(1 / 64)
    assert least_bytes(result) == near(2.0 * (2 * 1000 * 4096 + 64))
    assert stored.again == -1


@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
def test_a_first_chunk_before_a_loop_adds_no_bytes_and_hides_none(chunks):
    given = (spec(1000, 4096), spec(64), spec(1000, 4096), 1000, 4096)
    result = read(kernels.scaled_rows, given, {"GROUP": 64, "BLOCK": 4096 // chunks}, lambda _: (1000,))
    assert passes_of(result) == 2
    assert least_bytes(result) == near(2.0 * (2 * 1000 * 4096 + 64))
    assert walk_of(result).own_bytes == near(2.0 * 4096)


def test_launch_options_change_nothing():
    first, second = (
        read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256, **options}, lambda _: (M,))
        for options in ({"num_warps": 4, "num_stages": 2}, {"num_warps": 8, "num_stages": 4})
    )
    assert first == second


def silent(function, given, config, grid):
    kernel = TritonKernel(function, grid)
    return kernel_work(kernel, Config(config), Arguments(given).described(), Target.named("sm_90")).silent


def test_a_grid_that_raises_leaves_the_work_untold():
    def grid(_):
        raise ValueError("needs the data")

    assert "its grid cannot be told: ValueError: needs the data" in silent(
        kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, grid
    )


def test_a_grid_of_fractions_which_no_launch_takes_leaves_the_work_untold():
    told = silent(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M / 2,))
    assert "its grid cannot be told: TypeError" in told


def test_a_kernel_that_does_not_compile_leaves_the_work_untold():
    assert "Triton's front end refuses it" in silent(
        kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 100}, lambda _: (M,)
    )


def test_a_grid_without_programs_leaves_the_work_untold():
    assert "its grid has 0 programs" in silent(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (0,))


def test_a_function_that_launches_without_end_leaves_the_work_untold():
    def launch(x, BLOCK):
        while True:
            kernels.chunked_norm[(x.shape[0],)](x, x, x.shape[1], 1e-5, BLOCK=BLOCK)

    result = kernel_work(LauncherKernel(launch), Config(BLOCK=256), Arguments((A,)).described(), Target.named("sm_90"))
    assert result.silent == "it launches more than 64 kernels"


def test_a_function_that_needs_data_leaves_the_work_untold():
    def launch(x, BLOCK):
        kernels.chunked_norm[(int(x[0, 0]),)](x, x, x.shape[1], 1e-5, BLOCK=BLOCK)

    result = kernel_work(LauncherKernel(launch), Config(BLOCK=256), Arguments((A,)).described(), Target.named("sm_90"))
    assert "cannot be run without computing" in result.silent


def test_nothing_of_the_front_end_stays_changed():
    jit, source = triton.runtime.jit.JITFunction, triton.compiler.compiler.ASTSource
    before = jit.run, source.make_ir
    silent(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 100}, lambda _: (M,))
    assert (jit.run, source.make_ir) == before


@pytest.mark.parametrize("block", [512, 1024, 2048])
def test_halves_of_a_row_share_no_places_however_long_the_block(block):
    result = read(
        kernels.swiglu, (spec(64, 1400), spec(64, 700), 700), {"BLOCK": block}, lambda _: (64, -(-700 // block))
    )
    assert [access.again for access in result.accesses] == [-1, -1, -1]
