"""The work of shipped kernels, read from their TTIR, beside the work that they declare."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from tests.cpu.cost_model.test_inferred_work import (  # noqa: E402
    FULL,
    OUT,
    PLAIN,
    STEPS,
    TILE_COLUMNS,
    TILE_ROWS,
    TILES,
    A,
    K,
    M,
    N,
    near,
    read,
    spec,
    tiles,
)
from triton_ops.backend import (  # noqa: E402
    Arguments,
    LauncherKernel,
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
from triton_ops_kernels import load  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")]

LOADED = 2.0 * (TILE_COLUMNS * M * K + TILE_ROWS * K * N)  # each tile of A once per column of tiles, and so on
PADDED = 2.0 * (TILE_COLUMNS * TILE_ROWS * 128 * K + TILE_ROWS * K * N)  # where rows past the end are loaded too
C = 2.0 * M * N


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


def test_a_gather_loads_whole_rows_from_places_that_it_shares_with_none():
    given = (A, spec(500, dtype="int64"), spec(500, K), 500, K)
    result = read(
        kernels.gather_rows, given, {"ROWS": 16, "WIDTH": 1024}, lambda meta: (triton.cdiv(500, meta["ROWS"]),)
    )
    assert result.moved_bytes("load") == near(2.0 * 500 * K + 8 * 500)
    gathered = result.accesses[1]
    assert gathered.run_bytes == 2 * K
    assert gathered.shared[-1] == 32


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


def test_what_operands_are_computed_from_is_told_for_the_pipeline_that_holds_it():
    x = spec(32, 2048, 64)
    tile = {"D": 64, "BM": 64, "BN": 64}
    result = read(kernels.bias_attention, (x, x, x, spec(2048, 2048), x, 2048, 0.125), tile, lambda _: (32, 32))
    keys, bias, values = (at for at, access in enumerate(result.accesses) if access.loop == 0 and access.kind == "load")
    assert [product.made_of for product in result.products] == [(keys,), (bias, values)]


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


@pytest.mark.parametrize(
    ("rows", "edges"), [(1, [2 / 64]), (4, [2 / 4, 1 / 4, 2 / 64]), (16, [2 / 16, 1 / 16, 2 / 64])]
)
def test_neighbours_of_a_cell_are_new_only_at_the_edge_of_a_tile(rows, edges):
    x = spec(1024, 1024, dtype="float32")
    result = read(kernels.stencil, (x, x, 1024, 1024), {"BM": rows, "BN": 64}, lambda _: (1024 // rows, 16))
    shifted = [access for access in result.accesses if access.kind == "load" and access.again >= 0]
    assert [access.anew for access in shifted] == pytest.approx(edges, abs=0.02)  # a mask leaves out the tensor's edge
    assert walk_of(result).own_bytes == near(4.0 * rows * 64 * (4 - len(shifted)))
    assert passes_of(result) == 1


def test_taps_of_a_convolution_are_read_again_and_each_brings_one_row():
    x, weight, bias = spec(2, 256, 512), spec(512, 4), spec(512)
    result = read(kernels.causal_conv, (x, weight, bias, x, 256, 512), {"BL": 16, "BD": 64}, lambda _: (16, 8, 2))
    taps = [access for access in result.accesses if access.kind == "load" and access.argument == 0]
    assert [access.again >= 0 for access in taps] == [False, True, True, True]
    assert [access.anew for access in taps[1:]] == near([1 / 16] * 3)
    assert "94% of its addresses with load" in str(work_in_words(KernelWork((result,))))


def test_a_reduction_across_rows_and_a_loop_of_written_turns_are_told():
    x, out = TensorSpec((512, 1024), "bfloat16"), TensorSpec((1024,), "float32")
    tiles = {"BLOCK": 128, "ROWS": 4, "STEPS": 8}
    result = read(kernels.column_sum, (x, out, 512, 1024), tiles, lambda _: (8, 16))
    assert [(one.shape, one.axis, one.executions) for one in result.reduced] == [((4, 128), 0, 1)]
    assert [(loop.turns, loop.written) for loop in result.loops] == [(8, True)]
    rows = read(kernels.chunked_norm, (A, A, K, 1e-5), {"BLOCK": 256}, lambda _: (M,))
    assert [one.axis for one in rows.reduced] == [0]
    assert not any(loop.written for loop in rows.loops)  # its end is an argument
