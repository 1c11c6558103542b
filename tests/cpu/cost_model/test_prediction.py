"""Picks, fits, ranks and schedules are those that a plain count over all configs or blocks gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.cost_model.test_model import ATTENTION, GEMM, H200, TILE
from tests.cpu.cost_model.test_read_figures import matmul, readings_of
from triton_ops import ConfigSpace, GemmTiles, PowerOfTwo, Work
from triton_ops.cost_model import Model, ProductTiles
from triton_ops.cost_model.blocks import (
    Wave,
    chained_footprint,
    footprint_of,
    overlap_ns,
    row_footprint,
    schedule,
    tile_footprint,
)
from triton_ops.cost_model.prediction import Fit, ModelPrior
from triton_ops.kernel_ir import KernelWork
from triton_ops.space import Config
from triton_ops.values import (
    Compiled,
    Footprint,
    Resources,
    Schedule,
    Status,
    TilePlan,
    Trial,
    UnknownTileError,
    tile_side,
)

LAUNCH_MS = H200.launch_us / 1e3


@dataclass(frozen=True)
class TimedTiles:
    """Tiles that take a millisecond for each step that a config is away from the best one."""

    best: int = 64
    kind: str = "a"
    spilled: int = 1 << 30  # the SIZE from which on a block is expected to spill
    unseen: str = ""

    def plan(self, config, machine):
        size = tile_side("SIZE", config)
        apart = abs(math.log2(size / self.best)) + (config.get("KIND", self.kind) != self.kind) / 2
        if size > 1 << 20:
            raise UnknownTileError("too wide")
        time = Schedule(1e-3 * (1 + apart), 1.0, {"steps": 1e-3 * (1 + apart)})
        return TilePlan(4, Footprint(64, 8.0 if size >= self.spilled else 0.0, 1024, known=True), lambda _: time)


def space_of(default, **more):
    return ConfigSpace(
        {"SIZE": PowerOfTwo(1, 1 << 16), **more}, default={"SIZE": default, **{k: v[0] for k, v in more.items()}}
    )


def test_the_pick_is_the_config_that_is_fastest_of_all_and_is_reached_step_by_step():
    space = space_of(1 << 14)
    pick = Model(Work(tiles=TimedTiles(64)), H200).first_pick(space, [], 0.0)
    assert dict(pick.config) == {"SIZE": 64}
    assert pick.expected_ms == pytest.approx(1e-3 + LAUNCH_MS)
    assert pick.default_ms == pytest.approx(9e-3 + LAUNCH_MS)
    assert str(pick).startswith("a model of the work expects 0.0045 ms, 2.78 times as fast as the default")


@pytest.mark.parametrize(("steps", "reached"), [(12, True), (13, False)])
def test_a_pick_is_at_most_twelve_steps_away(steps, reached):
    pick = Model(Work(tiles=TimedTiles(4)), H200).first_pick(space_of(4 << steps), [], 0.0)
    assert (pick.config["SIZE"] == 4) == reached


def test_a_winner_of_another_problem_is_where_a_pick_begins_and_lends_its_choices():
    model = Model(Work(tiles=TimedTiles(4, kind="b")), H200)
    space = space_of(1 << 16, KIND=["a", "b", "c"])
    alone = model.first_pick(space, [], 0.0)
    assert dict(alone.config) == {"SIZE": 1 << 4, "KIND": "a"}, "twelve steps, and no other choice"
    begun = model.first_pick(space, [Config(SIZE=8, KIND="b"), Config(SIZE=3, KIND="b")], 0.0)
    assert dict(begun.config) == {"SIZE": 4, "KIND": "b"}
    lent = model.first_pick(space, [Config(SIZE=1 << 16, KIND="b")], 0.0)
    assert lent.config["KIND"] == "b"


def test_there_is_no_pick_where_nothing_was_recorded_or_the_default_has_no_forecast():
    space, model = space_of(1 << 14), Model(Work(tiles=TimedTiles()), H200)
    assert Model(Work(tiles=TimedTiles()), None).first_pick(space, [], 0.0) is None
    assert Model(model.work, replace(H200, unseen="unseen: it")).first_pick(space, [], 0.0) is None
    assert Model(Work(tiles=TimedTiles(unseen="unseen: they")), H200).first_pick(space, [], 0.0) is None
    wide = ConfigSpace({"SIZE": [1 << 30, 64]}, default={"SIZE": 1 << 30})
    assert model.first_pick(wide, [Config(SIZE=64)], 0.0) is None


def test_what_is_expected_to_spill_is_not_picked_and_a_default_that_spills_is_judged_without():
    spills = TimedTiles(64, spilled=256)
    pick = Model(Work(tiles=spills), H200).first_pick(space_of(1 << 14), [Config(SIZE=128)], 0.0)
    assert pick.config["SIZE"] == 64
    assert Model(Work(tiles=TimedTiles(1 << 14, spilled=2)), H200).first_pick(space_of(1 << 14), [], 0.0) is None


@dataclass(frozen=True)
class TwoTimes:
    """Tiles of two configs, in milliseconds."""

    first: float
    second: float

    def plan(self, config, machine):
        time = Schedule((self.first, self.second)[config["AT"]] - LAUNCH_MS, 1.0, {})
        return TilePlan(4, Footprint(64, 0.0, 1024, known=True), lambda _: time)


@pytest.mark.parametrize(
    ("default", "other", "gain", "picked"),
    [
        (1.0, 0.979, 0.0, True), (1.0, 0.981, 0.0, False),  # for two percent a config is left
        (1.0, 0.9, 0.10, True), (1.0, 0.95, 0.10, False), (1.0, 0.91, 0.10, False),
        (0.02, 0.0189, 0.0, True), (0.02, 0.0191, 0.0, False),  # 1 us is the least that is saved
        (0.005, 0.0039, 0.0, True), (0.005, 0.0041, 0.0, False),  # or a quarter
    ],
)  # fmt: skip
def test_a_pick_gains_as_much_as_is_asked_for_and_as_the_model_can_tell(default, other, gain, picked):
    space = ConfigSpace({"AT": [0, 1]}, default={"AT": 0})
    pick = Model(Work(tiles=TwoTimes(default, other)), H200).first_pick(space, [], gain)
    assert (pick is not None) == picked
    if picked:
        assert (pick.config["AT"], pick.expected_ms, pick.default_ms) == (
            1,
            pytest.approx(other),
            pytest.approx(default),
        )


def ranks(values):
    return [sum(other < one for other in values) + (sum(other == one for other in values) - 1) / 2 for one in values]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_spearman_is_the_correlation_of_mean_ranks(pairs):
    first, second = zip(*pairs, strict=True)
    if len({*first}) < 2 or len({*second}) < 2:
        assert Model.spearman(first, second) == 1.0
        return
    assert Model.spearman(first, second) == pytest.approx(np.corrcoef(ranks(first), ranks(second))[0, 1])


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([True, False]), st.sampled_from("abc"),
                          st.floats(0.01, 100)), min_size=1, max_size=20))  # fmt: skip
def test_a_fit_is_the_ridge_of_second_degree_within_the_range_of_what_is_known(rows):
    def columns(configs, kept):
        first = [[math.log2(one["n"]) for one in configs]]
        first += [
            [float(one["flag"] == value) for one in configs]
            for value in sorted({c["flag"] for c in kept}, key=repr)[1:]
        ]
        first += [
            [float(one["word"] == value) for one in configs]
            for value in sorted({c["word"] for c in kept}, key=repr)[1:]
        ]
        several = [np.array(one) for one in first]
        products = [a * b for at, a in enumerate(several) for b in several[at:]]
        return np.stack([np.ones(len(configs)), *several, *products], axis=1)

    configs = [{"n": n, "flag": flag, "word": word} for n, flag, word, _ in rows]
    logs = np.log([row[3] for row in rows])
    x = columns(configs, configs)
    weights = np.linalg.solve(x.T @ x + 1e-2 * len(rows) * np.eye(x.shape[1]), x.T @ (logs - logs.mean()))
    others = [{"n": n, "flag": flag, "word": word} for n in (1, 8, 64) for flag in (True, False) for word in "ad"]
    expected = np.clip(columns(others, configs) @ weights + logs.mean(), logs.min(), logs.max())
    assert np.log(Fit(configs, np.exp(logs).tolist()).times(others)) == pytest.approx(expected, abs=1e-6)


def test_a_fit_takes_names_that_only_some_configs_have_as_words():
    configs = [{"n": n, **({"m": 2} if n > 2 else {})} for n in (1, 2, 4, 8)]
    times = Fit(configs, [1.0, 2.0, 8.0, 16.0]).times([*configs, {"n": 0}])
    assert times[:4] == sorted(times[:4])
    assert 1.0 <= times[4] <= 16.0


@pytest.mark.parametrize("several", [39, 40, 41])
def test_a_fit_of_more_than_forty_columns_is_of_first_degree(several):
    configs = [{"n": 1 << at, **{f"w{k}": int(k == at) - 1 for k in range(several - 1)}} for at in range(50)]
    fit = Fit(configs, [1.0 + at for at in range(50)])
    columns = several + 1 + (several * (several + 1) // 2 if several <= 40 else 0)
    assert fit._rows(configs).shape == (50, columns)


def test_the_prior_takes_the_compilers_figures_of_trials_and_what_previews_say_of_products():
    model = Model(Work(tiles=GEMM), H200)
    configs = [Config({**TILE, "BM": side}) for side in (64, 128, 256)]
    prior = ModelPrior(model)
    assert prior.score(configs) == model.score(configs)
    serialised, compiled = Resources(serialised=True), Resources(255, 400, 100_000)
    several = (Resources(255, 400, 100_000, serialised=True), compiled, None)
    prior.take_previews([Compiled(one, Status.OK, "", each) for one, each in zip(configs, several, strict=True)])
    assert prior.score(configs) == [model.expected_ms(configs[0], serialised), *model.score(configs[1:])]


def test_the_prior_keeps_what_the_compiler_gave_the_trials_of_a_search():
    model = Model(Work(tiles=GEMM), H200)
    configs = [Config({**TILE, "BM": side}) for side in (64, 128)]
    prior, compiled = model.prior, Resources(255, 400, 100_000)
    assert prior.score(configs) == model.score(configs)
    prior.tell(
        [
            Trial(configs[0], Status.RESOURCES, error="too many", resources=compiled),
            Trial(configs[1], Status.COMPILE, error="no"),
        ]
    )
    assert prior.score(configs) == [model.expected_ms(configs[0], compiled), model.expected_ms(configs[1])]


def test_why_a_model_is_silent():
    work = Work(tiles=GEMM)
    assert Model(work, None).why_silent(TILE) == "the model does not know the device"
    assert Model(Work(1.0), H200).why_silent(TILE) == "the work has no tiles"
    assert "whole number" in Model(work, H200).why_silent({**TILE, "num_warps": 0.5})
    assert math.isnan(Model(work, H200).expected_ms({**TILE, "num_warps": 0.5}))
    assert Model(work, H200).why_silent(TILE) == ""


def test_a_dtype_without_a_matrix_rate_is_told_of_products_of_every_kind():
    launch = matmul()
    read = KernelWork((replace(launch, products=(replace(launch.products[0], element="f64"),)),))
    works = [Work(tiles=replace(tiles, dtype="float64")) for tiles in (GEMM, ATTENTION)]
    works += [Work(tiles=ProductTiles(replace(GEMM, dtype="float64"))), readings_of({1: read}).work]
    for work in works:
        config = {**TILE, "n": 1}
        assert Model(work, H200).why_silent(config) == "the device has no known matrix rate for float64"
        assert Model(work, H200).explain(config) is None


def test_a_mean_of_guessed_registers_is_that_of_a_tenth_more_and_less():
    times = {1: 9.0, 2: 4.0, 3: 2.0, 4: 1.0}

    @dataclass(frozen=True)
    class Guessed:
        registers: int
        known: bool = False

        def plan(self, config, machine):
            def timed(footprint):
                return Schedule(times[machine.blocks_at_once(footprint.registers, 1024, 8)], 1.0, {})

            return TilePlan(8, Footprint(self.registers, 0.0, 1024, known=self.known), timed)

    def mean(registers, known=False):
        return Model(Work(tiles=Guessed(registers, known)), H200).expected_ms({}) - LAUNCH_MS

    for registers in (80, 84, 88, 120, 128, 200, 250):
        several = [min(round(registers * share), 255) for share in (1.0, 0.9, 1.1)]
        expected = sum(times[H200.blocks_at_once(one, 1024, 8)] for one in several) / 3
        assert mean(registers) == pytest.approx(expected)
        assert mean(registers, known=True) == pytest.approx(times[H200.blocks_at_once(registers, 1024, 8)])


@pytest.mark.parametrize(("shared", "fits"), [(232_448, True), (232_449, False)])
def test_a_block_may_have_as_much_shared_memory_as_the_device_gives(shared, fits):
    assert H200.shared_bytes_per_block == 232_448
    expected = Model(Work(tiles=GEMM), H200).expected_ms(TILE, Resources(128, 0, shared))
    assert math.isfinite(expected) == fits


@pytest.mark.parametrize(("warps", "runs"), [(1, True), (32, True), (33, False), (64, False), (3, False)])
def test_as_many_warps_as_a_block_may_have_are_launched(warps, runs):
    model = Model(Work(tiles=GEMM), H200)
    assert math.isfinite(model.expected_ms({**TILE, "num_warps": warps})) == runs
    words = "its num_warps is no power of two, or makes more threads than a block may have"
    assert model.why_silent({**TILE, "num_warps": warps}) == ("" if runs else words)


def test_a_bound_is_the_longer_of_bytes_and_operations():
    rate, peak = H200.mma_tflops("bfloat16"), H200.peak_dram_gbps
    for flops, moved, expected in ((rate * 1e9, 0.0, 1.0), (0.0, peak * 1e6, 1.0), (rate * 2e9, peak * 1e6, 2.0)):
        assert Model(Work(flops, moved, GEMM), H200).bound_ms(TILE) == pytest.approx(expected)
    assert Model(Work(1e9, 1e9, GEMM), None).bound_ms(TILE) == 0.0
    unknown = GemmTiles(1, 1, 1, dtype="float64", out_dtype="float64", tile_rows=1, tile_columns=1, tile_inner=1)
    assert Model(Work(1e12, peak * 1e6, unknown), H200).bound_ms(TILE) == pytest.approx(1.0)


@given(st.integers(1, 3000), st.integers(1, 8), st.floats(0, 100))
def test_a_schedule_adds_up_full_waves_and_the_rest(blocks, at_once, turn):
    filled = at_once * H200.units
    full, rest = divmod(blocks, filled)
    depths = [at_once] * full + ([math.ceil(rest / H200.units)] if rest else [])
    result = schedule(blocks, at_once, H200, lambda depth, count: Wave(7.0 * depth + count, turn, {"a": 2.0 * depth}))
    counts = [filled] * full + ([rest] if rest else [])
    expected = sum(7.0 * depth + count + turn / depth for depth, count in zip(depths, counts, strict=True))
    expected += turn * (1 - 1 / depths[-1])
    assert result.time_ms == pytest.approx(expected / 1e6)
    assert result.waves == pytest.approx(blocks / filled)
    assert result.alone_ms["a"] == pytest.approx(sum(2.0 * depth for depth in depths) / 1e6)
    assert result.alone_ms["turnover"] == pytest.approx(sum(turn / depth for depth in depths) / 1e6)


def test_times_overlap_as_a_norm_of_theirs():
    assert overlap_ns({"a": 3.0, "b": 4.0}, 2.0) == pytest.approx(5.0)
    assert overlap_ns({"a": 3.0}, 9.0) == 3.0
    assert overlap_ns({"a": 0.0, "b": 0.0}, 2.0) == 0.0
    assert overlap_ns({"a": 1e-30, "b": 0.0}, 2.0) == pytest.approx(1e-30)


def test_a_guess_of_a_tile_spills_from_where_registers_end():
    for accumulator, spilled in ((254.0, 0.0), (255.0, 2.25 * (255 - 183)), (300.0, 2.25 * (300 - 183))):
        assert tile_footprint(accumulator, 0.0, True, 7, 0.0) == Footprint(255, spilled * 4, 7)
    for copies, more in ((64.0, 0.0), (65.0, 3.1), (63.0, 0.0)):
        assert tile_footprint(10.0, copies, False, 7, 0.0).spill_bytes == pytest.approx(more * 4)
    assert tile_footprint(0.0, 0.0, True, 0, 0.0).registers == 30
    assert tile_footprint(64.0, 64.0, True, 0, 64.0).spill_bytes == 0  # 230 registers of 128x128x128 and eight warps
    assert tile_footprint(128.0, 64.0, True, 0, 64.0).spill_bytes > 0  # 40 bytes of 128x128x64 and four warps
    assert tile_footprint(100.0, 10.0, True, 0, 0.0).registers == (14 + 115 + 31)
    assert tile_footprint(100.0, 10.0, False, 0, 0.0).registers == (14 + 115 + 31 + 22)


def test_a_guess_of_products_that_wait_goes_by_what_is_passing():
    def registers(accumulator, passing, operations, grouped):
        alive = 1.05 * min(max((operations - 2) / 2, 1.0), 2.2)
        return 40 + 1.08 * accumulator + alive * passing + (0 if grouped else 20)

    for case in ((50, 20, 4, True), (50, 20, 4, False), (50, 20, 0, True), (50, 20, 9, True), (200, 64, 8, True)):
        own = registers(*case)
        expected = Footprint(int(min(own, 255)), max(0.0, 5.5 * (own - 300)), 11)
        assert chained_footprint(*case, 11) == expected


@pytest.mark.parametrize("warps", [1, 4, 16, 32])
@pytest.mark.parametrize(
    ("elements", "alive", "loaded"), [(8, 0, 0), (64, 10, 0), (64, 100, 0), (16, 90, 120), (300, 300, 10)]
)
def test_a_guess_of_rows_holds_what_is_alive_or_on_the_way(warps, elements, alive, loaded):
    most = min(255, 65_536 // (32 * warps))
    own = 22 + 0.13 * elements
    held = max(alive, loaded) if loaded else max(elements, alive)
    kept = alive if loaded else max(elements, alive)
    expected = Footprint(min(int(min(max(own + held, 30), 255)), most), max(0.0, own + kept - most) * 8, 3 * warps * 4)
    assert row_footprint(elements, warps, 3, alive, loaded) == expected


def test_what_the_compiler_tells_takes_the_place_of_a_guess():
    guess = Footprint(100, 8.0, 512)
    assert footprint_of(guess, None) is guess
    assert footprint_of(guess, Resources(serialised=True)) == replace(guess, serialised=True)
    assert footprint_of(guess, Resources(64)) == Footprint(64, 8.0, 512, known=True)
    assert footprint_of(guess, Resources(64, 0, 0, serialised=False)) == Footprint(64, 0, 0, True, False)
