"""The loop between a searcher and a station: what it logs, and what it tells."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.limits import ENOUGH_S
from tests.runs import ID, head
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import StationFacts
from triton_ops.records import Run, RunLog
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.request import Budget, Effort
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Silent, TuningLoop
from triton_ops.tuner.feeds import DirectFeed
from triton_ops.tuner.gate import Gate
from triton_ops.tuner.tuning import may_overlap
from triton_ops.values import Measurement, Status, Trial

DEFAULT = Config(n=3)
SPACE = ConfigSpace({"n": [1, 2, 3, 4, 5]}, default=DEFAULT)
FREE = Effort(name="free", worthwhile=0.0)
CHANGES = 4  # the config from which on times are taken in another mode


class Recorder:
    """The exhaustive searcher, with what it was told."""

    def __init__(self):
        self.searcher = make_searcher("exhaustive", SPACE, 0)
        self.told = []

    def ask(self, count):
        return self.searcher.ask(count)

    def tell(self, trials):
        self.told += trials
        self.searcher.tell(trials)


class ChangesItsMode:
    """A station whose launches can be captured until config 4 comes, and from then on cannot."""

    lost = None

    def __init__(self):
        self.mode, self.tried = "graph-cold", []

    def attempt(self, config, best):
        self.tried.append(config)
        if config["n"] == CHANGES:
            self.mode = "event-cold"
        ms = config["n"] * (1.0 if self.mode == "graph-cold" else 10.0)
        return Trial(config, Status.OK, Measurement((ms,), self.mode))

    def finals(self, final):
        raise AssertionError("not asked for here")

    def close(self):
        """Give nothing back."""


class DefaultLast(DirectFeed):
    """A feed to which the default, whose compilation takes longest, is ready after all others."""

    def next(self, run_deferred, patient=True):
        if len(self._waiting) > 1 and self._waiting[0] == DEFAULT:
            self._waiting.rotate(-1)
        return super().next(run_deferred, patient)


class FailsWhenRepeated(ChangesItsMode):
    """Config 1 fails, and so does the incumbent when it is measured again."""

    def attempt(self, config, best):
        result = super().attempt(config, best)
        fails = config["n"] == 1 or (config["n"] == 5 and self.tried.count(config) > 1)
        return Trial(config, Status.RUNTIME, error="no") if fails else result


class Counts(Silent):
    """Is told how many trials have failed."""

    def __init__(self):
        self.failed = []

    def tried(self, trial, progress):
        self.failed.append(progress.failed)


def searched(tmp_path, budget=None, feed=None, station=None, listener=None, overlaps=False):
    log = RunLog(tmp_path / f"{ID}.jsonl")
    log.write(head(), durable=True)
    searcher, station = Recorder(), station or ChangesItsMode()
    search = TuningLoop(
        space=SPACE, searcher=searcher, effort=replace(FREE, budget=budget or Budget()), log=log,
        listener=listener or Silent(),
    )  # fmt: skip
    search.feed = feed or search.feed
    search.prepare([Config(n=5)])
    search.run(station, overlaps=overlaps)
    return search, searcher, Run.read(tmp_path / f"{ID}.jsonl")


def test_the_default_is_tried_even_if_the_budget_ends_before_it_is_ready(tmp_path):
    search, _, _ = searched(tmp_path, Budget(seconds=1e-9), DefaultLast())
    assert [config["n"] for config in search.trials] == [5, 3]
    assert search.stopped == "seconds"


def test_the_searcher_is_told_of_every_trial_with_its_latest_measurement(tmp_path):
    search, searcher, _ = searched(tmp_path)
    assert {trial.config: trial for trial in searcher.told} == search.trials
    assert {trial.measurement.mode for trial in search.trials.values()} == {"event-cold"}
    assert len(searcher.told) > len(search.trials)  # some were told in the first mode, too


def test_every_trial_is_logged_with_its_origin(tmp_path):
    search, searcher, run = searched(tmp_path)
    assert run.trials == search.trials
    tried = [event for event in run.events if isinstance(event, Tried)]
    assert [(event.origin, event.trial.config["n"]) for event in tried[:2]] == [
        (Origin.DEFAULT, 3),
        (Origin.INCUMBENT, 5),
    ]
    first = {}
    for event in tried:
        first.setdefault(event.trial.config, event.origin)
    assert {config["n"]: str(origin) for config, origin in first.items()} == {
        1: "searcher", 2: "searcher", 3: "default", 4: "searcher", 5: "incumbent"
    }  # fmt: skip
    repeated = [event.trial for event in tried if event.origin is Origin.REPEATED]
    assert repeated
    assert {trial.measurement.mode for trial in repeated} == {"event-cold"}
    assert len(repeated) == len(searcher.told) - len(search.trials)


def test_the_failures_that_a_listener_is_told_of_are_those_of_the_trials_so_far(tmp_path):
    told = Counts()
    search, _, _ = searched(tmp_path, station=FailsWhenRepeated(), listener=told)
    assert {trial.config["n"] for trial in search.trials.values() if trial.failed} == {1, 5}
    assert search.progress().failed == 2
    assert told.failed == sorted(told.failed)
    again = TuningLoop(
        space=SPACE, searcher=Recorder(), effort=FREE, log=None, listener=told,
    )  # fmt: skip
    again.prepare([], earlier=search.trials.values())
    assert again.progress().failed == 2


class Overlapped(ChangesItsMode):
    """A station that notes how many of its trials before are not in the log, and says when the second one is made."""

    def __init__(self, path):
        super().__init__()
        self._path, self.behind, self.second = path, [], threading.Event()

    def attempt(self, config, best):
        self.behind.append(len(set(self.tried)) - len(Run.read(self._path).trials))
        trial = super().attempt(config, best)
        if len(self.tried) == 2:
            self.second.set()
        return trial


class Waits(Silent):
    """Hears of the first trial once the second one was made."""

    def __init__(self, station):
        self._station = station

    def tried(self, trial, progress):
        assert self._station.second.wait(ENOUGH_S)


def test_the_next_config_is_tried_while_the_search_thinks_and_the_trial_before_is_on_disk(tmp_path):
    station = Overlapped(tmp_path / f"{ID}.jsonl")
    search, _, run = searched(tmp_path, station=station, listener=Waits(station), overlaps=True)
    assert not any(station.behind)
    assert run.trials == search.trials
    assert len(search.trials) == 5
    assert {trial.measurement.mode for trial in search.trials.values()} == {"event-cold"}
    assert (search.stopped, search.trials.best.config) == ("complete", Config(n=1))


def test_a_limit_of_trials_counts_the_one_that_is_under_way(tmp_path):
    search, *_ = searched(tmp_path, Budget(trials=3), overlaps=True)
    assert (len(search.trials), search.stopped) == (3, "trials")


@pytest.mark.parametrize(
    ("overlaps", "apart", "kind", "expected"),
    [
        (True, True, "cuda", True),
        (True, True, "cpu", False),
        (True, False, "cuda", False),
        (False, True, "cuda", False),
    ],
)
def test_only_a_gpu_that_another_process_uses_works_while_the_search_thinks(overlaps, apart, kind, expected):
    device = DeviceSpec(kind=kind, name="it", arch="sm_90", units=132)
    gate = Gate()
    gate.overlaps = overlaps
    assert may_overlap(gate, StationFacts(apart=apart), device) == expected
    assert not may_overlap(None, StationFacts(apart=apart), device)


def test_a_search_that_goes_on_is_told_of_the_trials_that_an_interrupted_run_has_made():
    earlier = [Trial(Config(n=n), Status.OK, Measurement((float(n),), "graph-cold")) for n in (2, 4)]
    searcher = Recorder()
    search = TuningLoop(space=SPACE, searcher=searcher, effort=FREE, log=RunLog(), listener=Silent())
    search.prepare([], earlier)
    assert searcher.told == earlier
    assert search.trials.best == earlier[0]
