"""Classes of arguments: the value, its text in keys, and an example of each."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from triton_ops.values import EXAMPLES, IntegerClass, class_of

TEXTS = {
    "1": 1, "a multiple of 16": 16, "no multiple of 16": 17, "a multiple of 16 of 64 bits": 1 << 40,
    "no multiple of 16 of 64 bits": -(1 << 31) - 1,
}  # fmt: skip


def test_the_texts_are_those_of_keys():
    assert {text: class_of(value) for text, value in TEXTS.items()} == {text: text for text in TEXTS}
    assert [class_of(value) for value in (None, True, 0.0)] == ["NoneType", "bool", "float"]


@given(
    st.one_of(st.integers(), *(st.just(value + step) for value, step in itertools.product(TEXTS.values(), (-1, 0, 1))))
)
def test_the_example_of_a_class_is_of_it(value):
    assert IntegerClass.of(EXAMPLES[class_of(value)]) == IntegerClass.of(value)
