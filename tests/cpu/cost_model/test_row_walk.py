"""What blocks that walk over memory wait for: exchange at reductions, loops, the start of blocks, shared reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.cost_model.row_tiles import Again, TileReduction, Turning, walk_schedule
from triton_ops.cost_model.row_tiles import MemoryWalk as Walk
from triton_ops.cost_model.row_tiles import TileWork as Work
from triton_ops.device import DeviceSpec, Machine
from triton_ops.values import Footprint

H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))
SMALL = Footprint(32, 0.0, 1024)
WALK = Walk(
    blocks=10_000, warps=4, stages=1, work=(Work(4.0, 1024.0),), batches=1.0, near=0.0, turns=1.0, own_bytes=2048.0,
    again=(), common=(), written_bytes=2048.0, through_bytes=4096.0, streamed_bytes=2048.0,
)  # fmt: skip


def across(rows, columns, vector=8, executions=1.0):
    return TileReduction(rows, columns, rows * columns, vector, 1, 1, executions, across=True)


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "cycles"),
    [
        (8, 512, 8, 2 * 8 * 32 * 8),  # 8 columns of a lane, all 32 lanes in one bank, 8 warps
        (8, 256, 8, 2 * 8 * 32 * 8),
        (8, 256, 2, 2 * 8 * 16 * 2),  # two warps along the rows: pairs of banks
        (8, 64, 8, 2 * 2 * 16 * 8),  # with fewer elements for each thread, lanes hold fewer columns
        (8, 512, 2, 0),  # one warp has all rows of its columns
        (1, 512, 8, 0),
    ],
)
def test_the_exchange_of_a_reduction_across_rows_counts_the_conflicts_of_its_banks(rows, columns, warps, cycles):
    assert across(rows, columns).exchange_cycles(warps) == cycles
    assert across(rows, columns, executions=3.0).exchange_cycles(warps) == 3 * cycles


@given(*[st.integers(1, 8192)] * 2, st.integers(1, 16), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_any_tile_has_an_exchange_of_at_most_one_lane_at_a_time(rows, columns, vector, warps):
    cycles = across(rows, columns, vector).exchange_cycles(warps)
    assert 0 <= cycles <= 2 * 32 * warps * columns


def test_loads_of_tall_tiles_wait_for_each_other_and_loops_of_known_turns_are_unrolled():
    loop = Turning(entries=1.0, turns=8.0, elements=1024.0, serial=0.0, constant=False)
    assert loop.waits(128) == 8
    assert replace(loop, serial=128.0 * 6).waits(128) == 8 * 6 / 1.25  # six loads of a thread, 1.25 at a time
    assert replace(loop, constant=True).waits(128) == 2
    assert replace(loop, constant=True, turns=64.0).waits(128) == 64  # too long to be unrolled wholly
    assert replace(loop, constant=True, turns=64.0, entries=8.0).waits(128) == 16


def test_no_more_blocks_begin_than_the_device_can_begin():
    tiny = replace(WALK, blocks=1_000_000, own_bytes=64.0, written_bytes=0.0, through_bytes=64.0, streamed_bytes=64.0)
    assert walk_schedule(tiny, SMALL, H200).time_ms > 1e6 * H200.costs.block_ns / 1e6


def test_what_all_blocks_read_stays_beside_them_unless_too_much_passes():
    def l2_ms(common):
        return walk_schedule(replace(WALK, common=(common,)), SMALL, H200).alone_ms["L2"]

    few, many = Again(24_000.0, 12_000.0, 24_000.0), Again(24_000.0, 12_000.0, 2_400_000.0)
    assert l2_ms(few) < 1.2 * walk_schedule(WALK, SMALL, H200).alone_ms["L2"] < 0.25 * l2_ms(many)


def test_a_scan_costs_more_where_warps_add_up_what_others_have_left():
    tile = TileReduction(
        length=128, inner=16, elements=128 * 16, vector=8, operands=2, operations=3, executions=1.0, scans=True
    )
    each = {warps: tile.instructions(warps)[0] * warps for warps in (1, 2, 4)}
    assert each[1] < each[2] < each[4]
    row = TileReduction(2048, 1, 2048, 8, 1, 1, 1.0, scans=True)
    assert row.instructions(1) == (64 * 2 * 2 + 40 * (2 + 1), 40)  # 8 neighbours of each lane, then 5 halvings
    assert tile._replace(executions=3.0).instructions(2)[1] == 3 * tile.instructions(2)[1]


def test_each_further_result_of_a_warp_takes_instructions_and_the_first_one_waits():
    rows = TileReduction(64, 1, 16 * 64, 4, 1, 1, 1.0, scans=False)  # 16 lanes to a row
    assert rows.instructions(1) == ((8 - 1) * 4 * 2, (8 - 1) * 4)  # a lane has elements of 8 rows: 4 halvings each
    assert rows._replace(elements=64).instructions(4) == (0, 0)
