"""Rules of clocks and of statistics, by hand: garbage, counters, sets of arguments, sensors, bounds of decisions."""

from __future__ import annotations

import gc
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.device.vendors import Reading
from triton_ops.timing import race_statistics, timer
from triton_ops.timing.gpu_timers import sets_needed
from triton_ops.timing.race_statistics import (
    Interval,
    Standing,
    by_far,
    clearly_beats,
    few_tell,
    is_plain,
    median_interval,
    robust_sigma,
)
from triton_ops.timing.timer import Launch, Sampler, SensorGuard, ThreadCounts, thread_counters, waited_ns, without_gc

times = st.floats(0.1, 10)


def test_garbage_is_not_collected_meanwhile_and_afterwards_as_before():
    was_on = gc.isenabled()
    try:
        for on in (True, False):
            gc.enable() if on else gc.disable()
            with without_gc():
                assert not gc.isenabled()
            assert gc.isenabled() == on
            with pytest.raises(ZeroDivisionError), without_gc():
                _ = 1 // 0
            assert gc.isenabled() == on
    finally:
        gc.enable() if was_on else gc.disable()


def test_the_counters_of_a_thread_are_those_of_the_kernel(tmp_path, monkeypatch):
    (tmp_path / "schedstat").write_text("5000 70 9\n")
    monkeypatch.setattr(timer, "_FILE", str(tmp_path / "schedstat"))
    monkeypatch.setattr(timer.time, "process_time_ns", lambda: 6500)
    with thread_counters() as read:
        assert read() == ThreadCounts(waited_ns=70, others_ns=1500)
    monkeypatch.setattr(timer, "_FILE", str(tmp_path / "none"))
    with thread_counters() as read:
        assert read() == ThreadCounts()


@given(st.integers(0, 100), st.integers(1, 100), st.integers(0, 100))
def test_a_wait_counts_where_no_other_thread_worked(wait, took, others):
    before, after = ThreadCounts(10, 20), ThreadCounts(10 + wait, 20 + others)
    waited = waited_ns(before, after, took)
    if others in (0, took):  # of a sample in which others worked all the time nothing is left out
        assert waited == (0 if others else min(wait, took))
    assert waited in (0, min(wait, took))


@given(st.lists(times, max_size=9))
def test_a_robust_sigma_is_the_median_deviation_of_two_values_or_more(values):
    if len(values) < 2:
        assert robust_sigma(values) == 0.0
        return
    centre = statistics.median(values)
    expected = 1.4826 * statistics.median([abs(value - centre) for value in values])
    assert robust_sigma(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gap", "scatter", "rounds", "far"),
    [(0.41, 0.0, 1, True), (0.39, 0.0, 1, False), (0.5, 0.19, 4, True), (0.5, 0.21, 4, False), (-0.5, 0.0, 4, False)],
)
def test_a_candidate_is_faster_by_far_where_every_round_shows_it_alike(gap, scatter, rounds, far):
    row = [1.0] * rounds
    default = [math.exp(gap + (scatter if at % 2 else 0.0)) for at in range(rounds)]
    assert by_far(row, default) == far
    assert not by_far([], [])


@pytest.mark.parametrize(
    ("gap", "scatter", "rounds", "plain"),
    [
        (0.70, 0.0, 2, True), (0.69, 0.0, 2, False), (0.70, 0.0, 1, False), (0.70, 0.20, 2, True),
        (0.70, 0.22, 2, False),
        (0.45, 0.0, 4, True), (0.45, 0.0, 3, False), (0.39, 0.0, 4, False), (-0.8, 0.0, 2, False),
    ],
)  # fmt: skip
def test_two_rounds_are_plain_that_show_half_of_the_time_and_four_that_show_two_thirds(gap, scatter, rounds, plain):
    row = [math.exp(scatter if at % 2 else 0.0) for at in range(rounds)]
    default = [time * math.exp(gap) for time in row]
    assert is_plain(row, default) == plain
    assert clearly_beats(row, default) == plain


@pytest.mark.parametrize(
    ("gap", "rounds", "clear"),
    [(0.06, 6, True), (0.06, 5, False), (0.04, 8, True), (0.04, 7, False), (0.004, 8, False)],
)
def test_a_race_may_end_on_six_plain_rounds_or_eight_others(gap, rounds, clear):
    assert clearly_beats([1.0] * rounds, [math.exp(gap)] * rounds) == clear


@pytest.mark.parametrize(
    ("gap", "rounds", "told"), [(0.02, 5, True), (0.02, 4, False), (0.7, 3, True), (0.6, 3, False), (0.004, 5, False)]
)
def test_five_long_rounds_tell_or_three_that_show_half_of_the_time(gap, rounds, told):
    assert few_tell([1.0] * rounds, [math.exp(gap)] * rounds) == told
    standing = Standing(rows_ms={"a": [1.0] * rounds, "b": [math.exp(gap)] * rounds}, default="b")
    assert standing.by_few_rounds("a")[0] == told


@given(st.lists(times, min_size=1, max_size=40))
def test_an_interval_of_a_median_is_between_two_of_the_values_and_holds_it(values):
    interval = median_interval(values)
    assert {interval.low, interval.high} <= {*values}
    assert interval.low <= statistics.median(values) <= interval.high
    wider = median_interval(values, 0.01)
    assert wider.low <= interval.low <= interval.high <= wider.high


@pytest.mark.parametrize(
    ("centre", "error", "counts", "disturbed"),
    [(0.01, 0.001, True, True), (0.01, 0.005, False, False), (0.004, 0.0, True, False), (-0.01, 0.001, False, True)],
)
def test_a_gain_counts_beyond_half_of_the_zone_and_a_twin_is_disturbed_beyond_chance(centre, error, counts, disturbed):
    interval = Interval.around(centre, error)
    assert interval.margin == pytest.approx(1.96 * error)
    assert interval.chance == pytest.approx(1.5 * 1.96 * error)
    assert (interval.counts, interval.disturbed) == (counts, disturbed)
    assert interval.ratio.centre == pytest.approx(math.exp(centre))


@pytest.mark.parametrize(
    ("clocks", "changes"),
    [([1000, 1000], 0), ([1000, 1030], 0), ([1000, 1031], 1), ([1000, 969], 1), ([1000, 970], 0),
     ([1000, None, 900], 0), ([1000, 900, 1000], 2)],
)  # fmt: skip
def test_a_change_of_a_clock_by_more_than_three_percent_counts(clocks, changes):
    guard = SensorGuard.__new__(SensorGuard)
    guard.readings, guard._before, guard._clock_changes = [], None, 0
    for clock in clocks:
        guard._note(Reading(reasons=(), clock_mhz=clock))
    assert guard._clock_changes == changes
    assert len(guard.readings) == len(clocks)


@pytest.mark.parametrize("l2_bytes", [0, None])
def test_a_cache_of_unknown_size_is_flushed(l2_bytes):
    assert sets_needed(1 << 20, l2_bytes, 1 << 40) is None


@given(st.integers(1, 1 << 34), st.sampled_from([4 << 20, 50 << 20, 60 << 20]), st.integers(0, 1 << 38))
def test_sets_of_arguments_cover_the_cache_and_fit_into_the_memory(touched, l2_bytes, free):
    count = sets_needed(touched, l2_bytes, free)
    unlimited = sets_needed(touched, l2_bytes, None)
    if count is not None:
        assert unlimited is not None
        assert (count - 1) * touched >= l2_bytes
        assert (count - 1) * touched <= free
        assert count >= unlimited
    assert sets_needed(0, l2_bytes, free) == 1


def test_a_difference_that_just_lies_within_the_zone_is_no_doubt():
    row, default = [1.0, 1.3, 0.9, 1.2, 1.1, 1.0], [1.0, 1.0, 1.1, 0.9, 1.0, 1.0]
    gap = Interval.of_gap(default, row)
    bound = gap.centre + 3.0 * (gap.margin / 1.96)
    assert gap.centre < 0 < bound < 3.0 * (gap.margin / 1.96)
    rows = {"a": row, "b": default}
    assert not Standing(rows_ms=rows, default="b", zone=bound).doubtful("a")
    assert Standing(rows_ms=rows, default="b", zone=0.99 * bound).doubtful("a")


def test_times_that_scatter_as_far_as_they_may_are_plain(monkeypatch):
    row, default = [1.0, 1.1], [3.0, 3.0]
    scatter = statistics.stdev(math.log(time) for time in row)
    monkeypatch.setattr(race_statistics, "_STEADY", scatter)
    assert is_plain(row, default)
    monkeypatch.setattr(race_statistics, "_STEADY", 0.999 * scatter)
    assert not is_plain(row, default)


class Fixed:
    """A timer whose launches each take the milliseconds that they return."""

    def prepare(self, launch, launches=None):
        return Sampler(lambda count: lambda: [launch.call()] * count, launches or 3)


def test_a_launch_is_sampled_alone_or_in_turn_with_its_contents():
    alone = Launch(call=lambda: 2.0)
    sampler = alone.sampler(Fixed())
    assert (sampler.launches, sampler.queue(2)()) == (3, [2.0, 2.0])
    assert not sampler.by_content
    both = replace(alone, contents=(Launch(call=lambda: 4.0),), value=sum)
    sampler = both.sampler(Fixed(), 5)
    assert (sampler.launches, sampler.queue(2)()) == (10, [6.0, 6.0])
    assert sampler.by_content == [[2.0, 4.0]]
