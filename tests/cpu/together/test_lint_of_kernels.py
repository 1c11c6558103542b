"""Pitfalls of shipped kernels."""

import pytest

import triton_ops_kernels as kernels
from triton_ops.exceptions import TargetError
from triton_ops_lint.engine import lint, readings_of

pytestmark = pytest.mark.triton
from tests.cpu.lint.test_lint import written  # noqa: E402


def found_where_kernels_are_interpreted(path: str) -> tuple[object, ...]:
    """The rules of findings in a file and in a shipped kernel, and the error of a rule that there is not."""
    try:
        lint(path, rules=["spelling"])
    except TargetError as error:
        message = error.message
    own = lint(kernels.load("softmax"), rules=["missing-mask", "no-tensor-core"])
    return [one.rule for one in lint(path).findings], (own.findings, [name for name, _ in own.kernels]), message


def test_kernels_are_read_where_triton_interprets_them_too(tmp_path, interpreted):
    rules, (own, names), message = interpreted(found_where_kernels_are_interpreted, str(written(tmp_path)))
    assert (rules, own, names) == (["missing-mask"], (), ["softmax_kernel"])
    assert "no rule spelling" in message


@pytest.mark.processes
def test_an_operation_is_read_as_it_launches_its_kernel_with_every_way_through_it():
    (reading,), _, _ = readings_of(kernels.load("matmul"))
    assert {one.constants["LOADS"] for one in reading.guesses} == {"pointers", "device", "host"}
    assert {one.constants["ALGORITHM"] for one in reading.guesses} >= {"tiles", "persistent", "split_k"}
    assert reading.guesses[0].types["a"] == "*bf16"
    assert "stride_ak" in reading.guesses[0].ones
    assert any(one.types["a_tiles"].startswith("tensordesc") for one in reading.guesses)
    report = lint(kernels.load("matmul"))
    assert not report.findings
    assert {one.rule for one in report.undecided} <= {"missing-mask", "stride-order"}
