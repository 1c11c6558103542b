"""Buckets: every value has at most one, every member of it agrees, and keys are shared exactly within buckets."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triton_ops.exceptions import SettingsError, UnknownTunableError
from triton_ops.records.lock_entry import why_outside
from triton_ops.values import Key, Mapper, Nearest
from triton_ops.values.buckets import LARGEST, PowersOfTwo, UpTo, rule_of

values = st.integers(1, 1 << 20)
rising = st.lists(values, min_size=1, max_size=6, unique=True).map(lambda found: tuple(sorted(found)))
spans = st.tuples(values, values).map(sorted)
rules = st.one_of(
    spans.map(lambda span: PowersOfTwo(*span)),
    rising.map(UpTo),
    st.builds(Nearest, rising, st.floats(1, 8)),
)


@given(rules, values)
def test_a_value_is_in_its_bucket_and_all_of_a_bucket_agree(rule, value):
    span = rule.bucket(value)
    if span is None:
        assert rule.representative(value) == value
        return
    low, high = span
    assert low <= value <= high
    assert low <= rule.representative(value) <= high
    assert {rule.bucket(member) for member in (low, high, (low + high) // 2)} == {span}
    assert {rule.representative(member) for member in (low, high)} == {rule.representative(value)}
    assert all(rule.bucket(beside) != span for beside in (low - 1, high + 1))


@given(rising, st.floats(1, 8), values)
def test_the_nearest_point_is_nearest_by_ratio_and_never_further_than_the_cap(points, cap, value):
    rule = Nearest(points, cap)
    if rule.bucket(value) is None:
        assert value < points[0] / cap or value > points[-1] * cap
        return
    ratio = {point: abs(math.log(value / point)) for point in points}
    assert ratio[rule.representative(value)] == pytest.approx(min(ratio.values()), abs=1e-9)


@given(rising)
def test_between_two_points_a_bucket_ends_at_the_last_value_whose_ratio_to_the_smaller_one_is_no_larger(points):
    rule = Nearest(points, 8.0)
    for one, other in pairwise(points):
        end = max(value for value in (math.isqrt(one * other) + off for off in (-1, 0, 1)) if value**2 <= one * other)
        if end > one:  # `value / one <= other / value`, in whole numbers
            assert [rule.representative(value) for value in (end, end + 1)] == [one, other]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("pow2", PowersOfTwo()), ("pow2:16..4096", PowersOfTwo(16, 4096)), (" upto:64,256", UpTo((64, 256))),
        ("near:16,64", Nearest((16, 64))), ("near:16,64@1.5", Nearest((16, 64), 1.5)),
    ],
)  # fmt: skip
def test_a_text_names_a_rule(text, rule):
    assert rule_of(text) == rule


@pytest.mark.parametrize(("value", "span"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 4)), (4, (3, 4)), (5, (5, 8))])
def test_powers_of_two_end_their_buckets(value, span):
    assert PowersOfTwo().bucket(value) == span


@pytest.mark.parametrize(
    "text", ["", "pow3", "pow2:8", "pow2:9..8", "pow2:0..8", "upto:", "upto:3,3", "upto:a", "near:4@0.5", "near:4@nan"]
)  # fmt: skip
def test_other_texts_are_no_rules(text):
    with pytest.raises(SettingsError):
        rule_of(text)


@pytest.mark.parametrize("buckets", [{"M": ""}, {"": "pow2"}, {"M": None}, {"M": "pow2", "M,a[0]": "pow2"}])
def test_a_bucket_without_a_rule_or_with_two_is_refused(buckets):
    with pytest.raises(SettingsError):
        Mapper.of(buckets)


def test_a_name_that_is_no_argument_is_refused():
    mapper = Mapper.of({"M,a[0]": "pow2"}, ignored=["eps"])
    mapper.check(["a", "M", "eps"])
    with pytest.raises(UnknownTunableError, match=r"a\[0\], eps is no argument"):
        mapper.check(["M", "b"])


MAPPER = Mapper.of({"M,a[0]": "pow2:1..4096", "N,a[1]": "upto:64,1024"}, ignored=["eps"])


def problem(m, n, eps=0.0):
    return {"a": {"shape": [m, n], "dtype": "float16", "stride": [n, 1], "aligned": True}, "M": m, "N": n, "eps": eps}


@given(values, values, values, values)
@example(1, 1, 1, 2)
@example(1, 2, 1, 3)
def test_problems_share_a_key_exactly_within_a_bucket(m, n, other_m, other_n):
    def same(one, other, rule):
        return one == other or (rule.bucket(one) is not None and rule.bucket(one) == rule.bucket(other))

    rule_m, rule_n = (rule for _, rule in MAPPER.buckets)
    shared = same(m, other_m, rule_m) and same(n, other_n, rule_n)
    shared &= (n == 1) == (other_n == 1)  # it is the rows' stride, and compilers take a stride of 1 for a constant
    assert (MAPPER.keyed(problem(m, n)) == MAPPER.keyed(problem(other_m, other_n, eps=1.0))) == shared


@given(values, values)
def test_what_a_key_says_holds_for_the_problem_it_was_made_of(m, n):
    plain, ranges, ignored = Mapper.unkeyed(MAPPER.keyed(problem(m, n)))
    assert why_outside(plain, problem(m, n, eps=2.0), ranges, ignored) is None
    assert ignored == ("eps",)


def test_extents_that_differ_stay_as_they_are():
    given_ = {**problem(20, 64), "M": 24}
    assert MAPPER.ranges(given_)[0].extents == ("N", "a[1]")
    assert MAPPER.keyed(given_)["M"] == 24


def test_a_key_holds_the_buckets_and_is_written_and_read(tmp_path):
    import msgspec

    from triton_ops.device import DeviceSpec
    from triton_ops.values import Problem, TensorSpec

    device = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132)

    def key(m):
        given_ = Problem("k", (("a", TensorSpec((m, 64), "float16")), ("M", m), ("N", 64), ("eps", 0.1)))
        bare = Key.of(given_, {}, device)
        return replace(bare, problem=MAPPER.keyed(bare.problem))

    assert key(20).id == key(32).id != key(33).id
    assert msgspec.convert(msgspec.to_builtins(key(20)), Key).id == key(20).id
    assert key(20).problem["M"] == {"range": [17, 32]}


@pytest.mark.parametrize("kind", ["upto", "near"])
def test_the_values_of_a_rule_lie_from_1_to_the_largest(kind):
    assert rule_of(f"{kind}:1,{LARGEST}") is not None
    for wrong in (f"0,{LARGEST}", f"1,{LARGEST + 1}", "2,1", "1,1"):
        with pytest.raises(SettingsError, match="they must rise, from 1 or more"):
            rule_of(f"{kind}:{wrong}")


@pytest.mark.parametrize(("low", "high"), [(0, 8), (9, 8), (1, LARGEST + 1)])
def test_powers_of_two_lie_from_1_to_the_largest(low, high):
    with pytest.raises(SettingsError):
        PowersOfTwo(low, high)
    assert PowersOfTwo(1, LARGEST).bucket(LARGEST) is not None


def test_extents_in_two_buckets_are_named_in_order():
    with pytest.raises(SettingsError, match="M, N, a, b, c is in two buckets"):
        Mapper.of({"c,N,b,M,a": "pow2", "a,b,c,M,N": "pow2", "K": "pow2"})


@pytest.mark.parametrize("buckets", [["M"], "M", {3: "pow2"}, {"M,": "pow2"}, {"M": 3}])
def test_buckets_of_another_form_are_refused(buckets):
    with pytest.raises(SettingsError):
        Mapper.of(buckets)


def test_strides_follow_from_extents_that_are_free():
    given_ = {"a": {"shape": [20, 64, 1], "dtype": "int8", "stride": [0, 1, 640]}, "M": 20, "x:class": 3}
    assert Mapper.rest_of(given_, ["a[0]"]) == {
        "a": {"shape": [None, 64, 1], "dtype": "int8", "stride": [0, 1, None]}, "M": 20, "x:class": 3
    }  # fmt: skip
    assert Mapper.rest_of(given_, ["M"]) == {**given_, "M": None}
    assert Mapper.extents_of({**given_, "flag": True}) == {"a[0]": 20, "a[1]": 64, "a[2]": 1, "M": 20}
