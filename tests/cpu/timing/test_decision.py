"""The decision of a race: winner and ties, and the statistics behind them."""

import math
import random
import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.timing import Interval, Standing
from triton_ops.timing.race_statistics import (
    INDIFFERENCE,
    gaps_to,
    judge,
    median_error,
    median_interval,
    relative_levels,
    robust_sigma,
    small_sample,
)
from triton_ops.values import Measurement

gap, gain = Interval.of_gap, Interval.of_gain
middle_mean, contrasts = Measurement.middle_mean, Measurement.contrasts


def decide(rows, preference, **options):
    """The decision among candidates that are named by their places."""
    return Standing(rows_ms=dict(enumerate(rows)), preference=dict(enumerate(preference)), **options).decision


def beats(row, default):
    return Standing(rows_ms={"row": row, "default": default}, default="default").beats("row")


def doubtful(row, default):
    return Standing(rows_ms={"row": row, "default": default}, default="default").doubtful("row")


def steady(*times, rounds=8):
    return [[time] * rounds for time in times]


def noisy(time, sigma, rounds, seed):
    rng = random.Random(seed)
    return [time * math.exp(rng.gauss(0, sigma)) for _ in range(rounds)]


# Statistics, against values from tables or by hand


def test_a_robust_sigma_equals_that_of_normal_noise_and_ignores_outliers():
    assert robust_sigma([1, 2, 3, 4, 1e9]) == pytest.approx(1.4826)
    assert robust_sigma([3.0]) == robust_sigma([]) == 0.0
    values = [random.Random(seed).gauss(0, 2.0) for seed in range(4000)]
    assert robust_sigma(values) == pytest.approx(2.0, rel=0.05)


def test_the_error_of_a_median_equals_the_scatter_of_medians():
    rng = random.Random(0)
    medians = [statistics.median(rng.gauss(0, 1) for _ in range(101)) for _ in range(2000)]
    assert median_error(1.0, 101) == pytest.approx(statistics.stdev(medians), rel=0.05)


def test_contrasts_are_logarithms_of_shares_round_by_round():
    assert contrasts([2.0, 1.0], [1.0, 1.0, 5.0]) == [math.log(2), 0.0]
    assert contrasts([0.0], [0.0]) == [0.0]


@pytest.mark.parametrize("rounds", [4, 6, 8, 16, 64])
def test_an_interval_of_a_median_misses_in_one_case_of_twenty_however_few_the_rounds(rounds):
    ones = [1.0] * rounds
    result = [gap(noisy(1.0, 0.01, rounds, seed), ones) for seed in range(1500)]
    missed = sum(not interval.low <= 0 <= interval.high for interval in result) / len(result)
    assert 0.025 < missed < 0.07


def test_a_small_sample_widens_and_a_large_one_does_not():
    factors = [small_sample(count) for count in (2, 3, 4, 8, 64, 10_000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(1, abs=1e-3)
    assert small_sample(0) == small_sample(2)


def test_a_row_counts_with_its_own_or_the_median_sigma_whichever_is_larger():
    lead = [1.0] * 16
    quiet, loud, typical = lead, noisy(1.0, 0.1, 16, 1), noisy(1.0, 0.01, 16, 2)
    errors = [error for _, error in gaps_to([lead, quiet, loud, typical, typical], 0)]
    own = small_sample(16 * 4) * median_error(robust_sigma(contrasts(typical, lead)), 16)
    assert errors[1] == errors[3] == errors[4] == pytest.approx(own)
    assert errors[2] > 5 * own
    assert gaps_to([lead], 0) == [(0.0, 0.0)]


def test_the_interval_of_a_median_has_the_ranks_of_the_binomial_table():
    result = median_interval([float(value) for value in range(101, 0, -1)])
    assert result == Interval(51.0, 41.0, 61.0)
    assert median_interval([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0)  # too few values: the whole range
    assert median_interval([4.0]) == Interval(4.0, 4.0, 4.0)
    wide = median_interval([float(value) for value in range(1, 102)], 0.001)
    assert (wide.low, wide.high) == (34.0, 68.0)
    assert median_interval([1.0] * 5000).margin == 0.0
    many = median_interval([float(value) for value in range(5000)])
    assert 60 < many.margin < 80  # 0.98 times the root of the number


@pytest.mark.parametrize("rounds", [6, 9, 32, 65])
def test_an_interval_of_a_median_holds_it_under_heavy_tails(rounds):
    rng = random.Random(rounds)
    rows = [[rng.gauss(0, 0.01) * (20 if rng.random() < 0.3 else 1) for _ in range(rounds)] for _ in range(1500)]
    missed = sum(not result.low <= 0 <= result.high for result in map(median_interval, rows)) / len(rows)
    assert 0.005 < missed < 0.06


def test_a_gain_is_a_share_with_its_interval():
    result = gain(noisy(1.1, 0.01, 40, 1), noisy(1.0, 0.01, 40, 2))
    assert result.low < math.log(1.1) < result.high
    assert result.margin < 0.01


def test_levels_are_relative_to_their_rounds():
    drifting = [[1.0, 2.0, 3.0], [1.1, 2.2, 3.3], [1.21, 2.42, 3.63]]
    assert relative_levels(drifting) == pytest.approx([-math.log(1.1), 0.0, math.log(1.1)])


# The decision


def test_the_clearly_fastest_wins():
    result = decide(steady(1.2, 1.0, 1.1), [(0,), (1,), (2,)])
    assert (result.winner, result.fastest, result.ties, result.noise) == (1, 1, (1,), 0.0)


def test_within_the_zone_preference_decides():
    result = decide(steady(1.0, 1.003, 1.02, 1.004), [(3,), (2,), (0,), (1,)])
    assert (result.winner, result.fastest, result.ties) == (3, 0, (3, 1, 0))


@pytest.mark.parametrize(("slower", "ties"), [(0.9 * INDIFFERENCE, 2), (1.1 * INDIFFERENCE, 1)])
def test_a_difference_just_beyond_the_zone_is_no_tie(slower, ties):
    result = decide(steady(1.0, math.exp(slower)), [(1,), (0,)])
    assert len(result.ties) == ties
    assert result.winner == ties - 1


def test_a_wider_zone_ties_more():
    assert decide(steady(1.0, 1.02), [(1,), (0,)], zone=0.03).winner == 1


def test_a_dropped_candidate_cannot_tie():
    assert decide([[1.0] * 8, [1.001] * 4], [(1,), (0,)]).ties == (0,)
    assert decide(steady(1.0, 1.001), [(1,), (0,)], dropped=[1]).ties == (0,)  # at the last checkpoint
    assert decide(steady(1.0), [(0,)], dropped=[0]).winner == 0  # if all were dropped, the best of them wins


def test_noise_wider_than_the_zone_is_a_tie_but_no_reason_to_prefer():
    rows = [noisy(1.02, 0.08, 12, 1), [1.0] * 12]
    result = decide(rows, [(0,), (1,)])
    assert result.noise > 0.02 > INDIFFERENCE
    assert set(result.ties) == {0, 1}
    assert result.winner == result.fastest


def test_a_config_in_use_wins_a_tie_and_other_configs_only_if_proven_equal():
    swinging = [math.exp(0.003 + swing) for swing in (0.01, -0.01) * 8]  # 0.3 % slower, and 1 % up and down
    rows, preference = [[1.0] * 16, swinging, swinging[::-1]], [(2,), (0,), (1,)]
    result = decide(rows, preference)
    assert (result.winner, result.fastest, result.ties) == (0, 0, (1, 2, 0))  # preferred, but not proven to be equal
    for kept in (0, 1, 2):
        assert decide(rows, preference, incumbents=[kept]).winner == kept
    assert decide(rows, preference, incumbents=[0, 2]).winner == 2
    assert decide([rows[0], *steady(1.001, 1.001, rounds=16)], preference).winner == 1  # proven: no noise at all


def test_the_default_stays_when_nothing_beats_it_by_more_than_the_zone():
    preference = [(1, "a"), (0, "default"), (1, "b")]
    assert decide(steady(1.0, 1.004, 1.2), preference, incumbents=[1], default=1).winner == 1
    assert decide(steady(1.0, 1.006, 1.2), preference, incumbents=[1], default=1).winner == 0


TWO_STATES_MS = [1275, 187, 1277, 189, 186, 183, 1314, 193, 1337, 1314, 1254, 189, 1266, 1272, 189, 190]
FASTER_MS = [1076, 158, 138, 136, 136, 141, 142, 141, 143, 139, 732, 735, 166, 143, 139, 140]


def test_times_of_two_states_are_told_apart_by_the_signs_of_their_differences():
    """Measured: a program whose memory is new in about half of its runs; fifteen of sixteen rounds show one faster."""
    assert beats(FASTER_MS, TWO_STATES_MS)
    assert not beats(FASTER_MS[:12] + TWO_STATES_MS[12:], TWO_STATES_MS)
    assert not beats([*TWO_STATES_MS[1:], 187], TWO_STATES_MS)


def test_a_winner_beats_the_default_itself_and_not_through_a_tie():
    # 1.004 ties with 1.0 and is preferred to it, but is only 0.2 % better than the default.
    result = decide(steady(1.0, 1.004, 1.006), [(2,), (1,), (0,)], default=2)
    assert (result.winner, result.ties) == (0, (1, 0))


def test_a_winner_needs_an_interval_that_lies_beyond_the_zone():
    default = [1.012 * math.exp(swing) for swing in (0.01, -0.01, 0.002, -0.002) * 4]  # 1.2 % slower, give or take 1 %
    result = decide([[1.0] * 16, default], [(0,), (1,)], default=1)
    assert (result.winner, result.fastest, set(result.ties)) == (1, 0, {0, 1})
    assert gap(default, [1.0] * 16).centre > INDIFFERENCE
    assert decide([[1.0] * 64, default * 4], [(0,), (1,)], default=1).winner == 0  # more rounds prove it


def test_a_config_in_use_that_is_slower_than_the_default_does_not_stay():
    rng = random.Random(1)
    noise = [math.exp(rng.gauss(0, 0.5)) for _ in range(32)]
    old, default = [1.33 * value for value in noise[::-1]], noise  # a third slower, under noise that hides it
    assert decide([default, old], [(1,), (0,)], incumbents=[1], default=0).winner == 0
    new = [0.5] * 32
    assert decide([[1.0] * 32, [0.501] * 32, new], [(2,), (0,), (1,)], incumbents=[1], default=0).winner == 1


def test_one_of_two_intervals_is_not_enough_to_beat_the_default():
    row = [1.0] * 32
    skewed = [1.02] * 17 + [0.9] * 15  # the median is 2 % slower, and nearly half of the rounds say the opposite
    assert gap(skewed, row).low > INDIFFERENCE
    assert not beats(row, skewed)
    assert beats(row, [1.02] * 32)
    assert beats(row, [])


def test_rounds_are_doubtful_if_they_can_neither_prove_a_gain_nor_exclude_one():
    def noisy_default(gain, swing):
        return [math.exp(gain + side * swing) for side in (1, -1, 0.5, -0.5) * 8]

    row = [1.0] * 32
    assert doubtful(row, noisy_default(0.0, 0.05))
    assert doubtful(row, noisy_default(0.03, 0.05))
    assert not doubtful(row, noisy_default(0.0, 0.002))  # known to within the zone
    assert not doubtful(row, noisy_default(0.3, 0.05))  # far beyond
    assert not doubtful(row, noisy_default(-0.3, 0.05))


def test_one_odd_round_among_few_is_a_doubt_and_leaves_no_slow_default():
    row, default = [1.0] * 6, [1.25] * 5 + [0.9]
    assert not beats(row, default)
    assert doubtful(row, default)
    assert not doubtful(row, [1.002] * 5 + [0.9])  # what is known is within the zone


@pytest.mark.parametrize(("fastest_ms", "is_doubtful"), [(1.45, True), (1.6, False)])
def test_four_rounds_that_each_show_half_of_the_time_and_more_leave_no_doubt(fastest_ms, is_doubtful):
    assert doubtful([1.0] * 4, [fastest_ms, 1.75, 1.65, 1.7]) is is_doubtful


def test_four_rounds_that_scatter_leave_a_doubt_however_large_a_gain_each_shows():
    assert doubtful([1.0] * 4, [1.6, 2.6, 2.0, 2.2])


def test_a_race_in_which_one_is_left_tells_the_noise_of_the_others_until_they_were_dropped():
    result = decide([[1.0, 1.01, 0.99, 1.02, 1.0], [2.0, 2.2, 2.1, 2.0]], [(0,), (1,)], default=1)
    assert result.winner == 0
    assert 0.01 < result.noise < 0.2


def test_a_default_without_rounds_does_not_stop_a_winner():
    assert decide([[1.0], []], [(0,), (1,)], default=1).winner == 0


def test_one_round_tells_nothing_of_the_noise():
    result = decide([[1.0], [1.02], [1.003]], [(2,), (1,), (0,)])
    assert (result.winner, result.fastest, result.noise) == (2, 0, 0.0)


def test_a_candidate_alone_wins():
    result = decide([[3.0, 4.0]], [("only",)], default=0)
    assert (result.winner, result.ties, result.noise) == (0, (0,), 0.0)


def test_times_of_zero_can_be_compared():
    assert decide([[0.0, 0.0], [0.001, 0.001]], [(1,), (0,)]).winner == 0


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_a_decision_without_candidates_or_rounds_is_refused(rows):
    with pytest.raises(ValueError, match="at least one round"):
        decide(rows, [(0,)] * len(rows))


def test_an_outlier_round_changes_nothing():
    spiked = steady(1.0, 1.02)
    spiked[0][3] = 40.0
    assert decide(spiked, [(1,), (0,)]).winner == 0


DISTURBANCES = {
    "linear drift": lambda turn: 1 + 0.03 * turn,
    "power step": lambda turn: 1.0 if turn < 7 else 1.25,
    "power state back and forth": lambda turn: 1.2 if turn // 3 % 2 else 1.0,
}


@pytest.mark.parametrize("disturbance", DISTURBANCES.values(), ids=DISTURBANCES)
def test_a_disturbance_of_a_whole_round_changes_nothing(disturbance):
    preference = [(i,) for i in range(4)]
    for seed in range(20):
        quiet = [noisy(base, 0.004, 16, 10 * seed + n) for n, base in enumerate((1.03, 1.0, 1.01, 1.004))]
        disturbed = [[block * disturbance(turn) for turn, block in enumerate(row)] for row in quiet]
        expected, result = decide(quiet, preference, default=0), decide(disturbed, preference, default=0)
        assert (result.winner, result.fastest, result.ties) == (expected.winner, expected.fastest, expected.ties)
        assert result.noise == pytest.approx(expected.noise)


@dataclass(frozen=True)
class Comparison:
    """Candidates with drawn times; no two times are equal, so that rounding cannot change who is faster."""

    seed: int
    count: int
    rounds: int
    noise: float
    gap: float

    @property
    def rows(self):
        rng = random.Random(self.seed)
        bases = [1 + self.gap * rng.random() for _ in range(self.count)]
        return [[base * math.exp(rng.gauss(0, self.noise)) for _ in range(self.rounds)] for base in bases]

    @property
    def preference(self):
        order = random.Random(~self.seed).sample(range(self.count), self.count)
        return [(position % 2, str(position)) for position in order]


comparisons = st.builds(
    Comparison,
    seed=st.integers(0, 1 << 30),
    count=st.integers(1, 8),
    rounds=st.integers(1, 12),
    noise=st.sampled_from([0.0005, 0.003, 0.02, 0.2]),
    gap=st.sampled_from([0.001, 0.01, 0.1, 2.0]),
)


@given(given=comparisons, default=st.integers(0, 7))
def test_the_parts_of_a_decision_agree_with_each_other(given, default):
    default %= given.count
    result = decide(given.rows, given.preference, incumbents=[default], default=default)
    assert result.winner in result.ties
    assert result.fastest in result.ties
    assert len(set(result.ties)) == len(result.ties)
    assert [given.preference[i] for i in result.ties] == sorted(given.preference[i] for i in result.ties)
    assert result.noise >= 0
    if default not in result.ties:  # never worse than the default
        assert gap(given.rows[default], given.rows[result.winner]).centre > INDIFFERENCE
    if result.winner != default:
        assert beats(given.rows[result.winner], given.rows[default])
        if beats(given.rows[result.fastest], given.rows[default]):
            assert gap(given.rows[result.winner], given.rows[result.fastest]).centre <= INDIFFERENCE


@given(given=comparisons, default=st.integers(0, 7), rng=st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_is_no_matter(given, default, rng):
    default %= given.count
    expected = decide(given.rows, given.preference, default=default)
    reverse = list(range(given.count))[::-1]
    for order in (reverse, rng.sample(range(given.count), given.count)):
        rows, preference = [given.rows[i] for i in order], [given.preference[i] for i in order]
        result = decide(rows, preference, default=order.index(default))
        assert order[result.winner] == expected.winner
        assert tuple(order[i] for i in result.ties) == expected.ties
        assert result.noise == expected.noise


@given(given=comparisons, factor=st.floats(1e-3, 1e3))
def test_the_unit_of_time_is_no_matter(given, factor):
    expected = decide(given.rows, given.preference)
    result = decide([[value * factor for value in row] for row in given.rows], given.preference)
    assert (result.winner, result.fastest, result.ties) == (expected.winner, expected.fastest, expected.ties)
    assert result.noise == pytest.approx(expected.noise, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0), ([1.0, 2.0], 1.5), ([1.0, 9.0, 2.0], 2.0), ([1.0, 2.0, 4.0, 90.0], 3.0),
        ([5.0, 1.0, 3.0, 2.0, 90.0], 10 / 3), ([1.0] * 6 + [2.0] * 4, 8 / 6), ([1.0] * 8 + [90.0] * 2, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 60.0], 3.5), ([1.0] * 2 + [2.0] * 3 + [3.0] * 2, 2.0),
    ],
)  # fmt: skip
def test_the_middle_mean_lies_between_levels_and_leaves_a_fifth_of_disturbed_values_out(values, expected):
    assert middle_mean(values) == pytest.approx(expected)
    assert middle_mean(values[::-1]) == pytest.approx(expected)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_the_middle_mean_lies_within_the_values(values):
    assert min(values) * (1 - 1e-12) <= middle_mean(values) <= max(values) * (1 + 1e-12)


def test_the_default_stands_up_to_the_winner_or_else_to_the_fastest_rival_that_was_not_dropped():
    rows = {"default": [1.0] * 8, "near": [0.999] * 8, "dropped": [0.9] * 8}
    preference = {name: (name != "default",) for name in rows}
    standing = Standing(rows_ms=rows, default="default", dropped=["dropped"], preference=preference)
    assert (standing.decision.winner, standing.challenger) == ("default", "near")
    assert Standing(rows_ms=rows, default="default", preference=preference).challenger == "dropped"
    alone = Standing(rows_ms={"default": [1.0] * 8}, default="default", preference=preference)
    assert alone.challenger is None


def test_levels_of_several_processes_are_one_round_each():
    processes = [Standing(rows_ms={"a": [1.0, 2.0], "b": [1.1, 2.2], "c": [5.0]}) for _ in range(3)]
    levels = Standing.levels(processes, ["a", "b"])
    assert {name: len(row) for name, row in levels.items()} == {"a": 3, "b": 3}
    assert [b / a for a, b in zip(levels["a"], levels["b"], strict=True)] == pytest.approx([1.1] * 3)


@pytest.mark.parametrize(("tick_ms", "verdict"), [(0.0, "faster"), (0.09, "faster"), (0.11, "not distinguishable")])
def test_a_difference_of_one_tick_of_the_clock_is_none(tick_ms, verdict):
    first, second = [1.0] * 9, [1.1] * 9
    outcome = judge(first, second, first, tick_ms=tick_ms)
    assert outcome.verdict == verdict
    assert outcome.needed == pytest.approx(max(0.005, math.log1p(1.01 * tick_ms)))


@pytest.mark.parametrize(("share", "verdict"), [(0.004, "not distinguishable"), (0.02, "faster"), (-0.02, "slower")])
def test_a_duel_is_told_by_its_sign_beyond_the_zone(share, verdict):
    first = [1.0, 2.0, 1.5] * 4
    outcome = judge(first, [time * math.exp(share) for time in first], first)
    assert (outcome.verdict, outcome.noise) == (verdict, 0.0)
    assert outcome.gain.centre == pytest.approx(share)
    assert outcome.proven == (verdict == "faster")


def test_a_difference_must_be_larger_than_that_to_a_twin():
    first = [1.0] * 9
    assert judge(first, [1.1] * 9, [1.2] * 9).verdict == "not distinguishable"
    assert judge(first, [1.1] * 9, [1 / 1.2] * 9).verdict == "not distinguishable"
    assert judge(first, [1.1] * 9, [1.05] * 9).verdict == "faster"
