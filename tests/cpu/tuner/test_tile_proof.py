"""Tiles that nobody has listed change no result, or are named as a part of it."""

from __future__ import annotations

import numpy
import pytest

from triton_ops import Tolerance, tune
from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace, Constraint, UnlistedSpace
from triton_ops.tuner.wrong_results import TileProof
from triton_ops.values import Measurement, Status, Trial

X = numpy.random.default_rng(0).random((64, 16))


def repeated_maxima(x, *, rows, group):
    return numpy.repeat(x.reshape(-1, group).max(1), group)


def space(seeds=(), **values):
    values = values or {"rows": [1, 2, 4, 8], "group": [4, 8, 16]}
    return UnlistedSpace.around(
        ConfigSpace(values, default=Config({n: v[1] for n, v in values.items()})), seeds, values
    )


def trial(config, status=Status.OK, excess=None):
    times = Measurement((1.0,), "wall") if status is Status.OK else None
    return Trial(config, status, times, error="" if times else "it is wrong", excess=excess)


@pytest.mark.usefixtures("steady_clock")
def test_a_tile_that_is_part_of_the_result_stays_where_its_author_has_put_it():
    result = tune(repeated_maxima, (X,), space=space([{"rows": 2, "group": 8}]), keep=False)
    assert result.best_config["group"] == 8
    assert any(note.startswith("group is part of the result: with 4 and 16 in place of 8") for note in result.notes)
    tried = [each for each in result.trials if each.config["group"] != 8]
    assert {each.status for each in tried} == {Status.WRONG, Status.CONSTRAINT}, "two have shown it, the rest is spared"
    assert [each.config["rows"] for each in tried if each.status is Status.WRONG] == [2, 2]


@pytest.mark.usefixtures("steady_clock")
def test_nobody_can_tell_the_right_value_of_a_default_that_was_made_up():
    with pytest.raises(SpaceError, match=r"group is part of the result: .*give the constant in the call"):
        tune(repeated_maxima, (X,), space=space(), keep=False)


@pytest.mark.usefixtures("steady_clock")
def test_a_reference_tells_the_right_value_though_the_default_was_made_up():
    result = tune(
        repeated_maxima, (X,), space=space(), keep=False,
        reference=lambda x: numpy.repeat(x.reshape(-1, 8).max(1), 8), tolerance=Tolerance(times=1),
    )  # fmt: skip
    assert result.best_config["group"] == 8
    assert any("group is part of the result" in note for note in result.notes)


def test_a_tile_is_blamed_for_its_own_configs_alone_and_once_all_of_them_have_run():
    proof = TileProof(space([{"rows": 2, "group": 8}]))
    default, *probes = proof.first
    assert [dict(one) for one in probes] == [
        {"rows": 1, "group": 8}, {"rows": 4, "group": 8}, {"rows": 2, "group": 4}, {"rows": 2, "group": 16}
    ]  # fmt: skip
    for config in (default, Config(rows=4, group=4), probes[0], probes[2]):
        proof.tried(trial(config, Status.OK if config == default else Status.WRONG))
    assert not proof.notes, "another value of each is to come"
    proof.tried(trial(probes[1]))
    proof.tried(trial(probes[3], Status.RUNTIME))
    assert [*proof.notes] == ["group"], "rows has a value that is right"
    assert proof.refusal(Config(rows=1, group=16))
    assert not proof.refusal(Config(rows=8, group=8))


def test_rounding_makes_no_tile_a_part_of_the_result():
    proof = TileProof(space())
    proof.tried(trial(Config(rows=2, group=8)))
    for config in proof.first:
        proof.tried(trial(config, Status.WRONG, excess=2.0))
    proof.end()
    assert (proof.notes, proof.dispute) == ({}, "")


def test_a_default_that_was_made_up_counts_only_once_another_tile_agrees():
    proof = TileProof(space())
    proof.tried(trial(Config(rows=2, group=8)))
    with pytest.raises(SpaceError, match="and no config with other rows, group agrees"):
        proof.end()
    proof.dispute = ""
    proof.tried(trial(Config(rows=8, group=4)))
    proof.end()


def test_a_default_that_was_made_up_and_is_wrong_by_itself_is_gone_on_with_by_nobody():
    proof = TileProof(space())
    proof.tried(trial(Config(rows=2, group=8), Status.WRONG))
    assert "which nobody has written, is wrong itself" in proof.dispute


def test_a_space_that_somebody_has_listed_has_nothing_to_show():
    proof = TileProof(ConfigSpace({"rows": [1, 2]}))
    proof.tried(trial(Config(rows=1), Status.WRONG))
    proof.tried(trial(Config(rows=2), Status.WRONG))
    proof.end()
    assert (proof.first, proof.notes, proof.dispute) == ((), {}, "")


def test_seeds_are_in_a_space_around_them_whatever_rules_they_break():
    rule = Constraint("small", lambda rows, group: rows * group <= 16, "{rows} times {group}")
    wide = UnlistedSpace.around(ConfigSpace({"rows": [1, 2], "group": [4, 8]}, (rule,)), [{"rows": 3, "group": 32}], ())
    assert wide.default_config == Config(rows=3, group=32) in wide
    assert wide.tunables["rows"].values == (1, 2, 3)
    assert Config(rows=3, group=8) not in wide
    assert (wide.made_up, space().made_up) == (False, True)


def overflowing(x, *, rows, group):
    return numpy.repeat(x.reshape(-1, group).max(1), group) / numpy.zeros(1)


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("seeds", [(), [{"rows": 2, "group": 8}]])
def test_infinite_results_show_no_tile_to_be_right(seeds):
    """Sums that overflow in float16 are alike, whatever was added up: a wrong tile may be the fastest."""
    finite = r"which rows, group are right: no number in .* results is finite"
    with pytest.raises(SpaceError, match=finite), numpy.errstate(divide="ignore"):
        tune(overflowing, (X,), space=space(seeds), keep=False)


@pytest.mark.usefixtures("steady_clock")
def test_results_that_change_from_run_to_run_show_no_tile_to_be_right():
    rng = numpy.random.default_rng(0)
    with pytest.raises(SpaceError, match=r"which rows, group are right: .* differ from run to run"):
        tune(lambda x, *, rows, group: rng.random(16), (X,), space=space(), keep=False)


@pytest.mark.usefixtures("steady_clock")
def test_infinite_results_of_a_list_are_its_authors_matter():
    listed = [{"rows": 1, "group": 8}, {"rows": 2, "group": 8}]
    with numpy.errstate(divide="ignore"):
        result = tune(overflowing, (X,), space=listed, keep=False)
    assert result.verified == "nothing: no number in the first config's results is finite"
