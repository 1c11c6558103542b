"""A contest of processes beside a baseline: who wins, who is lost, and what fresh processes confirm."""

from __future__ import annotations

import math
import random

import pytest

from triton_ops.backend import CandidateError
from triton_ops.evaluation import Contender, Contest
from triton_ops.values import Status


class Told(Contender):
    """A contender whose samples take as long as is told, until it dies."""

    def __init__(self, name, ms, dies_after=math.inf):
        super().__init__(name, None)
        self.ms, self.left, self.noise = ms, dies_after, random.Random(name)

    def take(self, count):
        self.left -= 1
        if self.left < 0:
            self.ask("whatever")
        return [self.ms * math.exp(self.noise.gauss(0, 0.001)) for _ in range(count)]


@pytest.fixture
def contest():
    return Contest("cpu", True, random.Random(0))


def raced(contest, baseline, *others, cost=lambda _: 0.0):
    for each in (baseline, *others):
        contest.screen(each, baseline)
    return contest.race(baseline, others, 10.0, cost)


def test_the_fastest_wins_with_its_ratio_to_the_baseline(contest):
    baseline, fast, slow = Told("eager", 2.0), Told("fast", 1.0), Told("slow", 3.0)
    assert raced(contest, baseline, fast, slow) is fast
    assert baseline.relative == 1.0
    assert fast.relative == pytest.approx(0.5, rel=0.01)
    assert slow.relative == pytest.approx(1.5, rel=0.01)
    assert fast.measurement.median_ms == pytest.approx(1.0, rel=0.01)


def test_among_equals_the_one_of_least_cost_wins_and_none_that_is_not_proven_faster(contest):
    cost = {"eager": 0.0, "dear": 9.0, "cheap": 1.0}
    winner = raced(
        contest, Told("eager", 2.0), Told("dear", 1.0), Told("cheap", 1.0), cost=lambda each: cost[each.name]
    )
    assert winner.name == "cheap"
    baseline = Told("eager", 1.0)
    assert raced(contest, baseline, Told("alike", 1.0), Told("slower", 1.1)) is baseline


def test_one_that_is_lost_does_not_win_and_says_how_it_was_lost(contest):
    baseline, fast, lost = Told("eager", 2.0), Told("fast", 1.5), Told("lost", 1.0, dies_after=7)
    assert raced(contest, baseline, fast, lost) is fast
    assert (lost.loss, lost.measurement) == ("its process has ended", None)
    assert not lost.alive
    baseline = Told("eager", 2.0, dies_after=12)
    assert raced(contest, baseline, Told("fast", 1.0)) is baseline, "nothing is proven without it"


def test_fresh_processes_confirm_a_gain_in_words(contest):
    ratio, text = contest.confirm(Told("fast", 1.0), Told("eager", 2.0), 10.0)
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert text.startswith("in fresh processes fast is 2.0")
    assert " as fast as eager, 12 rounds, noise 0." in text
    ratio, text = contest.confirm(Told("alike", 1.0), Told("eager", 1.0), 10.0)
    assert ratio is None
    assert text.startswith("in fresh processes alike is 1.00x")
    ratio, text = contest.confirm(Told("fast", 1.0, dies_after=3), Told("eager", 2.0), 10.0)
    assert (ratio, text) == (None, "a fresh process was lost: its process has ended")


def test_a_contender_without_a_process_answers_nothing(contest):
    with pytest.raises(CandidateError, match="its process has ended") as caught:
        Told("none", 1.0).ask("whatever")
    assert caught.value.status is Status.CRASH
    assert (contest.device.is_cpu, [note for note in contest.notes if "waited" in note]) == (True, [])
