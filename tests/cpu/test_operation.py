"""An operation takes a space in every form that a tune takes, and refuses what is none when it is made."""

from __future__ import annotations

import pytest

from triton_ops import tune
from triton_ops.backend import FunctionKernel, Operation
from triton_ops.exceptions import KernelTypeError, SpaceError
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


def test_a_reference_that_is_no_function_is_refused_before_any_work():
    def work(*, a):
        raise AssertionError("it was called")

    with pytest.raises(KernelTypeError, match=r"reference is 3, which is not callable.*returns the right result"):
        Operation("work", work, {"a": [1]}, dict, reference=3)
    with pytest.raises(KernelTypeError, match="reference is 3, which is not callable"):
        tune(work, space={"a": [1]}, reference=3, device="cpu", keep=False)
