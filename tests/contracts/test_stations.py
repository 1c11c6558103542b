"""Every station answers the same questions in the same way, wherever its candidates run."""

from __future__ import annotations

from contextlib import closing

import pytest
from benchmarks.robustness.planted import sums
from benchmarks.robustness.process_faults import nap, sums_space

from tests.limits import SharedLimit
from triton_ops.evaluation import Assignment, FinalRequest
from triton_ops.evaluation.isolated import Isolated
from triton_ops.evaluation.station import Inline
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.space import Config
from triton_ops.values import Status


@pytest.fixture(
    scope="module", params=[Inline, pytest.param(Isolated, marks=pytest.mark.processes)], ids=lambda kind: kind.__name__
)
def station(request):
    task = TuneProblem(target=sums, space=sums_space(["wrong"]), shape=(200,)).request().checked()
    with closing(request.param(Assignment.of(task, TuneOptions(effort="quick"), None))) as made:
        yield made


def config(ms, fault="none"):
    return Config(ms=ms, fault=fault)


def test_questions_and_answers(station):
    assert station.facts.mode is None
    slow, fast = (station.attempt(config(ms), None) for ms in (4.0, 1.0))
    assert (slow.status, fast.status) == (Status.OK, Status.OK)
    assert (slow.relative, station.facts.baseline, station.facts.mode) == (1.0, config(4.0), "host")
    assert fast.rank < 1.0
    assert station.facts.against == "the reference in float64"
    wrong = station.attempt(config(0.5, "wrong"), fast)
    assert (wrong.status, wrong.measurement) == (Status.WRONG, None)
    assert station.attempt(config(1.0, "raises"), fast).error == "ValueError: planted"
    hopeless = station.attempt(config(8.0), fast)
    assert hopeless.ok
    assert len(hopeless.measurement.samples_ms) == 1, "cut short"
    result = station.finals(FinalRequest(trials=(slow, fast, wrong, hopeless), default=config(4.0)))
    assert result.winner.config == config(1.0)
    assert result.gain.low > 1.0
    assert result.guard is not None
    assert {trial.config for trial in result.trials} == {t.config for t in (slow, fast, wrong, hopeless)}
    assert station.facts.lost is None


def test_a_later_station_goes_on_from_what_worked(station):
    task = TuneProblem(target=nap, space=sums_space([]), device="cpu").request().checked()  # needs no torch
    assignment = Assignment.of(task, TuneOptions(effort="quick"), config(4.0))
    limit = SharedLimit(60.0)
    with closing(type(station)(assignment)) as later:
        assert later.attempt(config(1.0), None).rank < 1.0
        assert later.facts.baseline == config(4.0)
    assert limit.left_s()
