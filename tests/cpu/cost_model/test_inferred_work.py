"""The work of kernels, read from their TTIR, beside the work that is counted by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from benchmarks.model.fresh_kernels import (  # noqa: E402
    argmax_kernel,
    causal_conv_kernel,
    dropout_kernel,
    scan_kernel,
    stencil_kernel,
    swiglu_kernel,
    transpose_kernel,
)
from benchmarks.model.plain_kernels import column_sum_kernel  # noqa: E402
from benchmarks.model.unseen_kernels import bias_attention_kernel, mixed_columns_kernel  # noqa: E402

from tests import inferred_kernels as kernels  # noqa: E402
from triton_ops.backend import (  # noqa: E402
    Arguments,
    LauncherKernel,
    TritonKernel,
)
from triton_ops.backend.offline import kernel_work  # noqa: E402
from triton_ops.cost_model.inferred import work_in_words  # noqa: E402
from triton_ops.cost_model.inferred_rows import (  # noqa: E402
    least_bytes,
    passes_of,
    walk_of,
)
from triton_ops.device import Target  # noqa: E402
from triton_ops.kernel_ir import KernelWork  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import TensorSpec  # noqa: E402
from triton_ops_kernels import load  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")]

M, N, K = 1000, 768, 1024
TILES = {"BM": 128, "BN": 64, "BK": 32}
TILE_ROWS, TILE_COLUMNS, STEPS = math.ceil(M / 128), math.ceil(N / 64), K // 32
FULL = 2.0 * TILE_ROWS * 128 * N * K  # of whole tiles, as the matrix units compute them
LOADED = 2.0 * (TILE_COLUMNS * M * K + TILE_ROWS * K * N)  # each tile of A once per column of tiles, and so on
PADDED = 2.0 * (TILE_COLUMNS * TILE_ROWS * 128 * K + TILE_ROWS * K * N)  # where rows past the end are loaded too
C = 2.0 * M * N


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


def test_a_grouped_matmul_wraps_its_rows_and_shares_its_tiles():
    given = (*PLAIN, K, 1, N, 1, N, 1)
    result = read(kernels.grouped_matmul, given, {**TILES, "GROUP": 8}, tiles)
    assert result.flops == near(FULL)
    assert result.moved_bytes("load") == near(PADDED)  # rows past the end wrap to the first ones
    assert result.moved_bytes("store") == near(C)
    left, right = result.accesses[:2]
    assert (left.argument, right.argument) == (0, 1)
    assert left.shared[-1] == TILE_ROWS
    assert right.shared[-1] == TILE_COLUMNS
    assert (left.shared[3], right.shared[3]) == (8, 1)  # eight programs walk down eight tiles of one column


def test_a_persistent_matmul_walks_through_tiles_and_steps():
    result = read(kernels.persistent_matmul, PLAIN, {**TILES, "PROGRAMS": 20}, lambda meta: (meta["PROGRAMS"],))
    outer, inner = result.loops
    assert outer.turns * 20 == near(TILE_ROWS * TILE_COLUMNS)
    assert inner.turns * 20 == near(TILE_ROWS * TILE_COLUMNS * STEPS)
    assert inner.parent == 0
    assert result.flops == near(FULL)
    assert result.moved_bytes("load") == near(PADDED)
    assert result.moved_bytes("store") == near(2.0 * TILE_ROWS * 128 * N)


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


def test_a_matmul_of_descriptors_made_on_the_device_loads_what_lies_inside():
    given = (A, spec(N, K), OUT, M, N, K)
    result = read(kernels.described_matmul, given, TILES, tiles)
    assert result.flops == near(FULL)
    assert result.moved_bytes("load") == near(LOADED)
    assert result.moved_bytes("store") == near(C)
    assert all(access.descriptor for access in result.accesses)
    assert result.products[0].loads == (0, 1)  # the transposed operand too is known to be loaded


@pytest.mark.skipif(triton.__version__ >= "3.8", reason="Triton has no block pointers from 3.8 on")
def test_a_matmul_of_block_pointers_loads_what_lies_inside():
    result = read(kernels.block_pointer_matmul, PLAIN, TILES, tiles)
    assert result.flops == near(FULL)
    assert result.moved_bytes("load") == near(LOADED)
    assert result.moved_bytes("store") == near(C)


def test_a_while_loop_over_all_programs_ends_where_its_condition_fails():
    result = read(kernels.while_rows, (A, A, M, K), {"BLOCK": 1024}, lambda _: (96,))
    assert result.loops[0].turns * 96 == near(M)
    assert result.moved_bytes("load") == near(2.0 * M * K)
    assert result.moved_bytes("store") == near(2.0 * M * K)


STARTS = [0, 10, 300, 340, 1000]


def test_bounds_that_are_data_are_exact_where_the_data_are_known():
    given = (A, spec(5, dtype="int32"), spec(4, K), K)
    result = read(kernels.varlen_sum, given, {"BLOCK": 16, "WIDTH": 1024}, lambda _: (4,), {"starts": STARTS})
    assert result.loops[0].turns * 4 == sum(math.ceil((end - begin) / 16) for begin, end in pairwise(STARTS))
    assert result.moved_bytes("load") == near(2.0 * M * K + 4 * 8)
    assert not result.notes


def test_bounds_that_are_data_are_one_guess_for_all_configs_where_they_are_not_known():
    given = (A, spec(5, dtype="int32"), spec(4, K), K)
    small, large = (
        read(kernels.varlen_sum, given, {"BLOCK": block, "WIDTH": 1024}, lambda _: (4,)) for block in (16, 64)
    )
    assert small.loops[0].by_data
    assert small.loops[0].turns == 4 * large.loops[0].turns
    assert "the bounds of a loop are data" in small.notes[0]


def test_a_gather_loads_whole_rows_from_places_that_it_shares_with_none():
    given = (A, spec(500, dtype="int64"), spec(500, K), 500, K)
    result = read(
        kernels.gather_rows, given, {"ROWS": 16, "WIDTH": 1024}, lambda meta: (triton.cdiv(500, meta["ROWS"]),)
    )
    assert result.moved_bytes("load") == near(2.0 * 500 * K + 8 * 500)
    gathered = result.accesses[1]
    assert gathered.run_bytes == 2 * K
    assert gathered.shared[-1] == 32


def test_a_place_that_a_condition_on_data_moves_is_somewhere_and_holds_as_many_bytes():
    given = (A, spec(M, dtype="int32"), spec(8, dtype="int32"), spec(M, K), K)
    result = read(kernels.rows_to_groups, given, {"WIDTH": 1024}, lambda _: (M,))
    assert all(access.known for access in result.accesses)
    assert result.moved_bytes("store") == near(2.0 * M * K)
    assert result.accesses[-1].run_bytes == 2 * K


def test_an_index_that_is_divided_reads_a_transpose_element_by_element():
    result = read(
        kernels.flat_transpose, (A, spec(K, M), M, K), {"BLOCK": 512}, lambda meta: (triton.cdiv(M * K, meta["BLOCK"]),)
    )
    loaded, stored = result.accesses
    assert result.moved_bytes("load") == near(2.0 * M * K)
    assert loaded.run_bytes == 2
    assert loaded.lines == near(512)
    assert stored.run_bytes == 1024


def test_causal_attention_takes_half_of_the_steps_and_computes_one_operand():
    length, heads, width = 2048, 4, 64
    given = (*[spec(heads, length, width)] * 4, length, 0.125)
    result = read(
        kernels.causal_attention, given, {"HEADS": heads, "DIM": width, "BM": 128, "BN": 64},
        lambda meta: (triton.cdiv(length, meta["BM"]), meta["HEADS"]),
    )  # fmt: skip
    steps = [2 * (tile + 1) for tile in range(16)]
    assert result.loops[0].turns * 16 == sum(steps)
    assert result.loops[0].most == 32
    assert result.flops == near(2 * 2.0 * 128 * 64 * 64 * sum(steps) * heads)
    assert result.moved_bytes("load") == near(2.0 * heads * (length * width + 2 * 64 * 64 * sum(steps)))
    assert [product.loads for product in result.products] == [(0, 1), (-1, 2)]
    assert result.loops[0].special == near((128 * 64 + 128) * sum(steps) / 16)


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
    result = read(mixed_columns_kernel, given, {"BM": 4, "BN": 128}, lambda _: (250, 6))
    assert [access.known for access in result.accesses] == [True, True, True]


def test_reductions_are_counted_per_program():
    assert read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,)).reductions == 1
    assert read(kernels.persistent_matmul, PLAIN, {**TILES, "PROGRAMS": 132}, lambda _: (132,)).reductions == 0
    x = spec(4, 2048, 64)
    tile = {"CAUSAL": False, "DIM": 64, "BM": 128, "BN": 64}
    result = read(kernels.two_loop_attention, (x, x, x, x, 2048), tile, lambda meta: (16, 4))
    assert result.reductions == 2 * 2048 // 64  # the highest score and the sum of weights, in each turn


def test_a_reduction_across_rows_and_a_loop_of_written_turns_are_told():
    x, out = TensorSpec((512, 1024), "bfloat16"), TensorSpec((1024,), "float32")
    tiles = {"BLOCK": 128, "ROWS": 4, "STEPS": 8}
    result = read(column_sum_kernel, (x, out, 512, 1024), tiles, lambda _: (8, 16))
    assert [(one.shape, one.axis, one.executions) for one in result.reduced] == [((4, 128), 0, 1)]
    assert [(loop.turns, loop.written) for loop in result.loops] == [(8, True)]
    rows = read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,))
    assert [one.axis for one in rows.reduced] == [0]
    assert not any(loop.written for loop in rows.loops)  # its end is an argument


def test_a_scan_is_told_with_what_makes_one_element_of_two():
    x = spec(8, 1024, 4096)
    result = read(scan_kernel, (x, x, x, 1024, 4096), {"BT": 32, "BD": 16}, lambda _: (256, 8))
    (scan,) = (one for one in result.reduced if one.scans)
    assert (scan.shape, scan.axis, scan.executions) == ((32, 16), 0, 1024 // 32)
    assert (scan.operands, scan.operations) == (2, 3)  # a * c, b * c + d


def test_whole_numbers_that_become_data_are_counted_and_those_of_places_are_not():
    size = 1 << 20
    x = spec(size)
    result = read(dropout_kernel, (x, x, size, 0.5, 42), {"BLOCK": 1024}, lambda _: (1024,))
    assert 50 < result.plain / 1024 < 70  # ten rounds of Philox, each of two high halves and four logical operations
    rows = read(swiglu_kernel, (spec(8, 2048), spec(8, 1024), 1024), {"BLOCK": 1024}, lambda _: (8, 1))
    assert (rows.plain + rows.special) / 1024 < 10


def test_what_operands_are_computed_from_is_told_for_the_pipeline_that_holds_it():
    x = spec(32, 2048, 64)
    tile = {"D": 64, "BM": 64, "BN": 64}
    result = read(bias_attention_kernel, (x, x, x, spec(2048, 2048), x, 2048, 0.125), tile, lambda _: (32, 32))
    keys, bias, values = (at for at, access in enumerate(result.accesses) if access.loop == 0 and access.kind == "load")
    assert [product.made_of for product in result.products] == [(keys,), (bias, values)]


def test_words_that_are_alive_are_those_of_data_and_of_loads_on_the_way():
    best = read(argmax_kernel, (spec(8, 4096), spec(8, dtype="int32"), 4096), {"BLOCK": 1024}, lambda _: (8,))
    assert best.loaded == 2 * 1024  # the largest values, and their places
    tile = read(transpose_kernel, (A, A, M, K), {"BM": 32, "BN": 32}, lambda _: (32, 32))
    assert tile.loaded == 32 * 32 / 2  # 16 bits each, which nothing widens
    x = spec(2, 64, 256)
    taps = read(causal_conv_kernel, (x, spec(256, 4), spec(256), x, 64, 256), {"BL": 16, "BD": 64}, lambda _: (4, 4, 2))
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


def test_a_norm_that_reads_its_rows_twice_says_so():
    result = read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,))
    assert [loop.turns for loop in result.loops] == [4, 4]
    assert result.moved_bytes("load") == near(2 * 2.0 * M * K)
    assert result.moved_bytes("store") == near(2.0 * M * K)


def test_programs_that_return_early_and_sides_of_a_condition_are_counted_apart():
    given = (spec(600_000), spec(512_000), 512_000, 77)
    result = read(kernels.early_return, given, {"BLOCK": 512}, lambda meta: (triton.cdiv(512_000, meta["BLOCK"]),))
    assert result.moved_bytes("load") == near(2.0 * 512 * (39 + 2 * 38))
    assert result.moved_bytes("store") == near(2.0 * 512 * 77)


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


def test_one_descriptor_of_both_weights_moves_the_bytes_of_both():
    operation = load("gated_mlp")
    problem = operation.problem((256, 512, 384), "bfloat16")
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_SIZE_M": 8, "PROGRAMS": 0, "HALVES": False}
    for joined in (False, True):
        config = Config({**tile, "LOADS": "host", "JOINED": joined, "num_warps": 4, "num_stages": 3})
        given = Arguments(keyword=dict(problem.arguments)).described()
        result = kernel_work(operation.kernel, config, given, Target.named("sm_90"))
        assert not result.silent
        assert sum(map(least_bytes, result.launches)) == near(operation.work(problem).bytes)


def test_launch_options_change_nothing():
    first, second = (
        read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256, **options}, lambda _: (M,))
        for options in ({"num_warps": 4, "num_stages": 2}, {"num_warps": 8, "num_stages": 4})
    )
    assert first == second


def test_the_launches_of_a_function_are_read_one_by_one():
    def launch(x, y, BLOCK):
        middle = torch.empty_like(x)
        kernels.chunked_norm[(x.shape[0],)](x, middle, x.shape[1], 1e-5, BLOCK=BLOCK)
        kernels.while_rows[(96,)](middle, y, *x.shape, BLOCK=1024)

    result = kernel_work(
        LauncherKernel(launch), Config(BLOCK=256), Arguments((A, A)).described(), Target.named("sm_90")
    )
    norm, rows = result.launches
    assert norm.grid == (M, 1, 1)
    assert norm.moved_bytes("load", "store") == near(3 * 2.0 * M * K)
    assert rows.moved_bytes("load", "store") == near(2 * 2.0 * M * K)


def test_a_kernel_of_another_vendor_is_read_too():
    result = read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,), arch="gfx942")
    assert result.moved_bytes("load") == near(2 * 2.0 * M * K)


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


@pytest.mark.parametrize(
    ("rows", "edges"), [(1, [2 / 64]), (4, [2 / 4, 1 / 4, 2 / 64]), (16, [2 / 16, 1 / 16, 2 / 64])]
)
def test_neighbours_of_a_cell_are_new_only_at_the_edge_of_a_tile(rows, edges):
    x = spec(1024, 1024, dtype="float32")
    result = read(stencil_kernel, (x, x, 1024, 1024), {"BM": rows, "BN": 64}, lambda _: (1024 // rows, 16))
    shifted = [access for access in result.accesses if access.kind == "load" and access.again >= 0]
    assert [access.anew for access in shifted] == pytest.approx(edges, abs=0.02)  # a mask leaves out the tensor's edge
    assert walk_of(result).own_bytes == near(4.0 * rows * 64 * (4 - len(shifted)))
    assert passes_of(result) == 1


def test_taps_of_a_convolution_are_read_again_and_each_brings_one_row():
    x, weight, bias = spec(2, 256, 512), spec(512, 4), spec(512)
    result = read(causal_conv_kernel, (x, weight, bias, x, 256, 512), {"BL": 16, "BD": 64}, lambda _: (16, 8, 2))
    taps = [access for access in result.accesses if access.kind == "load" and access.argument == 0]
    assert [access.again >= 0 for access in taps] == [False, True, True, True]
    assert [access.anew for access in taps[1:]] == near([1 / 16] * 3)
    assert "94% of its addresses with load" in str(work_in_words(KernelWork((result,))))


@pytest.mark.parametrize("block", [512, 1024, 2048])
def test_halves_of_a_row_share_no_places_however_long_the_block(block):
    result = read(
        swiglu_kernel, (spec(64, 1400), spec(64, 700), 700), {"BLOCK": block}, lambda _: (64, -(-700 // block))
    )
    assert [access.again for access in result.accesses] == [-1, -1, -1]
