"""A search whose priors come late, or never."""

from __future__ import annotations

import os
from concurrent.futures import Future

import pytest

from tests.runs import ID, head
from triton_ops.base import OwnFile
from triton_ops.processes.channel import Channel
from triton_ops.records import RunLog
from triton_ops.request import Budget, Effort
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Silent, TuningLoop
from triton_ops.tuner.gate import Gate
from triton_ops.tuner.late_priors import LatePriors, readiness, searcher_over
from triton_ops.values import Compiled, Measurement, Status, Trial

SPACE = ConfigSpace({"n": list(range(12)), "m": list(range(12))})
DEFAULT = Config(n=0, m=0)
BEST = Config(n=11, m=9)  # near an end of both ranges, where a search without priors comes late


class KnowsTheBest:
    """A prior that is right, and keeps what it is told."""

    def __init__(self):
        self.told, self.compiled = [], []

    def score(self, configs):
        return [ms(config) for config in configs]

    def tell(self, trials):
        self.told += trials

    def take_previews(self, found):
        self.compiled += found


def ms(config):
    return 1.0 + abs(config["n"] - BEST["n"]) + abs(config["m"] - BEST["m"])


class Station:
    """Tries configs; the priors come while one of them is tried, if so asked."""

    lost = None

    def __init__(self, priors, comes_at, prior):
        self.tried, self._priors, self._comes_at, self._prior = [], priors, comes_at, prior

    def attempt(self, config, best):
        self.tried.append(config)
        if len(self.tried) == self._comes_at:
            self._priors.set_result([self._prior])
        return Trial(config, Status.OK, Measurement((ms(config),), "graph-cold"))


def made(priors):
    return make_searcher("auto", SPACE, 0, priors)


def searched(tmp_path, comes_at, trials):
    log = RunLog(tmp_path / f"{ID}.jsonl")
    log.write(head(), durable=True)
    priors, prior = Future(), KnowsTheBest()
    station = Station(priors, comes_at, prior)
    loop = TuningLoop(
        space=SPACE, searcher=LatePriors(made, priors, patience_s=0.0), log=log, listener=Silent(),
        effort=Effort(name="free", budget=Budget(trials=trials), worthwhile=0.0),
    )  # fmt: skip
    loop.prepare([])
    loop.run(station)
    return station.tried, prior


def test_trials_begin_and_go_on_while_a_reading_that_never_ends_is_on(tmp_path):
    tried, _ = searched(tmp_path, None, 20)
    assert tried[0] == DEFAULT
    assert len(set(tried)) == 20


def test_priors_that_come_while_configs_are_tried_guide_those_that_are_proposed_next(tmp_path):
    tried, prior = searched(tmp_path, 1, 9)
    assert tried[0] == DEFAULT
    assert max(map(ms, tried[1:3])) <= 3.0  # two of the prior's first choices
    tried, prior = searched(tmp_path, 6, 20)
    assert BEST in tried[9:]  # the eight before were proposed without priors
    assert BEST not in searched(tmp_path, None, 20)[0]
    assert [trial.config for trial in prior.told] == tried  # those before it came too
    assert len(set(tried)) == 20


def test_nothing_is_proposed_before_the_default_was_tried_unless_the_priors_have_come():
    priors, prior = Future(), KnowsTheBest()
    late = LatePriors(made, priors, patience_s=0.0)
    assert (late.ask(2), late.wanted_previews(2)) == ([], [])
    assert late.expected_gain() == float("inf")
    late.take_previews([Compiled(BEST, Status.OK)])
    priors.set_result([prior])
    assert late.ask(1) == [BEST]
    assert late.wanted_previews(2)
    assert prior.compiled == [Compiled(BEST, Status.OK)]


def test_a_reading_that_tells_nothing_leaves_the_search_as_it_is():
    priors, made_with = Future(), []

    def noted(given):
        made_with.append(list(given))
        return made(given)

    late = LatePriors(noted, priors, patience_s=0.0)
    late.tell([Trial(DEFAULT, Status.OK, Measurement((1.0,), "graph-cold"))])
    before = late.ask(2)
    priors.set_result([])
    assert set(before).isdisjoint(late.ask(2))
    assert made_with == [[]]


def test_previews_are_wanted_before_the_first_proposals_after_the_default():
    late = LatePriors(made, Future(), patience_s=0.0)
    late.tell([Trial(DEFAULT, Status.OK, Measurement((1.0,), "graph-cold"))])
    assert len(late.wanted_previews(2)) == 2
    assert late.ask(1)


def test_a_reading_that_fails_is_told_and_ends_no_search_that_has_begun_without_it(caplog):
    priors, failed = Future(), Future()
    late = LatePriors(made, priors, patience_s=0.0)
    failed.set_exception(ValueError("nothing"))
    with pytest.raises(ValueError, match="nothing"):
        LatePriors(made, failed, patience_s=0.0).ask(1)
    late.tell([Trial(DEFAULT, Status.OK, Measurement((1.0,), "graph-cold"))])
    before = late.ask(2)
    priors.set_exception(ValueError("nothing"))
    assert set(before).isdisjoint(late.ask(2))
    late.tell([Trial(config, Status.OK, Measurement((ms(config),), "graph-cold")) for config in before])
    assert [(record.levelname, str(record.exc_info[1])) for record in caplog.records] == [("WARNING", "nothing")]


def test_priors_are_waited_for_as_long_as_nothing_could_be_measured():
    priors, prior, looks = Future(), KnowsTheBest(), []

    def ready():
        looks.append(1)
        if len(looks) == 3:
            priors.set_result([prior])
        return False

    assert searcher_over(made, priors, ready).ask(1) == [BEST]
    assert isinstance(searcher_over(made, Future(), lambda: True), LatePriors)


def test_a_reading_without_the_device_ends_with_its_tune():
    class Looked(Gate):
        looks = 0

        def check(self):
            self.looks += 1
            if self.looks == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searcher_over(made, Future(), Looked().nothing_yet)


def test_a_worker_is_ready_when_it_has_answered_or_ended():
    (here, there), (unused, also_unused) = os.pipe(), os.pipe()
    channel = Channel(OwnFile(here), OwnFile(also_unused))

    class Worker:
        has_written = property(lambda _: channel.arrives(0))

    ready = readiness(Worker())
    assert not ready()
    os.write(there, b"answer")
    assert ready()
    os.read(here, 100)
    assert not ready()
    os.close(there)
    assert ready()
    channel.close()
    assert ready()
    os.close(unused)
