"""The contract of all searchers that use previews, for any results of previews."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import compiled, constraints, examples, spaces, trials
from triton_ops.search import UsesPreviews, make_searcher
from triton_ops.search.searchers import SEARCHERS
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Compiled, Resources, Status

PLAIN = ConfigSpace({"A": range(10), "B": [1, 2, 4, 8, 16], "C": range(4)})
PREVIEWING = ("auto", "ranked")
every_previewing = pytest.mark.parametrize("name", PREVIEWING)
steps = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=4)
seeds = st.integers(0, 1 << 32)


@st.composite
def large_spaces(draw):
    """Spaces with so many configs that previews are wanted, by a rule that leaves half of them or more."""
    axes = {"A": range(draw(st.integers(7, 9))), "B": [1, 2, 4, 8, 16], "C": range(draw(st.integers(4, 5)))}
    return ConfigSpace(axes, tuple(draw(st.lists(constraints(list(axes)), max_size=1))))


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_searchers_with_priors_use_previews(name):
    assert isinstance(make_searcher(name, PLAIN), UsesPreviews) == (name in PREVIEWING)


def test_a_search_of_few_trials_sees_previews_of_a_small_space_too():
    small = ConfigSpace({"A": range(3)})
    assert len(make_searcher("ranked", small).wanted_previews(2)) == 2


def refused(config):
    return Compiled(config, Status.RESOURCES, "too much shared memory", Resources(shared_bytes=1 << 19))


def fits(config, **more):
    return Compiled(config, Status.OK, "", Resources(64, 0, 4096), compile_s=0.1, **more)


def rest_of(searcher):
    result = []
    while batch := searcher.ask(9):
        result += batch
    return result


@pytest.mark.processes
@every_previewing
@given(space=st.one_of(spaces(), large_spaces()), seed=seeds, steps=steps, data=st.data())
@examples(20)
def test_previews_are_new_configs_and_impossible_or_tried_configs_are_never_proposed(name, space, seed, steps, data):
    searcher, again = make_searcher(name, space, seed), make_searcher(name, space, seed)
    expected, asked, told = [], [], []
    never, launches = set(), {}
    for previews, count in steps:
        new = searcher.wanted_previews(previews)
        assert again.wanted_previews(previews) == new
        assert len(new) <= previews
        assert not set(new) & {*expected, *asked, *(trial.config for trial in told)}
        assert all(config in space for config in new)
        expected += new
        result = [data.draw(compiled(st.just(config))) for config in new]
        never |= {one.config for one in result if not one.launchable}
        launches |= {one.config: one.launch for one in result if one.launch is not None}
        searcher.take_previews(result)
        again.take_previews(result)
        batch = searcher.ask(count)
        assert again.ask(count) == batch
        asked += batch
        ended = [data.draw(trials(of=st.just(config))) for config in batch[:5]]
        told += ended
        searcher.tell(ended)
        again.tell(ended)
    asked += rest_of(searcher)
    assert len(set(asked)) == len(asked)
    assert not set(asked) & never
    once = [launches[config] for config in asked if config in launches]
    assert len(set(once)) == len(once), "the same program twice"
    twins = {config for config, launch in launches.items() if launch in once}
    assert set(asked) | never | twins == set(space), "all that is left is tried in the end"
    assert searcher.wanted_previews(5) == []


@every_previewing
@given(seed=seeds)
@examples(4)
def test_without_answers_proposals_are_the_same_as_without_previews(name, seed):
    one, other = make_searcher(name, PLAIN, seed), make_searcher(name, PLAIN, seed)
    for _ in range(4):
        one.wanted_previews(20)
        assert one.ask(4) == other.ask(4)


@every_previewing
def test_spilling_and_deferred_configs_come_last(name):
    searcher = make_searcher(name, PLAIN, 0)
    spills = Compiled(Config(A=3, B=4, C=1), Status.OK, "", Resources(255, 400, 4096), compile_s=3.0)
    deferred = Compiled(Config(A=4, B=4, C=1), Status.DEFERRED, "a rule")
    searcher.take_previews([spills, deferred])
    assert set(rest_of(searcher)[-2:]) == {spills.config, deferred.config}


@every_previewing
def test_a_config_that_is_the_same_program_as_a_tried_one_is_left_out_even_if_previewed_first(name):
    searcher = make_searcher(name, PLAIN, 0)
    (first,) = searcher.ask(1)
    other = next(config for config in PLAIN if config != first)
    searcher.take_previews([fits(other, launch="same")])
    searcher.take_previews([fits(first, launch="same")])
    assert other not in rest_of(searcher)


@every_previewing
def test_previews_of_other_spaces_and_of_proposals_are_accepted(name):
    searcher = make_searcher(name, PLAIN, 0)
    (first,) = searcher.ask(1)
    searcher.take_previews([fits(Config(X=1)), refused(first)])
    assert set(rest_of(searcher)) == set(PLAIN) - {first}


def test_a_space_that_is_tried_whole_needs_no_previews():
    assert make_searcher("auto", ConfigSpace({"A": range(8), "B": range(8)})).wanted_previews(10) == []


@every_previewing
def test_only_a_part_of_a_huge_space_is_previewed(name):
    space = ConfigSpace({f"T{axis}": range(10) for axis in range(9)})
    searcher = make_searcher(name, space)
    expected = searcher.wanted_previews(50)
    assert len(set(expected)) == 50
    searcher.take_previews([refused(config) if config["T0"] > 7 else fits(config) for config in expected])
    assert not set(searcher.ask(30)) & {config for config in expected if config["T0"] > 7}
