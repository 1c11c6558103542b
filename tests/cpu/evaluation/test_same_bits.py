"""Results that must have the bits of the default config's, on a station of this process."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from triton_ops import Config, FunctionKernel  # noqa: E402
from triton_ops.evaluation import Assignment  # noqa: E402
from triton_ops.evaluation.station import Inline  # noqa: E402
from triton_ops.request import TuneOptions, TuneProblem  # noqa: E402
from triton_ops.values import Status  # noqa: E402

RUNS = []


def sums(x, out, *, how):
    """Sums of rows: in order, backwards, with the other sign, or others with each launch."""
    if how == "fails":
        raise ValueError("this one cannot run")
    RUNS.append(how)
    rows = {"ordered": x, "as well": x.clone(), "varies": x + 1e-7 * len(RUNS)}.get(how, x.flip(1))
    total = torch.zeros(len(x))
    for column in rows.T:
        total = total + column
    out.copy_(-total if how == "negated" else total)


def trials_of(*hows, tried=None, x=None, reference=None, same_bits_as="default"):
    """The trials of configs, the first of which is the default, `tried` in this order; and the station."""
    x = torch.randn(64, 999, generator=torch.Generator().manual_seed(0)) if x is None else x
    problem = TuneProblem(
        target=FunctionKernel(sums, outputs=("out",)), kwargs={"x": x, "out": torch.zeros(len(x))},
        space={"how": list(hows)}, reference=reference,
    )  # fmt: skip
    assignment = Assignment.of(problem.request(), TuneOptions(effort="quick"), None)
    station = Inline(replace(assignment, same_bits_as=same_bits_as))
    trials = {how: station.attempt(Config(how=how), None) for how in tried or hows}
    return [trials[how] for how in hows], station


@pytest.mark.parametrize("reference", [None, lambda x, out: x.sum(1)])
def test_another_order_is_right_by_the_rule_and_wrong_by_its_bits(reference):
    (default, other), _ = trials_of("ordered", "backwards", reference=reference, same_bits_as=None)
    assert (default.ok, other.ok) == (True, True)
    (default, other, equal), station = trials_of("ordered", "backwards", "as well", reference=reference)
    assert (default.ok, equal.ok) == (True, True)
    assert other.status is Status.WRONG
    assert other.error.startswith("its bits are not those of config (how=ordered): ")
    assert station.facts.against.endswith(", and bit by bit with config (how=ordered)")


def test_the_bits_are_those_of_the_default_although_another_config_is_tried_first():
    (default, other), station = trials_of("ordered", "backwards", tried=("backwards", "ordered"))
    assert (default.ok, other.status) == (True, Status.WRONG)
    assert station.facts.against.endswith("config (how=ordered)")


def test_zeros_of_another_sign_are_other_bits():
    (default, other), _ = trials_of("ordered", "negated", x=torch.zeros(4, 3))
    assert default.ok
    assert "equal values, in other bits" in other.error


@pytest.mark.parametrize(("default", "reason"), [("fails", "does not run"), ("varies", "differ from run to run")])
def test_without_bits_of_the_default_no_other_config_is_right(default, reason):
    (first, other), _ = trials_of(default, "ordered", reference=lambda x, out: x.sum(1))
    assert not first.ok
    assert other.status is Status.WRONG
    assert reason in other.error
