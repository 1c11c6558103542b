"""Inputs of a check: extents, values and layouts that nobody chose, and the smallest extents that fail."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.backend import Arguments
from triton_ops.benchmark.check_inputs import (
    LAYOUTS,
    RENEWED,
    VALUES,
    Form,
    Inputs,
    inputs_near,
    prime_below,
    shapes_near,
    smallest,
    wide_extents,
)
from triton_ops.values import TensorSpec


def rows(**more):
    x, weight = torch.rand(40, 100) + 1, torch.rand(100)
    return Form.of_arguments(Arguments((x, weight, torch.randint(0, 100, (40,))), more))


def test_equal_extents_vary_together_and_small_ones_stay():
    form = Form.of_arguments(Arguments((torch.rand(2, 16, 9, 9), torch.rand(16, 16, 3, 3)), {"channels": 16}))
    assert form.extents == (16, 9)
    assert Inputs(form, (7, 5), 0).shape == "2x7x5x5,7x7x3x3"
    assert Inputs(form, (7, 5), 0).made("cpu").keyword == {"channels": 7}


def test_equal_seeds_draw_equal_inputs_and_others_do_not():
    form = rows(eps=1e-6)
    one, again, other = (Inputs(form, form.extents, seed).made("cpu") for seed in (3, 3, 4))
    assert all(map(torch.equal, one.positional, again.positional))
    assert not any(map(torch.equal, one.positional, other.positional))
    assert one.keyword == {"eps": 1e-6}


def test_values_are_those_that_were_given_in_another_order():
    form = rows()
    given_values = set(form.specs(form.extents)[0].fill.reshape(-1).tolist())
    drawn = Inputs(form, (33, 65), 5).made("cpu").positional[0]
    assert drawn.shape == (33, 65)
    assert set(drawn.reshape(-1).tolist()) <= given_values


def test_integers_that_may_be_indices_stay_below_the_extents():
    assert int(Inputs(rows(), (9, 6), 5).made("cpu").positional[2].max()) < 6


def test_rising_integers_stay_rising():
    ends = torch.tensor([0, 3, 3, 9, 20, 40])
    form = Form.of_arguments(Arguments((torch.rand(40, 8), ends)))
    assert torch.equal(Inputs(form, form.extents, 1).made("cpu").positional[1], ends)
    shorter = Inputs(form, (40, 8, 3), 1).made("cpu").positional[1]
    assert shorter.shape == (3,)
    assert bool((shorter[1:] >= shorter[:-1]).all())


@pytest.mark.parametrize("values", [*VALUES, *RENEWED])
@pytest.mark.parametrize("layout", ["", *LAYOUTS])
@pytest.mark.parametrize("as_array", [False, True])
def test_every_sort_of_values_lies_in_memory_in_every_way(values, layout, as_array):
    x = torch.rand(20, 30)
    form = Form.of_arguments(Arguments((x.numpy() if as_array else x,)))
    plain, other = (Inputs(form, (7, 9), 2, values, where).made("cpu").positional[0] for where in ("", layout))
    assert type(other) is (np.ndarray if as_array else torch.Tensor)
    assert np.array_equal(np.asarray(plain), np.asarray(other), equal_nan=True)
    usual = np.asarray(Inputs(form, (7, 9), 2).made("cpu").positional[0])
    assert not np.array_equal(usual, np.asarray(plain))


def test_values_are_of_the_sort_that_is_named():
    form = Form.of_arguments(Arguments((torch.rand(64, 32) + 1,)))
    made = {values: Inputs(form, form.extents, 2, values).made("cpu").positional[0] for values in VALUES}
    assert made["a NaN"].isnan().sum() == 1
    assert made["infinities"].isinf().sum() in (1, 2)
    assert 0 < float(made["denormal rows"].min()) < 1e-37
    assert float(made["large rows"].max()) > 100
    assert len(set(made["ties"].reshape(-1).tolist())) <= 7
    assert (made["outliers"] > 5).sum() == 2


def test_layouts_are_those_that_are_named():
    form = Form.of_arguments(Arguments((torch.rand(64, 32, dtype=torch.float64).half(),)))
    made = {layout: Inputs(form, form.extents, 2, "", layout).made("cpu").positional[0] for layout in LAYOUTS}
    assert made["transposed"].stride() == (1, 64)
    assert made["padded rows"].stride() == (35, 1)
    beyond = {int(name.split()[3]): tensor.data_ptr() % 64 for name, tensor in made.items() if name.startswith("an ")}
    assert beyond == {2: 2, 4: 4, 8: 8, 16: 16}


def test_given_strides_are_kept_where_the_shape_is():
    form = Form.of_arguments(Arguments((torch.rand(30, 20).T,)))
    assert Inputs(form, form.extents, 0).made("cpu").positional[0].stride() == (1, 20)
    assert Inputs(form, (9, 7), 0).made("cpu").positional[0].stride() == (7, 1)


def test_halves_are_renewed_and_the_others_stay():
    form = Form.of_arguments(Arguments((torch.rand(64, 32),)))
    first, tail, head = (Inputs(form, form.extents, 2, each).made("cpu").positional[0] for each in ("", *RENEWED))
    assert torch.equal(first[:32], tail[:32])
    assert not torch.equal(first[32:], tail[32:])
    assert torch.equal(first[32:], head[32:])


def test_described_arguments_are_drawn_as_they_say():
    form = Form.of_arguments(Arguments((TensorSpec((8, 16), "bfloat16"),)), arrays=False)
    assert Inputs(form, (5, 6), 0).made("cpu").positional[0].dtype == torch.bfloat16


def test_extents_near_have_none_one_primes_and_the_edges_of_tiles():
    near = list(shapes_near((256, 1024)))
    assert {(1, 1), (17, 31), (65, 127), (0, 1024), (256, 1), (255, 1024), (256, 1025), (256, 1021)} <= set(near)
    assert near[0] == (1, 1)


@pytest.mark.parametrize("seed", range(8))
def test_inputs_near_have_other_extents_then_other_strides_and_then_come_again(seed):
    form = Form.of_arguments(Arguments((TensorSpec((9, 16), "float32"),)))
    asked = Inputs(form, form.extents, 3)
    near = inputs_near(asked, random.Random(seed))
    smaller, strided, again, smaller_again = (next(near) for _ in range(4))
    assert smaller.extents in ((8, 16), (9, 15))
    assert strided.made("cpu").positional[0].stride() != asked.made("cpu").positional[0].stride()
    assert (again, smaller_again) == (asked, smaller)
    assert [each.is_as_asked for each in (smaller, strided, again)] == [False, False, True]


def test_inputs_near_a_form_without_extents_are_of_other_strides_alone():
    form = Form.of_arguments(Arguments((TensorSpec((3, 2), "float32"),)))
    near = inputs_near(Inputs(form, form.extents, 0), random.Random(0))
    assert [next(near).extents for _ in range(3)] == [()] * 3


@pytest.mark.parametrize(("extent", "prime"), [(1024, 1021), (4, 3), (3, 2), (2, 1), (1, 1)])
def test_the_prime_below(extent, prime):
    assert prime_below(extent) == prime


def test_wide_extents_need_room_for_eight_times_the_inputs():
    form = Form.of_arguments(Arguments((TensorSpec((256, 1024), "float16"),)))
    wide = wide_extents(form, math.inf)
    assert wide[0] * wide[1] > 1 << 31
    assert wide_extents(form, 8 * 2 * (1 << 31)) is None
    assert wide_extents(Form.of_arguments(Arguments((TensorSpec((), "float16"),))), math.inf) is None


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_the_smallest_extents_of_a_threshold_are_found(least_m, least_n, more_m, more_n):
    start = least_m + more_m, least_n + more_n
    assert smallest(start, lambda it, _: it[0] >= least_m and it[1] >= least_n) == (least_m, least_n)


def test_what_is_found_is_wrong_whatever_the_fault_looks_like():
    for start in itertools.product((100, 1000, 1021), (33, 64)):
        assert smallest(start, lambda it, _: it[0] % 64 != 0 and it[0] > 64) == (65, 1)


def test_what_a_close_look_alone_shows_is_found_at_small_extents():
    assert smallest((1000, 64), lambda it, closely: closely or it[0] > 100) == (1, 1)
