"""Spaces list, count, draw and refuse the same configs as the filtered product of their values."""

import inspect
import itertools
import json
import pickle
import random
import time
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import Arbitrary, configs, examples, names, spaces, tunables, values
from triton_ops.base import canonical_json
from triton_ops.exceptions import (
    ConfigValueError,
    ConstraintError,
    EmptySpaceError,
    KernelTypeError,
    SpaceError,
    UnknownTunableError,
)
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, SpaceSize, Tunable
from triton_ops.space import space as space_module
from triton_ops.space import space as whole
from triton_ops.space import tunable as tunable_module
from triton_ops.space import walk as groups

SMALL = Constraint("tile", lambda BM, BN: BM * BN <= 8192, "a tile of {BM}x{BN} does not fit")
GEMM = {"BM": [32, 64, 128], "BN": [32, 64, 128], "stages": [2, 3]}


def product(space):
    """Every valid config, by a filter over the whole product."""
    axes = [list(tunable) for tunable in space.tunables.values()]
    full = [Config(dict(zip(space.tunables, row, strict=True))) for row in itertools.product(*axes)]
    return [config for config in full if all(c.kept_by(config) for c in space.constraints)]


# 10^9 points, where anything that walks all of them would be noticed
BILLION = {f"T{n}": IntRange(1, 10) for n in range(9)}
SUM = Constraint("sum", lambda T0, T8: T0 + T8 > 3, "too small")
EVEN = Constraint("even", eval(f"lambda {', '.join(BILLION)}: True"), "joins all tunables")


# Tunables


def test_each_kind_of_tunable_has_its_values():
    assert Choice(["b", "a", None]).values == ("b", "a", None)
    assert IntRange(2, 9, 3).values == (2, 5, 8)
    assert IntRange(1, 3).values == (1, 2, 3)
    assert PowerOfTwo(1, 8).values == (1, 2, 4, 8)
    assert PowerOfTwo(64, 64).values == (64,)
    assert Flag().values == (False, True)
    assert [t.ordered for t in (Choice([1]), IntRange(1, 2), PowerOfTwo(1, 2), Flag())] == [
        False,
        True,
        True,
        False,
    ]


@given(tunables())
def test_a_tunable_keeps_the_order_of_its_values(tunable):
    assert len(tunable) == len(tunable.values) > 0
    assert list(tunable) == list(tunable.values)
    assert tunable.check("T") == tunable


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([1, 2, 8], True),
        ((0.5, 1), True),
        ([2, 1], False),
        (["a", "b"], False),
        ([False, True], False),
        (range(3), True),
    ],
)
def test_rising_numbers_count_as_ordered(values, ordered):
    assert ConfigSpace({"T": values}).tunables["T"] == Tunable(tuple(values), ordered)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: IntRange(1, 4, 0), "step is 0"),
        (lambda: PowerOfTwo(3, 8), "bound 3"),
        (lambda: PowerOfTwo(1, 0), "bound 0"),
        (lambda: ConfigSpace({"T": 64}), r"'T' is 64; it must be a list.*\[64\]"),
        (lambda: ConfigSpace({"T": "relu"}), "'T' is 'relu'"),
        (lambda: ConfigSpace({"T": [1, 2, 1]}), "'T' lists 1 twice"),
        (lambda: ConfigSpace({"T": [(1,), (1,)]}), r"lists \(1,\) twice"),
        (lambda: ConfigSpace({7: [1]}), "name must be a string, not 7"),
        (lambda: Config({7: 1}), "name must be a string, not 7"),
    ],
)
def test_unsound_tunables_are_refused(make, text):
    with pytest.raises(ConfigValueError, match=text):
        make()


@pytest.mark.parametrize(
    "value",
    [[1], {1}, {"a": 1}, ..., float("nan"), float("inf"), 1j, b"x", 2**64, (1, [2]), "\ud800", ("a", "b\udfff")],
    ids=repr,
)
def test_values_that_cannot_be_stored_are_named(value):
    for make in (lambda: Config(T=value), lambda: ConfigSpace({"T": [value]})):
        with pytest.raises(ConfigValueError, match=r"tunable 'T' has the value .* of type"):
            make()


def test_a_value_nested_deeper_than_any_file_holds_is_refused():
    value = 1
    for depth in range(1, 18):
        value = (value,)
        if depth < 17:
            config = Config(T=value)
            assert Config.from_json(json.loads(config.text)) == config
    for make in (lambda: Config(T=value), lambda: ConfigSpace({"T": [value]})):
        with pytest.raises(ConfigValueError, match="tunable 'T' has a value that is nested deeper than 16 levels"):
            make()


class Number(IntEnum):
    TWO = 2


class Name(str):
    __slots__ = ()


def test_values_that_are_numbers_or_strings_by_their_class_count_as_these():
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for value, plain in [
        (np.int64(1), 1),
        (np.uint8(7), 7),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.str_("a"), "a"),
        (np.bool_(1), True),
        (Name("a"), "a"),
        (Number.TWO, 2),
        (torch.device("cuda", 1), "cuda:1"),
        ((np.int64(1), (Number.TWO,)), (1, (2,))),
    ]:
        taken = Config(T=value)["T"]
        assert (taken, type(taken)) == (plain, type(plain))
        assert Config(T=value).text == Config(T=plain).text
        assert ConfigSpace({"T": [value]}).tunables["T"].values == (plain,)
    space = ConfigSpace({"BM": np.array([16, 32])}, default={"BM": np.int64(16)})
    assert space.tunables["BM"] == Tunable((16, 32), ordered=True)
    assert {"BM": np.int32(32)} in space


def test_other_objects_are_refused_with_a_way_to_list_them():
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for value, way in [
        (float("nan"), "finite numbers"),
        ([1], "a tuple instead of a list"),
        (torch.strided, "names or numbers"),
        (np.zeros(2), "names or numbers"),
        (np.complex64(1), "names or numbers"),
    ]:
        with pytest.raises(ConfigValueError, match=way):
            Config(T=value)
    with pytest.raises(ConfigValueError, match="lists 1 twice"):
        ConfigSpace({"T": [1, np.int64(1)]})


def test_a_tunable_with_more_values_than_can_be_listed_is_refused_before_they_are_made():
    for make in (
        lambda: IntRange(0, 10**9),
        lambda: ConfigSpace({"T": range(10**12)}),
        lambda: Choice(itertools.count()),
    ):
        with pytest.raises(ConfigValueError, match=r"a tunable has [\d,]+ values; at most 1,000,000"):
            make()


@pytest.mark.parametrize("pair", [[True, 1], [1, 1.0], [0.0, -0.0], [(1,), (True,)], ["1", 1]])
def test_values_that_python_calls_equal_are_different_values(pair):
    space = ConfigSpace({"T": pair})
    assert [config.text for config in space] == [Config(T=value).text for value in pair]
    listed = ConfigSpace.from_configs([{"T": value} for value in pair])
    assert [config.text for config in listed] == [config.text for config in space]
    assert len(listed.tunables["T"]) == 2


# Configs


@given(configs())
def test_a_config_survives_pickle_and_json(config):
    for again in (pickle.loads(pickle.dumps(config)), Config.from_json(_through_json(config))):
        assert again == config
        assert hash(again) == hash(config)
        assert list(again) == list(config)
        assert dict(again) == dict(config)


def _through_json(config):
    return json.loads(json.dumps(dict(config)))


@given(configs(), st.randoms())
def test_order_of_names_does_not_make_another_config(config, shuffle):
    items = list(config.items())
    shuffle.shuffle(items)
    assert Config(dict(items)) == config
    assert len({Config(dict(items)), config}) == 1


@given(names, values, values)
def test_equal_configs_have_equal_canonical_values(name, a, b):
    assert (Config({name: a}) == Config({name: b})) == (canonical_json(a) == canonical_json(b))


def test_a_config_reads_as_a_mapping_and_cannot_change():
    config = Config({"BM": 64}, BN=32)
    assert (config["BM"], len(config), dict(config)) == (64, 2, {"BM": 64, "BN": 32})
    assert str(config) == "BM=64 BN=32"
    assert str(Config()) == "(empty)"
    assert repr(config) == "Config({'BM': 64, 'BN': 32})"
    assert config != {"BM": 64, "BN": 32}
    with pytest.raises(AttributeError, match="cannot be changed"):
        config.text = "{}"
    with pytest.raises(TypeError):
        config["BM"] = 32
    with pytest.raises(KeyError):
        config["BK"]


# Constraints


def test_a_constraint_knows_its_names_and_fills_its_reason():
    assert SMALL.names == ("BM", "BN")
    assert SMALL.kept_by({"BM": 64, "BN": 64, "other": 0})
    assert not SMALL.kept_by({"BM": 128, "BN": 128})
    assert SMALL.explain({"BM": 128, "BN": 256}) == "tile: a tile of 128x256 does not fit"


def test_parameters_with_defaults_are_no_tunables():
    limit = Constraint("limit", lambda BM, limit=64: limit >= BM, "too large")
    assert limit.names == ("BM",)
    assert [config["BM"] for config in ConfigSpace({"BM": [32, 64, 128]}, (limit,))] == [32, 64]


@pytest.mark.parametrize("reason", ["{limit}", "{0}", "{", "{BM.x}", "{BM[0]}", "a {} b", "{BM:q}"])
def test_braces_that_name_no_tunable_stay_in_the_reason(reason):
    assert Constraint("c", lambda BM: True, reason).explain({"BM": 1}) == f"c: {reason}"


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (64, "not callable"),
        (lambda *args: True, r"\*args"),
        (lambda **kwargs: True, r"\*\*kwargs"),
        (lambda BM, /: True, "BM"),
        (max, "does not tell its parameters"),
    ],
)
def test_a_predicate_without_named_parameters_is_refused(predicate, text):
    with pytest.raises(KernelTypeError, match=text) as caught:
        Constraint("odd", predicate, "")
    assert "'odd'" in str(caught.value)


def test_a_predicate_that_raises_is_named_with_its_values():
    space = ConfigSpace({"BM": [0]}, (Constraint("even", lambda BM: 64 % BM == 0, ""),))
    with pytest.raises(ConstraintError, match=r"'even' raised ZeroDivisionError.*\{'BM': 0\}") as e:
        next(iter(space))
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_a_predicate_gets_only_the_tunables_that_it_names():
    with pytest.raises(UnknownTunableError, match="constraint 'tile' names 'BN'; the tunables are"):
        ConfigSpace({"BM": [1]}, (SMALL,))


def test_a_constraint_may_name_its_tunables_where_its_predicate_does_not():
    rule = Constraint("order", lambda **own: own["A"] <= own["B"], "{A} is over {B}", names=("A", "B"))
    space = ConfigSpace({"A": Choice([1, 2]), "B": Choice([1, 2])}, [rule])
    assert [tuple(config.values()) for config in space] == [(1, 1), (1, 2), (2, 2)]
    assert rule.explain({"A": 2, "B": 1}) == "order: 2 is over 1"


def test_a_constraint_without_tunables_can_refuse_the_whole_space():
    space = ConfigSpace({"T": [1, 2]}, (Constraint("never", lambda: False, ""),))
    assert list(space) == []
    assert space.size == SpaceSize(2, 0)


# Enumeration, size, membership


@given(spaces(may_be_empty=True))
def test_enumeration_is_the_filtered_product_in_order(space):
    expected = product(space)
    assert list(space) == expected
    assert space.take(2) == expected[:2]
    total = 1
    for tunable in space.tunables.values():
        total *= len(tunable)
    assert space.size == SpaceSize(total, len(expected), exact=True)


@given(spaces(may_be_empty=True), st.integers(0, 20))
def test_all_configs_at_once_are_the_filtered_product_in_order_unless_there_are_more(space, most):
    expected = product(space)
    assert space.all_configs(most) == (expected if len(expected) <= most else None)


def test_a_space_that_takes_long_to_walk_is_not_held_at_once(monkeypatch):
    monkeypatch.setattr(whole, "_MOST_ASKS", 50)
    space = ConfigSpace({"a": range(10), "b": range(10)}, (Constraint("equal", lambda a, b: a == b, "a is not b"),))
    assert space.all_configs(1_000) is None


@given(spaces(), st.integers())
def test_samples_are_valid_and_follow_the_seed(space, seed):
    drawn = [space.sample(random.Random(seed)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] in product(space)


@given(spaces())
def test_members_are_the_enumerated_configs_and_the_default(space):
    valid = set(product(space))
    axes = [list(tunable) for tunable in space.tunables.values()]
    for row in itertools.product(*axes):
        config = Config(dict(zip(space.tunables, row, strict=True)))
        assert (config in space) == (config in valid)
        assert (space.why_not(config) is None) == (config in valid)
    assert space.default_config in space


@given(spaces())
def test_a_space_survives_a_pickle(space):
    again = pickle.loads(pickle.dumps(space))
    assert list(again) == list(space)
    assert again.fingerprint == space.fingerprint


def test_every_config_can_be_drawn():
    space = ConfigSpace(GEMM, (SMALL,))
    rng = random.Random(0)
    assert {space.sample(rng) for _ in range(400)} == set(space)


def test_a_config_too_rare_for_draws_is_found():
    # One valid config in 90,000: a hundred draws do not find it.
    rule = Constraint("one", lambda A, B: A == B == 299, "")
    space = ConfigSpace({"A": IntRange(0, 299), "B": IntRange(0, 299)}, (rule,))
    assert space.sample(random.Random(0)) == Config(A=299, B=299)
    few = Constraint("few", lambda A, B: A == B and A > 295, "")
    space = ConfigSpace({"A": IntRange(0, 299), "B": IntRange(0, 299)}, (few,))
    assert {space.sample(random.Random(seed))["A"] for seed in range(20)} == {296, 297, 298, 299}


def test_last_tunable_is_fastest_and_constraints_prune():
    asked = []
    rule = Constraint("first", lambda A: asked.append(A) or A == 2, "")
    space = ConfigSpace({"A": [1, 2], "B": [10, 20, 30]}, (rule,))
    assert [(c["A"], c["B"]) for c in space] == [(2, 10), (2, 20), (2, 30)]
    assert asked == [1, 2]  # decided once per value of A, not once per config


def test_why_not_says_the_first_reason():
    space = ConfigSpace(GEMM, (SMALL,))
    assert space.why_not(Config(BM=32, BN=32, stages=2)) is None
    for wrong, reason in [
        ({"BM": 32}, "its names are ['BM'], and the space has ['BM', 'BN', 'stages']"),
        ({"BM": 128, "BN": 128, "stages": 2}, "tile: a tile of 128x128 does not fit"),
        ({"BM": 48, "BN": 32, "stages": 2}, "BM=48 is none of [32, 64, 128]"),
        ({"BM": 32.0, "BN": 32, "stages": 2}, "BM=32.0 is none of [32, 64, 128]"),
    ]:
        assert space.why_not(Config(wrong)) == reason
        assert Config(wrong) not in space


def test_membership_tells_true_from_one():
    space = ConfigSpace({"fused": Flag()})
    assert {"fused": True} in space
    assert {"fused": 1} not in space
    assert "fused" not in space


def test_a_predicate_is_not_asked_about_values_that_the_space_lacks():
    space = ConfigSpace({"BM": [1, 2]}, (Constraint("even", lambda BM: 64 % BM == 0, ""),))
    assert space.why_not(Config(BM="large")) == "BM='large' is none of [1, 2]"
    assert space.why_not(Config(BM=0)) == "BM=0 is none of [1, 2]"


# Defaults


def test_the_default_is_the_given_config_else_the_first_valid():
    assert ConfigSpace(GEMM, (SMALL,)).default_config == Config(BM=32, BN=32, stages=2)
    given_one = {"BM": 16, "BN": 64, "stages": 3}
    space = ConfigSpace(GEMM, (SMALL,), given_one)
    assert space.default_config == Config(given_one)
    assert Config(given_one) in space  # a default may have a value that is not searched


@pytest.mark.parametrize(
    ("default", "error", "text"),
    [
        ({"BM": 32, "BN": 32, "BK": 1}, UnknownTunableError, "the default config names 'BK'"),
        ({"BM": 32}, SpaceError, "lacks BN, stages"),
        ({"BM": 128, "BN": 128, "stages": 2}, SpaceError, "breaks tile: a tile of 128x128"),
        ({"BM": [1], "BN": 1, "stages": 2}, ConfigValueError, "'BM' has the value"),
    ],
)
def test_unsound_defaults_are_refused(default, error, text):
    with pytest.raises(error, match=text):
        ConfigSpace(GEMM, (SMALL,), default)


# Spaces that are not spaces


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ConfigSpace({}), EmptySpaceError, "no tunables"),
        (lambda: ConfigSpace({"T": []}), EmptySpaceError, "'T' has no values"),
        (lambda: ConfigSpace({"T": IntRange(4, 1)}), EmptySpaceError, "'T' has no values"),
        (lambda: ConfigSpace([{"T": 1}]), SpaceError, "from_configs"),
        (lambda: ConfigSpace.from_configs([]), EmptySpaceError, "list of configs is empty"),
        (
            lambda: ConfigSpace.from_configs([{"A": 1}, {"B": 1}]),
            SpaceError,
            r"\['B'\], the first one has \['A'\]",
        ),
        (lambda: ConfigSpace.from_configs([7]), SpaceError, "7 is neither a mapping"),
        (lambda: ConfigSpace.from_user("BM"), SpaceError, "cannot be made from 'BM'"),
        (lambda: ConfigSpace.from_user(7), SpaceError, "cannot be made from 7"),
    ],
)
def test_unsound_spaces_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("listed", [False, True])
def test_a_space_without_valid_configs_is_empty_and_gives_no_config(listed):
    never = Constraint("never", lambda T: False, "")
    space = ConfigSpace({"T": [1, 2]}, (never,))
    if listed:
        space = ConfigSpace.from_configs([{"T": 1}, {"T": 2}], [never])
    assert space.size == SpaceSize(2, 0)
    assert list(space) == []
    for ask in (lambda: space.default_config, lambda: space.sample(random.Random(0))):
        with pytest.raises(EmptySpaceError, match=r"none of the 2 configs .*\(never\)"):
            ask()


# Lists of configs


def test_a_list_of_configs_keeps_its_order_and_drops_repeats():
    rows = [{"BM": 64, "w": 4}, {"BM": 32, "w": 8}, {"w": 4, "BM": 64}]
    space = ConfigSpace.from_configs(rows)
    assert list(space) == [Config(rows[0]), Config(rows[1])]
    assert space.size == SpaceSize(2, 2)
    assert {name: t.values for name, t in space.tunables.items()} == {"BM": (64, 32), "w": (4, 8)}
    assert {"BM": 64, "w": 8} not in space
    assert space.why_not(Config(BM=64, w=8)) == "it is none of the 2 configs of the list"


def test_constraints_and_default_of_a_list():
    rule = Constraint("few", lambda w: w < 8, "{w} warps")
    space = ConfigSpace.from_configs([{"w": 2}, {"w": 4}, {"w": 8}], [rule], {"w": 1})
    assert [config["w"] for config in space] == [2, 4]
    assert space.size == SpaceSize(3, 2)
    assert space.default_config == Config(w=1)
    assert space.why_not(Config(w=8)) == "few: 8 warps"
    rng = random.Random(0)
    assert {space.sample(rng)["w"] for _ in range(50)} == {2, 4}


def test_each_config_of_a_list_gets_every_combination_of_other_values():
    few = Constraint("few", lambda w: w < 8, "{w} warps")
    space = ConfigSpace.from_configs([{"BM": 64, "BN": 1, "w": 4}, {"BM": 32, "BN": 2, "w": 4}], [few])
    other = space.with_values({"BM": [16], "w": [2, 8]})
    assert [dict(config) for config in other] == [{"BM": 16, "BN": 1, "w": 2}, {"BM": 16, "BN": 2, "w": 2}]
    assert list(space.with_values({"BM": [16], "BN": [1]})) == [Config(BM=16, BN=1, w=4)]
    with pytest.raises(UnknownTunableError):
        space.with_values({"BK": [16]})


def test_triton_configs_become_flat_configs():
    triton = pytest.importorskip("triton")
    space = ConfigSpace.from_user([triton.Config({"BM": 64}, num_warps=8), triton.Config({"BM": 32})])
    assert [dict(config) for config in space] == [
        {"BM": 64, "num_warps": 8, "num_stages": 3},
        {"BM": 32, "num_warps": 4, "num_stages": 3},
    ]
    wide = ConfigSpace.from_user([triton.Config({"BM": 64}, maxnreg=128), triton.Config({"BM": 64}, num_ctas=2)])
    assert [(config["num_ctas"], config["maxnreg"]) for config in wide] == [(1, 128), (2, None)]


def test_triton_configs_with_hooks_are_refused():
    triton = pytest.importorskip("triton")
    hooked = triton.Config({"BM": 64}, pre_hook=lambda args: None)
    with pytest.raises(SpaceError, match="has a pre_hook"):
        ConfigSpace.from_user([hooked])


def test_as_space_takes_what_users_write():
    space = ConfigSpace(GEMM)
    assert ConfigSpace.from_user(space) is space
    assert list(ConfigSpace.from_user(GEMM)) == list(space)
    assert list(ConfigSpace.from_user(config for config in space)) == list(space)


# Large spaces


def test_a_space_of_a_billion_points_starts_at_once():
    start_s = time.process_time()
    space = ConfigSpace(BILLION, (SUM,))
    assert space.take(3)[0]["T8"] == 3
    assert space.default_config in space
    assert SUM.kept_by(space.sample(random.Random(0)))
    assert space.fingerprint == ConfigSpace(BILLION, (SUM,)).fingerprint
    assert time.process_time() - start_s < 0.5  # measured: 2 ms


def test_size_of_a_large_space_is_exact_where_few_combinations_are_joined():
    size = ConfigSpace(BILLION, (SUM,)).size
    assert size == SpaceSize(10**9, 97 * 10**7)
    assert str(size) == "1,000,000,000 configs, 970,000,000 valid"


def test_size_of_a_large_space_whose_tunables_are_all_joined_is_an_estimate_and_says_so():
    size = ConfigSpace(BILLION, (SUM, EVEN)).size
    assert (size.total, size.exact) == (10**9, False)
    assert abs(size.valid / 10**9 - 0.97) < 0.03  # 97 of 100 pairs, known to 0.3 %
    assert str(size).startswith("1,000,000,000 configs, about 9")


@pytest.mark.parametrize(("rule", "valid"), [(lambda A, B: A == B == 299, 1), (lambda A, B: False, 0)])
def test_few_configs_of_a_large_group_are_counted(rule, valid):
    space = ConfigSpace({"A": IntRange(0, 299), "B": IntRange(0, 299)}, (Constraint("c", rule, ""),))
    assert space.size.valid == valid


# Spaces with few valid configs or none

FOUR = {name: range(50) for name in "abcd"}  # 6,250,000 combinations that the rules below do not look at


class Counted:
    """A rule that counts how often it is asked."""

    def __init__(self, rule):
        self.asked, self.rule = 0, rule
        self.__signature__ = inspect.signature(rule)

    def __call__(self, **chosen):
        self.asked += 1
        return self.rule(**chosen)


@pytest.mark.parametrize(
    ("rules", "refusing"),
    [
        ([lambda BM: BM <= 32], "r0"),
        ([lambda BM, BN: BM * BN <= 32], "r0"),
        ([lambda a, BM: True, lambda BM, BN: BM < BN], "r0, r1"),  # an earlier tunable is joined to the empty pair
    ],
)
def test_a_rule_that_nothing_satisfies_is_found_in_its_own_combinations(rules, refusing):
    counted = [Counted(rule) for rule in rules]
    rules = [Constraint(f"r{number}", rule, "") for number, rule in enumerate(counted)]
    space = ConfigSpace({**FOUR, "BM": [64, 128], "BN": [1, 2]}, rules)
    with pytest.raises(EmptySpaceError, match=rf"none of the 25,000,000 configs keeps .*\({refusing}\)"):
        space.default_config  # noqa: B018
    assert list(space) == []
    assert space.size == SpaceSize(25_000_000, 0)
    with pytest.raises(EmptySpaceError):
        space.sample(random.Random(0))
    assert sum(rule.asked for rule in counted) < 2000


def test_a_search_for_a_config_that_may_not_exist_ends_and_says_how_far_it_came(caplog, monkeypatch):
    for name in ("_FIRST_ASKS", "_LONGER_ASKS", "_DRAW_ASKS"):
        monkeypatch.setattr(groups, name, 100)
    monkeypatch.setattr(space_module, "_PATIENCE_ASKS", 500)
    rule = Counted(lambda a, b, c, d: False)
    space = ConfigSpace(FOUR, (Constraint("sum", rule, ""),))
    for ask in (lambda: space.default_config, lambda: space.sample(random.Random(0))):
        with pytest.raises(EmptySpaceError, match=r"no valid config was found among 6,250,000: .* \(sum\) were asked"):
            ask()
    assert str(space.size) == "6,250,000 configs, about 0 valid"
    assert list(space) == []
    assert "asked 500 times in a row without one" in caplog.text
    assert rule.asked < 10_000


def test_a_config_that_a_walk_in_order_would_not_reach_is_found():
    tunables = {f"T{number}": IntRange(1, 10) for number in range(12)}
    names = ", ".join(tunables)
    high = Constraint("high", eval(f"lambda {names}: {' + '.join(tunables)} >= 90"), "")
    config = ConfigSpace(tunables, (high,)).default_config
    assert sum(config.values()) >= 90


def test_a_chain_of_rules_over_a_trillion_points_is_enumerated_at_once():
    tunables = {f"T{number}": IntRange(1, 10) for number in range(12)}
    chain = [eval(f"lambda T{number}, T{number + 1}: T{number} == T{number + 1}") for number in range(11)]
    space = ConfigSpace(tunables, [Constraint("equal", rule, "") for rule in chain])
    assert [config["T11"] for config in space] == list(range(1, 11))
    assert space.size == SpaceSize(10**12, 10)


def test_values_that_cannot_be_completed_are_left_before_the_tunables_between_are_chosen():
    # `a` and the pair at the end are one group, and three tunables stand between them.
    rules = [Constraint("far", lambda a, y, z: a == 49 and y == z, "")]
    space = ConfigSpace({**FOUR, "y": [1, 2], "z": [2, 3]}, rules)
    assert space.take(2) == [Config(a=49, b=0, c=0, d=d, y=2, z=2) for d in (0, 1)]


def test_size_without_constraints_is_exact_however_large():
    assert ConfigSpace(BILLION).size == SpaceSize(10**9, 10**9, exact=True)
    assert str(ConfigSpace(GEMM, (SMALL,)).size) == "18 configs, 16 valid"


# Fingerprints


@examples(20)
@given(spaces(), spaces())
def test_fingerprint_follows_the_content(a, b):
    assert (a.fingerprint == b.fingerprint) == (_content(a) == _content(b))


def _content(space):
    rules = [(rule.name, rule.reason, rule.names) for rule in space.constraints]
    axes = [(name, canonical_json(tunable.values)) for name, tunable in space.tunables.items()]
    return axes, rules, space.default


def test_fingerprint_changes_with_every_part():
    spaces = [
        ConfigSpace(GEMM),
        ConfigSpace({**GEMM, "stages": [2, 4]}),
        ConfigSpace(dict(reversed(GEMM.items()))),
        ConfigSpace(GEMM, (SMALL,)),
        ConfigSpace(GEMM, (Constraint("tile", Arbitrary(("BM", "BN"), 2, 0), "why"),)),
        ConfigSpace(GEMM, (), {"BM": 32, "BN": 32, "stages": 2}),
        ConfigSpace.from_configs(ConfigSpace(GEMM)),
    ]
    assert len({space.fingerprint for space in spaces}) == len(spaces)


def test_equal_mappings_give_one_space_and_others_do_not():
    given = {"n": [1, 2]}
    space = ConfigSpace.from_user(given)
    assert ConfigSpace.from_user({"n": [1, 2]}) is space
    others = [{"n": [True, 2]}, {"n": [1.0, 2]}, {"n": ["1", 2]}, {"n": [2, 1]}, {"m": [1, 2]}, {"n": [1, 2], "m": [1]}]
    assert len({ConfigSpace.from_user(other).fingerprint for other in others} | {space.fingerprint}) == len(others) + 1
    given["n"].append(3)
    assert len(ConfigSpace.from_user(given).tunables["n"]) == 3
    assert len(space.tunables["n"]) == 2


def test_a_list_may_limit_registers_in_some_of_its_configs():
    plain, limited = Config(BLOCK=64, num_warps=4), Config(BLOCK=64, num_warps=4, maxnreg=64)
    for space in (ConfigSpace.from_configs([plain, limited]), ConfigSpace.from_configs([limited, plain])):
        assert {*space} == {plain, limited}
        assert [space.why_not(config) for config in (plain, limited)] == [None, None]
        assert space.names_agree(plain)
        assert "names" in space.why_not(Config(BLOCK=128, num_warps=4))
    with pytest.raises(SpaceError, match="has the names"):
        ConfigSpace.from_configs([plain, Config(BLOCK=64, maxnreg=64)])


def test_values_that_python_takes_for_equal_are_neighbours():
    space = ConfigSpace({"A": Choice([(False,), (0,)])})
    one, other = space
    assert list(space.neighbours(one)) == [other]


@given(spaces(), st.data())
def test_neighbours_are_the_valid_configs_that_differ_in_one_tunable(space, data):
    config = data.draw(st.sampled_from(list(itertools.islice(space, 20))))
    others = [other for other in space if sum(other[name] != config[name] for name in config) == 1]
    assert set(space.neighbours(config)) - {space.default_config} == {*others} - {space.default_config}


@given(st.integers(1, 9), st.data())
def test_by_steps_the_neighbours_of_an_ordered_value_are_the_one_below_and_the_one_above(count, data):
    at = data.draw(st.integers(0, count - 1))
    space = ConfigSpace({"n": IntRange(0, 10 * (count - 1), 10), "how": Choice(["a", "c", "b"])})
    neighbours = list(space.neighbours(Config(n=10 * at, how="c"), steps_only=True))
    beside = [place for place in (at - 1, at + 1) if 0 <= place < count]
    assert neighbours == [
        *(Config(n=10 * place, how="c") for place in beside), Config(n=10 * at, how="a"), Config(n=10 * at, how="b")
    ]  # fmt: skip


def test_by_steps_a_value_that_is_none_of_the_space_has_all_values_as_neighbours():
    space = ConfigSpace({"n": IntRange(0, 20, 10)})
    assert [config["n"] for config in space.neighbours(Config(n=5), steps_only=True)] == [0, 10, 20]


@pytest.mark.parametrize(("most", "whole"), [(11, False), (12, True), (13, True)])
def test_as_many_configs_as_are_allowed_are_held_at_once(most, whole):
    space = ConfigSpace({"A": range(4), "B": range(3)}, (Constraint("all", lambda A, B: A + B >= 0, "never"),))
    configs = space.all_configs(most)
    assert (configs is not None) == whole
    assert configs is None or list(configs) == list(space)


@pytest.mark.parametrize(("count", "allowed"), [(3, True), (4, False)])
@pytest.mark.parametrize("make", [lambda count: IntRange(1, count), lambda count: ConfigSpace({"T": range(count)})])
def test_as_many_values_as_can_be_listed_are_allowed(monkeypatch, make, count, allowed):
    monkeypatch.setattr(tunable_module, "_MOST_VALUES", 3)
    if allowed:
        make(count)
    else:
        with pytest.raises(ConfigValueError, match="a tunable has 4 values; at most 3 can be listed"):
            make(count)


def test_a_walk_has_patience_anew_after_each_config(monkeypatch):
    monkeypatch.setattr(space_module, "_PATIENCE_ASKS", 10)
    space = ConfigSpace({"a": range(20), "b": range(2)}, (Constraint("even", lambda a, b: a % 2 == b, ""),))
    assert len(list(space)) == 20
