"""Whole selections on a simulated device reach their grades, whatever goes on besides.

`benchmarks/simulated_quality.py` has the full figures; these are fewer repeats of the same, with fixed seeds.
"""

import math
import random
import statistics

import pytest
from benchmarks.simulated_quality import POLICY, SHAPES, condition, flip_rate, graded, shortfalls, told_apart

from triton_ops.measure import Launch, RacePolicy, take
from triton_ops.measure.select import SelectPolicy, finalists, first_looks, select
from triton_ops.measure.simulate import (
    DISTURBANCES,
    POWER_CAPPED,
    Disturbance,
    Noise,
    SimulatedDevice,
    SimulatedTimer,
)
from triton_ops.measure.stats import wilson

SOME = ("matmul bf16 16x14336x4096", "matmul fp8 1024x8192x8192", "rmsnorm bf16 128x8192", "many ties, power-capped")
SILENT = Noise(sample=0, spikes=0, drift=0, carry=0, process=0)


@pytest.fixture(scope="module")
def figures():
    shapes = {name: SHAPES[name] for name in SOME}
    return {name: condition(it, shapes, repeats=5, pairs=8) for name, it in DISTURBANCES.items()}


def test_winners_are_within_one_percent_of_the_best(figures):
    good, count = (sum(found[key] for found in figures.values()) for key in ("within_1pct", "selections"))
    assert count >= 100
    assert wilson(good, count).low >= 0.95


@pytest.mark.parametrize("name", DISTURBANCES)
def test_no_disturbance_matters(figures, name):
    found = figures[name]
    assert found["within_1pct"] >= found["selections"] - 1
    assert found["regret_p95"] <= 0.01
    assert found["outside_tie_set"] <= 1 / found["selections"]
    assert found["aa_false_positive"] <= 2 / found["selections"]
    assert found["aa_pairs_told_apart"] <= 1 / 16
    assert found["power_2pct"] >= 0.9
    assert found["share_of_do_bench_max"] <= 0.2
    assert found["reversed_list_changes"] == 0


def test_the_race_is_what_does_it():
    # Without a race, first looks alone: the winner's curse of hundreds of candidates.
    shape, without = SHAPES["many ties"], SelectPolicy(race=RacePolicy(looks=(1,)), least=1, near=0.0)
    raced, looked = ([graded(shape, Disturbance(), seed, policy) for seed in range(6)] for policy in (POLICY, without))
    assert statistics.mean(grade.regret for grade in raced) < 0.5 * statistics.mean(grade.regret for grade in looked)


def test_what_misses_a_target_is_said():
    bad = {
        "within_1pct": 5, "selections": 10, "regret_p95": 0.02, "outside_tie_set": 0.0, "aa_false_positive": 0.1,
        "aa_pairs_told_apart": 0.0, "share_of_do_bench_max": 0.1, "reversed_list_changes": 0, "power_2pct": 0.5,
    }  # fmt: skip
    assert shortfalls({"x": bad}) == [
        "within 1 %: 5 of 10", "x: regret_p95 0.02", "x: aa_false_positive 0.1", "x: power_2pct 0.5",
    ]  # fmt: skip


def test_selections_of_one_seed_are_the_same_and_flips_are_counted():
    grades = [graded(SHAPES[SOME[2]], DISTURBANCES["load"], seed) for seed in (0, 0, 8)]
    assert grades[0] == grades[1] != grades[2]
    assert flip_rate(grades[:2]) == 0.0


def test_a_large_slowdown_is_found_and_none_is_not():
    assert told_apart(POWER_CAPPED, Disturbance(), 0.05, 0)
    assert not told_apart(POWER_CAPPED, Disturbance(), 0.0, 0)


# The selection


def selected(times_ms, noise=SILENT, disturbance=None, policy=None, **options):
    device = SimulatedDevice(noise, disturbance)
    launches = [device.launch(time_ms, str(i)) for i, time_ms in enumerate(times_ms)]
    preference = [(i != options.get("default", 0), i) for i in range(len(times_ms))]
    rng = random.Random(1)
    found = select(
        launches, preference, SimulatedTimer(device), policy or SelectPolicy(), rng, clock=device.clock, **options
    )
    return found, device


def test_without_noise_the_best_wins_and_all_that_ties_is_named():
    found, _ = selected([1.3, 1.0, 1.004, 1.02, 5.0])
    assert (found.winner, found.ties) == (1, (1, 2))
    assert set(found.raced) == {0, 1, 2, 3, 4}  # few candidates: all are raced
    assert (found.ended, found.rounds) == ("proven", 4)
    assert found.itself is not None
    assert found.itself.centre == pytest.approx(0.0, abs=1e-6)


def test_what_is_far_from_the_best_is_not_raced_but_the_default_and_what_is_in_use_are():
    times = [3.0, *(1.0 + 0.01 * k for k in range(10)), *(2.0 + k for k in range(10))]
    found, _ = selected(times, default=0, kept=[20])
    assert set(found.raced) == {0, *range(1, 11), 20}
    assert found.raced[0] == 1


def test_the_default_stays_if_nothing_beats_it_by_more_than_the_zone():
    assert selected([1.004, 1.0, 1.2], default=0)[0].winner == 0
    assert selected([1.007, 1.0, 1.2], default=0)[0].winner == 1


def test_one_candidate_is_the_winner_without_a_race():
    found, _ = selected([1.0])
    assert (found.winner, found.ties, found.rounds, found.ended, found.itself) == (0, (0,), 0, "one arm", None)


def test_a_candidate_that_fails_in_the_race_drops_out_and_the_last_one_raises():
    device = SimulatedDevice(SILENT)
    timer = SimulatedTimer(device)

    def failing(after):
        calls = iter(range(after))

        def call():
            next(calls)
            device.work(0.5)

        return Launch(call)

    good = device.launch(1.0, "good")
    arguments = ([(0,), (1,)], timer, SelectPolicy(), random.Random(0))
    assert select([good, failing(40)], *arguments, clock=device.clock).winner == 0
    with pytest.raises(StopIteration):
        select([failing(40), failing(40)], *arguments, clock=device.clock)


def test_first_looks_are_ratios_that_a_changing_power_state_does_not_change():
    device = SimulatedDevice(SILENT, Disturbance(step=0.3, step_s=0.05), seed=3)
    launches = [device.launch(time_ms, str(time_ms)) for time_ms in (1.0, 1.1, 1.5, 9.0)]
    ranks = first_looks(
        launches, [(i,) for i in range(4)], SimulatedTimer(device), POLICY.screen, random.Random(0), reference=0
    )
    assert ranks == pytest.approx([1.0, 1.1, 1.5, 9.0], rel=0.01)


def test_finalists_are_all_that_is_near_and_at_least_so_many():
    ranks, preference = [1.0, 1.1, 1.16, 2.0, math.inf], [(i,) for i in range(5)]
    assert finalists(ranks, preference, set(), SelectPolicy(near=0.15, least=1)) == [0, 1]
    assert finalists(ranks, preference, {3}, SelectPolicy(near=0.15, least=1)) == [0, 1, 3]
    assert finalists(ranks, preference, set(), SelectPolicy(near=0.15, least=4)) == [0, 1, 2, 3]


# The device


def test_a_silent_device_takes_the_true_time_and_counts_it():
    device = SimulatedDevice(SILENT)
    timer = SimulatedTimer(device)
    sampler = timer.prepare(device.launch(0.05, "kernel"))
    assert sampler.launches == 4
    before = device.busy_s
    assert take(sampler, timer, 3) == pytest.approx([0.05] * 3, rel=1e-3)
    assert device.busy_s - before == pytest.approx((0.1 + 3 * 4 * 0.05) / 1e3)  # with the round's delay
    assert device.now_s > device.busy_s  # preparing keeps the host busy


def test_samples_are_queued_in_rounds_only():
    device = SimulatedDevice()
    sampler = SimulatedTimer(device).prepare(device.launch(1.0, "kernel"))
    with pytest.raises(RuntimeError, match="inside a round"):
        sampler.queue(1)


def test_a_device_is_its_seeds():
    def samples(seed, process):
        device = SimulatedDevice(POWER_CAPPED, DISTURBANCES["short loads"], seed=seed, process=process)
        timer = SimulatedTimer(device)
        return take(timer.prepare(device.launch(1.0, "kernel")), timer, 20)

    assert samples(1, 1) == samples(1, 1)
    assert samples(1, 1) != samples(2, 1)
    assert samples(1, 1) != samples(1, 2)


def test_a_bias_is_one_for_a_process_and_a_name():
    def bias(process, name):
        return SimulatedDevice(process=process).kernel(1.0, name).own_ms

    assert bias(1, "a") == bias(1, "a") not in {bias(2, "a"), bias(1, "b")}
    spread = statistics.stdev(math.log(bias(0, str(k))) for k in range(2000))
    assert spread == pytest.approx(Noise().process, rel=0.1)


def test_noise_is_as_wide_as_asked_for():
    device = SimulatedDevice(Noise(sample=0.02, spikes=0, drift=0, carry=0, process=0))
    timer = SimulatedTimer(device)
    samples = take(timer.prepare(device.launch(1.0, "kernel")), timer, 2000)
    assert statistics.stdev(map(math.log, samples)) == pytest.approx(0.02, rel=0.1)


def test_a_drift_lasts_as_long_as_its_correlation_time():
    device = SimulatedDevice(Noise(sample=0, spikes=0, drift=0.02, drift_s=0.08, carry=0, process=0))
    timer = SimulatedTimer(device)
    levels = [math.log(ms) for ms in take(timer.prepare(device.launch(8.0, "kernel")), timer, 4000)]
    assert statistics.stdev(levels) == pytest.approx(0.02, rel=0.15)
    assert statistics.correlation(levels[:-1], levels[1:]) == pytest.approx(math.exp(-0.1), abs=0.05)
    assert statistics.correlation(levels[:-40], levels[40:]) < 0.2


def level(device, ms=0.01):
    """By which factor a launch takes longer now than it truly does."""
    start = device.now_s
    device.kernel(ms, "probe")()
    return (device.now_s - start) * 1e3 / ms


def test_a_cold_start_ends_and_a_ramp_stays():
    cold = SimulatedDevice(SILENT, Disturbance(cold=0.3, cold_s=1.0))
    assert level(cold) == pytest.approx(1.3, rel=0.01)
    cold.idle(1000.0)
    assert level(cold) == pytest.approx(1.0)
    ramp = SimulatedDevice(SILENT, Disturbance(ramp=0.02, ramp_most=0.1))
    assert level(ramp) == pytest.approx(1.0, rel=0.01)
    for seconds, expected in ((2.0, 1.04), (9.0, 1.1), (9.0, 1.1)):
        ramp.idle(1e3 * seconds)
        assert level(ramp) == pytest.approx(expected, rel=0.01)


def test_a_boost_is_lost_under_load_and_comes_back_at_rest():
    device = SimulatedDevice(SILENT, Disturbance(boost=0.15, boost_s=0.5, uneven=0.0))
    assert level(device) == pytest.approx(math.exp(-0.15), rel=0.01)
    device.work(5000.0)
    assert level(device) == pytest.approx(1.0, rel=0.01)
    device.idle(5000.0)
    assert level(device) == pytest.approx(math.exp(-0.15), rel=0.01)


@pytest.mark.parametrize(
    ("disturbance", "slow", "share"),
    [
        (Disturbance(step=0.05, step_s=0.01), 1.05, 0.5),
        (Disturbance(load=0.2, load_every_s=0.03, load_s=0.01), 1.2, 0.25),
    ],
)
def test_steps_and_loads_come_and_go(disturbance, slow, share):
    device = SimulatedDevice(SILENT, disturbance)
    levels = [round(level(device, 1.0), 6) for _ in range(20_000)]
    assert set(levels) == {1.0, slow}
    assert levels.count(slow) / len(levels) == pytest.approx(share, abs=0.06)


def test_what_an_arm_leaves_behind_is_for_the_next_one():
    device = SimulatedDevice(Noise(sample=0, spikes=0, drift=0, carry=0.05, process=0))
    first, second = device.kernel(1.0, "first"), device.kernel(1.0, "second")

    def takes(kernel):
        start = device.now_s
        kernel()
        return (device.now_s - start) * 1e3

    assert takes(first) == pytest.approx(1.0)  # nothing ran before
    assert takes(second) == pytest.approx(math.exp(first.leaves))
    assert takes(second) == pytest.approx(math.exp(first.leaves))  # its own traces are none to itself
    assert takes(first) == pytest.approx(math.exp(second.leaves))


def test_the_clock_has_its_tick():
    device = SimulatedDevice(Noise(tick_ms=0.01))
    timer = SimulatedTimer(device)
    samples = take(timer.prepare(device.launch(1.0, "kernel"), 1), timer, 50)
    assert [sample / 0.01 for sample in samples] == pytest.approx([round(sample / 0.01) for sample in samples])
    assert len(set(samples)) > 3
