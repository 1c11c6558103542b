"""The distance between two places, which is the same number in a live tune and in a replay."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.search import ProblemPlace as Place

EXTENTS = st.integers(1, 1 << 20)


DEVICES = st.sampled_from(["NVIDIA H200", "NVIDIA A100", "AMD Instinct MI300X"])
NAMES = st.sampled_from("xyz")
PLACES = st.builds(
    lambda extents, device: Place(extents=extents, device=device),
    st.dictionaries(NAMES, st.lists(st.integers(0, 1 << 20), max_size=4).map(tuple), max_size=3),
    DEVICES,
)


def squared(extent):
    return Place(extents={"x": (extent, extent)})


@given(one=PLACES, other=PLACES)
def test_the_distance_is_finite_and_the_same_both_ways_and_0_to_itself(one, other):
    assert one.distance(other) == other.distance(one)
    assert 0 <= one.distance(other) < math.inf
    assert one.distance(one) == 0


@given(extent=EXTENTS, factor=st.integers(1, 64))
def test_axes_that_change_alike_count_once(extent, factor):
    assert squared(extent).distance(squared(extent * factor)) == pytest.approx(math.log2(factor))


def test_an_axis_that_only_one_place_has_counts_as_of_extent_1():
    rows = Place(extents={"x": (64, 4096)})
    assert rows.distance(Place(extents={"x": (1, 64, 4096)})) == 0
    assert rows.distance(Place(extents={"x": (8, 64, 4096)})) == 3


@pytest.mark.parametrize(
    ("changed", "far"),
    [
        ({"x": {"shape": [8], "dtype": "float16"}}, 1),  # another dtype
        ({"causal": True}, 1),  # another flag
        ({"activation": "gelu"}, 1),  # another word
        ({"eps": 1e-5, "n": 16}, 0),  # numbers are left out
        ({"bias": {"shape": [4096], "dtype": "float32"}}, 1),  # a tensor more
    ],
)
def test_other_dtypes_words_flags_and_tensors_add_1_each(changed, far):
    arguments = {
        "x": {"shape": [8], "dtype": "float32"}, "causal": False, "activation": "relu", "eps": 1e-6, "n": 8
    }  # fmt: skip
    here = Place.of_arguments(arguments, "NVIDIA H200")
    assert here.distance(Place.of_arguments({**arguments, **changed}, "NVIDIA H200")) == far


def test_whole_numbers_are_the_extents_where_no_shape_is_known():
    """As of decorated kernels, whose keys name the extents and have only the dtypes of tensors."""
    arguments = {"x_ptr": "float32", "n": 1024, "n:class": "a multiple of 16", "k:class": 1, "even": True, "eps": 1e-6}
    here = Place.of_arguments(arguments, "NVIDIA H200")
    for changed, far in (({"n": 4096}, 2), ({"n": 10**400}, pytest.approx(1318.8, abs=0.1)), ({"k:class": 0}, 0),
                         ({"even": False}, 1), ({"eps": 1.0}, 0)):  # fmt: skip
        assert here.distance(Place.of_arguments({**arguments, **changed}, "NVIDIA H200")) == far


def test_a_device_of_another_vendor_is_farther_than_another_device():
    here = Place(device="NVIDIA RTX A4000")
    assert here.distance(Place(device="NVIDIA RTX A6000")) == 1
    assert here.distance(Place(device="AMD Radeon PRO W7800")) == 4
