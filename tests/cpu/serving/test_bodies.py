"""Several configs of a kernel and the statistic that chooses among them: what is chosen from draws, and at a call."""

import math
import random
from dataclasses import replace

import pytest

import triton_ops
from triton_ops import Config, Contents, operation
from triton_ops.exceptions import SettingsError
from triton_ops.records import Lockfile, LockPlan, lock_of
from triton_ops_serving.bodies import Bodies, statistics_of

SMALL, LARGE, DEFAULT = (Config(TILE=tile) for tile in (16, 128, 64))


def draws(count=48, *, apart=1.1, noise=0.0, seed=0):
    """Times of which the small tile is best below 400 tiles, and the large one above; `largest` tells nothing."""
    rng = random.Random(seed)
    some = []
    for _ in range(count):
        tiles, largest = rng.randrange(100, 1000), rng.randrange(1, 1000)
        ms = {SMALL: 1.0 if tiles < 400 else apart, LARGE: apart if tiles < 400 else 1.0, DEFAULT: 1.05 * apart}
        times = {config: each * (1 + rng.gauss(0, noise)) for config, each in ms.items()}
        some.append(({"largest": largest, "tiles": tiles}, times))
    return some


def test_the_statistic_that_tells_contents_apart_is_chosen_with_its_cut():
    bodies = Bodies.of(draws(noise=0.005), DEFAULT)
    assert bodies.statistic == "tiles"
    assert bodies.configs == (SMALL, LARGE)
    assert 350 < bodies.ends[0] < 450
    assert [bodies.config({"tiles": tiles}) for tiles in (1, 300, 500, 10**12)] == [SMALL, SMALL, LARGE, LARGE]


@pytest.mark.processes
def test_one_config_is_taken_where_all_are_equal_but_for_noise():
    assert Bodies.of(draws(9), DEFAULT).buckets == {}  # too few to be judged by the others
    for seed in range(20):
        rng = random.Random(seed)
        alike = [(known, {config: rng.gauss(1, 0.005) for config in times}) for known, times in draws(seed=seed)]
        assert len(Bodies.of(alike, DEFAULT).configs) == 1


def test_no_body_is_slower_than_the_default_on_a_draw_of_its_range():
    some = draws()
    some[3][1][SMALL] = some[3][1][LARGE] = 1.1 * some[3][1][DEFAULT]
    bodies = Bodies.of(some, DEFAULT)
    assert all(times[bodies.config(known)] <= (1 + Contents.SLOWER) * times[DEFAULT] for known, times in some)


def test_statistics_that_a_draw_lacks_and_times_that_are_none_choose_nothing():
    some = draws()
    some[7] = ({"largest": 5, "tiles": math.nan}, {**some[7][1], DEFAULT: math.nan})
    bodies = Bodies.of(some, DEFAULT)
    assert bodies.statistic in ("", "largest")
    assert DEFAULT not in bodies.configs
    with pytest.raises(SettingsError, match="no config has a time on every draw"):
        Bodies.of([({}, {SMALL: math.inf})], DEFAULT)
    with pytest.raises(SettingsError):
        Bodies.of([], DEFAULT)
    assert Bodies.of([({}, {SMALL: 1.0})], DEFAULT).configs == (SMALL,)
    same = [({"tiles": 5}, times) for _, times in some]
    assert len(Bodies.of(same, DEFAULT).configs) == 1


def test_sizes_of_groups_are_told_as_numbers_that_buckets_take():
    assert statistics_of([0, 5, 40], [16, 32]) == {
        "groups": 2, "largest": 40, "group_of_a_row": 36, "tiles_of_16": 4, "tiles_of_32": 3,
    }  # fmt: skip
    assert set(statistics_of([], [16]).values()) == {1}


@operation(space={"TILE": [64, 16, 128]}, arguments=lambda tiles=1: {"tiles": tiles})
def grouped(tiles, TILE):
    return TILE


def test_a_lockfile_holds_the_rule_and_why_names_the_range(tmp_path):
    bodies = Bodies.of(draws(), DEFAULT)
    places = {at: bodies.place(at) for at in (1, 300, 500, 10**6)}
    assert sorted({*places.values()}) == [*bodies.ends]
    records = []
    for end, config in zip(bodies.ends, bodies.configs, strict=True):
        triton_ops.tune(grouped, kwargs={"tiles": end}, space={"TILE": [config["TILE"]]}, device="cpu", effort="race")
        records.append(
            triton_ops.recall(grouped, kwargs={"tiles": end}, device="cpu", space={"TILE": [config["TILE"]]})
        )
    lock, left_out = lock_of(records, LockPlan(buckets=bodies.buckets, unproven=True))
    assert not left_out
    lock.write(tmp_path / "lock.json")
    with triton_ops.replaying(tmp_path / "lock.json"):
        assert [grouped(tiles=each) for each in (*places, *places.values())] == 2 * [16, 16, 128, 128]
    pinned = Lockfile.read(tmp_path / "lock.json")
    branches = [str(pinned.find(replace(one.key, problem={**one.key.problem, "tiles": at})))
                for one, at in zip(records, (300, 500), strict=True)]  # fmt: skip
    assert f"tiles from 1 to {bodies.ends[0]}" in branches[0]
    assert f"tiles from {bodies.ends[0] + 1} to {bodies.ends[1]}" in branches[1]
