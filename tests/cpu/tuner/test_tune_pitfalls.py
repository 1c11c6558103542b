"""What a tune says of pitfalls: by its trials alone, and by the linter where a result was wrong."""

import pytest

from tests.cpu.lint.lint_kernels import elementwise
from triton_ops.backend import Operation, TritonKernel
from triton_ops.space import Config
from triton_ops.tuner.remarks import pitfall_notes
from triton_ops.values import Resources, Status, TensorSpec, Trial, Work
from triton_ops_lint.command_lint import hints

DENSE = Work(flops=1e12, bytes=1e8)


def trials(*seen, status=Status.COMPILE):
    return [Trial(Config({"B": at}), status, error="-", resources=used) for at, used in enumerate(seen)]


def test_a_plain_tune_says_nothing():
    plain = Resources(64, 0, 0, mma="wgmma", load_bytes=16)
    assert pitfall_notes(trials(*[plain] * 6), DENSE) == ()


@pytest.mark.parametrize(
    ("held", "rule"),
    [
        (Resources(255, 128, 0, mma="wgmma", load_bytes=16), "register-spill"),
        (Resources(64, 0, 0, mma="none", load_bytes=16), "no-tensor-core"),
        (Resources(64, 0, 0, mma="wgmma", load_bytes=2), "narrow-access"),
    ],
)
def test_a_space_that_a_pitfall_holds_back_is_named_with_the_rule(held, rule):
    (note,) = pitfall_notes(trials(*[held] * 4), DENSE)
    assert rule in note
    assert pitfall_notes(trials(*[held] * 3), DENSE) == ()
    better = Resources(64, 0, 0, mma="wgmma", load_bytes=16)
    assert pitfall_notes(trials(*[held] * 4, better), DENSE) == ()


def test_without_many_operations_for_each_byte_no_matrix_unit_is_missed():
    plain = [Resources(64, 0, 0, mma="none", load_bytes=16)] * 4
    assert pitfall_notes(trials(*plain), Work(flops=1e8, bytes=1e8)) == ()
    assert pitfall_notes(trials(*plain), None) == ()


def test_wrong_configs_lead_to_the_linter():
    (note,) = pitfall_notes(trials(None, status=Status.WRONG), None)
    assert "1 config was wrong" in note
    assert "triton-ops lint" in note


@pytest.mark.triton
def test_a_wrong_config_of_a_kernel_is_explained_by_the_line_that_the_linter_finds():
    def arguments(n: int = 1000):
        return {"src": TensorSpec((n,), "float32"), "dst": TensorSpec((n,), "float32", fill="empty"), "total": n}

    kernel = TritonKernel(elementwise.inclusive_bad, lambda meta: (16,), outputs=("dst",))
    operation = Operation("inclusive", kernel, {"B": [64]}, arguments)
    result = hints(operation)
    assert len(result) == 2
    assert all("elementwise.py" in line and "wrong-mask in inclusive_bad may be why" in line for line in result)
    assert hints(Operation("plain", lambda src, dst, total, B: src, {"B": [1]}, arguments)) == []
