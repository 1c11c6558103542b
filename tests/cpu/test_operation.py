"""An operation takes a space in every form that a tune takes, and refuses what is none when it is made."""

from __future__ import annotations

import pytest

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
