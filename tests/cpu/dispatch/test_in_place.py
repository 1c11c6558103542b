"""Kernels' finalists are compared where they run, in a whole step, and the step's time decides."""

from __future__ import annotations

import random
import sys

import pytest
import torch

import triton_ops
from tests.clocks import MS, Clock
from tests.records import record
from triton_ops import Operation, TensorSpec, tune_in_place
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch import operations
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError
from triton_ops.records import cache_folder, store_in
from triton_ops.space import Config
from triton_ops.timing import HostTimer, rounds

CLOCK, RANDOM = Clock(), random.Random(0)
TAKES = {}  # milliseconds of a launch, by the names of the operation and its block
NOISE = 0.003


def spend(name, block):
    CLOCK.spend(round(TAKES.get((name, block), 1.0) * RANDOM.gauss(1, NOISE) * MS))


def first(x, block=1):
    sys.modules[__name__].spend("first", block)  # found by name, so that the state of the clock is no part of a key
    return x + 1


def second(x, block=1):
    sys.modules[__name__].spend("second", block)
    return 2 * x


def wrong(x, block=1):
    sys.modules[__name__].spend("wrong", block)
    return x + (block == 2)


def specs(n=4):
    return {"x": TensorSpec((n,), "float32")}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Operations with records that a tune could have left, and a clock that launches alone move."""
    sources._sources.ladders.clear()
    operations._calls.forget()
    TAKES.clear()
    monkeypatch.setattr(rounds, "HostTimer", lambda: HostTimer(CLOCK))

    def operation(function, best=1):
        made = Operation(function.__name__, function, {"block": [1, 2, 3]}, specs)
        made(torch.ones(4))
        key, configs = operations._calls.decisions[-1].key, [Config(block=each) for each in (1, 2, 3)]
        store_in(cache_folder(None)).put(
            record(key=key, winner=Config(block=best), default=configs[0], ties=tuple(configs), effort="quick")
        )
        sources._sources.ladders.clear()
        operations._calls.forget()
        return made

    return operation


def test_a_config_that_wins_alone_gives_way_to_what_makes_the_step_faster(known):
    one, other = known(first), known(second, best=2)
    x = torch.ones(4)
    TAKES.update({("second", 2): 1.2, ("second", 3): 0.9})
    found = tune_in_place(lambda: other(one(x)), name="prefill")
    assert {each.kernel: each.after["block"] for each in found.kernels} == {"first": 1, "second": 3}
    kernel = next(each for each in found.kernels if each.kernel == "second")
    assert (kernel.before["block"], kernel.launches) == (2, 1)
    assert kernel.gains[Config(block=3)].low > 0
    assert found.gain.centre == pytest.approx(2.2 / 1.9 - 1, abs=0.01)
    assert found.before_ms == pytest.approx(2.2, rel=0.05)
    TAKES.clear()
    other(x)
    decision = operations._calls.decisions[-1].found
    assert decision.config == Config(block=3)
    assert "the step prefill" in decision.why
    kept = store_in(cache_folder(None)).get(decision.record)
    assert (kept.step, kept.winner, kept.timing.samples) == ("prefill", Config(block=3), 0)  # it has not run alone
    assert "faster in the step: +9." in kept.notes[-1] or "+10." in kept.notes[-1]


def test_no_false_change_in_100_decisions_about_equal_configs(known):
    one = known(first)
    x = torch.ones(4)
    for seed in range(50):  # two rivals each
        found = tune_in_place(lambda: one(x), seed=seed)
        assert found.gain is None
        assert [each.after for each in found.kernels] == [Config(block=1)]
        assert len(found.kernels[0].gains) == 2


def test_what_computes_something_else_in_the_step_is_refused(known):
    bad, x = known(wrong), torch.ones(4)
    TAKES.update({("wrong", 2): 0.5, ("wrong", 3): 0.8})
    (kernel,) = tune_in_place(lambda: bad(x)).kernels
    assert kernel.after == Config(block=3)
    assert Config(block=2) not in kernel.gains
    TAKES["wrong", 3] = 1.0
    (kernel,) = tune_in_place(lambda: known(wrong)(x)).kernels
    assert any("(block=2) is not taken: TargetError" in why for why in kernel.whys)


def test_weights_gradients_and_random_numbers_stay_as_they_were(known):
    one = known(first)
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(layer.parameters())
    seen = []

    def step():
        optimizer.zero_grad()
        loss = layer(one(torch.rand(4))).square().sum()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach().clone())
        return loss

    step()
    state = [each.clone() for each in (*layer.parameters(), *optimizer.state[layer.weight].values())]
    gradients, randoms = [each.grad for each in layer.parameters()], torch.get_rng_state()
    TAKES[("first", 2)] = 0.5
    (kernel,) = tune_in_place(step).kernels
    assert kernel.after == Config(block=2), kernel.whys
    assert all(map(torch.equal, state, (*layer.parameters(), *optimizer.state[layer.weight].values())))
    assert all(one is other for one, other in zip(gradients, (each.grad for each in layer.parameters()), strict=True))
    assert torch.equal(randoms, torch.get_rng_state())
    assert len(set(map(float, seen[1:]))) == 1


def test_a_step_that_cannot_be_run_again_is_refused(known):
    one, x, calls = known(first), torch.ones(4), []
    layer = torch.nn.Linear(4, 4)
    fresh = torch.optim.Adam(layer.parameters())

    def trains():
        layer(one(x)).sum().backward()
        fresh.step()

    def counts():
        calls.append(1)
        return one(x) + len(calls)

    for step, why in ((trains, "a tensor that it has made"), (counts, "run it once before"), (lambda: None, "nothing")):
        with pytest.raises(TargetError, match=why):
            tune_in_place(step)
    assert layer.weight.grad is None


def test_what_nothing_can_be_compared_for_is_told(known):
    one, x = known(first), torch.ones(4)
    with pytest.raises(TargetError, match="no kernel of the step can be compared: it launches none"):
        tune_in_place(lambda: one(x), kernels=["other"])
    with pytest.raises(KernelTypeError, match="cannot be called"):
        tune_in_place(x)
    with pytest.raises(SettingsError):
        tune_in_place(lambda: one(x), budget_s=0)
    with triton_ops.replaying(triton_ops.records.Lockfile()), pytest.raises(SettingsError, match="replayed"):
        tune_in_place(lambda: one(x))


def test_a_problem_without_a_record_gets_a_short_tune_and_keeps_what_ran(known, steady_clock):
    one = Operation("first", first, {"block": [1, 2, 3]}, specs)
    x = torch.ones(5)
    (kernel,) = tune_in_place(lambda: one(x)).kernels
    assert (kernel.before, kernel.after) == (Config(block=1), Config(block=1))
    assert kernel.rivals
    one(x)
    assert operations._calls.decisions[-1].found.config == Config(block=1)


def test_a_budget_leaves_the_rest_as_it_is(known, monkeypatch):
    one, x = known(first), torch.ones(4)
    TAKES[("first", 2)] = 0.5
    (kernel,) = tune_in_place(lambda: one(x), budget_s=1e-9).kernels
    assert kernel.after == Config(block=1)
    assert "no time" in kernel.whys[0]
