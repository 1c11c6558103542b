"""Shares, passes and words of work that was read, at the figures where each of them changes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.cost_model.test_read_figures import H200, WORKS, copied, matmul, readings_of
from triton_ops import RowTiles, Work
from triton_ops.cost_model import Model, Readings
from triton_ops.cost_model.inferred import InferredPrior
from triton_ops.cost_model.inferred_rows import (
    different,
    dram_bytes,
    main_loops,
    own_bytes,
    passes_of,
    walk_of,
    why_silent,
)
from triton_ops.cost_model.work_words import (
    _access_in_words,
    _count,
    _loops_in_words,
    _product_in_words,
    _short,
    _times,
    differences,
    work_in_words,
)
from triton_ops.kernel_ir import KernelWork
from triton_ops.space import Config
from triton_ops.values import UnknownTileError

COPY = copied(programs=8)
LOAD, STORE = COPY.accesses
MATMUL = matmul()


def with_accesses(*accesses, **more):
    return replace(COPY, accesses=accesses, **more)


@given(st.integers(0, 6), st.lists(st.floats(1, 500), min_size=8, max_size=8), st.integers(1, 5000))
def test_different_places_are_those_that_were_counted_and_between_them_a_power_of_the_programs(last, counts, programs):
    looked_at = (1 << last) + (1 << last) // 2  # between two powers of 2, or 1
    sizes = [*(1 << power for power in range(looked_at.bit_length()) if 1 << power < looked_at), looked_at]
    shared = sorted(counts)[: len(sizes)]
    access, launch = replace(LOAD, shared=tuple(shared)), replace(COPY, looked_at=looked_at)
    for size, places in zip(sizes, shared, strict=True):
        assert different(access, launch, size) == pytest.approx(places)
    result = different(access, launch, programs)
    if programs < looked_at:
        at = next(at for at, size in enumerate(sizes) if size >= programs)
        if sizes[at] != programs:
            power = math.log(shared[at] / shared[at - 1]) / math.log(sizes[at] / sizes[at - 1])
            assert result == pytest.approx(shared[at - 1] * (programs / sizes[at - 1]) ** power)
    elif len(sizes) == 1:
        assert result == pytest.approx(shared[0])
    else:
        power = math.log(shared[-1] / shared[-2]) / math.log(sizes[-1] / sizes[-2])
        assert result == pytest.approx(shared[-1] * (programs / looked_at) ** power)


def test_places_that_become_fewer_stay_as_many_as_they_were():
    access = replace(LOAD, shared=(1.0, 4.0, 3.0))
    assert different(access, replace(COPY, looked_at=4), 400) == pytest.approx(3.0)


def again(access, number, **more):
    return replace(access, again=number, **more)


def test_passes_are_the_times_that_most_of_the_data_is_read():
    assert passes_of(COPY) == 1
    assert passes_of(with_accesses()) == 1
    assert passes_of(with_accesses(LOAD, again(LOAD, 0))) == 2
    assert passes_of(with_accesses(LOAD, again(LOAD, 0), again(LOAD, 1))) == 3
    assert passes_of(with_accesses(LOAD, again(LOAD, 0, anew=0.5))) == 1, "a neighbour's tile is no pass"
    half, more = (again(LOAD, 0, elements=LOAD.elements * share) for share in (0.5, 0.51))
    assert [passes_of(with_accesses(LOAD, one)) for one in (half, more)] == [1, 2]
    assert own_bytes(replace(LOAD, distinct=0.5, repeats=4.0)) == LOAD.bytes / 8


@pytest.mark.parametrize(("share", "told"), [(0.0, True), (0.33, True), (0.34, False), (1.0, False)])
def test_a_third_of_the_bytes_may_be_at_unknown_addresses(share, told):
    addressed = replace(LOAD, elements=1000.0 * (1 - share))
    unknown = replace(LOAD, elements=1000.0 * share, known=False)
    launch = with_accesses(addressed, unknown)
    assert (why_silent(launch) == "") == told
    assert told or why_silent(launch).startswith(f"{share:.0%} of its bytes")


def test_without_bytes_and_products_nothing_is_told():
    assert why_silent(with_accesses()) == "none of its loads, stores and products could be read"
    assert why_silent(replace(MATMUL, accesses=())) == ""


def test_a_main_loop_that_data_end_after_one_turn_is_not_told():
    loop = MATMUL.loops[0]
    for by_data, turns, silent in ((True, 1.0, True), (True, 10.0, False), (False, 1.0, False)):
        launch = replace(MATMUL, loops=(replace(loop, by_data=by_data, turns=turns, entries=1.0),))
        assert bool(why_silent(launch)) == silent
    outside = replace(MATMUL, products=(replace(MATMUL.products[0], loop=-1),))
    assert main_loops(outside) == set()
    assert main_loops(MATMUL) == {0}
    few, many = replace(LOAD, loop=1, elements=1.0), replace(LOAD, loop=0, elements=9.0)
    assert main_loops(with_accesses(few, many)) == {0}
    assert main_loops(with_accesses(replace(LOAD, loop=-1))) == main_loops(with_accesses()) == set()


def test_dram_delivers_what_is_different_once_and_more_where_l2_forgets():
    launch = matmul(grid=(4000, 1, 1))
    loads = [access for access in launch.accesses if access.kind == "load"]
    once = sum({access.argument: own_bytes(access) * different(access, launch, 4000) for access in loads}.values())
    for at_once in (1, 132, 5000):
        assert dram_bytes(launch, loads, H200, at_once) <= once
    forgetful = replace(H200, l2_bytes=1)
    assert dram_bytes(launch, loads, forgetful, 1) >= dram_bytes(launch, loads, H200, 1)
    assert dram_bytes(launch, loads, H200, 4000) == pytest.approx(dram_bytes(launch, loads, H200, 9000))


def test_a_walk_waits_once_outside_of_loops_and_moves_what_it_writes():
    walk = walk_of(COPY)
    assert (walk.batches, walk.near, walk.turns, walk.loops) == (1.0, 0.0, 1.0, ())
    assert walk.own_bytes == LOAD.bytes
    assert walk.written_bytes == STORE.bytes
    assert walk.streamed_bytes == LOAD.bytes
    atomic = walk_of(with_accesses(LOAD, replace(STORE, kind="atomic")))
    assert atomic.written_bytes == 2 * STORE.bytes
    assert walk_of(with_accesses(replace(LOAD, elements=0.0), STORE)).batches == 0.0
    scattered = walk_of(with_accesses(replace(LOAD, sectors=float(LOAD.tile)), STORE))
    assert (walk.lines, scattered.lines) == (0.0, LOAD.lines + STORE.lines)


@pytest.mark.parametrize(("entries", "rows"), [((), 1), ((1.0,), 1), ((0.5,), 1), ((1.0, 5.5), 6)])
def test_each_warp_leaves_a_part_of_each_row_that_a_loop_is_entered_for(entries, rows):
    loops = tuple(replace(MATMUL.loops[0], entries=one, parent=-1) for one in entries)
    tiles = readings_of({1: KernelWork((replace(COPY, loops=loops),))}).model(H200).work.tiles
    assert tiles.plan({"n": 1, "num_warps": 8, "num_stages": 1}, H200).footprint.shared_bytes == 4 * 8 * rows


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0 "), (999.0, "999 "), (1000.0, "1 k"), (999_999.0, "1000 k"), (1e6, "1 M"), (1e9, "1 G"),
     (2.5e12, "2.5 T"), (-1e3, "-1 k")],
)  # fmt: skip
def test_a_large_number_is_told_in_thousands(number, text):
    assert _short(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (1.0, "1"), (1.5, "1.5"), (99.9, "99.9"), (99.96, "100"), (100.4, "100"), (12345.6, "12,346"),
     (7.0, "7"), (0.3333, "0.333")],
)  # fmt: skip
def test_a_count_is_told_whole_or_with_three_digits(number, text):
    assert _count(number) == text
    assert _times(number, "turn") == f"{text} turn{'' if text == '1' else 's'}"


LOOP = MATMUL.loops[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "10 iterations"), ({"turns": 1.0, "most": 1.0}, "1 iteration"), ({"most": 10.05}, "10 iterations"),
        ({"most": 10.2}, "10 iterations, 10.2 at most"), ({"entries": 1.005}, "10 iterations"),
        ({"entries": 2.0}, "10 iterations in 2 walks"), ({"stages": 1}, "10 iterations, 1 stage asked for"),
        ({"stages": 2}, "10 iterations, 2 stages asked for"),
        ({"by_data": True}, "10 iterations, its bounds are data"),
    ],
)  # fmt: skip
def test_a_loop_is_told_by_its_turns(change, words):
    assert [*_loops_in_words(replace(MATMUL, loops=(replace(LOOP, **change),)))] == [words]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"loads": (-1, 1)}, "; the left operand is computed"),
        ({"loads": (0, -1)}, "; the right operand is computed"),
        ({"loads": (-1, -1)}, ""),
        ({"computed": True}, "; in each iteration it waits for arithmetic"),
        ({"after": (0,), "computed": True}, "; in each iteration it waits for product"),
        ({"after": (0, 2)}, "; in each iteration it waits for product and product 3"),
    ],
)
def test_a_product_is_told_by_its_tile_and_what_it_waits_for(change, words):
    product = replace(MATMUL.products[0], **change)
    tile = "16x64, sums of 32, float16, 10 times; 262.1 MFLOP in all"
    assert _product_in_words(product, MATMUL) == tile + words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""), ({"known": False}, ", at unknown addresses"), ({"repeats": 1.005}, ""),
        ({"repeats": 3.0}, ", the same addresses 3 times"), ({"shared": (1.0, 2.0, 4.0, 5.4)}, ""),
        ({"shared": (1.0, 2.0, 4.0, 5.0)}, ", each address by 1.6 programs"),
        ({"shared": (1.0, 2.0, 4.0, 5.0), "kind": "store"}, ""), ({"again": 0}, ", the same addresses as load"),
        ({"again": 1}, ", the same addresses as store"),
        ({"again": 0, "anew": 0.25}, ", 75% of its addresses with load"),
    ],
)  # fmt: skip
def test_an_access_is_told_by_its_bytes_and_addresses(change, words):
    access = replace(LOAD, elements=100.0, run_bytes=40.0, **change)
    assert _access_in_words(access, COPY) == f"x: 400 B per program, 3.2 kB in all, runs of 40 B{words}"


def test_an_access_in_a_loop_of_what_has_no_name():
    access = replace(LOAD, elements=100.0, run_bytes=40.0, argument=-1, executions=1.005)
    assert _access_in_words(access, COPY).startswith("an unknown argument: 400 B per program, 3.2 kB")
    assert " in 2 iterations," in _access_in_words(replace(access, executions=2.0), COPY)
    assert _access_in_words(replace(access, argument=3), COPY).startswith("an unknown argument")


def test_launches_are_told_one_by_one_and_names_that_repeat_are_counted():
    words = work_in_words(WORKS["three launches"])
    assert [key for key in words if "load" in key] == [
        "launch 1: load", "launch 2: load", "launch 2: load 2", "launch 3: load", "launch 3: load 2"
    ]  # fmt: skip
    assert words["launch 2: programs"] == "400"
    assert work_in_words(WORKS["silent"]) == {"work": "cannot be read: it is no kernel"}
    assert "programs" in work_in_words(WORKS["copy"])
    assert work_in_words(KernelWork((replace(COPY, grid=(2, 1, 3)),)))["programs"] == "2 x 3"
    assert work_in_words(KernelWork((replace(COPY, grid=(1, 1, 1)),)))["programs"] == "1"


def test_notes_and_why_there_is_no_forecast_are_told():
    words = work_in_words(
        KernelWork((replace(COPY, notes=("one", "two"), accesses=(replace(LOAD, known=False), STORE)),))
    )
    assert (words["note"], words["note 2"]) == ("one", "two")
    assert words["no forecast"].startswith("50% of its bytes")
    assert "no forecast" not in work_in_words(WORKS["copy"])
    assert work_in_words(KernelWork((replace(COPY, reductions=2.0),)))["reductions"] == "2 per program"
    assert "load" not in work_in_words(KernelWork((with_accesses(replace(LOAD, elements=0.0), STORE),)))


ROWS = RowTiles(8, 128, dtype="float32", out_dtype="float32", tile_rows=1, tile_columns=128, passes=1)


@pytest.mark.parametrize(("share", "told"), [(0.79, True), (0.8, False), (1.0, False), (1.25, False), (1.26, True)])
def test_a_declaration_that_is_a_fifth_or_a_quarter_off_is_told(share, told):
    for declared, read in ((Work(1e6, 0.0), Work(share * 1e6, 7.0)), (Work(0.0, 1e6), Work(7.0, share * 1e6))):
        assert bool(differences(declared, read, [], [])) == told


def test_other_passes_and_another_order_are_told():
    works = [WORKS["copy"]]
    assert differences(Work(tiles=ROWS), Work(), works, []) == []
    (sentence,) = differences(Work(tiles=replace(ROWS, passes=2)), Work(), works, [])
    assert sentence == "2 passes over a row are declared, and the kernel reads it 1 times"
    assert differences(Work(tiles=replace(ROWS, passes=2)), Work(), [WORKS["matmul"]], []) == []
    often = with_accesses(LOAD, *(again(LOAD, at) for at in range(7)))
    (sentence,) = differences(Work(tiles=replace(ROWS, passes=2)), Work(), [KernelWork((often, COPY))], [])
    assert sentence.endswith("the kernel reads it 1 or 8 times")
    opposite = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]
    (sentence,) = differences(Work(), Work(), [], opposite)
    assert sentence.startswith("both order 3 configs in other ways: their rank correlation is -1.00")
    assert differences(Work(), Work(), [], opposite[:2]) == []
    assert differences(Work(), Work(), [], [*opposite[:2], (math.nan, 1.0), (1.0, math.inf)]) == []
    near = [(1.0, 1.0), (2.0, 2.0), (3.0, 4.0), (4.0, 3.0)]  # 0.8
    assert differences(Work(), Work(), [], near) == []


def test_readings_tell_the_least_and_why_none_is_known():
    readings = readings_of({1: WORKS["matmul"], 2: WORKS["copy"], 3: WORKS["silent"], 4: KernelWork((matmul(20),))})
    assert readings.work.flops == 0.0
    assert readings.dtype == "float16"
    assert readings.silent == ""
    assert len(readings.known_works) == 3
    silent = readings_of(
        {1: WORKS["silent"], 2: KernelWork((with_accesses(),)), 3: KernelWork(silent="it is no kernel")}
    )
    assert silent.silent == "it is no kernel"
    unread = "none of its loads, stores and products could be read"
    assert readings_of({1: KernelWork((with_accesses(),))}).silent == unread
    assert Readings(("n",)).silent == "no config was read"
    assert (silent.work.flops, silent.work.bytes, silent.dtype) == (0.0, 0.0, "")
    several = readings_of(
        {1: WORKS["matmul"], 2: KernelWork((replace(MATMUL, products=(replace(MATMUL.products[0], element="bf16"),)),))}
    )
    assert several.dtype == ""
    configs = [Config(n=n, num_warps=warps) for n in (1, 2) for warps in (1, 4)]
    assert readings.representatives(configs) == [configs[0], configs[2]]
    assert readings.key(Config(n=True)) != readings.key(Config(n=1))
    with pytest.raises(UnknownTileError, match="its TTIR was not read"):
        readings.work.tiles.plan({"n": 9}, H200)
    with pytest.raises(UnknownTileError, match="no kernel is launched"):
        readings_of({1: KernelWork(())}).work.tiles.plan({"n": 1}, H200)


@pytest.mark.parametrize(("count", "enough"), [(11, False), (12, True)])
def test_a_fit_needs_twelve_forecasts(count, enough):
    works = {n: KernelWork((matmul(4 * n, (100 * n, 1, 1)),)) for n in range(1, count + 1)}
    configs = [Config(n=n, num_warps=4, num_stages=3) for n in range(1, 15)]
    prior = readings_of(works).prior(H200, configs)
    assert prior.silent == ""
    assert math.isfinite(prior.score([configs[-1]])[0]) == enough
    unread = readings_of({**works, 14: WORKS["silent"]})
    assert math.isnan(InferredPrior(unread, H200, configs).score([configs[-1]])[0]), "it was read, and tells nothing"


@pytest.mark.parametrize(("steps", "useful"), [((100, 100), False), ((1000, 1005), False), ((1000, 1100), True)])
def test_forecasts_within_two_percent_order_nothing(steps, useful):
    works = {n: KernelWork((matmul(step, (4000, 1, 1)),)) for n, step in enumerate(steps)}
    prior = InferredPrior(readings_of(works), H200, [Config(n=n, num_warps=4, num_stages=3) for n in works])
    assert (prior.silent == "") == useful
    assert useful or "within 2% of each other" in prior.silent
    nothing = InferredPrior(readings_of(works), H200, [Config(n=77, num_warps=4)])
    assert nothing.silent == "no config has a forecast on this device"


def test_the_declaration_and_the_kernel_are_compared_over_the_configs_that_were_read():
    readings = readings_of({1: WORKS["copy"], 2: WORKS["silent"]})
    configs = [Config(n=n, num_warps=4, num_stages=1) for n in (1, 2)]
    declared = Model(Work(0.0, 3 * readings.work.bytes, ROWS), H200)
    (sentence,) = readings.differences(declared, configs)
    assert sentence.endswith("the kernel's least is 8 kB")
