"""The last comparison with a default that may or may not be beaten, on clocks that only launches move."""

from __future__ import annotations

import math
import random
import re
from types import SimpleNamespace

import pytest

from tests.clocks import MS, Clock
from triton_ops import Config
from triton_ops.evaluation import FinalRequest
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.outcome import preference
from triton_ops.request import Effort
from triton_ops.timing import HostTimer, Launch, RacePolicy
from triton_ops.timing.race_statistics import EXCLUDED, INDIFFERENCE
from triton_ops.values import Measurement, Resources, Status, Trial

DEFAULT, RIVAL = Config(k=0), Config(k=1)


class Noisy:
    """Configs of known times on one clock, under noise with heavy tails; a config may fail after some launches."""

    def __init__(self, times_ms, noise, seed, fails_at=None, wrong=None, spikes=0.3):
        self.now, self.calls, self.rng = Clock(), 0, random.Random(seed)
        self.timer = HostTimer(self.now)
        self.times, self.noise, self.fails_at = times_ms, noise, fails_at or {}
        self.shared_timer, self.wrong, self.spikes = SimpleNamespace(timer=self.timer), wrong, spikes

    def sampler(self, config):
        return self.timer.prepare(Launch(lambda: self.launch(config)), 1)

    def launch(self, config):
        self.calls += 1
        if self.calls > self.fails_at.get(config, math.inf):
            raise OverflowError("too often")
        spike = self.rng.choice((1.0, 3.0)) if self.rng.random() < self.spikes else 1.0
        self.now.spend(round(self.times[config] * MS * spike * math.exp(self.rng.gauss(0, self.noise))))

    def wrong_when_repeated(self, config, *_):
        return Difference("it is wrong") if config == self.wrong else None

    def compared(self, seconds=1.0, incumbents=(), nearby=None, screened=None, **policy):
        trials = tuple(
            Trial(config, Status.OK, Measurement((time_ms,), "host"), relative=time_ms)
            for config, time_ms in (screened or self.times).items()
        )
        final = FinalRequest(
            trials=trials,
            default=DEFAULT,
            incumbents=incumbents,
            nearby=nearby,
            race=RacePolicy(**{"checkpoints": (4, 8, 16), "seconds": seconds, **policy}),
        )
        return compare_finalists(self, final, Effort.named("quick"), clock=self.now.seconds)


def test_identical_configs_have_no_winner_but_the_default_however_noisy_the_device():
    for seed in range(60):
        result = Noisy({Config(k=k): 1.0 for k in range(3)}, 0.03, seed).compared()
        assert result.winner.config == DEFAULT
        assert result.gain is None
        assert DEFAULT in result.ties


def test_a_config_that_is_ten_percent_faster_is_found_under_noise():
    result = [Noisy({DEFAULT: 1.1, RIVAL: 1.0, Config(k=2): 1.1}, 0.03, seed).compared() for seed in range(40)]
    assert sum(it.winner.config == RIVAL for it in result) >= 38
    for it in result:
        if it.winner.config == RIVAL:
            assert it.gain.low > 1 + EXCLUDED * INDIFFERENCE
            assert it.confidence == "ok"


def test_a_gain_that_noise_hides_lowers_the_confidence():
    result = Noisy({DEFAULT: 1.0, RIVAL: 1.0}, 0.2, 6).compared()
    assert result.winner.config == DEFAULT
    assert re.fullmatch(
        r"the default was kept, since noise hides whether \(k=1\) is faster: [+-][\d.]+ to [+-][\d.]+ %",
        result.confidence,
    )
    assert Noisy({DEFAULT: 1.0, RIVAL: 1.3}, 0.01, 5).compared().confidence == "ok"


def test_an_old_winner_that_is_slower_than_the_default_is_given_up():
    for seed in range(20):
        result = Noisy({DEFAULT: 1.0, RIVAL: 1.3}, 0.2, seed).compared(incumbents=(RIVAL,))
        assert result.winner.config == DEFAULT


def test_a_config_in_use_races_until_it_is_plain_what_ties_with_it():
    times = {DEFAULT: 1.3, RIVAL: 1.0, Config(k=2): 1.004}
    early = {"checkpoints": (4, 8, 12, 16, 64), "regret": 0.005, "visit_ms": 30.0}
    alone, in_use = (
        [Noisy(times, 0.006, seed).compared(10.0, used, **early).winner.final.rounds for seed in range(8)]
        for used in ((), (RIVAL,))
    )
    assert all(first <= second for first, second in zip(alone, in_use, strict=True))
    assert sum(alone) < sum(in_use)


@pytest.mark.parametrize(("default_ms", "stays"), [(1.3, True), (3.0, False)])
def test_a_default_stays_in_the_race_unless_it_is_slower_by_far(default_ms, stays):
    result = Noisy({DEFAULT: default_ms, RIVAL: 1.0, Config(k=2): 1.001}, 0.01, 1, spikes=0.0).compared()
    assert result.winner.config != DEFAULT
    assert result.gain.centre == pytest.approx(default_ms, rel=0.02)
    rounds = {trial.config: trial.final.rounds for trial in result.trials}
    assert dict(result.dropped_at)[DEFAULT] == (None if stays else 4)
    assert rounds[DEFAULT] == (rounds[result.winner.config] if stays else 4)


@pytest.mark.processes
def test_equal_configs_have_no_winner_where_noise_is_as_large_as_what_ends_a_race_early():
    result = [Noisy({DEFAULT: 1.0, RIVAL: 1.0}, 0.4, 1000 + seed).compared() for seed in range(200)]
    assert [it.winner.config for it in result] == [DEFAULT] * 200


def test_the_right_ones_race_again_if_the_fastest_is_wrong():
    for seed in range(10):
        fastest = Config(k=9)
        times = {DEFAULT: 3.0, RIVAL: 2.0, Config(k=2): 2.5, fastest: 1.0}
        result = Noisy(times, 0.01, seed, wrong=fastest, spikes=0.05).compared()
        assert result.winner.config == RIVAL
        assert 1.4 < result.gain.centre < 1.6
        assert {trial.config: trial.status for trial in result.trials}[fastest] is Status.WRONG


TIMES = {DEFAULT: 1.3, RIVAL: 1.0, Config(k=2): 1.15, Config(k=3): 1.2}


@pytest.mark.parametrize(
    ("nearby", "changes", "alone"),
    [
        (RIVAL, {}, True),
        (None, {}, False),
        (Config(k=2), {}, False),  # another one leads here
        (RIVAL, {Config(k=2): 1.04}, False),  # one is near
        (DEFAULT, {DEFAULT: 0.8}, False),  # which is compared with something
    ],
)
def test_the_winner_of_a_problem_nearby_races_against_the_default_alone_if_it_leads_again(nearby, changes, alone):
    times = {**TIMES, **changes}
    for seed in range(8):
        outcome = Noisy(times, 0.01, seed, spikes=0.0).compared(nearby=nearby)
        assert outcome.winner.config == min(times, key=times.get)
        assert outcome.leads_again is alone
        assert ({config for config, _ in outcome.dropped_at} == {DEFAULT, RIVAL}) is alone
        assert (outcome.twin is None) is alone
        if alone:
            assert outcome.winner.final.rounds >= 6  # fewer bound no median at 95 %
            assert 1.2 < outcome.gain.low < 1.3 < outcome.gain.high


def test_where_the_winner_of_a_problem_nearby_does_not_win_all_finalists_race():
    screened = {DEFAULT: 1.0, RIVAL: 0.8, Config(k=2): 0.95}
    for seed in range(8):
        times = {DEFAULT: 1.0, RIVAL: 1.1, Config(k=2): 0.8}
        outcome = Noisy(times, 0.01, seed, spikes=0.0).compared(nearby=RIVAL, screened=screened)
        assert outcome.winner.config == Config(k=2)
        assert not outcome.leads_again


def test_what_was_wrong_when_it_raced_alone_with_the_default_does_not_win_the_race_of_all():
    device = Noisy(TIMES, 0.01, 1, wrong=RIVAL, spikes=0.0)

    def wrong_once(config, *_):
        difference = Noisy.wrong_when_repeated(device, config)
        device.wrong = None if difference else device.wrong
        return difference

    device.wrong_when_repeated = wrong_once
    outcome = device.compared(nearby=RIVAL)
    assert outcome.winner.config == Config(k=2)
    assert {trial.config: trial.status for trial in outcome.trials}[RIVAL] is Status.WRONG


@pytest.mark.parametrize("fails", [DEFAULT, RIVAL])
def test_a_launch_that_fails_while_a_doubt_is_resolved_ends_that_config(fails):
    device = Noisy({DEFAULT: 1.0, RIVAL: 1.0}, 0.05, 3)
    device.compared()
    until = device.calls
    again = Noisy({DEFAULT: 1.0, RIVAL: 1.0}, 0.05, 3, fails_at={fails: until - 4})
    result = again.compared()
    assert {trial.config: trial.status for trial in result.trials}[fails] is Status.RUNTIME
    assert result.winner.config != fails


@pytest.mark.parametrize(("default_ms", "twin"), [(1.1, DEFAULT), (3.0, RIVAL)])
def test_the_default_is_its_own_first_twin_unless_it_is_slow(default_ms, twin):
    result = Noisy({DEFAULT: default_ms, RIVAL: 1.0, Config(k=2): 1.2}, 0.01, 1).compared()
    assert result.twin == twin
    first, second = result.twins_ms
    assert len(first) == len(second) > 0
    assert first != second


def test_tied_configs_are_in_the_order_of_use_resources_and_fast_and_slow_fifths():
    def of(place, samples_ms=(1.0,), registers=64):
        resources = Resources(registers, 0, 0)
        return Trial(Config(k=place), Status.OK, Measurement(samples_ms, "host"), resources=resources)

    low, high = (0.8, 1.0, 1.0, 1.0, 1.2), (0.9, 1.0, 1.0, 1.0, 1.4)
    slow_end = (0.8, 1.0, 1.0, 1.0, 1.6)
    trials = [of(7), of(0, high), of(6, low, 32), of(5, low), of(4, slow_end), of(3, high), of(2, high)]
    drawn = random.Random(0).sample(trials, len(trials))
    assert sorted(drawn, key=lambda trial: preference(trial, DEFAULT, {Config(k=7)})) == [
        *trials[:5], of(2, high), of(3, high),
    ]  # fmt: skip


def test_a_tied_config_with_a_limit_of_registers_comes_after_those_without_one():
    plain, limited = (
        Trial(config, Status.OK, Measurement((1.0,), "host"), resources=Resources(registers, 0, 0))
        for config, registers in ((Config(k=1), 72), (Config(k=1, maxnreg=64), 64))
    )
    assert min(limited, plain, key=lambda trial: preference(trial, DEFAULT, ())) is plain
