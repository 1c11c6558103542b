"""How far problems of shipped kernels are from each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.search.test_place import DEVICES
from triton_ops.device import DeviceSpec
from triton_ops.search import ProblemPlace as Place
from triton_ops.tuner.priors import place_of
from triton_ops.values import Key
from triton_ops_kernels import load

SIDES = st.integers(2, 1 << 20)  # a side of 1 lies along both axes
MATMUL_SHAPES = st.tuples(SIDES, SIDES, SIDES)
MATMUL_DTYPES = st.tuples(*[st.sampled_from(["bfloat16", "float16"])] * 2) | st.just(("float8_e4m3fn",) * 2)


def live(kernel, shape, dtype=None, device="NVIDIA H200"):
    """The place of a problem as a live tune knows it: by the arguments in its key."""
    problem = load(kernel).problem(shape, dtype)
    return place_of(Key.of(problem, {}, DeviceSpec("cuda", device, "sm_90", 132)))


@given(here=MATMUL_SHAPES, there=MATMUL_SHAPES, dtypes=MATMUL_DTYPES, devices=st.tuples(DEVICES, DEVICES))
def test_a_matmul_is_as_far_from_another_in_a_live_tune_as_in_a_replay(here, there, dtypes, devices):
    """A replay knows a matmul by M, N and K; a live tune by the three tensors, whose layouts are alike here."""
    replayed = [Place.of_shape(*given) for given in zip((here, there), dtypes, devices, strict=True)]
    tuned = [live("matmul", *given) for given in zip((here, there), dtypes, devices, strict=True)]
    assert tuned[0].distance(tuned[1]) == replayed[0].distance(replayed[1])


@pytest.mark.parametrize("axis", range(3))
def test_doubling_one_extent_of_a_matmul_is_a_distance_of_1(axis):
    shape = [512, 1024, 2048]
    doubled = [extent * (1 + (place == axis)) for place, extent in enumerate(shape)]
    assert live("matmul", shape).distance(live("matmul", doubled)) == 1


def test_doubling_the_batch_or_the_sequence_of_a_row_kernel_is_a_distance_of_1():
    here = live("rmsnorm_rope", (4, 4096, 4096, 32))
    assert here.distance(live("rmsnorm_rope", (8, 4096, 4096, 32))) == 1
    assert here.distance(live("rmsnorm_rope", (4, 8192, 4096, 32))) == 1
    assert here.distance(live("rmsnorm_rope", (4, 4096, 4096, 64))) == 1  # half as long heads
