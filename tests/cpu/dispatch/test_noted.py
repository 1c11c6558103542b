"""A miss of a decorated kernel is noted with its call, found again, and tuned with arguments that are made for it."""

from __future__ import annotations

import importlib
import math
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.clocks import SteadyClock
from triton_ops.device import probe
from triton_ops.exceptions import TritonKernelError
from triton_ops.many import RunOptions
from triton_ops.records import LockPlan, Misses, NotedCall, lock_of, store_in
from triton_ops.records.lockfile import loads
from triton_ops.records.misses import Harvest, flush_misses
from triton_ops.request import Effort, TuneOptions
from triton_ops.ship.command_loading import tune_misses
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import repair, verify
from triton_ops.timing import HostTimer, rounds
from triton_ops.typed import TypedTarget

pytestmark = pytest.mark.triton


def called(name, n):
    """A kernel of the module, and a call of it."""
    import torch
    import triton

    kernel = getattr(importlib.import_module("tests.decorated_kernels"), name)
    x, out = torch.randn(n), torch.empty(n)
    given = {"x_ptr": x, "out_ptr": out, "n": n}
    if name == "add":
        given["y_ptr"] = torch.randn(n + 1)[1:]  # not aligned
    if name == "scale":
        given |= {"factor": math.inf, "name": "by", "EVEN": False}  # as the heuristics around the decorator have it
    return kernel, given, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)


# What runs where kernels are interpreted, so that they can be tuned without a GPU


@contextmanager
def steady():
    """A clock by which all configs take the same time, and few calls: what is found is no matter of time."""
    before, rounds.HostTimer = rounds.HostTimer, lambda: HostTimer(SteadyClock())
    try:
        yield
    finally:
        rounds.HostTimer = before


@steady()
def tuned_from_its_miss(name, folder):
    """Note the miss of a call, and tune from the file; tells what became of it, and what was noted."""
    from triton_ops import install
    from triton_ops.dispatch.noted import launches_of

    kernel, given, grid = called(name, 100)
    with install(on_miss="default"):
        tuned = launches_of(kernel)
    call = tuned.call_of(grid, (), given)
    harvest = Harvest(Path(folder))
    for _ in range(3):
        harvest.note(call.key, None, call.noted)
    harvest.flush()
    (miss,) = Misses(Path(folder)).read()
    ((served,), _) = tune_misses(
        [miss], Targets([kernel]), RunOptions(each=TuneOptions(effort=Effort.named("quick"), cache_dir=folder))
    )
    record = store_in(folder).get(call.key.id)
    return {
        "count": miss.count, "reason": served.reason, "stored": served.stored, "left": len(Misses(Path(folder)).read()),
        "tried": sum(served.result.totals.values()), "known": record is not None,
        "arguments": dict(miss.call.arguments),
        "grids": miss.call.grids, "configs": [each["BLOCK"] for each in miss.call.configs],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "configs"), [("add", [64, 128]), ("scale", [32, 64, 256]), ("theirs", [64, 128])])
def test_a_call_that_missed_is_made_again_and_tuned(name, configs, interpreted, tmp_path):
    result = interpreted(tuned_from_its_miss, name, str(tmp_path))
    assert {what: result[what] for what in ("count", "reason", "stored", "left", "known")} == {
        "count": 3, "reason": "", "stored": True, "left": 0, "known": True,
    }  # fmt: skip
    assert (result["tried"], result["configs"]) == (len(configs), configs)
    assert result["grids"] == [[math.ceil(100 / block)] for block in configs]
    assert result["arguments"]["x_ptr"] == {"shape": [100], "dtype": "float32", "stride": [1], "aligned": True}
    if name == "add":
        assert result["arguments"]["y_ptr"]["aligned"] is False
    if name == "scale":
        assert (result["arguments"]["factor"], result["arguments"]["name"]) == ({"float": "inf"}, "by")


@steady()
def with_another_list(folder):
    """A config that joined the list since the miss fails by name, and the others are tuned."""
    import triton

    kernel, given, grid = called("add", 100)
    call = kernel.launches.call_of(grid, (), given)
    harvest = Harvest(Path(folder))
    harvest.note(call.key, None, call.noted)
    harvest.flush()
    before = kernel.configs
    kernel.configs = [*before, triton.Config({"BLOCK": 512}, num_warps=4)]
    try:
        options = RunOptions(each=TuneOptions(cache_dir=folder))
        ((served,), _) = tune_misses(Misses(Path(folder)).read(), Targets([kernel]), options)
    finally:
        kernel.configs = before
    return served.stored, [(dict(trial.config)["BLOCK"], trial.error) for trial in served.result.failures]


def test_a_config_that_joined_since_has_no_grid_and_says_so(interpreted, tmp_path):
    stored, ((block, error),) = interpreted(with_another_list, str(tmp_path))
    assert (stored, block, "it was no config when the call was made" in error) == (True, 512, True)


def locked(name, folder, n=100, **changes):
    """The lockfile of a record of one call, as it is read again."""
    from triton_ops.dispatch.noted import launches_of

    kernel, given, grid = called(name, n)
    call = launches_of(kernel).call_of(grid, (), {**given, **changes})
    call.tuned(TuneOptions(effort="quick", trials=4, cache_dir=folder))
    return loads(lock_of([store_in(folder).get(call.key.id)], LockPlan(unproven=True))[0].text)


def verdicts(lock, **options):
    return list(verify(lock, Targets(), probe("cpu"), trials=4, **options))


@steady()
def verified(name, folder):
    """The verdicts on the entry of one call, on places in its ranges, and on other calls; and what a launch takes."""
    import triton_ops
    from triton_ops.dispatch.noted import launches_of

    lock = locked(name, folder)
    own, *there = verdicts(lock, held_out=2)
    (raced,) = repair(lock, Targets(), Path(folder), "cpu", most_neighbours=1)
    assert (raced.outcome, raced.result is not None) in {("ok", True), ("not measured", False), ("not measured", True)}
    (entry,) = lock.entries
    kernel, given, grid = called(name, 300)
    elsewhere = launches_of(kernel).call_of(grid, (), given).noted
    x = {**entry.call.arguments["x_ptr"], "dtype": "floaty"}
    odd = [{**entry.call.arguments, **more} for more in ({"x_ptr": x}, {"gone": 1})]
    calls = [msgspec.structs.replace(entry.call, arguments=each) for each in odd]
    edited = [
        *(replace(entry, call=each) for each in (elsewhere, *calls)),
        replace(entry, call="name is of torch.dtype, of which no value is noted"),
    ]
    told = [verdicts(replace(lock, entries=(each,)))[0] for each in edited]
    _, near, grid = called(name, 112)  # a multiple of 16 in the bucket of 100, which is none
    with triton_ops.replaying(lock):
        served = [launches_of(kernel).why(grid, (), each).found for each in (near, given)]
    return (
        own.outcome, own.reason, len(own.result.trials), [(each.outcome, each.at) for each in there],
        [(each.outcome, each.reason) for each in told],
        [each.rung for each in served], served[0].config == entry.config,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rungs"),
    [("add", ["lockfile", "default"]), ("scale", ["default"] * 2), ("theirs", ["default"] * 2)],
)
def test_an_entry_of_a_decorated_kernel_is_measured_by_its_noted_call(name, rungs, interpreted, tmp_path):
    outcome, reason, trials, there, (moved, *odd, unnoted), *served = interpreted(verified, name, str(tmp_path))
    assert served[0] == rungs, "a lockfile's range holds for the problems in the kernel's bucket"
    assert served[1] or "lockfile" not in rungs
    assert (outcome in ("ok", "slower"), trials > 1) == (True, True), reason
    assert {each for each, _ in there} == ({"not measured"} if name == "add" else set())
    assert moved[0] == "invalid"
    assert "the call that is noted is of another problem" in moved[1]
    for told, message in zip(odd, ("floaty", "has no parameter gone any more"), strict=True):
        assert (told[0], message in told[1]) == ("invalid", True), told
    assert unnoted[0] == "not measured"
    assert unnoted[1].endswith("known: name is of torch.dtype, of which no value is noted")


@steady()
def impossible(folder):
    """Verdicts on calls that no config can make, of floats and of integers."""
    import torch

    result = []
    for more in ({}, {"x_ptr": torch.ones(100, dtype=torch.int32)}):
        lock = locked("add", folder, **more)
        (entry,) = lock.entries
        call = msgspec.structs.replace(entry.call, grids=["there is none"] * 2)
        result += verdicts(replace(lock, entries=(replace(entry, call=call),)))
    return [(each.outcome, each.reason) for each in result]


def test_a_call_that_no_config_can_make_is_invalid_unless_it_has_integers_that_are_made_up(interpreted, tmp_path):
    floats, integers = interpreted(impossible, str(tmp_path))
    assert (floats[0], "there is none" in floats[1]) == ("invalid", True)
    assert (integers[0], "values that are made up for x_ptr" in integers[1]) == ("not measured", True)


# What needs no launch


def noted(folder, name="add", **changes):
    kernel, given, grid = called(name, 100)
    call = kernel.launches.call_of(grid, (), {**given, **changes})
    return call, call.noted


def test_what_cannot_be_written_plainly_is_noted_without_its_call(tmp_path):
    import torch

    kernel, given, grid = called("scale", 64)
    assert isinstance(kernel.fn.launches.call_of(grid, (), given).noted, NotedCall)
    result = kernel.fn.launches.call_of(grid, (), {**given, "name": torch.float16}).noted
    assert result == "name is of torch.dtype, of which no value is noted"
    result = kernel.fn.launches.call_of(grid, (), {**given, "factor": (1, 2)}).noted
    assert result == "factor is of tuple, of which no value is noted"


def test_a_grid_function_that_raises_is_noted_as_such():
    kernel, given, _ = called("add", 100)
    result = kernel.launches.call_of(lambda meta: 1 / 0, (), given).noted
    assert result.grids == ["the grid function raised ZeroDivisionError: division by zero"] * 2


def test_a_launch_notes_its_call_once_and_a_file_of_before_is_read(tmp_path, monkeypatch):
    from tests.launches import launches_that_do_nothing

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    kernel, given, grid = called("add", 100)
    with launches_that_do_nothing():
        for _ in range(3):
            kernel[grid](**given)
    flush_misses()
    (miss,) = Misses(tmp_path).read()
    assert (miss.count, miss.call.arguments["n"], miss.call.grids) == (1, 100, [[2], [1]])
    kernel.cache.clear()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda call: {"arguments": {**call.arguments, "gone": 1}}, "has no parameter gone any more"),
        (lambda call: {"arguments": {**call.arguments, "x_ptr": {"range": [1, 2]}}}, "no argument can be made from"),
    ],
)
def test_a_call_that_does_not_fit_any_more_is_told(change, said, tmp_path):
    import msgspec

    from triton_ops.dispatch import NotedOperation

    _, noted_call = noted(tmp_path)
    changed = msgspec.structs.replace(noted_call, **change(noted_call))
    with pytest.raises(TritonKernelError, match=said):
        NotedOperation.at(TypedTarget("tests.decorated_kernels:add").object(), changed).at_call("cpu")


def test_what_is_no_decorated_kernel_any_more_is_told(tmp_path):
    from triton_ops.dispatch import NotedOperation

    _, call = noted(tmp_path)
    with pytest.raises(TritonKernelError, match="is no decorated kernel"):
        NotedOperation.at(TypedTarget("tests.tuned_kernels:add").object(), call)
