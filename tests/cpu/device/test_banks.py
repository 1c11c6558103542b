"""Conflicts of banks by stride, against the CUDA C++ Programming Guide's examples and a count by gcd."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import ConfigValueError, bank_conflicts, bank_padding


@given(st.integers(1, 4096))
def test_words_conflict_as_often_as_stride_and_banks_share_factors(stride):
    assert bank_conflicts(stride) == bank_conflicts(-stride) == math.gcd(stride, 32)


@pytest.mark.parametrize(
    ("stride", "item_bytes", "ways"),
    [(0, 4, 1), (1, 2, 1), (64, 2, 32), (2, 2, 1), (1, 8, 1), (1, 16, 1), (2, 8, 2), (2, 16, 2), (32, 16, 8)],
)
def test_items_of_other_sizes(stride, item_bytes, ways):
    assert bank_conflicts(stride, item_bytes=item_bytes) == ways


@given(st.integers(-300, 300).filter(bool), st.sampled_from([1, 2, 4, 8, 16]))
def test_padding_leaves_the_fewest_conflicts_that_a_stride_can_have(stride, item_bytes):
    padded = stride + bank_padding(stride, item_bytes=item_bytes)
    assert padded != 0
    assert bank_conflicts(padded, item_bytes=item_bytes) == 1


def test_the_documents_tile_and_sixty_four_lanes():
    assert (bank_conflicts(32), bank_conflicts(33), bank_padding(32), bank_padding(33)) == (32, 1, 1, 0)
    assert bank_conflicts(1, lanes=64) == 2
    assert bank_conflicts(1, lanes=64, banks=64) == 1


@pytest.mark.parametrize("bad", [{"item_bytes": 3}, {"lanes": 0}, {"banks": -1}, {"stride": 1.5}, {"stride": True}])
def test_values_that_are_no_sizes_are_refused(bad):
    with pytest.raises(ConfigValueError, match=str(next(iter(bad.values())))):
        bank_conflicts(**{"stride": 1, **bad})
