"""`compare` and `time_ms`: real callables on this machine's clock, and a simulated device where the truth is known."""

import io
import itertools
import logging
import math
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from rich.console import Console

from tests.clocks import Clock
from tests.simulated_device import DISTURBANCES, Noise, SimulatedDevice, SimulatedTimer
from triton_ops import Choice, ConfigSpace, FunctionKernel, Operation, TensorSpec, compare, time_ms
from triton_ops.backend import Arguments
from triton_ops.benchmark import comparing as compare_module
from triton_ops.benchmark import timing as contestant_module
from triton_ops.benchmark.comparing import _taking_turns
from triton_ops.benchmark.timing import quantile
from triton_ops.device import gpu_missing, probe
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    TargetError,
    UnknownTunableError,
)
from triton_ops.timing import (
    Arm,
    CaptureError,
    DuelPolicy,
    EmptyCaptureError,
    HostTimer,
    Launch,
    Rounds,
    Sampler,
    SharedTimer,
    rounds,
)
from triton_ops.timing.race_statistics import judge


def spin(count):
    """A callable of nothing but the interpreter's own work."""

    def call():
        total = 0
        for number in range(count):
            total += number
        return total

    return call


# The question, on a simulated device


def fought(ratio, seed, disturbance="none", checkpoints=(24,), **noise):
    """A duel of a launch with one that truly takes `ratio` times as long."""
    device = SimulatedDevice(Noise(process=0.0, **noise), DISTURBANCES[disturbance], seed=seed)
    timer = SimulatedTimer(device)
    samplers = [timer.prepare(device.launch(0.05 * r, name)) for r, name in ((1, "a"), (ratio, "b"), (1, "twin"))]
    arms = tuple(Arm(sampler, 5) for sampler in samplers)
    result = Rounds(timer=timer, rng=random.Random(seed), clock=device.clock).duel(
        arms, DuelPolicy(checkpoints=checkpoints)
    )
    return result, arms


@pytest.mark.parametrize("disturbance", ["none", "power steps", "short loads"])
def test_the_interval_holds_the_truth_whatever_drifts(disturbance):
    held = 0
    for seed in range(40):
        # Without what an arm leaves behind for the next: that is a part of the times, and the same in all rounds.
        gain = fought(1.03, seed, disturbance, carry=0.0)[0].gain
        held += gain.low <= math.log(1.03) <= gain.high
    assert held >= 34  # of 95 % by chance in one of 70 tests, but the seeds are always the same


@pytest.mark.parametrize("disturbance", ["none", "cold start", "power steps", "load", "short loads"])
def test_equal_launches_are_not_told_apart_and_different_ones_are(disturbance):
    same = [fought(1.0, seed, disturbance)[0].verdict for seed in range(20)]
    assert same.count("not distinguishable") >= 19
    of_a_slower_one = [fought(1.1, seed, disturbance)[0].verdict for seed in range(10)]
    of_a_faster_one = [fought(1 / 1.1, seed, disturbance)[0].verdict for seed in range(10)]
    assert (of_a_slower_one, of_a_faster_one) == (["faster"] * 10, ["slower"] * 10)


def test_a_duel_ends_as_soon_as_the_answer_is_clear():
    checkpoints = (12, 24, 48, 96)
    assert len(fought(1.1, 0, checkpoints=checkpoints)[1][0].visits) == 12
    assert len(fought(1.0, 0, checkpoints=checkpoints, sample=0.001, spikes=0.0, carry=0.0)[1][0].visits) == 12
    assert len(fought(1.0, 0, checkpoints=checkpoints, sample=0.1)[1][0].visits) == 96


def test_a_duel_ends_in_time_but_not_before_six_rounds():
    device = SimulatedDevice(seed=1)
    timer = SimulatedTimer(device)
    arms = tuple(Arm(timer.prepare(device.launch(50.0, name)), 1) for name in "abc")
    Rounds(timer=timer, clock=device.clock).duel(arms, DuelPolicy(seconds=0.3))
    assert [len(arm.visits) for arm in arms] == [6, 6, 6]


def test_a_discarded_round_counts_for_no_arm():
    device = SimulatedDevice(seed=1)
    timer = SimulatedTimer(device)
    arms = tuple(Arm(timer.prepare(device.launch(0.1, name)), 1) for name in "abc")
    answers = itertools.cycle([True, False])
    Rounds(timer=timer, keep=lambda: next(answers), clock=device.clock).duel(arms, DuelPolicy(checkpoints=(8,)))
    assert [len(arm.visits) for arm in arms] == [8, 8, 8]


def test_a_difference_of_one_tick_counts_as_none():
    ticks = 0.001024
    one = judge([19 * ticks] * 12, [18 * ticks] * 12, [19 * ticks] * 12, tick_ms=ticks)
    assert (one.verdict, one.gain.margin) == ("not distinguishable", 0.0)
    assert judge([19 * ticks] * 12, [17 * ticks] * 12, [19 * ticks] * 12, tick_ms=ticks).verdict == "slower"


def test_the_tick_is_the_smallest_step_seen():
    def tick_of(samples_ms, launches):
        return Arm(Sampler(lambda _: list, launches), visits=[samples_ms]).tick_ms

    assert tick_of([0.5, 0.25, 0.5, 1.0], 1000) == pytest.approx(0.001024 / 1000)  # at most that of the coarsest clock
    assert tick_of([0.0100, 0.0105, 0.0100], 1) == pytest.approx(0.0005)
    assert tick_of([0.01], 1) == pytest.approx(0.001024)


def test_a_difference_must_exceed_that_between_the_twins():
    noise = random.Random(0)
    first = [1.0] * 24
    twin = [1.04 + 0.001 * noise.random() for _ in first]
    second = [1.03 + 0.001 * noise.random() for _ in first]
    result = judge(first, second, twin)
    assert result.verdict == "not distinguishable"
    assert result.gain.low > 0.02
    assert result.itself.disturbed


def test_contestants_use_every_argument_set_equally_often():
    log = []

    def sampler(contestant, place):
        return Sampler(lambda count: log.append((contestant, place)), 7)

    rows = [[sampler(contestant, place) for place in range(3)] for contestant in range(3)]
    seated = _taking_turns(rows, random.Random(3))
    rounds = []
    for _ in range(12):
        log.clear()
        for one in seated:
            one.queue(1)
        rounds.append(dict(log))
    assert all(sorted(result.values()) == [0, 1, 2] for result in rounds)
    for contestant in range(3):
        assert sorted(result[contestant] for result in rounds) == [0] * 4 + [1] * 4 + [2] * 4
    ways = [(result[0], result[1]) for result in rounds]
    assert all(ways.count((i, j)) == ways.count((j, i)) == 2 for i, j in itertools.combinations(range(3), 2))
    assert {one.launches for one in seated} == {7}


# Real callables on this machine


@pytest.mark.processes
def test_a_callable_is_not_distinguishable_from_itself():
    call = spin(400)
    result = [compare(call, call, rounds=12, seed=seed) for seed in range(12)]
    assert [c.verdict for c in result].count("not distinguishable") >= 11
    assert {c.mode for c in result} == {"host"}


@pytest.mark.processes
def test_copies_of_tensors_do_not_make_a_difference():
    x = torch.rand(1000)
    result = [compare(torch.sort, torch.sort, args=(x,), rounds=12, seed=seed) for seed in range(12)]
    assert [c.verdict for c in result].count("not distinguishable") >= 11


def test_a_comparison_says_by_how_much_the_first_is_faster():
    result = compare(spin(1000), spin(2000), names=("new", "old"), check=False)
    assert result.names == ("new", "old")
    assert result.interval[0] <= result.percent <= result.interval[1]
    assert result.a_ms > 0
    assert result.b_ms > 0
    assert result.a_spread >= 0
    assert result.b_spread >= 0
    assert (result.guard.guarded, result.guard.rounds) == (False, result.rounds)
    assert f"{result.rounds} rounds, host" in str(result)


def test_a_comparison_says_that_it_found_no_difference(clocks):
    clocks[True, True] = Fixed("host", 0.1)
    message = str(compare(spin(1), spin(1), rounds=6))
    assert message.startswith("a and b are not distinguishable (")
    assert " %, needed " in message


def test_a_comparison_says_that_other_programs_used_the_cpus(clocks, monkeypatch):
    clocks[True, True] = Fixed("host", 0.1)
    stats = iter([(10.0, 100.0, 4.0), (30.0, 140.0, 9.0)])
    monkeypatch.setattr("triton_ops.device.probing._cpu_seconds", lambda: next(stats))
    result = compare(spin(1), spin(1), rounds=6)
    assert result.notes == ("other programs used 38% of the CPUs meanwhile",)
    assert str(result).endswith("\nNote: other programs used 38% of the CPUs meanwhile")


def test_rounds_and_seconds_are_kept():
    call = spin(100)
    assert compare(call, call, rounds=7).rounds == 7
    assert compare(call, call, seconds=1e-9).rounds == 6


def test_a_contestant_may_be_a_config_of_a_kernel():
    def work(x, *, times):
        for _ in range(times):
            x.sin()

    x = torch.rand(100)
    kernel = FunctionKernel(work)
    assert compare((kernel, {"times": 1}), (work, {"times": 3}), args=(x,)).verdict == "faster"
    with pytest.raises(UnknownTunableError, match="takes no keyword 'time'"):
        compare((kernel, {"time": 1}), kernel.function, args=(x,))


def test_an_operation_runs_on_its_default_problem():
    seen = set()

    def work(x, *, times):
        seen.add(tuple(x.shape))
        for _ in range(times):
            x.sin()

    space = ConfigSpace({"times": Choice([1, 30])})
    operation = Operation(
        "work", FunctionKernel(work), space, lambda n=300: {"x": TensorSpec((n,), "float32")}, device="cpu"
    )
    assert compare((operation, {"times": 30}), (operation, {"times": 1})).verdict == "slower"
    assert seen == {(300,)}
    assert compare((operation, {"times": 30}), (operation, {"times": 1}), args=(torch.rand(200),)).rounds >= 12
    assert (200,) in seen


# What contestants do to their arguments


def test_writes_of_a_contestant_reach_neither_the_other_nor_the_caller():
    x, y = torch.rand(64), torch.rand(64)
    before, firsts = x.clone(), set()

    def doubles(x, y):
        firsts.add(float(x[0]))
        x.mul_(2)

    def reads(x, y):
        firsts.add(float(x[0]))
        return x + y

    compare(doubles, reads, args=(x, y), rounds=6, check=False)
    compare(reads, doubles, args=(x, y), rounds=6, check=False)
    first = float(before[0])
    # Twice the value is seen once per contestant, while the tensors that a call writes are found; never in a sample.
    assert firsts <= {first, 2 * first}
    assert torch.equal(x, before)


def test_every_timed_call_of_an_in_place_contestant_finds_the_same_arguments():
    x = torch.rand(64)
    values = []

    def sorts(x):
        values.append(float(x[0]))
        x.copy_(x.sort().values)

    time_ms(sorts, args=(x,), rep_ms=5)
    assert set(values[4:]) == {float(x[0])}


@dataclass
class Counted:
    """Counts the calls of what it holds."""

    work: object
    calls: int = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.work(*args, **kwargs)


def put_back(work, *args):
    """Whether calls of `work` have their arguments restored; such calls are timed one by one."""
    looks, explore = [], contestant_module._explore

    def noted(*contestant):
        looks.append(explore(*contestant))
        return looks[-1]

    with patch.object(contestant_module, "_explore", noted):
        timing = time_ms(work, args=args, warmup_ms=0, rep_ms=1)
    ((_, restored, _),) = looks
    assert not restored or timing.launches_per_sample == 1  # on a loaded host others are, too
    return restored


def test_an_output_is_not_restored():
    x, out = torch.rand(64), torch.zeros(64)
    assert not put_back(lambda x: x + 1, x)
    assert not put_back(lambda x, out: torch.add(x, 1, out=out), x, out)
    assert not put_back(lambda x, out: out.fill_(3.0), x, torch.zeros(()))
    assert float(out[0]) == 0.0


def test_a_tensor_that_is_read_and_written_is_restored():
    x = torch.rand(64)
    assert put_back(lambda x: x.add_(1), x)
    assert put_back(lambda x: x.copy_(x.sort().values), x)
    assert put_back(lambda x: x.clamp_(max=0.5), x)
    assert put_back(lambda x: x[:32].fill_(2.0), x)
    assert put_back(lambda x, out: out.copy_(10 // x), torch.arange(1, 9), torch.ones(8, dtype=torch.int64)) is False


def test_arguments_of_a_call_that_fails_on_other_values_are_restored():
    def work(x, seen):
        if bool((x == x[0]).all()):
            raise ValueError("all the same")
        x.copy_(torch.arange(8.0))

    assert put_back(work, torch.rand(8), None)


def test_views_of_one_storage_and_leaves_with_gradients_are_restored():
    base = torch.rand(64)
    assert put_back(lambda x, y: x.add_(y), base[:32], base[32:])
    leaf = torch.rand(16, requires_grad=True)
    assert compare(lambda x: x * 2, lambda x: x + x, args=(leaf,), rounds=6).rounds == 6
    assert leaf.grad is None


def test_if_one_contestant_is_restored_the_other_is_too():
    changing, reading = Counted(lambda x: x.add_(1)), Counted(lambda x: x + 1)
    compare(changing, reading, args=(torch.rand(16),), rounds=6, check=False)
    assert reading.calls < 200  # one call a sample, not a loop of 2 ms


def test_containers_and_other_objects_are_passed_on():
    seen = []

    def work(pair, factor, *, scale):
        seen.append((factor, scale))
        return pair[0] * factor + pair[1]["y"]

    x = torch.rand(4)
    compare(work, work, args=((x, {"y": x}), 3), kwargs={"scale": "s"}, rounds=6)
    assert set(seen) == {(3, "s")}


# Errors


@pytest.mark.parametrize("wrong", [3, None, "f", (3, {})])
def test_an_object_that_is_not_callable_is_refused(wrong):
    with pytest.raises(KernelTypeError, match="not callable"):
        compare(wrong, len)


def test_kernels_need_a_config():
    with pytest.raises(KernelTypeError, match="b is a kernel without a config"):
        compare(len, FunctionKernel(len), args=([],))


def test_a_signature_that_does_not_fit_is_found_before_any_call():
    calls = []
    with pytest.raises(KernelTypeError, match="b cannot be called with these arguments: missing a required argument"):
        compare(calls.append, lambda x, y: None, args=(1,))
    assert calls == []


def test_a_contestant_that_raises_is_named():
    def fails(x):
        raise ValueError("no")

    with pytest.raises(TargetError, match="new raised ValueError: no") as caught:
        compare(fails, torch.sin, args=(torch.rand(3),), names=("new", "old"))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TargetError, match="fn raised ValueError: no"):
        time_ms(fails, args=(1,))


def test_a_callable_may_have_a_method_called_bind():
    class Model:
        def bind(self):
            return None

        def __call__(self):
            return None

    assert compare(Model(), Model(), rounds=6).rounds == 6


def test_contestants_on_two_devices_are_refused():
    places = [
        replace(contestant, device_name=name)
        for contestant, name in zip(two_contestants(), ("cpu", "cuda"), strict=True)
    ]
    with pytest.raises(DeviceError, match="a runs on cpu and b runs on cuda"):
        contestant_module.prepare(places)


def two_contestants():
    return contestant_module.contestants_of({"a": len, "b": len}, ([],), None, None)


@pytest.mark.parametrize("after", [1, 3, 40])
def test_a_contestant_that_raises_later_is_named(after):
    calls = []

    def tires(x):
        calls.append(None)
        if len(calls) > after:
            raise MemoryError("enough")
        return x.add_(1)

    with pytest.raises(TargetError, match="b raised MemoryError: enough"):
        compare(lambda x: x.add_(1), tires, args=(torch.rand(3),), rounds=20)


def test_errors_of_this_package_are_not_replaced():
    def fails():
        raise ShapeMismatchError("wrong shape")

    with pytest.raises(ShapeMismatchError, match="wrong shape"):
        compare(fails, fails)


def test_arguments_that_do_not_fit_in_memory_are_refused(monkeypatch):
    def full(arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(contestant_module.Protection, "private_copy", full)
    with pytest.raises(ShapeMismatchError, match=r"the arguments cannot be copied on cpu: RuntimeError: .*allocate"):
        compare(torch.sin, torch.cos, args=(torch.rand(3),))


def test_interrupts_are_not_swallowed():
    def stops():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(spin(10), stops)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rounds": 5}, "rounds is 5"),
        ({"rounds": 7.5}, "rounds is 7.5; it must be a whole number of 6 or more"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": math.nan}, "seconds is nan"),
        ({"names": ("x", "x")}, "two different ones"),
        ({"names": ("x",)}, "two different ones"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, said):
    with pytest.raises(SettingsError, match=said):
        compare(len, len, args=([],), **wrong)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(DeviceError, match="device 'tpu' is not known"):
        compare(len, len, args=([],), device="tpu")
    with pytest.raises(DeviceError, match="are on cpu, not on cuda"):
        compare(torch.sin, torch.cos, args=(torch.rand(3),), device="cuda")
    if gpu_missing():
        with pytest.raises(DeviceError, match="cannot be used"):
            time_ms(spin(3), device="cuda")


# The clock that is chosen


class Fixed:
    """A clock on which every launch takes what `took` says, in turn."""

    def __init__(self, mode, *took, fail=None):
        self.mode = mode
        self.took = took
        self.prepared = 0
        self._fail = fail

    def prepare(self, launch, launches=None):
        self.prepared += 1
        if self._fail is not None and self.prepared > 1:
            raise self._fail
        times = itertools.cycle(self.took)

        def queue(count):
            taken = list(itertools.islice(times, count))
            return lambda: taken

        return Sampler(queue, launches or 1)

    def round(self):
        return nullcontext()


@pytest.fixture
def clocks(monkeypatch):
    """Clocks to be chosen from, by whether the cache is cold and graphs are allowed."""
    chosen = {}

    def choose(device, name, launch, *, cold=True, capture=True):
        return chosen[cold, capture]

    monkeypatch.setattr(rounds, "choose_timer", choose)
    return chosen


def test_a_contestant_that_cannot_be_captured_changes_the_timer_of_both(clocks, caplog):
    clocks[True, True] = Fixed("graph-cold", 0.1, fail=CaptureError("it waits for the host"))
    clocks[True, False] = Fixed("event-cold", 0.1)
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = compare(spin(1), spin(1), rounds=6)
    assert result.mode == "event-cold"
    assert clocks[True, False].prepared == 9  # a, b and the twin, on three argument sets each
    assert "it waits for the host: timed by event pairs instead" in caplog.text


def test_work_outside_the_current_stream_is_an_error(clocks):
    clocks[True, True] = Fixed("graph-cold", 0.1, fail=EmptyCaptureError("8 captured launches are 0 nodes"))
    with pytest.raises(TargetError, match="b cannot be timed: 8 captured launches are 0 nodes"):
        compare(spin(1), spin(1))


def test_a_short_call_without_tensors_is_timed_warm_in_a_graph(clocks, caplog):
    clocks[True, True] = Fixed("event-flushed", 0.005)
    clocks[False, True] = Fixed("graph-warm", 0.005)
    assert time_ms(spin(1)).mode == "graph-warm"
    assert "too short for event pairs" in caplog.text
    clocks[True, True] = Fixed("event-flushed", 0.05)
    assert time_ms(spin(1)).mode == "event-flushed"
    clocks[True, True] = Fixed("event-flushed", 0.005)
    clocks[False, True] = Fixed("event-warm", 0.005)
    assert time_ms(spin(1)).mode == "event-flushed"


def test_a_call_of_few_ticks_is_of_low_confidence(clocks):
    clocks[True, True] = Fixed("event-warm", 0.005, 0.006)
    result = compare(spin(1), spin(1), rounds=6)
    assert "few ticks of the clock" in result.confidence
    assert "low confidence: calls this short" in str(result)


def test_contestants_of_similar_speed_take_equally_many_launches(monkeypatch):
    made = []

    class Uneven(HostTimer):
        def prepare(self, launch, launches=None):
            sampler = super().prepare(launch, [300, 200, 50][len(made) % 3] if launches is None else launches)
            made.append(sampler.launches)
            return sampler

    monkeypatch.setattr(rounds, "choose_timer", lambda *_, **__: Uneven())
    compare(spin(10), spin(10), rounds=6)
    assert made == [300, 200, 50, 300, 300, 300, 300, 300, 50, 50]


def test_all_contestants_rotate_argument_sets_or_none_does(monkeypatch):
    sizes = {"first": 3, "second": 1}
    shared_timer = SharedTimer(probe("cpu"), "cpu")
    tensors = {which: torch.zeros(size) for which, size in sizes.items()}
    monkeypatch.setattr(shared_timer, "sets", lambda tensors: sum(len(tensor) for tensor in tensors))
    first, second = ([Arguments(keyword={"x": tensors[which]})] for which in sizes)

    def further(made, restores=False):
        subjects = contestant_module._subjects(made, shared_timer, restores)
        return {key: len(subject.further()) for key, (subject,) in subjects.items()}

    assert further({1: first, 2: second}) == {1: 0, 2: 0}
    assert further({1: first}) == {1: 2}
    assert further({1: first}, restores=True) == {1: 0}


# time_ms


def test_quantiles_come_in_the_order_asked(clocks):
    clocks[True, True] = Fixed("host", *(1.0 + number / 100 for number in range(101)))
    result = time_ms(spin(1), quantiles=(0.5, 0.2, 0.8, 0.0, 1.0, 0.2), warmup_ms=0, rep_ms=151.0)
    ordered = sorted(result.samples_ms)
    assert result.quantiles == (0.5, 0.2, 0.8, 0.0, 1.0, 0.2)
    assert result.quantiles_ms == tuple(quantile(ordered, share) for share in result.quantiles)
    assert result.quantiles_ms[1] == result.quantiles_ms[5] < result.quantiles_ms[0] < result.quantiles_ms[2]
    assert result.quantiles_ms[0] == pytest.approx(result.median_ms)
    assert (result.quantiles_ms[3], result.quantiles_ms[4]) == (ordered[0], ordered[-1])


def test_quantiles_lie_on_the_line_between_samples():
    assert quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert quantile([1.0, 2.0], 0.2) == pytest.approx(1.2)
    assert quantile([3.0], 0.9) == 3.0
    values = torch.rand(37).tolist()
    for share in (0.0, 0.2, 0.5, 0.8, 0.99, 1.0):
        assert quantile(sorted(values), share) == pytest.approx(float(torch.tensor(values).quantile(share)), abs=1e-6)


@pytest.mark.parametrize(("warmup", "rep", "took"), [(25, 100, 1.0), (25, 100, 40.0), (0, 5, 0.5), (3, 1, 7.0)])
def test_budgets_are_milliseconds_and_launches_are_counted(clocks, warmup, rep, took):
    clocks[True, True] = Fixed("event-cold", took)
    result = time_ms(spin(1), warmup_ms=warmup, rep_ms=rep)
    assert result.launches == len(result.samples_ms) == max(1, int(rep / took))
    assert result.warmup_launches == (max(1, int(warmup / took)) if warmup else 0)
    assert result.quantiles_ms == (took, took, took)
    assert result.confidence == ("ok" if result.launches > 1 else "too few timed calls to know the noise")


def test_short_calls_are_timed_in_loops_of_the_real_clock():
    call = Counted(spin(50))
    result = time_ms(call, warmup_ms=5, rep_ms=20, quantiles=(0.5,))
    assert result.mode == "host"
    assert result.launches_per_sample * result.median_ms > 0.25
    assert result.launches == result.launches_per_sample * len(result.samples_ms) < call.calls
    assert result.launches * result.median_ms / 20 < 3  # how many there are at least is a matter of other programs
    doubt = "" if result.confidence == "ok" else f"; low confidence: {result.confidence}"  # one sample alone
    assert str(result) == f"{result.median_ms:.4g} ms, {result.launches} launches, host{doubt}"


@pytest.mark.parametrize("us", [0.4, 3, 50, 900])
def test_short_calls_fill_the_time_that_was_asked_for(clocks, us):
    clock = Clock()
    clocks[True, True] = HostTimer(clock)
    result = time_ms(lambda: clock.spend(round(1e3 * us)), warmup_ms=5, rep_ms=20)
    assert result.median_ms == pytest.approx(us / 1e3)
    assert 0.9 < result.launches * result.median_ms / 20 < 1.1


def test_times_as_text():
    message = str(time_ms(spin(1000), rep_ms=10))
    assert " ms (p20 " in message
    assert ", p80 " in message


def test_restoring_arguments_takes_ten_times_the_budget_at_most():
    x = torch.rand(1 << 20)
    result = time_ms(lambda x: x[:1].add_(1), args=(x,), warmup_ms=1, rep_ms=5)
    assert result.launches < 5 / result.median_ms + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"rep_ms": 0},
        {"rep_ms": np.float32(0)},
        {"rep_ms": math.inf},
        {"warmup_ms": -1},
        {"quantiles": (0.5, 1.5)},
        {"quantiles": (-0.1,)},
    ],
)
def test_budgets_and_quantiles_out_of_range_are_refused(wrong):
    with pytest.raises(SettingsError):
        time_ms(spin(1), **wrong)


def test_a_launch_whose_arguments_are_restored_is_prepared_with_a_reset(monkeypatch):
    launches = []

    class Watching(HostTimer):
        def prepare(self, launch, launches_=None):
            launches.append(launch)
            return super().prepare(launch, launches_)

    monkeypatch.setattr(rounds, "choose_timer", lambda *_, **__: Watching())
    out = torch.empty(4)
    args = (torch.rand(4), out)
    compare(lambda x, out: torch.add(x, 1, out=out), lambda x, out: x + 1, args=args, rounds=6, check=False)
    assert {launch.reset for launch in launches} == {None}
    assert [len(launch.outputs) for launch in launches[:3]] == [1, 0, 1]
    assert isinstance(launches[0], Launch)


def test_arrays_and_lists_that_a_contestant_writes_are_restored_before_every_sample():
    array, names, seen = np.array([3.0, 1.0]), ["b", "a"], []

    def sort(array, names):
        seen.append((array[0], names[0]))
        array.sort()
        names.sort()

    compare(sort, lambda array, names: None, args=(array, names), seconds=0.01, check=False)
    assert set(seen) == {(3.0, "b")}
    assert (array.tolist(), names) == ([3.0, 1.0], ["b", "a"])


def test_a_comparison_tells_of_every_round():
    told = []
    (one, two) = contestant_module.contestants_of({"one": spin(50), "two": spin(50)}, (), None, None)
    result = compare_module.compare_contestants(
        one,
        two,
        DuelPolicy(checkpoints=(8,), seconds=10),
        follow=lambda rounds, elapsed_s: told.append((rounds, elapsed_s)),
    )
    assert [rounds for rounds, _ in told] == list(range(1, result.rounds + 1))
    assert [at for _, at in told] == sorted(at for _, at in told)


def test_a_bar_in_a_terminal_shows_how_many_rounds_were_timed():
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=100)
    with compare_module.rounds_bar(("new", "old"), 10.0, console) as follow:
        follow(1, 1.0)
        follow(7, 12.0)
    assert "new and old, 7 rounds" in drawn.getvalue()
    with compare_module.rounds_bar(("new", "old"), 10.0, Console(file=io.StringIO())) as follow:
        follow(1, 1.0)


@pytest.mark.parametrize(("percent", "text"), [(0.04, "0.0"), (99.94, "99.9"), (100.0, "100"), (250.4, "250")])
def test_differences_have_a_decimal_below_a_hundred_percent(clocks, percent, text):
    clocks[True, True] = Fixed("host", 0.1)
    plain = compare(spin(1), spin(1), names=("new", "old"), rounds=6)
    result = replace(plain, verdict="faster", percent=percent, interval=(percent, percent))
    assert str(result).startswith(f"new is {text} % faster than old ({text} to {text} %), 6 rounds, host")


@pytest.mark.parametrize(("percent", "speedup"), [(25.0, 1.25), (0.0, 1.0), (-25.0, 0.8), (-100.0, 0.5), (300.0, 4.0)])
def test_a_speedup_is_the_time_of_the_other_over_the_own_on_either_side_of_one(percent, speedup):
    result = compare_module.Comparison(
        verdict="faster", names=("a", "b"), percent=percent, interval=(percent, percent + 1.0)
    )
    turned = replace(result, percent=-percent, interval=(-percent - 1.0, -percent))
    assert result.speedup == result.speedup_interval[0] == pytest.approx(speedup)
    assert result.speedup * turned.speedup == pytest.approx(1.0)
    assert result.speedup_interval[1] * turned.speedup_interval[0] == pytest.approx(1.0)


def test_a_time_says_that_other_programs_used_the_cpus(clocks, monkeypatch):
    clocks[True, True] = Fixed("host", 0.1)
    stats = iter([(10.0, 100.0, 4.0), (30.0, 140.0, 9.0)])
    monkeypatch.setattr("triton_ops.device.probing._cpu_seconds", lambda: next(stats))
    result = time_ms(spin(1), rep_ms=1.0, warmup_ms=0.0)
    assert result.notes == ("other programs used 38% of the CPUs meanwhile",)
    assert str(result).endswith("\nNote: other programs used 38% of the CPUs meanwhile")


WRONG = ["x", b"x", [2], {"a": 1}, object(), int, float("nan"), -1]


def test_options_of_other_types_are_refused():
    for value in WRONG:
        for option in ("names", "rounds", "seconds"):
            with pytest.raises(SettingsError):
                compare(spin(1), spin(1), **{option: value})
        for option in ("warmup_ms", "rep_ms", "quantiles"):
            with pytest.raises(SettingsError):
                time_ms(spin(1), **{option: value})


def test_times_are_unpacked_as_those_of_other_timers_and_their_options_are_refused_with_a_hint():
    times = time_ms(lambda: None, warmup_ms=0, rep_ms=1, quantiles=(0.5, 0.2, 0.8), device="cpu")
    middle, low, high = times
    assert (middle, low, high) == times.quantiles_ms
    with pytest.raises(SettingsError, match="takes no return_mode") as refused:
        time_ms(lambda: None, return_mode="median")
    assert ".median_ms" in refused.value.hint


def test_a_single_timed_call_is_of_low_confidence():
    alone, several = (time_ms(partial(time.sleep, 0.01), warmup_ms=0, rep_ms=rep_ms) for rep_ms in (1.0, 60.0))
    assert (len(alone.samples_ms), alone.confidence) == (1, "too few timed calls to know the noise")
    assert "low confidence: too few" in str(alone)
    assert several.confidence == "ok"
