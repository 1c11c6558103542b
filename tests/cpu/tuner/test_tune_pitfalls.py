"""What a tune says of pitfalls: by its trials alone, and by the linter where a result was wrong."""

import pytest

from triton_ops.space import Config
from triton_ops.tuner.remarks import pitfall_notes
from triton_ops.values import Resources, Status, Trial, Work

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
