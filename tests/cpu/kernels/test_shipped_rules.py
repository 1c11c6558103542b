"""The free rules on shipped kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("triton")

from tests.cpu.backend.test_rules import X, filled, verdict
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel
from triton_ops.device import Target
from triton_ops.device.specs import TARGETS
from triton_ops.space import Config
from triton_ops.values import Status
from triton_ops_kernels import FormsKernel, load, names
from triton_ops_kernels.matmul import plain

pytestmark = pytest.mark.triton


def test_accumulators_that_spill_are_put_off_in_the_shipped_product():
    problem = plain.problem((4096, 4096, 4096), "bf16")
    given = Arguments(keyword=dict(problem.arguments))
    judged = [verdict(config, given, kernel=plain.kernel) for config in plain.space_for(problem)]
    assert sum(result is not None for result in judged) == 48
    assert all("accumulator" in result.reason for result in judged if result is not None)


@pytest.mark.parametrize("name", names())
def test_no_default_of_a_shipped_kernel_is_refused_or_deferred(name):
    operation = load(name)
    for shape, dtype in operation.problems.values():
        problem = operation.problem(shape, dtype)
        default = operation.space_for(problem).default
        for target in TARGETS.values():
            ahead = TritonCompiler(operation.kernel, Arguments(keyword=dict(problem.arguments)), target)
            assert ahead.objection(default) is None


def test_a_form_is_refused_for_its_own_grid():
    few = TritonKernel(filled, grid=lambda _: (1,), outputs=("x",))
    forms = FormsKernel({"few": few, "many": replace(few, grid=lambda _: (1, 1, 1 << 16))}, default="few")
    compiler = TritonCompiler(forms, Arguments((X, 1 << 20)), Target.named("sm_90"))
    statuses = {form: compiler.grid_objection(Config(BLOCK=64, FORM=form)) for form in forms.forms}
    assert {form: one and one.status for form, one in statuses.items()} == {"few": None, "many": Status.GRID}
