"""An operation beside its rivals: which of them it meets, what is refused, and which rival is the fastest right one."""

import logging

import pytest
import torch

from triton_ops import Config, FunctionKernel, Operation, TensorSpec
from triton_ops.benchmark import RivalRun, fastest_right
from triton_ops.exceptions import SettingsError


def scaled(x, out, *, n):
    out.copy_(x * 2)


def rescaled(x, **_rest):
    return x + x


DOUBLING = Operation(
    "doubling", FunctionKernel(scaled, outputs=("out",)), [{"n": 1}, {"n": 2}],
    lambda rows: {"x": TensorSpec((rows,), "float32"), "out": TensorSpec((rows,), "float32")},
    reference=lambda x, out: x * 2, device="any",
)  # fmt: skip


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize(("asked", "rivals"), [
    ((), ["default", "eager", "library"]), (("default",), ["default"]), (("eager", "default"), ["default", "eager"]),
    (("library",), ["library"]), (("compile",), []),
])  # fmt: skip
@pytest.mark.parametrize("n", [1, 2])
def test_a_kernel_meets_the_rivals_that_are_asked_for_and_else_all(asked, rivals, n, monkeypatch):
    monkeypatch.setattr(RivalRun, "_winner", lambda *_: (Config(n=n), "recorded winner"))
    rivals_here = {"eager": rescaled, "library": rescaled}
    run = RivalRun(rivals_of=lambda *_: rivals_here, rivals=asked, seconds=0.1, device="cpu")
    rows = list(run.problem_rows(DOUBLING, "small", (64,), None))
    assert [row.rival for row in rows] == [rival for rival in rivals if n == 2 or rival != "default"]
    assert all((row.config, row.is_default, row.confidence) == ({"n": n}, n == 1, "ok") for row in rows)
    assert all(row.verdict == "not distinguishable" for row in rows)


def test_seconds_below_zero_are_refused():
    with pytest.raises(SettingsError, match="tune_s is -1"):
        RivalRun(rivals_of=lambda *_: {}, tune_s=-1)


def fails(x):
    raise RuntimeError("no such problem")


@pytest.mark.usefixtures("steady_clock")
def test_the_fastest_rival_is_one_that_takes_the_problem_and_is_right(caplog):
    def right(x):
        return x * 2

    makers = {"fails": lambda: fails, "wrong": lambda: lambda x: x * 3, "right": lambda: right}
    with caplog.at_level(logging.INFO, "triton_ops"):
        found = fastest_right(makers, lambda x: x * 2, {"x": torch.ones(8)})
    assert found is right
    assert "fails does not take the problem: " in caplog.text
    assert fastest_right({"fails": lambda: fails}, right, {"x": torch.ones(8)}) is None
