"""The key of a winner: what makes another one, and what does not."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given

from tests.strategies import problems
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import KernelTypeError
from triton_ops.values import Key, Problem, TensorSpec

GPU = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132, driver="570.86", memory_bytes=1 << 37)
CPU = DeviceSpec("cpu", "EPYC", "x86_64", 2)
PROBLEM = Problem("scale", (("x", TensorSpec((64, 32), "float16")), ("n", 64)), "64 x 32")
KEY = Key.of(PROBLEM, {"source": "ab"}, GPU)


@pytest.mark.parametrize(
    "device",
    [
        replace(GPU, kind="hip"), replace(GPU, name="NVIDIA H100"), replace(GPU, arch="sm_100"), replace(GPU, units=78),
        replace(GPU, driver="575.51"), replace(GPU, driver=None), CPU,
    ],
)  # fmt: skip
def test_another_device_or_driver_has_another_key(device):
    assert Key.of(PROBLEM, {"source": "ab"}, device).id != KEY.id


def test_what_a_device_can_do_is_no_part_of_a_key():
    assert Key.of(PROBLEM, {"source": "ab"}, replace(GPU, memory_bytes=None, bandwidth_gbps=4800.0)) == KEY


def test_a_key_has_the_facts_of_its_device_and_the_threads_of_a_cpu():
    assert KEY.device == {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132, "driver": "570.86"}
    assert Key.facts_of(CPU).keys() - KEY.device.keys() == {"threads"}


@pytest.mark.parametrize(
    "other",
    [
        Key.of(replace(PROBLEM, kernel="add"), {"source": "ab"}, GPU),
        Key.of(replace(PROBLEM, arguments=PROBLEM.arguments[:1]), {"source": "ab"}, GPU),
        Key.of(replace(PROBLEM, arguments=(PROBLEM.arguments[0], ("n", 65))), {"source": "ab"}, GPU),
        Key.of(PROBLEM, {"source": "cd"}, GPU),
        Key.of(PROBLEM, {"source": "ab"}, GPU, cold=False),
        Key.of(PROBLEM, {"source": "ab"}, GPU, held_to={"rtol": 0.1}),
    ],
)
def test_every_part_makes_another_key_and_is_named_as_the_difference(other):
    assert other.id != KEY.id
    assert len(KEY.differences(other)) == len(other.differences(KEY)) >= 1


def test_a_label_is_for_people():
    other = Key.of(replace(PROBLEM, label="another"), {"source": "ab"}, GPU)
    assert other.id == KEY.id
    assert KEY.differences(other) == []


def test_a_difference_has_both_values_and_says_what_is_absent():
    other = replace(KEY, identity={"triton": "3.6"}, device={**KEY.device, "units": 78})
    assert KEY.differences(other) == [
        "device.units: 132 | 78", "identity.source: ab | (absent)", "identity.triton: (absent) | 3.6"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (KEY, None),
        (replace(KEY, identity={"unknown": "a lambda"}), "a lambda"),
        (replace(KEY, problem={"f": "unknown: a closure"}), "unknown: a closure"),
        (replace(KEY, held_to={"check": "unknown: a check"}), "unknown: a check"),
        (replace(KEY, problem={"f": "unknown"}), None),
        (replace(KEY, held_to={"rtol": "unknown: no check"}), None),
    ],
)
def test_a_key_says_what_cannot_be_told_from_others(key, reason):
    assert key.unknown == reason
    if reason is not None:
        assert key.unknown_note.endswith(f"cannot be told from others: {reason}")


def test_a_kernel_that_runs_as_python_says_so():
    assert not KEY.interpreted
    assert replace(KEY, identity={"interpreted": "1"}).interpreted


@given(problems())
def test_an_argument_is_made_again_from_its_plain_value(problem):
    for _, argument in problem.arguments:
        plain = Problem.plain(argument)
        again = Problem.from_plain(json.loads(json.dumps(plain)))
        assert repr(again) == repr(replace(argument, fill="uniform") if isinstance(argument, TensorSpec) else argument)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_lacks_is_made_again(number):
    assert repr(Problem.from_plain(Problem.plain(number))) == repr(number)


def test_open_strides_are_row_major_and_alignment_is_assumed():
    plain = {"shape": [4, 8], "dtype": "float16", "stride": [None, 1]}
    assert Problem.from_plain(plain) == TensorSpec((4, 8), "float16")
    assert Problem.from_plain({**plain, "stride": [1, 4], "aligned": False}) == TensorSpec(
        (4, 8), "float16", (1, 4), aligned=False
    )


@pytest.mark.parametrize("value", [{"range": [1, 2]}, {"any": True}, {"shape": [1], "dtype": "int8"}])
def test_a_range_is_no_argument(value):
    with pytest.raises(KernelTypeError, match="no argument can be made from"):
        Problem.from_plain(value)


def test_a_label_has_the_beginning_of_a_long_argument():
    problem = Problem.described("total", (("values", "[1.0,2.0]"), ("more", str([1.0] * 10_000)), ("rows", 4)))
    assert problem.label == f"[1.0,2.0], [{'1.0, ' * 11}1.0…, 4"


def test_a_problem_has_its_tensors_by_name_and_reads_as_its_kernel_and_label():
    assert PROBLEM.specs == {"x": TensorSpec((64, 32), "float16")}
    assert PROBLEM["n"] == 64
    assert (str(PROBLEM), str(Problem("scale"))) == ("scale 64 x 32", "scale")
