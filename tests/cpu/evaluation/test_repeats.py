"""Timed launches that are repeated and checked: how many, on which argument sets, and which faults are found."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import pytest
import torch

from triton_ops import Config, FunctionKernel
from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.device import TorchDevice, probe
from triton_ops.evaluation import Subject, verify
from triton_ops.evaluation.cases import Case
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.verify import Verifier
from triton_ops.timing import Sampler, ScreenPolicy, SharedTimer
from triton_ops.values import Measurement, Status, Trial

CONFIG = Config(n=1)


class Repeated:
    """A function on several argument sets, each sample of which is one launch on so many of them in turn."""

    def __init__(self, function, sets, each):
        def counted(x, out, *, n):
            self.launches += 1
            self.places.add(out.data_ptr())
            function(x, out, self.launches, out.data_ptr())

        self.launches, self.places, self.judged = 0, set(), 0
        kernel = FunctionKernel(counted, outputs=("out",))
        given = Arguments(keyword={"x": torch.rand(64), "out": torch.empty(64)})
        own = Subject(ArgumentSet(given, kernel.outputs), lambda _: sets)
        self.verifier = Verifier(
            kernel=kernel, subject=own, others=[Case(own.first, 1)], reference=lambda x, out: 2 * x
        )
        self.evaluator = Evaluator(
            kernel=kernel, subject=own, shared_timer=SharedTimer(probe("cpu"), "cpu"), policy=ScreenPolicy(),
            verifier=self.verifier,
        )  # fmt: skip
        executable = self.evaluator.executables[CONFIG] = kernel.compile(CONFIG, own.arguments)
        assert self.verifier.wrong(executable) is None
        expected = self.verifier.cases[0].expected
        self._judge, expected.difference = expected.difference, self._counted
        launch, turn = own.launch(executable), count()

        def queue(samples):
            for _ in range(samples * each):
                launch.calls[next(turn) % sets]()
            return lambda: [1.0] * samples

        self.sampler = Sampler(queue, each)
        self.launches = 0

    def _counted(self, *given):
        self.judged += 1
        return self._judge(*given)

    def wrong(self, launches):
        return self.evaluator.wrong_when_repeated(CONFIG, self.sampler, launches, math.inf)


def right(x, out, *_):
    torch.mul(x, 2, out=out)


@pytest.mark.parametrize(
    ("sets", "each", "wanted", "run"),
    [(1, 1, 12, 12), (1, 5, 12, 60), (8, 1, 12, 16), (8, 8, 12, 16), (8, 8, 32, 32), (8, 11, 12, 22), (3, 2, 12, 16)],
)
def test_as_many_launches_are_checked_as_asked_for_on_every_set(sets, each, wanted, run):
    result = Repeated(right, sets, each)
    assert result.wrong(wanted) is None
    assert result.launches == run
    assert len(result.places) == sets
    assert result.judged == 0  # all have the bits that were judged before


@pytest.mark.parametrize(("wanted", "compared"), [(12, 7), (44, 23)])
def test_of_many_argument_sets_as_many_results_are_compared_as_asked_for(monkeypatch, wanted, compared):
    repeated, calls, same_bits = Repeated(right, 200, 50), [], verify.same_bits
    monkeypatch.setattr(verify, "same_bits", lambda *results: calls.append(1) or same_bits(*results))
    assert repeated.wrong(wanted) is None
    assert len(repeated.places) == 200
    assert len(calls) == 2 * compared  # with either poison: of the first set, and of half as many as asked for


def test_a_fault_on_one_of_the_argument_sets_is_found():
    places = []

    def one_place(x, out, _, place):
        places.extend([] if place in places else [place])
        torch.mul(x, 2 if len(places) < 6 or place != places[5] else 3, out=out)

    result = Repeated(one_place, 8, 8)
    assert "after timing" in result.wrong(12).text
    assert result.judged == 1


def test_what_cannot_win_is_not_launched_again_after_its_timing(monkeypatch):
    repeated, again = Repeated(right, 1, 1), []
    monkeypatch.setattr(repeated.verifier, "wrong_after_timing", lambda _, **how: again.append(how["again"]))
    fast = Trial(CONFIG, Status.OK, Measurement((1e-9,), "host"))
    assert [repeated.evaluator.attempt(CONFIG, best).ok for best in (None, fast)] == [True, True]
    assert again == [True, False]


def test_what_is_not_written_shows_under_either_poison():
    def later(x, out, launch, _):
        if launch <= 8:
            torch.mul(x, 2, out=out)

    assert "after timing" in Repeated(later, 8, 8).wrong(1).text


def test_where_the_cache_is_flushed_there_is_one_argument_set(monkeypatch):
    # Times of an earlier process may have been taken where memory was short, and now there is room for several sets.
    monkeypatch.setattr(TorchDevice, "free_bytes", 1 << 30)
    spec = replace(probe("cpu"), kind="cuda", l2_bytes=1 << 20)
    tensors = [torch.empty(1 << 20)]
    modes = ("event-flushed", "event-cold", None)
    assert [SharedTimer(spec, "cuda", mode=mode).sets(tensors) for mode in modes] == [1, 8, 8]
