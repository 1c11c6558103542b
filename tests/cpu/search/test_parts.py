"""Parts of searches by themselves: rows that are chosen, what may still be asked, what is previewed, expected gains."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples, spaces
from triton_ops.search import Search, make_searcher, sampling
from triton_ops.search import auto as auto_search
from triton_ops.search.auto import AutoSearch
from triton_ops.search.coordinate import LocalSearch
from triton_ops.search.gains import ExpectedGains, GainEstimator
from triton_ops.search.middle import Middle
from triton_ops.search.priors import Priors
from triton_ops.search.sampling import OpenConfigs, draws, farthest, shuffled
from triton_ops.search.surrogate import (
    ByDistance,
    CompilerColumns,
    Encoder,
    Surrogate,
    _columns,
    _terms,
    expected_improvement,
    most_telling,
)
from triton_ops.space import Config, ConfigSpace, IntRange, UnlistedSpace
from triton_ops.values import Compiled, Measurement, Resources, Status, Trial

SPACE = ConfigSpace({"A": range(1, 31), "B": [1, 2, 4, 8, 16], "C": [False, True]})
HUGE = ConfigSpace({f"T{n}": IntRange(0, 9) for n in range(9)})
grid_rows = st.lists(st.tuples(*[st.integers(-8, 8)] * 2), max_size=8).map(
    lambda rows: np.array(rows, dtype=float).reshape(-1, 2)
)


def timed(config, ms=1.0, **more):
    return Trial(config, Status.OK, Measurement((ms,), "host"), **more)


def compiled(config, status=Status.OK, registers=32, spilled=0, shared=1024, **more):
    return Compiled(config, status, "" if status is Status.OK else "no", Resources(registers, spilled, shared), **more)


def apart(one, other):
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum())


@given(grid_rows, grid_rows, st.integers(0, 9))
def test_the_farthest_row_is_the_one_whose_nearest_known_row_is_farthest(rows, others, seed):
    if not len(rows):
        return
    at = farthest(rows, others, np.random.default_rng(seed))
    if len(others):
        nearest = [min(apart(row, other) for other in others) for row in rows]
        assert nearest[at] == max(nearest)
    assert 0 <= at < len(rows)


@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(2, 6), st.integers(0, 9))
def test_first_combinations_are_the_middle_and_cover_each_range(lengths, count, seed):
    space = ConfigSpace({f"T{at}": [10 * 3**n for n in range(2 * length + 1)] for at, length in enumerate(lengths)})
    middle, *further = Middle(space).combinations(count, np.random.default_rng(seed))
    for (name, tunable), length in zip(space.tunables.items(), lengths, strict=True):
        assert middle[name] == tunable.values[length]
        below = sum(combination[name] <= tunable.values[length] for combination in further)
        above = sum(combination[name] >= tunable.values[length] for combination in further)
        assert abs(below - above) <= 2 + sum(combination[name] == tunable.values[length] for combination in further)


def test_a_config_costs_more_toward_the_ends_of_ranges_and_no_word_costs_more_than_another():
    space = ConfigSpace({"A": [4, 1, 2, 8, 16], "B": [-1, 0, 1], "C": ["x", "y", "z"], "D": [7]})
    costs = dict(zip(space, Middle(space).score(list(space)), strict=True))
    assert min(costs.values()) == 1
    assert {(config["A"], config["B"]) for config, cost in costs.items() if cost == 1} == {(4, 0)}
    assert len({cost for config, cost in costs.items() if (config["A"], config["B"]) == (2, 1)}) == 1
    assert {(config["A"], config["B"]) for config, cost in costs.items() if cost == max(costs.values())} == {
        (1, -1), (1, 1), (16, -1), (16, 1),
    }  # fmt: skip


@given(space=spaces(may_be_empty=True), seed=st.integers(0, 9))
@examples(20)
def test_every_config_is_drawn_once_and_in_an_order_of_the_seed(space, seed):
    for order in (shuffled, draws):
        result = list(order(space, random.Random(seed)))
        assert sorted(config.text for config in result) == sorted(config.text for config in space)
        assert result == list(order(space, random.Random(seed)))


def test_the_order_in_which_a_space_lists_its_configs_is_no_matter():
    configs = list(SPACE)
    one, other = (ConfigSpace.from_configs([dict(config) for config in some]) for some in (configs, configs[::-1]))
    assert list(shuffled(one, random.Random(3))) == list(shuffled(other, random.Random(3)))
    assert list(shuffled(one, random.Random(3))) != list(shuffled(one, random.Random(4)))


def test_a_large_space_is_shuffled_within_windows(monkeypatch):
    monkeypatch.setattr(sampling, "_SHUFFLE_WINDOW", 4)
    result = [config["n"] for config in shuffled(ConfigSpace({"n": range(12)}), random.Random(0))]
    assert [sorted(result[at : at + 4]) for at in (0, 4, 8)] == [list(range(at, at + 4)) for at in (0, 4, 8)]
    assert result != sorted(result)


@pytest.mark.parametrize("name", ["random", "exhaustive", "local", "coordinate", "auto"])
def test_what_others_have_tried_is_not_asked_for(name):
    space = ConfigSpace({"A": range(6), "B": range(4)})
    tried = space.take(10)
    searcher = make_searcher(name, space, 1)
    searcher.tell([timed(config) for config in tried])
    asked = []
    while new := searcher.ask(3):
        asked += new
        searcher.tell([timed(config, 1.0 + config["A"]) for config in new])
    assert sorted(config.text for config in [*asked, *tried]) == sorted(config.text for config in space)


def test_a_walk_moves_to_what_is_better_and_stays_at_what_is_equal():
    searcher = LocalSearch(ConfigSpace({"A": range(9)}), 0)
    searcher.tell([timed(Config(A=4), 2.0)])
    assert searcher._best.config == Config(A=4)
    searcher.tell([timed(Config(A=5), 2.0)])
    assert searcher._best.config == Config(A=4)
    searcher.tell([timed(Config(A=6), 1.9)])
    assert searcher._best.config == Config(A=6)
    searcher.tell([timed(Config(A=6), 3.0)])
    assert searcher._best.rank == 3.0, "the latest time counts"
    searcher.tell([Trial(Config(A=7), Status.CRASH), timed(Config(X=1), 0.1)])
    assert searcher._best.config == Config(A=6)


class TestOpenConfigs:
    def opened(self, space=SPACE):
        return OpenConfigs(space, Encoder(space), 0)

    def test_what_is_taken_is_closed_and_what_is_held_comes_when_nothing_else_is_left(self):
        configs = self.opened(ConfigSpace({"A": range(4)}))
        one, two, three, four = configs.configs
        configs.hold(two)
        configs.take(one)
        assert [configs.configs[at] for at in configs.left()] == [three, four]
        assert (configs.position(one), configs.position(two), configs.position(three)) == (None, None, 2)
        assert [configs.place(one), configs.place(Config(A=9))] == [0, None]
        configs.take(three, four)
        assert [configs.configs[at] for at in configs.left()] == [two]
        configs.take(two)
        assert not len(configs.left())
        configs.hold(two)
        assert not len(configs.left()), "it was proposed"

    def test_open_configs_are_nearest_to_any_leader_first(self):
        configs, encoder = self.opened(), Encoder(SPACE)
        leaders = [Config(A=3, B=4, C=True), Config(A=20, B=1, C=False)]
        rows = encoder.rows(leaders)
        distances = [min(apart(configs.rows[at], row) for row in rows) for at in configs.nearby(leaders)]
        assert len(distances) == 300
        assert distances == sorted(distances)
        assert not len(configs.nearby([]))

    def test_of_a_sample_more_is_drawn_when_few_are_open(self):
        configs = self.opened(HUGE)
        assert (configs.whole, len(configs.configs)) == (False, 2_000)
        configs.take(*configs.configs[:1_800])
        assert len(configs.left()) == 200
        configs.take(configs.configs[1_800])
        assert len(configs.left()) == 2_199
        assert len({*configs.configs}) == len(configs.configs) == len(configs.rows) == 4_000


class Says:
    """A prior from a function, which counts what it is asked."""

    def __init__(self, cost):
        self.cost, self.asked, self.previews = cost, 0, []

    def score(self, configs):
        assert len(configs)
        self.asked += 1
        return [self.cost(config) for config in configs]

    def tell(self, trials):
        """Nothing."""


class Learns(Says):
    def take_previews(self, previews):
        self.previews += previews


class TestPriors:
    def test_priors_are_asked_anew_after_a_quarter_more_trials(self):
        priors, editions = Priors([Says(lambda config: 1.0)], [], []), []
        for config in SPACE.take(12):
            priors.tell([timed(config)])
            editions.append(priors.edition)
        assert editions == [1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5]

    def test_the_compilers_figures_reach_those_who_learn_from_them_and_are_news(self):
        plain, learning = Says(lambda config: 1.0), Learns(lambda config: 1.0)
        priors = Priors([plain, learning], [], SPACE.take(3))
        previews = [compiled(config) for config in SPACE.take(2)]
        priors.take_previews(previews)
        assert (plain.previews, learning.previews) == ([], previews)
        assert priors.news == SPACE.take(2)

    def test_columns_are_logarithms_less_their_average(self):
        configs = [Config(A=a, B=1, C=True) for a in (1, 2, 4)]
        priors = Priors([Says(lambda config: float(config["A"]))], [], configs)
        assert priors.columns(configs)[:, 0].tolist() == pytest.approx([-math.log(2), 0, math.log(2)])
        features = priors.features(priors.columns(configs))[:, 0]
        assert features == pytest.approx(np.array([-1, 0, 1]) * math.sqrt(1.5) / 4)
        assert priors.columns([]).shape == (0, 1)


def gains_of(mean, doubt=0.1, best=1.0, near=0.0):
    rows = np.arange(len(mean), dtype=float)[:, None]
    return ExpectedGains(
        np.arange(len(mean)) + 10, rows, np.array(mean), np.full(len(mean), doubt), best,
        lambda rows, row: np.where((rows == row).all(axis=1), 1.0, near),
    )  # fmt: skip


class TestExpectedGains:
    def test_each_position_is_given_once_the_largest_gain_first(self):
        gains = gains_of([0.9, 0.5, 0.7])
        assert [gains.best() for _ in range(4)] == [11, 12, 10, None]
        assert gains.largest == 0.0

    def test_positions_near_the_best_come_first_as_long_as_there_are_some(self):
        gains = gains_of([0.9, 0.5, 0.7])
        among = np.array([10, 99])
        assert [gains.best(among) for _ in range(3)] == [10, 11, 12]

    def test_a_config_that_is_slow_or_not_compiled_needs_a_larger_gain(self):
        gains = gains_of([0.5, 0.6, 0.9])
        gains.uncompiled = np.array([True, False, False])
        assert gains.order.tolist() == [0, 1, 2]
        assert [gains.best() for _ in range(3)] == [11, 10, 12]
        gains = gains_of([0.5, 0.6, 0.9])
        gains.slowness = np.array([2.0, 1.0, 1.0])
        assert gains.order.tolist() == [1, 0, 2]
        assert [gains.best() for _ in range(3)] == [11, 10, 12]

    def test_a_row_that_will_be_measured_takes_the_doubt_from_what_is_like_it(self):
        alike, unlike = gains_of([2.0, 2.0], 1.0, near=0.9), gains_of([2.0, 2.0], 1.0)
        before = unlike.largest
        for gains in (alike, unlike):
            gains.best()
        assert unlike.largest == pytest.approx(before)
        assert alike.largest < before / 5


@given(st.floats(-3, 3), st.floats(0.05, 2), st.floats(-3, 3))
def test_an_expected_improvement_is_the_mean_of_what_is_below_the_best(mean, doubt, best):
    values = mean + doubt * np.linspace(-8, 8, 8001)
    density = np.exp(-0.5 * np.linspace(-8, 8, 8001) ** 2)
    expected = float((np.maximum(best - values, 0) * density).sum() / density.sum())
    gain = expected_improvement(np.array([mean]), np.array([doubt]), best)[0]
    assert gain == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("registers", "spilled", "shared", "resident", "columns"),
    [
        (16, 0, 1, 1, [0, 0, 0, 0]), (256, 4 * 255, 1 << 18, 32, [1, 1, 1, 1]), (64, 0, 512, 4, [0.5, 0, 0.5, 0.4]),
        (8, 1 << 20, 0, None, [0, 1, 0, 0]), (None, None, None, None, [0, 0, 0, 0]),
        (16, 4 * 15, 1, 2, [0, 0.5, 0, 0.2]),
    ],
)  # fmt: skip
def test_figures_of_a_compiled_config_are_logarithms_from_0_to_1(registers, spilled, shared, resident, columns):
    one = Compiled(Config(A=1), Status.OK, "", Resources(registers, spilled, shared), resident=resident)
    assert _columns(one).tolist() == pytest.approx(columns)
    assert _columns(replace(one, resources=None, resident=None)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("width", [1, 3, 12, 13])
def test_a_regression_has_products_of_two_columns_if_these_are_few(width):
    rows = np.random.default_rng(0).random((4, width))
    pairs = itertools.combinations_with_replacement(range(width), 2) if width <= 12 else ((k, k) for k in range(width))
    expected = [[1.0, *row, *(row[one] * row[two] for one, two in pairs)] for row, pairs in zip(
        rows, itertools.repeat(list(pairs)), strict=False)]  # fmt: skip
    assert _terms(rows).tolist() == [pytest.approx(row) for row in expected]


def test_the_lengths_are_found_anew_only_after_a_growth(monkeypatch):
    surrogate, sizes = Surrogate(ByDistance([0])), []
    monkeypatch.setattr(surrogate, "_most_probable", lambda rows, *_: sizes.append(len(rows)) or surrogate._theta)
    rng = np.random.default_rng(0)
    for count in range(2, 30):
        surrogate.learn(rng.random((count, 1)), rng.random(count), np.zeros(count))
    growth = [(one, other) for one, other in itertools.pairwise(sizes)]
    assert sizes[0] == 2
    assert all(other == math.ceil(one * 1.15 + 1) for one, other in growth)


def test_of_400_trials_all_are_learned_and_of_more_the_fastest_half_and_the_latest():
    trials = [timed(Config(A=n), 1000.0 - n if n < 300 else 2000.0 + n) for n in range(401)]
    assert most_telling(trials[:400]) == trials[:400]
    learned = most_telling(trials)
    assert len(learned) == len({trial.config for trial in learned}) == 400
    assert learned[:200] == sorted(trials, key=lambda trial: trial.rank)[:200]
    assert learned[200:] == [trial for trial in trials if trial not in learned[:200]][-200:]


class TestCompileTimes:
    def slowness(self, seconds, at=1):
        encoder = Encoder(SPACE)
        estimator = GainEstimator(encoder, Priors([], [], []), CompilerColumns())
        configs = [Config(A=a, B=1, C=True) for a in range(1, len(seconds) + 1)]
        estimator._trials = [timed(config, compile_s=each) for config, each in zip(configs, seconds, strict=True)]
        rows = encoder.rows([Config(A=at, B=1, C=True)])
        return estimator._slowness(rows, gains_of([0.5]))[0]

    @pytest.mark.parametrize(
        ("seconds", "slow"),
        [
            ([0.1, 0.1, 12.0, 12.0], (0.1 + 0.1 + 12) / 3 / (4 * 6.05)), ([0.1, 0.1, 12.0], 1.0),
            ([9.0, 9.0, 9.0, 0.1, 0.1, 0.1, 0.1], 9 / 4), ([3.9, 3.9, 3.9, 0.1, 0.1, 0.1, 0.1], 1.0),
            ([4.0, 4.0, 8.0, 0.1, 0.1, 0.1, 0.1], 16 / 3 / 4), ([None, *[9.0] * 5, *[0.1] * 6], 9 / 4),
        ],
    )  # fmt: skip
    def test_the_three_nearest_compile_times_over_four_times_the_usual_one_divide_a_gain(self, seconds, slow):
        assert self.slowness(seconds) == pytest.approx(max(slow, 1.0))


class TestPreviews:
    def test_configs_are_previewed_once_and_as_many_as_are_wanted(self):
        searcher = AutoSearch(SPACE, 0)
        first, second = searcher.wanted_previews(5), searcher.wanted_previews(3)
        assert (len(first), len(second)) == (5, 3)
        assert not {*first} & {*second}
        assert searcher.wanted_previews(0) == []
        assert len(searcher.wanted_previews(1000)) == 300 - 8

    def test_a_space_that_is_tried_whole_has_no_previews(self):
        assert AutoSearch(ConfigSpace({"A": range(8), "B": range(8)})).wanted_previews(5) == []
        assert len(AutoSearch(ConfigSpace({"A": range(13), "B": range(5)})).wanted_previews(5)) == 5
        assert Search.SMALL == 64

    def test_priors_choose_what_is_previewed_each_in_turn(self):
        searcher = AutoSearch(SPACE, 0, [Says(lambda c: 1.0 + c["A"]), Says(lambda c: 32.0 - c["A"])])
        previews = searcher.wanted_previews(4)
        assert [config["A"] for config in previews] == [1, 30, 1, 30]

    def test_what_the_compiler_refuses_is_never_asked_for_and_what_spills_comes_last(self):
        space = ConfigSpace({"A": range(10), "B": range(10)})
        searcher = AutoSearch(space, 0)
        refused, spilling, deferred = (Config(A=n, B=0) for n in range(3))
        searcher.take_previews([
            compiled(refused, Status.COMPILE), compiled(spilling, spilled=4096), compiled(deferred, Status.DEFERRED),
            compiled(Config(X=1)),
        ])  # fmt: skip
        asked = searcher.ask(1)
        while new := searcher.ask(1):
            searcher.tell([timed(config, 1.0 + config["A"]) for config in asked[-1:]])
            asked += new
        assert len(asked) == 99
        assert refused not in asked
        assert {*asked[-2:]} == {spilling, deferred}

    def test_of_configs_that_are_one_program_one_is_asked_for(self):
        searcher = AutoSearch(SPACE, 0)
        twins = [Config(A=1, B=b, C=c) for b in (1, 2) for c in (False, True)]
        searcher.take_previews([compiled(config, launch="same") for config in twins])
        asked = []
        while len(asked) < 296 and (new := searcher.ask(8)):
            asked += new
            searcher.tell([timed(config, 1.0 + config["A"]) for config in new])
        assert sum(config in twins for config in asked) == 1
        later = Config(A=2, B=1, C=True)
        assert later in asked

    def test_a_program_that_was_tried_before_it_was_compiled_is_not_asked_for_again(self):
        searcher = AutoSearch(SPACE, 0)
        (tried,) = searcher.ask(1)
        searcher.tell([timed(tried)])
        twin = next(config for config in SPACE if config != tried)
        searcher.take_previews([compiled(config, launch="same") for config in (twin, tried)])
        assert searcher._open_configs.position(twin) is None


@pytest.mark.parametrize(
    ("space", "priors", "latest"),
    [(SPACE, 0, 70), (SPACE, 1, 48), (UnlistedSpace.around(SPACE, [], dict(SPACE.tunables)), 1, 56)],
)
def test_a_small_gain_is_reported_after_enough_small_gains(space, priors, latest):
    searcher = AutoSearch(space, 0, [Says(lambda config: 1.0)] * priors)
    searcher._largest_gains = [0.5] * (latest - 1)
    assert math.isinf(searcher.expected_gain())
    searcher._largest_gains = [0.9, 0.2, *[0.1] * (latest - 1)]
    assert searcher.expected_gain() == 0.2
    searcher._trials = dict.fromkeys(range(3 * (latest + 1)))
    assert searcher.expected_gain() == 0.9


@pytest.mark.parametrize(("agreement", "latest"), [(1.0, 48), (0.5, 48), (0.25, 59), (0.0, 70), (-1.0, 70)])
def test_priors_that_trials_contradict_need_more_small_gains(agreement, latest):
    searcher = AutoSearch(SPACE, 0, [Says(lambda config: 1.0)])
    searcher._estimator.agreement = agreement
    searcher._largest_gains = [0.5] * (latest - 1)
    assert math.isinf(searcher.expected_gain())
    searcher._largest_gains = [0.9, 0.2, *[0.1] * (latest - 1)]
    assert searcher.expected_gain() == 0.2


def test_each_second_config_is_a_neighbour_of_the_best_when_little_is_expected():
    searcher = AutoSearch(SPACE, 0)
    best = Config(A=10, B=4, C=True)
    searcher.tell([timed(best, 1.0), timed(Config(A=20, B=4, C=True), 2.0)])
    near = searcher._polish(auto_search._POLISH_BELOW)
    configs = [searcher._open_configs.configs[at] for at in near]
    assert {*configs} == {*SPACE.neighbours(best, steps_only=True)}
    assert searcher._polish(auto_search._POLISH_BELOW * 1.1) is None
    searcher.tell([timed(Config(A=21, B=4, C=True), 2.0)])
    assert searcher._polish(0.0) is None


def test_the_first_choices_of_priors_come_in_turn_and_then_those_that_differ_most():
    searcher = AutoSearch(SPACE, 0, [Says(lambda c: 1.0 + c["A"] + c["B"]), Says(lambda c: 99.0 - c["A"] - c["B"])])
    first, second = searcher.ask(2)
    assert (first["A"], first["B"]) == (1, 1)
    assert (second["A"], second["B"]) == (30, 16)
