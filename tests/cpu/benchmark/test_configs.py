"""The documented config spaces and their helpers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.benchmark import (
    FP8_GEMM_CONFIGS,
    GATED_MLP_CONFIGS,
    RMSNORM_ROPE_CONFIGS,
    filter_valid_configs,
    generate_configs,
    get_default_config,
)
from triton_ops.exceptions import ConfigValueError, EmptySpaceError, SettingsError
from triton_ops.space import PowerOfTwo


def test_the_spaces_have_the_documented_values() -> None:
    assert RMSNORM_ROPE_CONFIGS == {
        "BLOCK_SIZE": [64, 128, 256, 512, 1024],
        "num_warps": [2, 4, 8],
        "num_stages": [1, 2, 3],
    }
    assert GATED_MLP_CONFIGS == {
        "BLOCK_M": [32, 64, 128],
        "BLOCK_N": [32, 64, 128],
        "BLOCK_K": [32, 64],
        "num_warps": [4, 8],
        "num_stages": [2, 3, 4],
    }
    assert FP8_GEMM_CONFIGS == {
        "BLOCK_M": [64, 128, 256],
        "BLOCK_N": [64, 128, 256],
        "BLOCK_K": [32, 64],
        "GROUP_SIZE_M": [4, 8],
        "num_warps": [4, 8],
        "num_stages": [3, 4, 5],
    }
    for space in (RMSNORM_ROPE_CONFIGS, GATED_MLP_CONFIGS, FP8_GEMM_CONFIGS):
        assert type(space) is dict
        assert all(type(values) is list for values in space.values())


@pytest.mark.parametrize(
    ("space", "count"), [(RMSNORM_ROPE_CONFIGS, 45), (GATED_MLP_CONFIGS, 108), (FP8_GEMM_CONFIGS, 216)]
)
def test_generate_gives_every_combination(space: dict[str, list[Any]], count: int) -> None:
    result = generate_configs(space)
    assert len(result) == count
    assert len({tuple(config.items()) for config in result}) == count
    assert all(list(config) == list(space) for config in result)


def test_the_last_name_changes_fastest() -> None:
    assert generate_configs({"b": [2, 1], "a": [True, None]}) == [
        {"b": 2, "a": True},
        {"b": 2, "a": None},
        {"b": 1, "a": True},
        {"b": 1, "a": None},
    ]


def test_an_empty_space_has_one_config() -> None:
    assert generate_configs({}) == [{}]


def test_tunables_and_other_iterables_are_values_too() -> None:
    assert generate_configs({"a": PowerOfTwo(16, 64)}) == [{"a": 16}, {"a": 32}, {"a": 64}]
    assert generate_configs({"a": range(2), "b": (n for n in [5])}) == [{"a": 0, "b": 5}, {"a": 1, "b": 5}]


def test_configs_share_nothing_with_the_space_or_each_other() -> None:
    space = {"order": [[1, 2]], "n": [1, 2]}
    first, second = generate_configs(space)
    first["order"].append(3)
    assert second["order"] == [1, 2]
    assert space == {"order": [[1, 2]], "n": [1, 2]}


@given(
    st.dictionaries(
        st.text(max_size=3), st.lists(st.integers() | st.text(max_size=2), min_size=1, max_size=4), max_size=4
    )
)
def test_generate_is_the_product_in_order(space: dict[str, list[Any]]) -> None:
    result = generate_configs(space)
    assert len(result) == math.prod(len(values) for values in space.values())
    assert [tuple(config.values()) for config in result] == list(itertools.product(*space.values()))


def test_a_parameter_without_values_is_refused() -> None:
    with pytest.raises(EmptySpaceError, match="'BLOCK' has no values") as caught:
        generate_configs({"num_warps": [4], "BLOCK": []})
    assert caught.value.hint


@pytest.mark.parametrize(
    "space",
    [{"BLOCK": "64"}, {"BLOCK": b"64"}, {"BLOCK": 64}, {"BLOCK": None}, {"BLOCK": {64, 128}},
     {"BLOCK": {"a": 1}}, {1: [64]}, [("BLOCK", [64])], "BLOCK", None],
)  # fmt: skip
def test_an_object_that_is_no_config_space_is_refused(space: Any) -> None:
    with pytest.raises(ConfigValueError) as caught:
        generate_configs(space)
    assert caught.value.hint


# filter_valid_configs


@pytest.mark.parametrize("configs", [None, 3, {"BLOCK_M": [64]}])
def test_an_object_that_is_no_list_of_configs_is_refused(configs: Any) -> None:
    with pytest.raises(ConfigValueError, match="must be a list of configs") as caught:
        filter_valid_configs(configs, M=4)
    assert caught.value.hint


def test_bounds_of_numpy_are_bounds() -> None:
    numpy = pytest.importorskip("numpy")
    every = generate_configs(GATED_MLP_CONFIGS)
    assert filter_valid_configs(every, M=numpy.int64(16)) == filter_valid_configs(every, M=16)


@pytest.mark.parametrize(
    ("space", "bounds", "count"),
    [
        (RMSNORM_ROPE_CONFIGS, {"hidden_dim": 256}, 27),
        (RMSNORM_ROPE_CONFIGS, {"hidden_dim": 63}, 0),
        (RMSNORM_ROPE_CONFIGS, {"M": 1, "N": 1, "K": 1}, 45),
        (GATED_MLP_CONFIGS, {"M": 16}, 36),
        (GATED_MLP_CONFIGS, {"N": 16}, 36),
        (GATED_MLP_CONFIGS, {"K": 32}, 54),
        (GATED_MLP_CONFIGS, {"K": 31}, 0),
        (GATED_MLP_CONFIGS, {"intermediate_dim": 16}, 36),
        (GATED_MLP_CONFIGS, {"intermediate_dim": 32, "N": 16}, 36),
        (GATED_MLP_CONFIGS, {"intermediate_dim": 5632, "hidden_dim": 2048}, 108),
        (FP8_GEMM_CONFIGS, {"M": 1024, "N": 1024, "K": 1024}, 216),
        (FP8_GEMM_CONFIGS, {}, 216),
    ],
)
def test_filter_drops_blocks_beyond_the_problem(
    space: dict[str, list[Any]], bounds: dict[str, int], count: int
) -> None:
    every = generate_configs(space)
    kept = filter_valid_configs(every, **bounds)
    assert len(kept) == count
    assert [config for config in every if config in kept] == kept


def test_filter_takes_its_bounds_by_position() -> None:
    config = {"BLOCK_SIZE": 64, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    assert filter_valid_configs([config], 64, 32, 32, 32, 64) == [config]
    for position, bound in enumerate([64, 32, 32, 32, 64]):
        bounds: list[int | None] = [None] * 5
        bounds[position] = bound - 1
        assert filter_valid_configs([config], *bounds) == []


def test_filter_returns_copies() -> None:
    given_configs = [{"BLOCK_M": 64, "order": [1]}]
    [kept] = filter_valid_configs(given_configs, M=64)
    kept["order"].append(2)
    assert given_configs == [{"BLOCK_M": 64, "order": [1]}]


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "64", float("nan")])
@pytest.mark.parametrize("name", ["hidden_dim", "intermediate_dim", "M", "N", "K"])
def test_a_bound_is_a_positive_integer(name: str, bound: Any) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        filter_valid_configs([{}], **{name: bound})
    assert isinstance(caught.value, ValueError)


def test_a_block_that_is_no_number_is_refused() -> None:
    assert filter_valid_configs([{"BLOCK_M": None}, {"BLOCK_M": "auto"}]) == [{"BLOCK_M": None}, {"BLOCK_M": "auto"}]
    assert filter_valid_configs([{"BLOCK_M": None}], M=1) == [{"BLOCK_M": None}]
    with pytest.raises(ConfigValueError, match="'auto'"):
        filter_valid_configs([{"BLOCK_M": "auto"}], M=1)
    with pytest.raises(ConfigValueError, match="is not a config"):
        filter_valid_configs(["BLOCK_M"], M=1)  # type: ignore[list-item]


# get_default_config


@pytest.mark.parametrize(
    ("kernel_type", "config", "space"),
    [
        ("rmsnorm_rope", {"BLOCK_SIZE": 128, "num_warps": 4, "num_stages": 2}, RMSNORM_ROPE_CONFIGS),
        (
            "gated_mlp",
            {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3},
            GATED_MLP_CONFIGS,
        ),
        (
            "fp8_gemm",
            {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 4},
            FP8_GEMM_CONFIGS,
        ),
    ],
)
def test_the_defaults_are_the_documented_ones_and_in_their_space(
    kernel_type: str, config: dict[str, Any], space: dict[str, list[Any]]
) -> None:
    assert get_default_config(kernel_type) == config
    assert config in generate_configs(space)
    get_default_config(kernel_type).clear()
    assert get_default_config(kernel_type) == config


def test_an_unknown_kernel_has_no_default() -> None:
    assert get_default_config("flash_attention") == {}
    get_default_config("flash_attention")["n"] = 1
    assert get_default_config("flash_attention") == {}
