"""A problem as a caller gives it becomes a request: its kernel, arguments, device, key and what it is held to."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from triton_ops.backend import Arguments, FunctionKernel, Operation
from triton_ops.device import DeviceSpec, Target
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    UnknownTunableError,
)
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.request.request import CopiedArguments, device_for, device_of, spec_of
from triton_ops.space import ConfigSpace
from triton_ops.values import TensorSpec, Tolerance, Work

torch = pytest.importorskip("torch")

GPU = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132, driver="570.86")
SPACE = ConfigSpace({"BLOCK": [32, 64]})


def scale(x, factor=2.0, *, BLOCK):
    return x * factor


def right(x, factor=2.0):
    return x * factor


def rows(M, N=16, *, dtype="float32"):
    return {"x": TensorSpec((M, N), dtype), "factor": 2.0}


def an_operation(**more):
    parts = {"device": "cpu", "reference": right, "work": lambda problem: Work(flops=7.0), **more}
    return Operation("rows", FunctionKernel(scale), SPACE, rows, **parts)


def request_of(**more):
    return TuneProblem(**{"target": scale, "args": (torch.ones(4),), "space": SPACE, **more}).request()


def test_the_arguments_of_a_call_are_named_by_the_parameters_and_copied():
    x = torch.ones(4)
    request = request_of(args=(x, 3.0))
    assert dict(request.problem.arguments) == {"x": TensorSpec.of(x), "factor": 3.0}
    assert (request.device_name, request.device.kind, request.generated) == ("cpu", "cpu", None)
    own, again = request.arguments(), request.arguments()
    assert own.keyword["x"] is not x
    assert own.keyword["x"] is not again.keyword["x"]
    assert torch.equal(own.keyword["x"], x)
    assert request.arguments_or_specs.keyword["x"] is x


def test_in_another_process_arguments_are_handed_over_once():
    owned = pickle.loads(pickle.dumps(CopiedArguments(Arguments((1, 2)))))
    assert owned().positional == (1, 2)
    with pytest.raises(RuntimeError, match="in use already"):
        owned()


def test_an_operation_makes_the_same_arguments_from_a_shape_and_a_seed():
    problem = TuneProblem(target=an_operation(), shape=(3,))
    one, other, another = (problem.request(seed=seed) for seed in (1, 1, 2))
    assert dict(one.problem.arguments)["x"] == TensorSpec((3, 16), "float32")
    assert one.generated.full_shape == (3, 16)
    assert one.originals is None
    assert one.arguments_or_specs.keyword == dict(one.problem.arguments)
    assert torch.equal(one.arguments().keyword["x"], other.arguments().keyword["x"])
    assert not torch.equal(one.arguments().keyword["x"], another.arguments().keyword["x"])
    assert one.generated.stays()
    assert not replace(one.generated, shape=(4,)).stays()
    assert (one.space, one.work.flops, one.reference) == (SPACE, 7.0, right)


def test_what_the_caller_gives_comes_before_what_the_operation_has():
    own, rule = ConfigSpace({"BLOCK": [16]}), Tolerance.of(0.5)
    request = TuneProblem(
        target=an_operation(tolerance=Tolerance.of(0.1), check=scale), shape=(3,), space=own, reference=len,
        tolerance=0.5, check=right,
    ).request()  # fmt: skip
    assert (request.space, request.reference, request.tolerance, request.check) == (own, len, rule, right)
    request = TuneProblem(target=an_operation(tolerance=Tolerance.of(0.1), check=scale), shape=(3,)).request()
    assert (request.tolerance, request.check) == (Tolerance.of(0.1), scale)


def test_a_callable_has_no_space_and_no_work_of_its_own():
    request = request_of(space=None)
    assert request.work is None
    with pytest.raises(SpaceError, match="there is no config space for"):
        _ = request.space


@pytest.mark.parametrize("given", [{"shape": (4,)}, {"dtype": "float16"}])
def test_a_shape_beside_arguments_is_refused(given):
    with pytest.raises(ShapeMismatchError, match="together with arguments"):
        request_of(**given)


def test_a_space_must_fit_the_parameters():
    request = request_of(space={"BLOC": [1]})
    with pytest.raises(UnknownTunableError, match="takes no keyword 'BLOC'"):
        request.checked()
    assert (checked := request_of()).checked() is checked


@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf, "1"])
def test_a_weight_is_a_positive_number(weight):
    with pytest.raises(SettingsError, match="the weight of a problem is"):
        TuneProblem(target=scale, weight=weight)


def test_the_key_has_the_cache_state_and_what_results_are_held_to():
    plain = request_of()
    assert (plain.key.cache_state, dict(plain.key.held_to)) == ("cold", {})
    assert request_of(cold=False).key.cache_state == "warm"
    held = request_of(tolerance=0.25, check=right).key.held_to
    assert held.keys() == {"tolerance", "check"}
    assert held["check"] == spec_of(right)
    assert replace(plain, device=GPU).key.device["driver"] == "570.86"


def test_references_and_contents_are_told_by_their_source():
    assert request_of().reference_fingerprint is None
    one, other = request_of(reference=right).reference_fingerprint, request_of(reference=scale).reference_fingerprint
    assert one != other
    assert len(one) == len(other) > 8
    assert request_of(reference=np.add.reduce.__class__).contents_fingerprint is None


def test_a_callable_is_compiled_by_nothing():
    assert request_of().compiler() is None


def test_a_kernel_that_compiles_ahead_gets_arguments_target_and_members():
    asked = []

    class Compiled(FunctionKernel):
        compile_imports = ""

        def compiler(self, arguments, target, members=()):
            asked.append((arguments, target, members))

    request = replace(request_of(), kernel=Compiled(scale))
    request.compiler()
    replace(request, device=GPU).compiler()
    (_, on_cpu, members), (arguments, target, _) = asked
    assert arguments.keyword.keys() == {"x"}
    assert (on_cpu, target) == (None, Target.of(GPU))
    assert members == request.space.members


@pytest.mark.parametrize(
    ("device", "runs_on", "expected"),
    [("cpu", "any", "cpu"), ("cpu", "cpu", "cpu"), ("cuda:1", "cuda", "cuda:1"), ("cuda:1", "any", "cuda:1"),
     (None, "cpu", "cpu")],
)  # fmt: skip
def test_an_operation_runs_where_it_is_asked_to(device, runs_on, expected):
    assert device_for(device, runs_on, "rows") == expected


@pytest.mark.parametrize(("device", "runs_on"), [("cpu", "cuda"), ("cuda:0", "cpu")])
def test_an_operation_runs_nowhere_else(device, runs_on):
    with pytest.raises(DeviceError, match=f"rows runs on {runs_on}, not on {device}") as refused:
        device_for(device, runs_on, "rows")
    assert refused.value.hint == f"use device={runs_on!r} (--device {runs_on})"


def test_without_a_gpu_an_operation_for_any_device_runs_on_the_cpu_and_one_for_a_gpu_says_why_not(monkeypatch):
    monkeypatch.setattr("triton_ops.request.request.gpu_missing", lambda: "no driver")
    assert device_for(None, "any", "rows") == "cpu"
    with pytest.raises(DeviceError, match="rows runs on a GPU, and there is none: no driver"):
        device_for(None, "cuda", "rows")


def test_with_a_gpu_an_operation_runs_on_the_current_one(monkeypatch):
    monkeypatch.setattr("triton_ops.request.request.gpu_missing", lambda: "")
    monkeypatch.setattr("triton_ops.request.request.TorchDevice.current_name", staticmethod(lambda: "cuda:3"))
    assert [device_for(None, where, "rows") for where in ("any", "cuda", "cpu")] == ["cuda:3", "cuda:3", "cpu"]
    assert [device_for(device, "cuda", "rows") for device in ("cuda", "cuda:1")] == ["cuda:3", "cuda:1"]
    assert device_of(Arguments(), "cuda") == "cuda:3"


class Placed:
    """A tensor of some device, which need not be here."""

    def __init__(self, device):
        self.device = device


@pytest.mark.parametrize(
    ("places", "device", "expected"),
    [([], None, "cpu"), ([], "cpu", "cpu"), (["cpu"], None, "cpu"), (["cuda:0"], None, "cuda:0"),
     (["cpu", "cuda:1"], None, "cuda:1"), (["cuda:1", "cuda:1"], "cuda:1", "cuda:1"), (["cuda:1"], "cuda", "cuda:1")],
)  # fmt: skip
def test_arguments_are_on_one_device_beside_the_cpu(monkeypatch, places, device, expected):
    monkeypatch.setattr(Arguments, "tensors", lambda self: iter([Placed(place) for place in places]))
    assert device_of(Arguments(), device) == expected


@pytest.mark.parametrize(
    ("places", "device", "message"),
    [
        (["cuda:0", "cuda:1"], None, "on several devices: cuda:0, cuda:1"),
        (["cpu", "meta"], None, "on the device meta"),
        (["cuda:1"], "cuda:0", "are on cuda:1, not on cuda:0"),
        (["cpu"], "cuda", "are on cpu, not on cuda"),
    ],
)
def test_arguments_on_other_devices_are_refused(monkeypatch, places, device, message):
    monkeypatch.setattr(Arguments, "tensors", lambda self: iter([Placed(place) for place in places]))
    with pytest.raises(DeviceError, match=message):
        device_of(Arguments(), device)


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (None, None), (True, True), (3, 3), (0.5, 0.5), ("x", "x"), (np.float32(0.5), 0.5), (np.int32(3), 3),
        (np.zeros((2, 3), np.float32), "ndarray (2, 3) float32 (12, 4)"), (torch.float16, "dtype torch.float16"),
        ((1, 2), "[1,2]"), ({"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
    ],
)  # fmt: skip
def test_an_argument_stands_in_a_problem_as_a_plain_value(value, spec):
    assert (spec_of(value), type(spec_of(value))) == (spec, type(spec))


def test_the_order_in_memory_of_an_array_counts():
    array = np.zeros((2, 3))
    assert spec_of(array) != spec_of(np.asfortranarray(array))


@pytest.mark.parametrize("make", [lambda last: ["word"] * 20_000 + [last], lambda last: "w" * 100_000 + last])
def test_a_long_argument_stands_in_a_problem_by_its_begin_and_digest(make):
    spec = spec_of(make("a"))
    assert len(spec) < 200
    assert "of 140" in spec or "of 100001" in spec
    assert spec == spec_of(make("a")) != spec_of(make("b"))


def test_functions_are_told_by_their_source():
    assert spec_of(right) == spec_of(right) != spec_of(scale)
    assert spec_of(right).startswith("builtins.function ")


@pytest.mark.parametrize(
    ("args", "label"),
    [((), ""), ((1,), "1"), ((1, 2, 3, 4), "1, 2, 3, 4"), ((1, 2, 3, 4, 5), "1, 2, 3, 4, …"), ((None, 1), "1")],
)
def test_a_label_has_the_first_four_arguments(args, label):
    assert request_of(target=lambda *several, BLOCK: None, args=args).problem.label == label


def test_an_output_that_is_not_given_is_named():
    kernel = FunctionKernel(scale, outputs=("y",))
    with pytest.raises(KernelTypeError, match="writes y, which is not among the given arguments"):
        request_of(target=kernel)


def test_tensors_without_memory_are_refused():
    problem = TuneProblem(target=scale, args=(torch.ones(4, device="meta"),), space=SPACE)
    with pytest.raises(DeviceError, match="on the device meta"):
        problem.request()
    assert TuneProblem(target=scale, args=(torch.ones(4),), space=SPACE).measurable().device_name == "cpu"


def test_options_with_a_settled_effort_keep_the_rest():
    options = TuneOptions(seed=np.int64(3), trials=5, budget_s=2.0, search="random", force=True)
    assert type(options.seed) is int
    settled = options.of_effort("mine")
    assert (settled.effort, settled.seed, settled.force) == ("mine", 3, True)
    assert (settled.trials, settled.budget_s, settled.search, settled.patience) == (None, None, None, None)
