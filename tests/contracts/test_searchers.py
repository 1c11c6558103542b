"""The contract of all searchers, for any space and any trials."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples, spaces, trials
from triton_ops.exceptions import SettingsError
from triton_ops.search import Search, make_searcher
from triton_ops.search.searchers import SEARCHERS
from triton_ops.space import ConfigSpace, Constraint, IntRange
from triton_ops.values import Measurement, Status, Trial

every_searcher = pytest.mark.parametrize("name", SEARCHERS)
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=5)

HUGE = {f"T{axis}": IntRange(0, 9) for axis in range(9)}  # 10^9 configs


def answers_to(data, asked):
    """Trials as the tuning loop tells them: of proposals, of which some failed, and of configs that others proposed."""
    told = [data.draw(trials(of=st.just(config))) for config in asked[:3]]
    return told + data.draw(st.lists(trials(), max_size=2))


def all_of(searcher, count=7):
    """All proposals of a searcher until it has no config left."""
    result = []
    while batch := searcher.ask(count):
        result += batch
    return result


@every_searcher
@given(space=spaces(), seed=st.integers(0, 1 << 32), sizes=sizes, data=st.data())
@examples(15)
def test_proposals_are_valid_and_distinct_and_no_more_than_asked_for(name, space, seed, sizes, data):
    searcher = make_searcher(name, space, seed)
    result = []
    for count in sizes:
        batch = searcher.ask(count)
        assert len(batch) <= count
        result += batch
        searcher.tell(answers_to(data, batch))
    assert all(config in space for config in result)
    assert len(set(result)) == len(result)
    if len(result) < sum(sizes):  # it gave fewer than it was asked for, so it has ended, and stays so
        assert searcher.ask(1) == searcher.ask(5) == []


@every_searcher
@given(space=spaces(may_be_empty=True), seed=st.integers(0, 1 << 32), count=st.integers(1, 50))
@examples(15)
def test_a_small_space_is_covered_exactly(name, space, seed, count):
    result = all_of(make_searcher(name, space, seed), count)
    assert len(result) == len(set(result))
    assert set(result) == set(space)


@every_searcher
@given(space=spaces(), seed=st.integers(0, 1 << 32), sizes=sizes, data=st.data())
@examples(8)
def test_the_same_seed_and_trials_give_the_same_proposals(name, space, seed, sizes, data):
    one, other = make_searcher(name, space, seed), make_searcher(name, space, seed)
    for count in sizes:
        batch = one.ask(count)
        assert other.ask(count) == batch
        told = answers_to(data, batch)
        one.tell(told)
        other.tell(told)


@every_searcher
def test_another_seed_is_another_order(name):
    space = ConfigSpace({"A": range(8), "B": range(8)})
    orders = [tuple(all_of(make_searcher(name, space, seed))) for seed in range(5)]
    assert len(set(orders)) == 5
    assert tuple(space) not in orders  # enumeration: a drift would favour its one end


@every_searcher
def test_trials_before_the_first_proposal_are_accepted(name):
    space = ConfigSpace({"A": range(3)})
    searcher = make_searcher(name, space)
    searcher.tell([])
    assert set(all_of(searcher)) == set(space)
    searcher.tell([])


@every_searcher
def test_asking_for_0_configs_uses_up_none(name):
    space = ConfigSpace({"A": range(20)})
    searcher, fresh = make_searcher(name, space, 1), make_searcher(name, space, 1)
    assert searcher.ask(0) == []
    assert all_of(searcher) == all_of(fresh)
    assert searcher.ask(0) == []


@every_searcher
def test_a_list_of_configs_is_a_space_like_others(name):
    space = ConfigSpace.from_configs([{"A": 1, "B": 2}, {"A": 2, "B": 1}, {"A": 1, "B": 2}, {"A": 3, "B": 3}])
    result = all_of(make_searcher(name, space))
    assert sorted(config.text for config in result) == sorted({config.text for config in space})


@every_searcher
@pytest.mark.parametrize("axes", [{"T0": range(3)}, HUGE], ids=["small", "huge"])
def test_constraints_that_refuse_all_leave_nothing_to_ask(name, axes):
    space = ConfigSpace(axes, (Constraint("none", lambda T0: False, "T0={T0} is refused"),))
    searcher = make_searcher(name, space)
    assert searcher.ask(5) == searcher.ask(5) == []


@every_searcher
@pytest.mark.parametrize("rules", [(), (Constraint("even", lambda T0, T8: (T0 + T8) % 2 == 0, "odd"),)], ids=len)
def test_a_space_of_a_thousand_million_answers_at_once(name, rules):
    space = ConfigSpace(HUGE, rules)
    start_s = time.process_time()
    searcher = make_searcher(name, space)
    result = searcher.ask(1) + searcher.ask(100)
    assert time.process_time() - start_s < 20  # 1 s on an idle machine; walking it all would take hours
    assert len(set(result)) == 101
    assert all(config in space for config in result)


@every_searcher
def test_rare_configs_of_a_large_space_are_all_found(name):
    axes = {f"T{axis}": IntRange(0, 9) for axis in range(5)}
    rare = Constraint("rare", lambda T0, T1, T2, T3: T0 == T1 == T2 == T3 == 7, "no")
    space = ConfigSpace(axes, (rare,))
    assert space.size.total == 100_000
    result = all_of(make_searcher(name, space))
    assert sorted(config["T4"] for config in result) == list(range(10))


@every_searcher
def test_configs_that_differ_only_in_an_unused_tunable_are_proposed_once(name):
    rule = Constraint("idle", lambda SPLIT, WAY: SPLIT > 1 or WAY == "none", "without a split there is no way")
    space = ConfigSpace({"SPLIT": [1, 2, 4], "WAY": ["none", "atomic", "tree"], "BLOCK": range(8)}, (rule,))
    searcher, result = make_searcher(name, space), []
    while batch := searcher.ask(4):
        searcher.tell([timed(config, 1 + config["BLOCK"] / 8) for config in batch])
        result += batch
    assert set(result) == set(space)
    assert {config["WAY"] for config in result if config["SPLIT"] == 1} == {"none"}


@every_searcher
def test_failures_alone_do_not_stop_a_search(name):
    space = ConfigSpace({"A": range(10), "B": range(10)})
    searcher, result = make_searcher(name, space), []
    while batch := searcher.ask(6):
        searcher.tell([Trial(config, Status.RUNTIME, error="no") for config in batch])
        result += batch
    assert set(result) == set(space)


@every_searcher
def test_a_repeated_measurement_may_be_told(name):
    space = ConfigSpace({"A": range(6), "B": range(6)})
    searcher = make_searcher(name, space, 0)
    result = []
    for _ in range(4):
        asked = searcher.ask(4)
        result += asked
        for factor in (1.0, 30.0):  # as after a change of the clock: other times for all
            times = [factor * (1 + config["A"]) for config in result]
            searcher.tell(
                [Trial(c, Status.OK, Measurement((ms,), "host")) for c, ms in zip(result, times, strict=True)]
            )
    result += all_of(searcher)
    assert len(result) == len(set(result)) == 36


@every_searcher
def test_configs_that_others_tried_are_not_proposed_again(name):
    space = ConfigSpace({"A": range(10), "B": range(10)})
    searcher = make_searcher(name, space)
    others = space.take(30)
    searcher.tell([timed(config, 1 + config["A"]) for config in others])
    result = all_of(searcher)
    assert not set(result) & set(others)
    assert set(result) | set(others) == set(space)


@every_searcher
def test_the_expected_gain_is_never_negative(name):
    space = ConfigSpace({"A": range(30), "B": range(30)})
    searcher = make_searcher(name, space)
    for _ in range(6):
        searcher.tell([timed(config, 1 + abs(config["A"] - 9) / 9) for config in searcher.ask(8)])
        assert Search.expected_gain(searcher) >= 0


def timed(config, ms):
    return Trial(config, Status.OK, Measurement((ms,), "host"))


def test_an_unknown_search_is_refused():
    with pytest.raises(SettingsError, match=r"no search 'magic'.*auto, ranked, random, exhaustive"):
        make_searcher("magic", ConfigSpace({"A": [1]}))
