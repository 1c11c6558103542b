"""Finalists raced inside a step: what makes the step faster is kept, and nothing else."""

import functools
import random

import pytest

from tests.clocks import MS, Clock
from triton_ops import operation, recall, tune, tune_in_place, use_lockfile
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError
from triton_ops.records import Lockfile
from triton_ops.timing import HostTimer, rounds


@functools.cache
def ground():
    """A clock, the milliseconds of each kernel's config alone and in the step, and chance; no part of a kernel."""
    return Clock(), {}, {}, random.Random(0)


def spend(kernel, tile):
    clock, alone, inside, chance = ground()
    times = inside if inside.get("now") else alone
    clock.spend(round(times[kernel, tile] * MS * chance.lognormvariate(0, alone["noise"])))


@operation(space={"tile": [1, 2, 3]}, arguments=lambda n=4: {"n": n}, device="cpu")
def first(n, tile):
    spend("first", tile)
    return n + 1 if ground()[1].get("wrong") == tile else n


@operation(space={"tile": [1, 2, 3]}, arguments=lambda n=4: {"n": n}, device="cpu")
def second(n, tile):
    spend("second", tile)
    return 2 * n


def step():
    ground()[2]["now"] = True
    try:
        return first(n=4), second(n=4), second(n=4)
    finally:
        ground()[2]["now"] = False


@pytest.fixture
def times(monkeypatch):
    """Alone 2 beats 3 and 1 by little; what each takes in the step is the test's."""
    clock, alone, inside, _ = ground()
    monkeypatch.setattr(rounds, "HostTimer", lambda: HostTimer(clock))
    alone.clear()
    inside.clear()
    alone["noise"] = 0.0
    for kernel in ("first", "second"):
        for tile, ms in ((1, 1.2), (2, 1.0), (3, 1.05)):
            alone[kernel, tile] = inside[kernel, tile] = ms
    for each in (first, second):
        tune(each, effort="exhaustive")
    yield inside
    use_lockfile(None)


def test_what_wins_alone_gives_way_to_what_makes_the_step_faster(times, tmp_path):
    times["second", 2] = 2.0
    path = tmp_path / "lock.json"
    result = tune_in_place(step, lockfile=path, name="decoder")
    assert [(row.kernel.rpartition(":")[2], row.launches, row.after["tile"]) for row in result.kernels] == [
        ("second", 2, 3), ("first", 1, 2),
    ]  # fmt: skip
    assert result.gain.centre == pytest.approx(5.0 / 3.1)
    assert result.gain.low > 1
    assert "compared with those before" in result.verified
    (entry,) = Lockfile.read(path).entries
    assert (entry.config["tile"], entry.origin.source) == (3, "in place, in decoder")
    assert entry.origin.record == recall(second).id
    use_lockfile(path)
    assert tune_in_place(step, budget_s=5).lockfile.entries == ()
    assert "(tile=2) -> (tile=3)" in str(result)


def test_only_the_named_kernels_are_looked_at(times):
    times["first", 2] = times["second", 2] = 2.0
    result = tune_in_place(step, kernels=["first"])
    assert [(row.kernel.rpartition(":")[2], row.after["tile"]) for row in result.kernels] == [("first", 3)]


def test_a_config_that_changes_the_results_of_the_step_is_not_taken(times):
    times["first", 2] = 2.0
    ground()[1]["wrong"] = 3
    (row,) = tune_in_place(step, kernels=["first"]).kernels
    assert row.after["tile"] == 1


def test_what_another_source_decides_is_said(times):
    def fixed():
        return first.kernel.function(4, tile=2), second(n=4)

    (row,) = tune_in_place(fixed).kernels
    assert row.kernel.endswith("second")
    assert (row.launches, row.after) == (1, row.before)


def test_a_kernel_without_a_record_or_with_a_small_share_is_left_alone(times, tmp_path):
    result = tune_in_place(step, cache_dir=tmp_path)
    assert {row.reason for row in result.kernels} == {"no record of a tune brings finalists: tune it first"}
    times["second", 2] = 1000.0
    small = next(row for row in tune_in_place(step).kernels if row.kernel.endswith("first"))
    assert small.reason == "less than 1% of the step"


def test_what_a_step_changes_is_restored(times):
    torch = pytest.importorskip("torch")
    weights = torch.ones(4)

    def training():
        weights.mul_(1.5)
        return step()

    times["second", 2] = 2.0
    result = tune_in_place(training, state=[weights])
    assert result.gain is not None
    assert weights.tolist() == [1.0] * 4
    unsaid = tune_in_place(lambda: weights.add_(1).sum() + step()[0])
    assert "name in `state` what the step changes" in unsaid.verified


def test_no_config_is_changed_by_noise(times):
    """Two decisions among configs that take equally long in the step, each with noise of its own."""
    for kernel in ("first", "second"):
        for tile in (1, 2, 3):
            times[kernel, tile] = 1.0
    _, alone, _, chance = ground()
    alone["noise"] = 0.02
    chance.seed(1)
    assert [row for row in tune_in_place(step, budget_s=1).kernels if row.after != row.before] == []


@pytest.mark.parametrize(
    ("call", "more", "error"),
    [(3, {}, KernelTypeError), (step, {"budget_s": 0}, SettingsError), (step, {"kernels": ["third"]}, SettingsError),
     (lambda: 1, {}, SettingsError), (lambda: 1 / 0, {}, TargetError)],
)  # fmt: skip
def test_what_does_not_fit_is_refused(times, call, more, error):
    with pytest.raises(error):
        tune_in_place(call, **more)
