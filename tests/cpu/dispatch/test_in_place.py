"""Kernels' finalists are compared where they run, in a whole step, and the step's time decides."""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

import triton_ops
from tests.clocks import MS, Clock
from tests.records import record
from triton_ops import Operation, TensorSpec, tune_in_place
from triton_ops.dispatch import in_place, operations
from triton_ops.dispatch import ladder as sources
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError
from triton_ops.records import store_in
from triton_ops.records.pinning import lock_of
from triton_ops.settings import cache_folder
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
    RANDOM.seed(0)  # the same noise whichever tests ran before
    monkeypatch.setattr(rounds, "HostTimer", lambda: HostTimer(CLOCK))
    monkeypatch.setattr(in_place, "_WATCH_S", 0.0)

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


@pytest.mark.processes
def test_a_config_that_wins_alone_gives_way_to_what_makes_the_step_faster(known):
    one, other = known(first), known(second, best=2)
    x = torch.ones(4)
    TAKES.update({("second", 2): 1.2, ("second", 3): 0.9})
    result = tune_in_place(lambda: other(one(x)), name="prefill")
    assert {each.kernel: each.after["block"] for each in result.kernels} == {"first": 1, "second": 3}
    kernel = next(each for each in result.kernels if each.kernel == "second")
    assert (kernel.before["block"], kernel.launches) == (2, 1)
    assert kernel.gains[Config(block=3)].low > 0
    assert result.gain.centre == pytest.approx(2.2 / 1.9 - 1, abs=0.01)
    assert result.before_ms == pytest.approx(2.2, rel=0.05)
    TAKES.clear()
    other(x)
    decision = operations._calls.decisions[-1].found
    assert decision.config == Config(block=3)
    assert "the step prefill" in decision.why
    kept = store_in(cache_folder(None)).get(decision.record)
    assert (kept.step, kept.winner, kept.timing.samples) == ("prefill", Config(block=3), 0)  # it has not run alone
    assert "faster in the step: +9." in kept.notes[-1] or "+10." in kept.notes[-1]
    pinned = lock_of([kept])[0].find(kept.key)
    assert (pinned.entry.config, pinned.entry.measured) == (Config(block=3), None)
    assert "raced in the step prefill" in str(pinned)


def test_both_duels_of_a_rival_fit_into_the_seconds_that_are_left(known, monkeypatch):
    one, limits, duel = known(first), [], in_place._Step._duel
    TAKES["first", 2] = 0.8
    monkeypatch.setattr(in_place._Step, "_duel", lambda *args: limits.append(args[-1]) or duel(*args))
    result = tune_in_place(lambda: one(torch.ones(4)), budget_s=2.0)
    assert result.kernels[0].after == Config(block=2), result.kernels[0].whys
    assert limits[0] == limits[1] <= 1.0


@pytest.mark.processes
def test_no_false_change_in_100_decisions_about_equal_configs(known):
    one = known(first)
    x = torch.ones(4)
    for seed in range(50):  # two rivals each
        result = tune_in_place(lambda: one(x), seed=seed)
        assert result.gain is None
        assert [each.after for each in result.kernels] == [Config(block=1)]
        assert len(result.kernels[0].gains) == 2


def test_what_computes_something_else_in_the_step_is_refused(known):
    bad, x = known(wrong), torch.ones(4)
    TAKES.update({("wrong", 2): 0.5, ("wrong", 3): 0.8})
    (kernel,) = tune_in_place(lambda: bad(x)).kernels
    assert kernel.after == Config(block=3)
    assert Config(block=2) not in kernel.gains
    TAKES["wrong", 3] = 1.0
    (kernel,) = tune_in_place(lambda: known(wrong)(x)).kernels
    assert any("(block=2) is not taken: 100.00% of the elements are off" in why for why in kernel.whys)


@pytest.mark.processes
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


def test_beside_a_gpu_only_small_tensors_of_the_cpu_may_be_written(monkeypatch):
    monkeypatch.setattr(in_place, "_SMALL", 4)
    x = {size: torch.zeros(size) for size in (0, 3, 4, 5)}
    x["parameter"], x["sparse"] = torch.nn.Parameter(torch.zeros(4)), torch.zeros(2, 2).to_sparse()
    x["without memory"] = torch.zeros(4, device="meta")
    step = object.__new__(in_place._Step)
    step.torch = torch

    def taken():
        tensors = {id(each) for each in step._tensors()}
        return [name for name, tensor in x.items() if id(tensor) in tensors]

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        assert taken() == [0, 3, 4, "parameter"]
    assert taken() == [0, 3, 4, 5, "parameter"]


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
        tune_in_place(lambda: x + 1)
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


class Held:
    """A result into which nobody can look."""

    def __init__(self, value):
        self.value = value


def test_a_result_into_which_nobody_can_look_is_refused(known):
    bad, calls = known(wrong), torch.zeros(1)

    def step():
        calls.add_(1)
        return Held(bad(torch.ones(4)))

    with pytest.raises(TargetError, match="type Held cannot be compared"):
        tune_in_place(step)
    assert calls.item() == 0


def test_what_the_step_does_not_launch_is_named(known):
    one, x = known(first), torch.ones(4)
    for kernels in ([one, "typo"], "typo", [{}], [5]):
        with pytest.raises(TargetError, match="the step launches no"):
            tune_in_place(lambda: one(x), kernels=kernels)


def test_a_name_is_a_text_of_one_line(known):
    one = known(first)
    for name in ("", " ", 5, "a\nb"):
        with pytest.raises(SettingsError, match="text of one line"):
            tune_in_place(lambda: one(torch.ones(4)), name=name)


def test_a_step_that_fails_or_is_interrupted_leaves_all_as_it_was(known):
    one, x, weight = known(first), torch.ones(4), torch.zeros(4)
    for error in (KeyboardInterrupt, ValueError):
        for last in (1, 2, 5, 20):
            runs = []

            def step(error=error, last=last, runs=runs):
                runs.append(1)
                weight.add_(one(x))
                if len(runs) >= last:
                    raise error
                return weight.mul_(2)

            with pytest.raises((error, TargetError)) if error is KeyboardInterrupt or last < 6 else nullcontext():
                tune_in_place(step)
            assert (weight.sum(), sources._sources.limits) == (0, sources.Limits())
            one(x)
            assert operations._calls.decisions[-1].found.config == Config(block=1)


def test_an_exhausted_iterator_is_no_end_of_the_callers_own(known):
    one, data = known(first), iter([torch.ones(4)])
    with pytest.raises(TargetError, match="did not do the same again from the same state: StopIteration"):
        tune_in_place(lambda: one(next(data)))


@pytest.mark.parametrize("fails", [False, True])
def test_what_another_thread_writes_meanwhile_is_refused_and_not_lost(fails, known, monkeypatch):
    monkeypatch.setattr(in_place, "_WATCH_S", 0.25)
    one, x, own, shared, stop = known(first), torch.ones(4), torch.zeros(1), torch.zeros(1), threading.Event()
    counts = []

    def write():
        while not stop.wait(0.001):
            shared.add_(1)
            counts.append(1)

    def step():
        own.add_(1)
        count = len(counts)
        while len(counts) < count + 2:
            time.sleep(0.001)
        if fails:
            raise ValueError("as it fails")
        return one(x)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises(TargetError, match="written while the step does not run, and stay as they are"):
            tune_in_place(step, budget_s=0.1)
    finally:
        stop.set()
        thread.join()
    assert (own.item(), shared.item()) == (0, len(counts))


@pytest.mark.parametrize("starts", [0.0, 0.25])
def test_one_write_of_another_thread_during_the_first_run_is_refused_and_not_lost(starts, known, monkeypatch):
    monkeypatch.setattr(in_place, "_WATCH_S", starts)
    one, x, own, shared = known(first), torch.ones(4), torch.zeros(1), torch.zeros(3)
    runs = []

    def step():
        runs.append(1)
        own.add_(1)
        if len(runs) == 1:
            thread = threading.Thread(target=shared.add_, args=(7,))
            thread.start()
            thread.join()
        return one(x)

    with pytest.raises(TargetError, match=r"written while the step does not run, and stay .*: of shape \(3,\)"):
        tune_in_place(step, budget_s=0.1)
    assert (own.tolist(), shared.tolist()) == ([0], [7] * 3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("when", ["sleep", "narrowed"])
def test_an_interrupt_before_it_is_known_what_others_write_loses_nothing(error, when, known, monkeypatch):
    monkeypatch.setattr(in_place, "_WATCH_S", 0.02)
    one, x, own, shared, stop = known(first), torch.ones(4), torch.zeros(1), torch.zeros(1), threading.Event()
    counts, interrupts = [], [error]
    place, name = (time, "sleep") if when == "sleep" else (in_place.Protection, "narrowed")
    plain = getattr(place, name)

    def interrupted(*args):
        if interrupts:
            raise interrupts.pop()
        return plain(*args)

    def write():
        while not stop.wait(0.0005):
            shared.add_(1)
            counts.append(1)

    def step():
        own.add_(1)
        count = len(counts)
        while len(counts) < count + 2:
            stop.wait(0.001)
        monkeypatch.setattr(place, name, interrupted)
        return one(x)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises((error, TargetError)):
            tune_in_place(step, budget_s=0.1)
    finally:
        stop.set()
        thread.join()
    assert (own.item(), shared.item()) == (0, len(counts))


def test_what_is_written_between_two_later_runs_is_refused_and_not_lost(known, monkeypatch):
    one, x, shared, taken = known(first), torch.ones(4), torch.zeros(1), in_place._Step._take
    calls = []

    def writing(self, configs):
        calls.append(configs)
        if len(calls) == 5:
            shared.add_(100)
        return taken(self, configs)

    def step():
        shared.add_(1)
        return one(x)

    monkeypatch.setattr(in_place._Step, "_take", writing)
    with pytest.raises(TargetError, match=r"of shape \(1,\)"):
        tune_in_place(step, budget_s=0.1)
    assert shared.item() >= 100


def test_threads_wait_for_one_another_and_a_nested_call_is_refused(known):
    one, x = known(first), torch.ones(4)
    with pytest.raises(SettingsError, match="a step tuned"):
        tune_in_place(lambda: tune_in_place(lambda: one(x)))
    with ThreadPoolExecutor(3) as threads:
        result = list(threads.map(lambda _: tune_in_place(lambda: one(x), budget_s=0.1), range(3)))
    assert [each.gain for each in result] == [None] * 3
    assert sources._sources.limits == sources.Limits()


def test_a_config_that_the_space_no_longer_has_is_not_taken(known):
    one, x = known(first), torch.ones(4)
    one(x)
    key = operations._calls.decisions[-1].key
    store_in(cache_folder(None)).put(record(key=key, winner=Config(block=1), ties=(Config(block=99),), effort="quick"))
    operations._calls.forget()
    TAKES["first", 99] = 0.5
    (kernel,) = tune_in_place(lambda: one(x)).kernels
    assert kernel.after == Config(block=1)


def test_where_no_rival_has_run_the_record_stays(known):
    one, x = known(first, best=2), torch.ones(4)
    store = store_in(cache_folder(None))
    (before,) = store
    tune_in_place(lambda: one(x), budget_s=1e-9)
    assert list(store) == [before]


def test_a_second_race_in_a_step_takes_the_place_of_its_first_note(known):
    one, x = known(first), torch.ones(4)
    for name in ("prefill", "prefill", "decode"):
        tune_in_place(lambda: one(x), name=name)
    (kept,) = store_in(cache_folder(None))
    assert [note.partition(":")[0] for note in kept.notes] == ["in the step prefill", "in the step decode"]


def test_a_race_in_a_step_decides_what_a_tune_has_left_open():
    undecided = record(winner=Config(block=1), confidence="nothing was raced")
    assert undecided.goes_on
    for config in (Config(block=1), Config(block=2)):
        raced = undecided.in_step("prefill", config, None, "")
        assert (raced.undecided, raced.goes_on) == ("", False)
