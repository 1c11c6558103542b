"""Contents of arguments: draws in every form, values in the place of an argument's, and what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import Contents
from triton_ops.exceptions import SettingsError, ShapeMismatchError

torch = pytest.importorskip("torch")

DRAWS = {"zipf": 1.2, "dirichlet": 0.3, "one_hot": 0.9, "log_normal": 1.0, "bimodal": 8.0}


def counts_of(values, form):
    if form == "ids":
        return torch.bincount(values.long(), minlength=5)
    return values if form == "counts" else values.diff(prepend=None if form == "offsets" else values[:1] * 0)


OWN = {
    "ends": torch.tensor([1, 1, 7, 20, 30], dtype=torch.int32), "offsets": torch.tensor([0, 1, 1, 7, 20, 30]),
    "counts": torch.tensor([1, 0, 6, 13, 10], dtype=torch.int32), "ids": torch.arange(30) % 5,
}  # fmt: skip


@given(kind=st.sampled_from(list(DRAWS)), form=st.sampled_from(list(OWN)), seed=st.integers(0, 2**31))
def test_a_draw_shares_all_rows_among_the_groups_in_the_form_of_the_argument(kind, form, seed):
    own, draw = OWN[form], Contents.draw(kind, DRAWS[kind], form)
    values = draw(own, seed)
    assert (values.shape, values.dtype) == (own.shape, own.dtype)
    counts = counts_of(values, form)
    assert int(counts.sum()) == 30
    assert bool((counts >= 0).all())
    assert len(counts) == 5
    assert torch.equal(values, draw(own, seed))


def test_skewed_draws_are_as_uneven_as_they_say():
    ends = torch.tensor([1000 * (group + 1) for group in range(16)])
    largest = [int(Contents.draw("zipf", amount)(ends, 3).diff().max()) for amount in (0, 0.8, 1.5)]
    assert largest == sorted(largest)
    assert int(counts_of(Contents.draw("one_hot", 1.0)(ends, 3), "ends").max()) == 16_000
    lengths = counts_of(Contents.draw("bimodal", 8.0, "ends")(ends, 3), "ends")
    assert int(lengths.max()) > 4 * int(lengths.median())


@pytest.mark.parametrize("concentration", [1e-6, 1e-3])
def test_the_smaller_the_concentration_the_more_uneven_a_draw(concentration):
    counts = Contents.draw("dirichlet", concentration, "counts")(torch.full((8,), 100), 3)
    assert int(counts.max()) > 790


def test_a_sparse_draw_leaves_the_values_that_it_keeps():
    own = torch.randn(1000)
    values = Contents.draw("sparse", 0.75)(own, 1)
    assert 0.7 < float((values == 0).float().mean()) < 0.8
    assert bool(((values == own) | (values == 0)).all())


def test_contents_replace_values_and_keep_shape_dtype_and_strides():
    x = torch.randn(6, 4).t()
    ends = torch.tensor([2, 4], dtype=torch.int32)
    contents = Contents(
        [(2, {}), (1, {"ends": [1, 4], "x": "zeros"}), (1, lambda own, seed: {"ends": own["ends"] * 0 + 4})],
        held_out=2,
    )  # fmt: skip
    own, saved, drawn, *held_out = list(contents.drawn({"x": x, "ends": ends, "n": 3}, 0))
    assert own == ("its own", 2.0, {})
    label, weight, values = saved
    assert (label, weight) == ("ends, x zeros", 1.0)
    assert values["x"].stride() == x.stride()
    assert not values["x"].any()
    assert values["ends"].tolist() == [1, 4]
    assert values["ends"].dtype == torch.int32
    assert drawn[2]["ends"].tolist() == [4, 4]
    assert [weight for _, weight, _ in held_out] == [0.0, 0.0]  # of what is made alone
    assert ends.tolist() == [2, 4]


def test_a_maker_writes_to_copies():
    ends = torch.tensor([2, 4])
    contents = Contents(
        [(1, {"ends": lambda own, seed: own.fill_(1)}), (1, lambda own, seed: {"ends": own["ends"].fill_(1)})]
    )
    assert [each[2]["ends"].tolist() for each in contents.drawn({"ends": ends, "n": 4}, 0)] == [[1, 1]] * 4
    assert ends.tolist() == [2, 4]


def test_what_stands_in_the_list_again_is_drawn_anew():
    draws = Contents([(1, {"ends": Contents.draw("zipf", 1.0)})] * 3, held_out=1).drawn({"ends": OWN["ends"]}, 0)
    assert len({tuple(values["ends"].tolist()) for _, _, values in draws}) == 6


def test_the_mean_is_weighted_and_the_worst_is_relative_to_the_first():
    pairs = [(3, {}), (1, {})]
    assert Contents(pairs).value([1.0, 10.0, 7.0], [2.0, 6.0, 100.0]) == 3.0  # what is held out decides nothing
    assert Contents(pairs, worst=True).value([1.0, 10.0], [2.0, 6.0]) == pytest.approx(22.0)


@pytest.mark.parametrize(
    "contents", [[], "zipf", {}, [(1, {3: 1})], [{}], [(0, {})], [(1, {}, 2)], [(1, "zipf")], [(True, None)]]
)
def test_contents_that_are_none(contents):
    with pytest.raises(SettingsError, match=r"content"):
        Contents.of(contents, [])


@pytest.mark.parametrize(
    "draw",
    [
        ("log_normal", 1e4),
        (["zipf"],),
        ("zipf", 10**400),
        ("zipf", -1),
        ("zipf", "2"),
        ("zipf", 1.0, "loads"),
        ("sparse", 2),
        ("dirichlet", 0),
        ("poisson", 1),
    ],
)
def test_draws_that_are_none(draw):
    with pytest.raises(SettingsError):
        Contents.draw(*draw)


@pytest.mark.parametrize("more", [{"held_out": -1}, {"held_out": 1.0}])
def test_options_of_contents_that_are_none(more):
    with pytest.raises(SettingsError):
        Contents([(1, {})], **more)


@pytest.mark.parametrize(
    ("content", "error"),
    [({"n": [4]}, SettingsError), ({"ends": [1, 2, 3]}, ShapeMismatchError), ({"missing": [1]}, SettingsError),
     (lambda own, seed: None, SettingsError), ({"ends": [0.5, 2]}, SettingsError), ({3: [1]}, SettingsError),
     (lambda: {}, SettingsError), ({"ends": lambda own, seed: own / {}}, SettingsError)],
)  # fmt: skip
def test_values_that_do_not_fit(content, error):
    with pytest.raises(error):
        list(Contents([(1, content)]).drawn({"ends": torch.tensor([2, 4]), "n": 4}, 0))


def test_contents_stay_as_they_were_given():
    content, items = {"x": [1.0]}, [(1.0, {})]
    contents = Contents([(1.0, content), *items])
    before = repr(contents)
    content["x"].append(2.0)
    content["y"] = "zeros"
    items.clear()
    assert repr(contents) == before
    with pytest.raises(TypeError):
        contents.items[0][1]["y"] = "zeros"
