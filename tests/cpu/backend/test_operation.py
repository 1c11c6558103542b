"""An operation takes a space in every form that a tune takes, and refuses what is none when it is made."""

from __future__ import annotations

import pytest

from triton_ops import compare, tune
from triton_ops.backend import FunctionKernel, Operation
from triton_ops.exceptions import KernelTypeError, SettingsError, SpaceError
from triton_ops.space import ConfigSpace

KERNEL = FunctionKernel(lambda *, n: n)


@pytest.mark.parametrize("space", [{"n": [1, 2]}, [{"n": 1}, {"n": 2}], ConfigSpace({"n": [1, 2]})])
@pytest.mark.parametrize("of_the_problem", [False, True])
def test_every_form_of_a_space(space, of_the_problem):
    given = (lambda _: space) if of_the_problem else space
    operation = Operation("twice", KERNEL, given, lambda: {})
    assert [dict(config) for config in operation.space_for(operation.problem())] == [{"n": 1}, {"n": 2}]


def test_what_is_no_space_or_no_builder_of_arguments():
    with pytest.raises(SpaceError, match="cannot be made from 7"):
        Operation("seven", KERNEL, 7, lambda: {})
    with pytest.raises(KernelTypeError, match="must be a function from extents"):
        Operation("seven", KERNEL, {"n": [1]}, {"x": 1})


def test_an_array_in_place_of_its_spec_is_refused():
    numpy = pytest.importorskip("numpy")
    operation = Operation("filled", KERNEL, {"n": [1]}, lambda size=8: {"x": numpy.ones(size), "size": size})
    with pytest.raises(KernelTypeError, match=r"filled have values in place of specs: x .*write TensorSpec"):
        tune(operation, device="cpu", keep=False)


def test_a_reference_that_is_no_function_is_refused_before_any_work():
    def work(*, a):
        raise AssertionError("it was called")

    with pytest.raises(KernelTypeError, match=r"reference is 3, which is not callable.*returns the right result"):
        Operation("work", work, {"a": [1]}, dict, reference=3)
    with pytest.raises(KernelTypeError, match="reference is 3, which is not callable"):
        tune(work, space={"a": [1]}, reference=3, device="cpu", keep=False)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"args": 3}, KernelTypeError, r"args is a int; it must be a tuple or a list.*args=\(x,\)"),
        ({"args": "x"}, KernelTypeError, "args is a str"),
        ({"kwargs": [1]}, KernelTypeError, "kwargs is a list; it must be a mapping"),
        ({"patience": 3}, SettingsError, r"patience is 3; it must be a Patience.*trial_s"),
    ],
)
def test_what_is_no_sequence_no_mapping_or_no_patience_is_refused(wrong, error, said):
    with pytest.raises(error, match=said):
        tune(lambda *, a: None, space={"a": [1]}, device="cpu", keep=False, **wrong)


class Endless:
    """Something that can be iterated over, without an end, as a JIT function of Triton can."""

    def __getitem__(self, place):
        return place


@pytest.mark.parametrize("args", [(value for value in [1]), Endless()])
def test_what_is_no_sequence_is_refused_before_it_is_iterated_over(args, tmp_path):
    with pytest.raises(KernelTypeError, match="it must be a tuple or a list of arguments"):
        tune(lambda x, *, a: None, args, space={"a": [1]}, device="cpu", cache_dir=tmp_path)


def test_a_tensor_is_no_sequence_of_arguments():
    torch = pytest.importorskip("torch")
    for call in (lambda x: tune(torch.sin, x, space={"a": [1]}), lambda x: compare(torch.sin, torch.cos, args=x)):
        with pytest.raises(KernelTypeError, match="args is a Tensor; it must be a tuple or a list"):
            call(torch.zeros(3))
