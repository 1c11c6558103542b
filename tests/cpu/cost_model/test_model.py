"""The ranking model: where it makes no forecast, what can never help, and how well it ranks recorded spaces."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import AttentionTiles, ConfigSpace, ElementTiles, GemmTiles, IntRange, RowTiles, Work
from triton_ops.cost_model import Model
from triton_ops.cost_model.blocks import Wave, schedule
from triton_ops.cost_model.blocks import overlap_ns as overlapped
from triton_ops.cost_model.mma import operand_bytes, warp_grid
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import SpaceError
from triton_ops.search import make_searcher
from triton_ops.values import Compiled, Footprint, Resources, Schedule, Status, TilePlan, tile_side

H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))
A100 = Machine.of(DeviceSpec.named("NVIDIA A100-SXM4-80GB"))

GEMM = GemmTiles(
    4096,
    4096,
    4096,
    dtype="bfloat16",
    out_dtype="bfloat16",
    tile_rows="BM",
    tile_columns="BN",
    tile_inner="BK",
    group=8,
)
ROWS = RowTiles(8192, 4096, dtype="bfloat16", out_dtype="bfloat16", tile_rows="ROWS", tile_columns="BLOCK")
ELEMENTS = ElementTiles(1 << 24, "BLOCK", read_bytes=8.0, written_bytes=4.0)
ATTENTION = AttentionTiles(32, 4096, 4096, 128, dtype="bfloat16", tile_queries="BM", tile_keys="BN")
TILE = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 4}
CHUNK = {"BLOCK": 1024, "ROWS": 1, "num_warps": 4, "num_stages": 1}
CASES = [(GEMM, TILE), (ROWS, CHUNK), (ELEMENTS, CHUNK), (ATTENTION, {**TILE, "num_stages": 2})]

powers = st.sampled_from([16, 32, 64, 128, 256])
tiles = st.fixed_dictionaries(
    {
        "BM": powers,
        "BN": powers,
        "BK": st.sampled_from([32, 64, 128]),
        "num_warps": st.sampled_from([1, 2, 4, 8]),
        "num_stages": st.integers(1, 5),
    }
)
chunks = st.fixed_dictionaries(
    {
        "BLOCK": st.sampled_from([64, 256, 1024, 4096, 16384]),
        "ROWS": st.sampled_from([1, 2, 8]),
        "num_warps": st.sampled_from([1, 4, 16, 32]),
        "num_stages": st.integers(1, 3),
    }
)
extents = st.integers(1, 9000)


def expected(tiling, config, resources=None, machine=H200):
    return Model(Work(tiles=tiling), machine).expected_ms(config, resources)


@pytest.mark.parametrize(("tiling", "config"), CASES)
def test_a_declared_work_has_an_expected_time_and_its_reasons(tiling, config):
    result = Model(Work(flops=1e9, bytes=1e6, tiles=tiling), H200).explain(config)
    assert 0 < result.lower_bound_ms <= result.expected_ms < 10
    assert [term.alone_ms for term in result.terms] == sorted((term.alone_ms for term in result.terms), reverse=True)
    assert {"launch", "DRAM"} <= {term.name for term in result.terms}
    assert not result.compiled
    assert result.blocks_per_unit >= 1


@pytest.mark.parametrize(
    ("work", "machine", "config"),
    [
        (Work(flops=1e9, bytes=1e6), H200, TILE),  # no tiles declared
        (Work(tiles=GEMM), None, TILE),  # no such device
        (Work(tiles=GEMM), H200, {"BM": 128, "BN": 128}),  # a tunable is missing
        (Work(tiles=GEMM), H200, {**TILE, "BM": "wide"}),  # a side that is no length
        (Work(tiles=GEMM), H200, {**TILE, "BM": 0}),
        (Work(tiles=GEMM), H200, {**TILE, "BM": True}),
        (Work(tiles=replace(GEMM, dtype="float64")), H200, TILE),  # no matrix unit for it
        (Work(tiles=replace(GEMM, dtype="float8_e4m3fn")), A100, TILE),
    ],
)
def test_without_sure_figures_the_model_gives_no_time(work, machine, config):
    model = Model(work, machine)
    assert model.explain(config) is None
    assert math.isnan(model.score([config])[0])


@pytest.mark.parametrize(
    "spec",
    [
        DeviceSpec("cuda", "Tesla T4", "sm_75", 40, bandwidth_gbps=320.0),
        DeviceSpec("hip", "AMD Instinct MI300X", "gfx942", 304, bandwidth_gbps=5300.0),
        DeviceSpec("cuda", "unknown", "sm_90", 132),
        DeviceSpec("cuda", "unknown", "sm_89", 128, bandwidth_gbps=1008.0),  # without a datasheet it has no clock
        DeviceSpec("cpu", "EPYC", "x86_64", 2),
    ],
)
def test_a_device_that_is_not_known_has_no_machine(spec):
    assert Machine.of(spec) is None


def test_a_block_that_does_not_fit_is_never_ranked_before_one_that_does():
    wide = {**TILE, "BM": 256, "BN": 256, "BK": 128, "num_stages": 5}
    assert expected(GEMM, wide) == math.inf
    assert expected(GEMM, TILE, Resources(128, 0, 300_000)) == math.inf


def product_tiles(rows, columns, inner):
    return GemmTiles(
        rows,
        columns,
        inner,
        dtype="bfloat16",
        out_dtype="bfloat16",
        tile_rows="BM",
        tile_columns="BN",
        tile_inner="BK",
        group=8,
    )


@given(tiles, extents, extents, extents, st.integers(0, 4000), st.integers(1, 4000))
def test_more_spills_are_never_faster(config, rows, columns, inner, spilled, more):
    tiling = product_tiles(rows, columns, inner)
    one, other = (expected(tiling, config, Resources(128, each, 50_000)) for each in (spilled, spilled + more))
    assert one <= other


@given(chunks, extents, extents, st.integers(0, 4000), st.integers(1, 4000))
def test_more_spills_are_never_faster_in_rows(config, rows, columns, spilled, more):
    tiling = RowTiles(rows, columns, dtype="bfloat16", out_dtype="bfloat16", tile_rows="ROWS", tile_columns="BLOCK")
    one, other = (expected(tiling, config, Resources(64, each, 128)) for each in (spilled, spilled + more))
    assert one <= other


@given(tiles, extents, extents, extents, st.integers(1, 5000))
def test_a_longer_product_is_never_faster(config, rows, columns, inner, more):
    tiling = product_tiles(rows, columns, inner)
    result = Resources(128, 0, 50_000)
    assert expected(tiling, config, result) <= expected(replace(tiling, inner=inner + more), config, result) * (
        1 + 1e-9
    )


@given(chunks, extents, extents, st.integers(1, 5000))
def test_more_bytes_are_never_faster(config, rows, columns, more):
    tiling = RowTiles(rows, columns, dtype="bfloat16", out_dtype="bfloat16", tile_rows="ROWS", tile_columns="BLOCK")
    result = Resources(64, 0, 128)
    now = expected(tiling, config, result)
    assert now <= expected(replace(tiling, columns=columns + more), config, result) * (1 + 1e-9)
    assert now <= expected(replace(tiling, dtype="float32", out_dtype="float32"), config, result) * (1 + 1e-9)


@given(tiles, chunks, extents, extents, extents)
def test_nothing_is_faster_than_the_lower_bound(tile, chunk, rows, columns, inner):
    gemm = GemmTiles(
        rows, columns, inner, dtype="bfloat16", out_dtype="bfloat16", tile_rows="BM", tile_columns="BN", tile_inner="BK"
    )
    moved = 2.0 * (rows * inner + inner * columns + rows * columns)
    model = Model(Work(2.0 * rows * columns * inner, moved, gemm), H200)
    assert model.expected_ms(tile) >= model.bound_ms(tile) > 0
    model = Model(Work(0.0, 4.0 * rows * columns, replace(ROWS, rows=rows, columns=columns)), H200)
    assert model.expected_ms(chunk) >= model.bound_ms(chunk) > 0


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e9), min_size=1, max_size=6), st.floats(1, 50))
def test_overlapped_times_lie_between_the_longest_and_the_sum(times, exponent):
    result = overlapped(times, exponent)
    assert max(times.values()) * (1 - 1e-9) <= result <= sum(times.values()) * (1 + 1e-9)


@given(st.integers(1, 5000), st.integers(1, 8))
def test_a_schedule_holds_every_block(blocks, at_once):
    seen = []
    result = schedule(
        blocks, at_once, H200, lambda depth, count: seen.append((depth, count)) or Wave(1e6 * depth, 0.0, {"a": 1e6})
    )
    assert result.waves == blocks / (at_once * H200.units)
    assert all(0 < count <= depth * H200.units and depth <= at_once for depth, count in seen)
    assert result.time_ms >= blocks / H200.units - 1e-9  # a millisecond per block on a multiprocessor


def test_layouts_equal_those_of_the_compiler():
    assert warp_grid(16, 32, 4) == (1, 4)
    assert warp_grid(32, 32, 4) == (2, 2)
    assert warp_grid(32, 256, 8) == (1, 8)
    assert operand_bytes(H200, 128, 256, 128, 8) == 2 * (64 + 256) * 128  # two instructions of 64 by 256
    assert operand_bytes(H200, 64, 256, 128, 8) == 2 * (64 + 128) * 128  # two warp groups share the columns
    assert operand_bytes(A100, 128, 128, 128, 8) == (128 * 2 + 128 * 4) * 128


def test_occupancy_equals_the_vendors_calculator():
    assert H200.blocks_at_once(32, 0, 8) == 8  # 64 warps
    assert H200.blocks_at_once(255, 0, 4) == 2  # 256 registers per thread
    assert H200.blocks_at_once(40, 98_304, 4) == 2  # 99,328 bytes with what a block takes for itself
    assert H200.blocks_at_once(16, 0, 1) == 32  # blocks
    assert H200.blocks_at_once(255, 232_448, 32) == 1  # never none


def test_a_model_of_any_gpu_ranks_the_same_way_twice():
    configs = [{**TILE, "BM": side} for side in (16, 64, 128)]
    first, again = (Model(Work(tiles=GEMM), A100).score(configs) for _ in range(2))
    assert first == again
    assert first[0] > first[2]  # a thin tile of a large product


@dataclass(frozen=True)
class ConvolutionTiles:
    """A user's own tiles: a convolution over images, planned as a matrix product."""

    images: int
    pixels: int
    channels: int
    filters: int

    def plan(self, config, machine):
        product = GemmTiles(
            self.images * self.pixels,
            self.filters,
            9 * self.channels,
            dtype="bfloat16",
            out_dtype="bfloat16",
            tile_rows="BM",
            tile_columns="BN",
            tile_inner="BK",
        )
        return product.plan(config, machine)


@dataclass(frozen=True)
class BusyTiles:
    """A user's own tiles: blocks of a known time each, planned without a shipped family."""

    blocks: int

    def plan(self, config, machine):
        size = tile_side("SIZE", config)

        def schedule(footprint):
            at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, 4) * machine.units
            waves = math.ceil(self.blocks / size / at_once)
            return Schedule(waves * size * 1e-3, waves, {"busy": waves * size * 1e-3})

        return TilePlan(4, Footprint(32, 0.0, size * 1024), schedule)


def test_the_users_own_tiles_rank_configs_and_explain_them():
    own = Model(Work(flops=1e9, bytes=1e6, tiles=ConvolutionTiles(16, 256, 455, 4096)), H200)
    same = Model(Work(flops=1e9, bytes=1e6, tiles=replace(GEMM, inner=4095, group=1)), H200)
    thin = {**TILE, "BM": 16}
    assert own.score([TILE, thin]) == same.score([TILE, thin])
    assert own.explain(TILE).terms == same.explain(TILE).terms
    assert own.explain(TILE, Resources(registers=255, shared_bytes=1 << 16)).compiled
    assert math.isnan(own.score([{"BM": 128}])[0])


def test_the_users_own_tiles_may_plan_the_whole_schedule():
    model = Model(Work(tiles=BusyTiles(10_000)), H200)
    small, large = ({"SIZE": size} for size in (1, 200))
    assert model.explain(large).blocks_per_unit == 1
    assert [term.name for term in model.explain(small).terms][-1] in ("busy", "launch")
    assert math.isinf(model.expected_ms({"SIZE": 10_000})), "its shared memory is more than a block may have"
    assert model.explain({"WIDTH": 1}) is None


def test_the_search_starts_with_the_config_that_the_users_own_tiles_rank_first():
    space = ConfigSpace({"SIZE": [1, 2, 4, 8, 16, 32, 64, 128]})
    model = Model(Work(tiles=BusyTiles(10_000)), H200)
    searcher = make_searcher("auto", space, 0, [model.prior])
    assert model.expected_ms(searcher.ask(1)[0]) == min(model.score(list(space)))


def test_products_that_wait_for_each_other_are_slower_and_a_guess_lies_between():
    tiles = replace(GEMM, dtype="float8_e4m3fn", b_along_inner=True)
    model = Model(Work(tiles=tiles), H200)
    wide = {"BM": 128, "BN": 256, "BK": 128, "num_warps": 8, "num_stages": 4}
    free, unknown, bound = (model.expected_ms(wide, Resources(serialised=known)) for known in (False, None, True))
    assert free < unknown < bound
    assert unknown == model.expected_ms(wide)
    usual = {**wide, "BN": 128}
    assert model.expected_ms(usual) == model.expected_ms(usual, Resources(serialised=False))


def test_serialised_products_lengthen_the_chain_of_attention_too():
    model = Model(Work(tiles=ATTENTION), H200)
    tall = {"BM": 128, "BN": 64, "num_warps": 4, "num_stages": 2}
    free, bound = (model.explain(tall, Resources(serialised=known)) for known in (False, True))
    assert model.expected_ms(tall) == free.expected_ms
    assert bound.expected_ms > 1.15 * free.expected_ms
    chains = [next(term.alone_ms for term in each.terms if term.name == "chain") for each in (free, bound)]
    assert chains[1] > chains[0]


def test_the_search_begins_elsewhere_once_the_compiler_has_serialised_the_models_first_choices():
    tiles = replace(GEMM, dtype="float8_e4m3fn", b_along_inner=True)
    sides = {"BM": [128, 256], "BN": [64, 128, 256], "BK": [64, 128], "num_warps": [4, 8], "num_stages": [2, 3, 4, 5]}
    space = ConfigSpace(sides, default={"BM": 128, "BN": 128, "BK": 128, "num_warps": 4, "num_stages": 3})
    model = Model(Work(tiles=tiles), H200)
    result = []
    for widest in (False, True):  # whether tiles of 256 columns are serialised
        searcher = make_searcher("auto", space, 0, [model.prior])
        searcher.take_previews(
            [
                Compiled(config, Status.OK, "", Resources(40, 0, 1024, serialised=widest and config["BN"] == 256))
                for config in searcher.wanted_previews(40)
            ]
        )
        result.append(searcher.ask(1)[0])
    assert [config["BN"] for config in result] == [256, 128]


def test_tiles_without_a_plan_are_refused_where_they_are_declared():
    with pytest.raises(SpaceError, match="has no method `plan`"):
        Work(tiles={"rows": "BM"})


# The recorded spaces, sampled: floors below what the whole spaces give (benchmarks/results/model).


def test_spearman_shares_ranks_among_ties():
    assert Model.spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert Model.spearman([3, 2, 1], [10, 20, 30]) == pytest.approx(-1)
    assert Model.spearman([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(0.894, abs=1e-3)


def test_rows_that_stay_in_registers_are_read_once_and_every_input_counts():
    def expected_ms(block, **more):
        rows = RowTiles(
            32768, 4096, dtype="bfloat16", out_dtype="bfloat16", tile_rows=1, tile_columns="BLOCK", **more
        )  # fmt: skip
        plan = rows.plan({"BLOCK": block, "num_warps": 4}, H200)
        return plan.schedule(plan.footprint).time_ms

    assert expected_ms(4096, kept=True) < expected_ms(4096)
    assert expected_ms(2048, kept=True) == expected_ms(2048), "a row of two chunks is read twice"
    assert expected_ms(4096, inputs=2) > 1.3 * expected_ms(4096)


def test_rows_of_one_tile_are_waited_for_together():
    """A layer norm's default and its winner on an H200, 4 % faster, at 131,072 rows of 128 elements."""
    rows = replace(ROWS, rows=131_072, columns=128, kept=True)
    default, winner = {"BLOCK": 128, "ROWS": 8, "num_warps": 2}, {"BLOCK": 128, "ROWS": 16, "num_warps": 4}

    def lost(tiles):
        model = Model(Work(bytes=1e8, tiles=tiles), H200)
        return model.expected_ms(winner) / model.expected_ms(default)

    assert lost(rows) < 1.05
    assert lost(replace(rows, kept=False)) > 1.2


@pytest.mark.parametrize(("columns", "seen"), [(50_257, False), (50_258, False), (50_260, True), (50_304, True)])
def test_rows_that_loads_of_8_bytes_do_not_divide_are_unseen(columns, seen):
    assert (replace(ROWS, columns=columns).unseen == "") == seen


@pytest.mark.parametrize("warps", [3, 5, 6, 7, 12, 48, 64])
@pytest.mark.parametrize(("tiling", "config"), CASES)
def test_warps_that_cannot_be_launched_are_expected_not_to_run(tiling, config, warps):
    model = Model(Work(flops=1e9, bytes=1e6, tiles=tiling), H200)
    refused = {**config, "num_warps": warps}
    assert model.explain(refused) is None
    assert model.score([refused]) == [math.inf]


def test_a_search_over_all_numbers_of_warps_knows_which_cannot_be_launched():
    space = ConfigSpace({"BM": IntRange(64, 64), "BN": [128, 256], "num_warps": IntRange(1, 8), "num_stages": [2]})
    tiling = AttentionTiles(32, 2048, 2048, 128, dtype="bfloat16", tile_queries="BM", tile_keys="BN")
    prior = Model(Work(flops=1e9, bytes=1e6, tiles=tiling), H200).prior
    configs = list(space)
    able = {config["num_warps"] for config, ms in zip(configs, prior.score(configs), strict=True) if math.isfinite(ms)}
    assert able == {1, 2, 4, 8}
    assert make_searcher("auto", space, 0, [prior]).ask(1)[0]["num_warps"] in able
