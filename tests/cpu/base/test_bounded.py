"""A dict that is emptied when it is full."""

from triton_ops.base import BoundedDict


def test_a_bounded_dict_is_emptied_before_it_would_have_one_entry_more():
    kept = BoundedDict(2)
    kept["a"], kept["b"] = 1, 2
    kept["a"] = 0
    assert kept == {"a": 0, "b": 2}
    kept["c"] = 3
    assert kept == {"c": 3}
