"""Who races in the last comparison, how long, and what further processes add, on a clock that only launches move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.cpu.evaluation.test_doubt import DEFAULT, RIVAL, Noisy
from triton_ops import Config, Effort
from triton_ops.evaluation import FinalRequest, Outcome
from triton_ops.evaluation.finals import compare_finalists, confirmed, finalists
from triton_ops.evaluation.outcome import with_further_processes
from triton_ops.timing import DuelPolicy, Rounds
from triton_ops.values import Measurement, Status, Trial

THIRD = Config(k=2)
QUICK = Effort.named("quick")


def trial(config, ms, **more):
    return Trial(config, Status.OK, Measurement((ms,), "host"), relative=ms, **more)


def failed(config):
    return Trial(config, Status.RUNTIME, error="it failed")


@pytest.fixture
def races(monkeypatch):
    """The limits of each race, and who takes part beside the finalists."""
    seen, race = [], Rounds.race

    def noted(rounds, arms, policy, **more):
        seen.append((len(arms), policy, len(more["beside"])))
        return race(rounds, arms, policy, **more)

    monkeypatch.setattr(Rounds, "race", noted)
    return seen


def compared(times_ms, seconds=None, noise=0.001, effort=QUICK, **more):
    device = Noisy(times_ms, noise, 1, spikes=0.0)
    trials = tuple(trial(config, ms) for config, ms in times_ms.items())
    final = FinalRequest(trials=trials, default=DEFAULT, seconds=seconds, **more)
    return compare_finalists(device, final, effort, clock=device.now.seconds)


def duel_s(*times_ms):
    """Seconds that the first look of a duel takes, with its rests: the challenger, the default, and a twin."""
    first = DuelPolicy.after_a_race(1.0).checkpoints[0]
    return first * 1.5 * (sum(times_ms) + times_ms[0]) / 1e3


@pytest.mark.parametrize(("times_ms", "few"), [
    ((40.0, 40.0, 40.0), False), ((50.0, 50.0), True), ((50.0, 49.9), False), ((80.0, 30.0, 5.0), False),
    ((5.0, 80.0, 30.0), False),
])  # fmt: skip
def test_few_rounds_decide_where_two_launches_take_a_tenth_of_a_second(times_ms, few, races):
    compared({Config(k=k): ms for k, ms in enumerate(times_ms)})
    assert races[0][1].few is few


@pytest.mark.parametrize(("share", "few"), [(0.9, True), (1.1, False)])
def test_few_rounds_decide_where_there_is_no_time_for_a_duel_after_the_race(share, few, races):
    enough_s = duel_s(40.0, 40.0)
    compared(dict.fromkeys((DEFAULT, RIVAL, THIRD), 40.0), QUICK.race.seconds + share * enough_s)
    arms, policy, _ = races[0]
    assert (arms, policy.few, policy.seconds) == (3, few, QUICK.race.seconds)
    after_s = 0.04 if few else enough_s  # a launch that is checked, or the duel
    assert policy.few_s == pytest.approx(share * enough_s - after_s)


def test_without_a_limit_a_race_of_long_launches_has_all_the_time(races):
    compared({DEFAULT: 80.0, RIVAL: 60.0})
    assert races[0][1].few_s == math.inf
    compared({DEFAULT: 80.0, RIVAL: 60.0}, race=QUICK.race)
    assert races[1][1].few_s == 0.0, "others decide how long"


@pytest.mark.parametrize(("share", "twins"), [(0.9, 0), (1.1, 1)])
def test_a_twin_takes_part_where_six_rounds_with_it_fit(share, twins, races):
    whole_s = 6 * 1.5 * 3 * 30.0 / 1e3
    outcome = compared({DEFAULT: 30.0, RIVAL: 30.0}, 2 * share * whole_s)
    assert [race[2] for race in races] == [twins] * len(races)
    assert (outcome.twin is not None) is bool(twins)


@pytest.mark.parametrize("anyway", [False, True])
def test_without_time_for_two_the_default_wins_unraced_unless_they_are_to_race_anyway(anyway, races):
    outcome = compared({DEFAULT: 30.0, RIVAL: 10.0}, 0.01, anyway=anyway)
    assert len(races) == anyway
    assert outcome.winner.config == (RIVAL if anyway else DEFAULT)
    if not anyway:
        assert outcome.confidence == "the budget left no time to compare the fastest with the default"
        assert not outcome.told


def test_a_single_config_that_worked_wins_alone():
    outcome = compared({DEFAULT: 30.0})
    assert (outcome.winner.config, outcome.ties, outcome.gain) == (DEFAULT, (DEFAULT,), None)


def test_finalists_are_the_fastest_of_each_program_and_those_that_always_race():
    times = {Config(k=k): trial(Config(k=k), 1.0 + k) for k in range(20)}
    times[Config(k=0)] = replace(times[Config(k=0)], same_code_as=Config(k=1))
    times[Config(k=2)] = failed(Config(k=2))
    few = replace(QUICK, finalists=3, near=0.5)
    racing = [each.config["k"] for each in finalists(times, few, {Config(k=9)})]
    assert racing == [1, 3, 4, 9], "of 2 ms and up to 3 ms, the first three, and the ninth"
    near = replace(QUICK, finalists=1, near=2.0)
    assert [each.config["k"] for each in finalists(times, near, ())] == [1, 3, 4, 5], "up to 6 ms"
    assert finalists({}, few, ()) == []


def test_results_of_what_ties_and_of_the_winner_are_checked_again_and_of_no_other(monkeypatch):
    checked, repeated = [], Noisy.wrong_when_repeated

    def noted(device, config, sampler, launches, seconds):
        checked.append((config, launches))
        return repeated(device, config)

    monkeypatch.setattr(Noisy, "wrong_when_repeated", noted)
    outcome = compared({DEFAULT: 1.0, RIVAL: 1.0, THIRD: 2.0})
    assert (outcome.winner.config, set(outcome.ties)) == (DEFAULT, {DEFAULT, RIVAL})
    assert checked == [(RIVAL, 12), (DEFAULT, 44)]
    checked.clear()
    compared({DEFAULT: 1.0, RIVAL: 0.5}, settle=False, race=QUICK.race)
    assert (RIVAL, 12) in checked, "what stayed to the end, where others decide"
    assert checked[-1] == (RIVAL, 44)
    checked.clear()
    compared({DEFAULT: 35.0, RIVAL: 20.0})
    assert checked == [(RIVAL, 7)], "140 ms of it"
    checked.clear()
    compared({DEFAULT: 900.0, RIVAL: 400.0})
    assert checked == [(RIVAL, 2)]


# Further processes


def outcome(ties, times_ms, **more):
    trials = tuple(trial(config, ms, final=final(ms)) for config, ms in times_ms.items())
    by_config = {each.config: each for each in trials}
    given = {"noise": 0.01, "gain": None, "confidence": "ok", **more}
    return Outcome(winner=by_config[ties[0]], ties=tuple(ties), trials=trials, **given)


def final(ms, rounds=8):
    device = Noisy({DEFAULT: ms}, 0.0, 1, spikes=0.0)
    race = compare_finalists(
        device, FinalRequest(trials=(trial(DEFAULT, ms),), default=DEFAULT), QUICK, clock=device.now.seconds
    )
    return race.trials[0].final


TIMES = {DEFAULT: 3.0, RIVAL: 1.0, THIRD: 1.0}


def test_a_config_that_fails_in_a_further_process_ties_no_more():
    here = outcome([THIRD, RIVAL], TIMES)
    there = replace(here, trials=(trial(RIVAL, 1.0, final=final(1.0)), failed(THIRD)))
    result = with_further_processes(here, [there], DEFAULT, ())
    assert (result.winner.config, result.ties) == (RIVAL, (RIVAL,))
    assert {each.config: str(each.status) for each in result.trials} == {DEFAULT: "ok", RIVAL: "ok", THIRD: "runtime"}
    assert result.gain.centre == pytest.approx(3.0, rel=0.01), "over the default's time here"
    all_failed = replace(here, trials=(failed(RIVAL), failed(THIRD)))
    assert with_further_processes(here, [all_failed], DEFAULT, ()).winner.config == DEFAULT


def test_what_is_slower_in_further_processes_ties_no_more():
    here = outcome([THIRD, RIVAL], TIMES)
    there = [outcome([RIVAL], {RIVAL: 1.0, THIRD: 1.2}) for _ in range(3)]
    result = with_further_processes(here, there, DEFAULT, ())
    assert (result.winner.config, result.ties) == (RIVAL, (RIVAL,))


def test_ties_are_compared_in_as_many_processes_as_there_is_time_for():
    here, questions = outcome([THIRD, RIVAL], TIMES), []

    def compare(asked):
        questions.extend(asked)
        return [here] * len(asked)

    request = FinalRequest(trials=here.trials, default=DEFAULT, seed=5)
    assert confirmed(here, request, 2, compare, 19.9) is here
    assert confirmed(here, request, 0, compare) is here
    assert not confirmed(replace(here, ties=(RIVAL,)), request, 2, compare).elsewhere
    assert confirmed(here, request, 2, lambda _: []) is here, "all of them failed"
    assert not questions
    result = confirmed(here, request, 2, compare, 20.0)
    assert len(result.elsewhere) == 2
    assert [question.seed for question in questions] == [6, 7]
    assert {each.config for question in questions for each in question.trials} == {RIVAL, THIRD}
    assert [(question.settle, question.seconds) for question in questions] == [(False, 5.0)] * 2
    assert confirmed(here, request, 1, compare).elsewhere
    assert questions[-1].seconds is None
