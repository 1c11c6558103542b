"""NumPy's arrays are judged by the rule that tensors are judged by, whatever they hold and wherever they stand."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import Tolerance
from triton_ops.evaluation.expected import Standard, difference, expected
from triton_ops.evaluation.judges import Precision

FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
WHOLE = ("int8", "uint8", "int32", "int64", "bool")
STANDARDS = (
    Standard(precision=Precision(inputs=("float32",), reduction=64)), Standard(exact=True),
    Standard(tolerance=Tolerance(relative=1e-3)), Standard(tolerance=Tolerance(times=30)),
)  # fmt: skip


def drawn(rng, shape, dtype, odd):
    """A golden result, the reference's own, and a candidate's whose errors vary from none to large ones."""
    golden = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)
    if numpy.dtype(dtype).kind == "c":
        golden = golden + 1j * rng.standard_normal(shape)
    own = golden.astype(dtype)
    candidate = own * (1 + 10.0 ** rng.integers(-9, 0) * rng.standard_normal(shape))
    if odd and own.size:
        for target in (golden, candidate):
            target.reshape(-1)[rng.integers(own.size)] = rng.choice([numpy.nan, numpy.inf, 65519.0])
    return golden, own, candidate.astype(dtype)


@pytest.mark.parametrize("make", [numpy.asarray, torch.as_tensor])
def test_an_infinity_among_doubles_is_judged(make):
    """What is allowed beside the largest double is more than a float32 holds."""
    golden = numpy.array([1.0, numpy.inf, 3.0])
    expectation = expected(make(golden), make(golden), None, STANDARDS[0])
    assert difference(make(golden + 1e-12), expectation) is None
    assert difference(make(numpy.nan_to_num(golden)), expectation) is not None


@given(
    seed=st.integers(0, 1 << 32), dtype=st.sampled_from(FLOATS + WHOLE), odd=st.booleans(),
    shape=st.sampled_from([(), (0,), (1,), (7,), (3, 64), (5, 300), (2, 3, 200)]), standard=st.sampled_from(STANDARDS),
    with_golden=st.booleans(),
)  # fmt: skip
def test_an_array_is_judged_as_the_tensor_of_its_numbers_is(seed, dtype, odd, shape, standard, with_golden):
    with numpy.errstate(all="ignore"):
        golden, own, candidate = drawn(numpy.random.default_rng(seed), shape, dtype, odd and dtype in FLOATS)
    golden = golden if with_golden and dtype in FLOATS else None
    differences = []
    for make in (numpy.asarray, torch.as_tensor):
        expectation = expected(make(own), None if golden is None else make(golden), None, standard)
        assert difference(make(own), expectation) is None
        differences.append(difference(make(candidate), expectation))
    one, other = differences
    assert (one is None) == (other is None)
    assert one is None or one.excess == pytest.approx(other.excess)
