"""A plan repeats what a call launches itself, in each case that it holds for, and costs a loop of new sizes nothing."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

import triton_ops  # noqa: E402
import triton_ops.dispatch.plans as plans  # noqa: E402
from tests.launches import cpu_as_gpu, launches_that_do_nothing, ordinary_launches  # noqa: E402
from triton_ops.backend import Operation, TritonKernel, launches_taken  # noqa: E402
from triton_ops.dispatch.decision import forget_decisions  # noqa: E402
from triton_ops.dispatch.fast_launch import FastLaunch  # noqa: E402


@triton.jit
def scaled(x, y, a, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, a * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def added(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def by_blocks(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def operation(grid=lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)):
    return Operation("scaled", TritonKernel(scaled, grid, outputs=("x",)), {"BLOCK": [128]}, lambda n, dtype=None: {})


@pytest.fixture
def launched():
    with launches_that_do_nothing() as launches, cpu_as_gpu():
        forget_decisions()
        yield launches
        forget_decisions()


def ordinary_of(call):
    with ordinary_launches() as made:
        call()
    return len(made)


def test_a_negative_zero_is_passed_on(launched):
    own, x, y, signs = operation(), torch.zeros(64), torch.zeros(64), []
    for value in (0.0, 0.0, 0.0, -0.0, -0.0):
        launched.made.clear()
        own(x, y, value, 64, 0)
        signs.append(str(launched.made[-1][4][2]))
    assert signs == ["0.0", "0.0", "0.0", "-0.0", "-0.0"]


def test_constants_that_are_equal_and_of_other_classes_are_passed_on(launched):
    own, x, y, flags = operation(), torch.zeros(64), torch.zeros(64), []
    for value in ((1,), (1,), (1,), (True,), (1.0,)):
        launched.made.clear()
        own(x, y, 1, 64, value)
        flags.append(str(launched.made[-1][4][4]))
    assert flags == ["(1,)", "(1,)", "(1,)", "(True,)", "(1.0,)"]


def test_a_decorated_kernel_that_is_learned_during_a_recording_is_known_later(launched):
    config = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    own = triton_ops.autotune(config, ["n"], on_miss="default")(added)
    x, begun, end, generate = torch.zeros(512), threading.Event(), threading.Event(), FastLaunch._generate

    def record():
        with launches_taken(lambda run, *args, **kwargs: run(*args, **kwargs)):
            begun.set()
            end.wait()

    thread = threading.Thread(target=record)

    def during(self, *args):
        if thread.ident is None:
            thread.start()
            begun.wait()
        return generate(self, *args)

    with mock.patch.object(FastLaunch, "_generate", during):
        own[by_blocks](x, x, 512)
    end.set()
    thread.join()
    own[by_blocks](x, x, 512), own[by_blocks](x, x, 512)
    assert ordinary_of(lambda: own[by_blocks](x, x, 512)) == 0


@pytest.fixture
def recorders():
    with mock.patch.object(plans, "Recorder", side_effect=plans.Recorder) as made:
        yield made


def test_a_pattern_that_cannot_be_repeated_is_recorded_once(launched, recorders):
    def read(x):
        return torch.full((), float(x.sum()))

    calls, x = plans.PlannedCalls(read), torch.ones(4)
    assert [float(calls.call(x)) for _ in range(5)] == [4.0] * 5
    assert recorders.call_count == 1
    assert float(calls.call(2 * x)) == 8.0


def test_a_grid_is_asked_once_for_a_launch(launched):
    calls = []

    def grid(meta):
        calls.append(1)
        return (1,)

    own, x, y = operation(grid), torch.zeros(64), torch.zeros(64)
    for nth in range(1, 4):
        own(x, y, 1, 64, 0)
        assert len(calls) == nth
