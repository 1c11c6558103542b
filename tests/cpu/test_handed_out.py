"""What a caller does to an answer changes no later answer: everything that is handed out is frozen, or a copy."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, is_dataclass, replace

import msgspec
import pytest
import torch
import triton

import triton_ops
from tests.decorated_kernels import add
from tests.launches import launches_that_do_nothing
from tests.records import record
from triton_ops import CompileMode, Config, ConfigSpace, Constraint, Operation, TensorSpec, TritonKernel
from triton_ops.base import Frozen
from triton_ops.device import Calibration, DeviceSpec, Machine, probe
from triton_ops.dispatch import ladder, operations
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.values import Key

PASSING = ("elapsed_s", "created", "run", "launches", "count")  # parts of answers that differ by themselves


def work(x, block=1, wide=4):
    return x + block * 0


def reference(x):
    return x


OPERATION = Operation(
    "handed-out", work, {"block": [3, 1, 2], "wide": [4, 8]}, lambda n=4: {"x": TensorSpec((n,), "float32")},
    problems={"small": ((4,), "float32")},
)  # fmt: skip

CALIBRATION = Calibration("NVIDIA H200", dram_gbps=4200.0, mma_tflops={"bfloat16": 700.0})


def parts_of(value):
    """The names and values that an answer shows: of a mapping or list its items, of an object of ours its fields."""
    if isinstance(value, (dict, Config)):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return [(each.name, getattr(value, each.name)) for each in fields(value) if not each.name.startswith("_")]
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, triton.Config):
        return [("kwargs", value.kwargs), ("num_warps", value.num_warps)]
    return []


def content_of(value):
    parts = [(name, content_of(part)) for name, part in parts_of(value) if name not in PASSING]
    return parts or repr(value)


def change(value, seen):
    """Try all that ordinary code may do to an answer and to whatever it holds."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    for _, part in parts_of(value):
        change(part, seen)
    for attempt in attempts_at(value):
        try:
            attempt()
        except (TypeError, AttributeError, LookupError):
            continue  # it is frozen, or has nothing to take out
        assert isinstance(value, (dict, list, triton.Config)), f"{value!r} was changed"


def attempts_at(value):
    if isinstance(value, (dict, list)):
        yield lambda: value.pop()
        yield lambda: value.pop(next(iter(value), None))
        yield lambda: value.__setitem__(next(iter(value), "new"), "other")
        yield lambda: value.__delitem__(next(iter(value), "new"))
        yield lambda: value.update(new=1)
        yield lambda: value.setdefault("another", 1)
        yield lambda: value.__ior__({"new": 2})
        yield lambda: value.__iadd__(["other"])
        yield lambda: value.append("other")
        yield lambda: value.insert(0, "other")
        yield lambda: value.sort(key=repr, reverse=True)
        yield value.clear
    elif isinstance(value, triton.Config):
        yield lambda: setattr(value, "num_warps", 64)
    elif is_dataclass(value) or isinstance(value, (msgspec.Struct, Config)):
        for name, part in parts_of(value):
            yield lambda name=name, part=part: setattr(value, name, part)


def assert_changes_reach_no_later_answer(ask, count=3):
    """Ask again after each answer was changed; the last two answers are equal, and the first is as they are."""
    contents = []
    for _ in range(count):
        answer = ask()
        contents.append(content_of(answer))
        change(answer, {})
    assert contents[-2:] == contents[-1:] * 2
    return contents


@pytest.fixture
def x():
    return torch.arange(4.0)


@pytest.fixture(autouse=True)
def _nothing_known():
    ladder._sources.ladders.clear()
    operations._calls.forget()


@pytest.fixture
def tuned(steady_clock, x):
    triton_ops.tune(OPERATION, (x,), isolate=False)


@pytest.mark.parametrize("space", [{"block": [3, 1, 2], "wide": [4, 8]}, ConfigSpace({"block": [1, 2]})])
def test_a_result_of_tune(space, steady_clock, x):
    def ask():
        return triton_ops.tune(work, (x,), space=space, isolate=False)

    first = ask()
    expected = dict(first.best_config)
    change(first, {})
    remembered = ask()
    for name in list(remembered.best_config):
        remembered.best_config.pop(name)
    assert_changes_reach_no_later_answer(ask)
    assert ask().best_config == expected


def test_a_result_of_a_tune_over_several_contents(steady_clock, x):
    def ask():
        contents = [(1.0, {"x": x}), (2.0, {"x": -x})]
        return triton_ops.tune(OPERATION, (x,), contents=contents, isolate=False).contents

    assert_changes_reach_no_later_answer(ask)


def test_the_samples_of_trials(steady_clock, x):
    result = triton_ops.tune(OPERATION, (x,), isolate=False)
    before = content_of(result.trials)
    change(result.trials, {})
    assert content_of(result.trials) == before


def test_a_result_of_tune_many(tuned):
    assert_changes_reach_no_later_answer(
        lambda: triton_ops.tune_many([triton_ops.TuneProblem(target=OPERATION, shape=(4,))])
    )


def test_a_recalled_record(tuned, x):
    assert_changes_reach_no_later_answer(lambda: triton_ops.recall(OPERATION, (x,)))


def test_decisions_on_calls_of_operations_and_the_list_of_launches(tuned, x):
    def ask():
        OPERATION(x)
        return [*operations._calls.decisions], [each for each in triton_ops.launches() if each.kernel == OPERATION.name]

    assert_changes_reach_no_later_answer(ask)


def test_a_choosers_parts_decisions_and_results(steady_clock, x):
    chooser = triton_ops.choose(
        {"plain": lambda x: x + 1, "other": lambda x: 1 + x}, name="handed-out-choice", budget_s=5
    )

    def ask():
        chooser(x)
        return chooser.implementations, chooser.options, chooser.why(x), chooser.decisions, chooser.operation

    assert_changes_reach_no_later_answer(ask)
    assert_changes_reach_no_later_answer(lambda: chooser.tune((x,), isolate=False).best_config)
    assert_changes_reach_no_later_answer(ask)
    assert torch.equal(chooser(x), x + 1)


def test_decisions_of_a_decorated_kernel(x):
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    kernel = triton_ops.autotune(configs, key=["n"], on_miss="default")(add.fn)

    def ask():
        kernel[lambda meta: (triton.cdiv(4, meta["BLOCK"]),)](x, x, x, 4)
        return kernel.why(x, x, x, 4, grid=(1,)), kernel.decisions

    with launches_that_do_nothing():
        assert_changes_reach_no_later_answer(ask)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: DeviceSpec.named("H200"),
        lambda: probe("cpu"),
        lambda: Machine.of(DeviceSpec.named("H200")),
        lambda: Machine.of(replace(DeviceSpec.named("H200"), calibration=CALIBRATION)),
        lambda: CALIBRATION,
    ],
)
def test_descriptions_of_devices(ask):
    first, *later = assert_changes_reach_no_later_answer(ask)
    assert later == [first] * 2


def test_lockfiles_and_what_they_pin():
    key = record().key
    device = LockedDevice(alias="gpu", kind="cuda", name="H200")
    entry = LockEntry(
        kernel=key.kernel, device="gpu", config=Config(block=1), problem={"x": {"shape": [4], "dtype": "float32"}}
    )
    lockfile = Lockfile((device,), (entry,))
    asked = Key(
        kernel=key.kernel, problem=entry.problem, identity={}, device={"kind": "cuda", "name": "H200"},
        cache_state="cold",
    )  # fmt: skip
    assert_changes_reach_no_later_answer(lambda: (lockfile.find(asked), lockfile, asked, asked.id))


def test_parts_that_are_used_again():
    space = ConfigSpace(
        {"block": [1, 2]}, (Constraint("small", lambda block: block < 2, "large"),), default={"block": 1}
    )
    kernel = TritonKernel(add.fn, lambda meta: (1,), descriptors={"x_ptr": ["BLOCK"]})
    mode = CompileMode("tuned", options={"max_autotune": True, "listed": ["one"]})
    for part in (space, OPERATION, kernel, mode):
        assert_changes_reach_no_later_answer(lambda part=part: part)
    assert type(mode.arguments()["options"]["listed"]) is list, "torch checks the types of options"


def test_a_frozen_mapping_is_equal_pickled_and_copied():
    content = {"a": [1, {"b": [2]}], "c": ()}
    frozen = Frozen(content)
    assert frozen == content
    assert Frozen(frozen) == content
    again = pickle.loads(pickle.dumps(frozen))
    assert (again, type(again), type(again["a"][1])) == (content, Frozen, Frozen)
    own = copy.deepcopy(frozen)
    own["a"][1]["b"].append(3)
    assert (own["a"], frozen) == ([1, {"b": [2, 3]}], content)
    with pytest.raises(TypeError, match=r"copy\.deepcopy"):
        frozen["a"] = 1
    content["a"].append(1)
    assert frozen["a"] == [1, {"b": [2]}]
