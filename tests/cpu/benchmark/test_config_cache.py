"""The documented ConfigCache: its surface, its keys, and its copies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.benchmark import ConfigCache
from triton_ops.device import probe
from triton_ops.exceptions import ConfigValueError, DeviceError

KEY = ("fp8_gemm", (4096, 4096, 4096), "cuda:0")
CONFIG = {"BLOCK_M": 128, "num_warps": 8}


@pytest.fixture(params=[False, True], ids=["memory", "folder"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ConfigCache:
    return ConfigCache(str(tmp_path / "cache") if request.param else None)


def test_a_config_comes_back(cache: ConfigCache) -> None:
    assert cache.get(*KEY) is None
    assert KEY not in cache
    assert len(cache) == 0
    cache.set(*KEY, CONFIG)
    assert cache.get(*KEY) == CONFIG
    assert KEY in cache
    assert len(cache) == 1
    cache.set(*KEY, {"BLOCK_M": 64})
    assert cache.get(*KEY) == {"BLOCK_M": 64}
    assert len(cache) == 1


def test_arguments_can_be_named() -> None:
    cache = ConfigCache(cache_dir=None)
    cache.set(kernel_type="dummy", problem_size=(1024,), device="cuda:0", config=CONFIG)
    assert cache.get(kernel_type="dummy", problem_size=(1024,), device="cuda:0") == CONFIG


def test_every_part_of_the_key_separates_entries(cache: ConfigCache) -> None:
    keys: list[tuple[str, Any, str]] = [
        KEY,
        ("gated_mlp", (4096, 4096, 4096), "cuda:0"),
        ("fp8_gemm", (4096, 4096, 8192), "cuda:0"),
        ("fp8_gemm", (4096, 4096, 4096), "cuda:1"),
        ("fp8_gemm", (4096, 4096, 4096), "NVIDIA H200"),
        ("fp8_gemm", (4096,), "cuda:0"),
        ("fp8_gemm", 4096, "cuda:0"),
        ("fp8_gemm", "4096", "cuda:0"),
        ("fp8_gemm", "(4096, 4096, 4096)", "cuda:0"),
        ("fp8_gemm_", 4096, "cuda:0"),
        ("fp8", "gemm_4096", "cuda:0"),
    ]
    for number, key in enumerate(keys):
        cache.set(*key, {"n": number})
    assert [cache.get(*key) for key in keys] == [{"n": number} for number in range(len(keys))]
    ids = cache.get_all_keys()
    assert ids == sorted(set(ids))
    assert len(ids) == len(keys) == len(cache)
    assert all(len(entry_id) == 32 and int(entry_id, 16) >= 0 for entry_id in ids)


def test_lists_and_tuples_are_one_size(cache: ConfigCache) -> None:
    cache.set("k", [16, [2, 3]], "cpu", CONFIG)
    assert cache.get("k", (16, (2, 3)), "cpu") == CONFIG
    assert ("k", (16, [2, 3]), "cpu") in cache
    assert len(cache) == 1


def test_labels_of_a_device_that_is_here_are_its_name_if_that_is_asked_for(tmp_path: Path) -> None:
    name = probe("cpu").name
    shared = ConfigCache(tmp_path, by_model=True)
    shared.set("k", 16, "cpu", CONFIG)
    assert shared.get("k", 16, name) == ConfigCache(tmp_path).get("k", 16, name) == CONFIG
    assert ConfigCache(tmp_path).get("k", 16, "cpu") is None
    shared.set("k", 16, "NVIDIA H200", {"BLOCK_M": 64})  # a label of its own, also where there is no such GPU
    assert shared.get("k", 16, "NVIDIA H200") == {"BLOCK_M": 64}
    with pytest.raises(DeviceError):
        shared.get("k", 16, "cuda:99")


def test_a_device_object_counts_as_its_text(cache: ConfigCache) -> None:
    torch = pytest.importorskip("torch")
    cache.set("k", torch.Size([4, 4]), torch.device("cuda:0"), CONFIG)
    assert cache.get("k", (4, 4), "cuda:0") == CONFIG


def test_configs_are_copied_in_and_out(cache: ConfigCache) -> None:
    given_config = {"order": [1, 2], "meta": {"a": [1]}}
    cache.set(*KEY, given_config)
    given_config["order"].append(3)
    result = cache.get(*KEY)
    assert result == {"order": [1, 2], "meta": {"a": [1]}}
    result["meta"]["a"].append(2)
    assert cache.get(*KEY) == {"order": [1, 2], "meta": {"a": [1]}}


def test_clear_forgets_everything(cache: ConfigCache) -> None:
    cache.set(*KEY, CONFIG)
    cache.set("other", 1, "cpu", {})
    cache.clear()
    assert cache.get(*KEY) is None
    assert cache.get_all_keys() == []
    cache.set(*KEY, CONFIG)
    assert cache.get(*KEY) == CONFIG
    assert len(cache) == 1


@pytest.mark.parametrize("key", [None, "text", ("k", 1), ("k", 1, "cpu", 2)])
def test_only_keys_with_an_entry_are_in_a_cache(cache: ConfigCache, key: Any) -> None:
    assert key not in cache


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (..., "config['meta'][1]"),
        (float("nan"), "config['meta'][1]"),
        (float("inf"), "config['meta'][1]"),
        ({1, 2}, "config['meta'][1]"),
        (b"x", "config['meta'][1]"),
        (1j, "config['meta'][1]"),
        ({1: 2}, "keys must be strings"),
        (endless(), "contain itself"),
    ],
    ids=repr,
)
def test_a_value_that_cannot_be_stored_is_named_and_changes_nothing(cache: ConfigCache, value: Any, place: str) -> None:
    cache.set(*KEY, CONFIG)
    with pytest.raises(ConfigValueError) as caught:
        cache.set(*KEY, {"meta": [1, value]})
    assert place in str(caught.value)
    assert caught.value.hint
    assert cache.get(*KEY) == CONFIG
    assert len(cache) == 1


@pytest.mark.parametrize("config", [None, [1], "BLOCK=64", 64])
def test_a_config_is_a_mapping(cache: ConfigCache, config: Any) -> None:
    with pytest.raises(ConfigValueError, match="a config is a mapping"):
        cache.set(*KEY, config)


@pytest.mark.parametrize("key", [("k", object(), "cpu"), (None, 1, "cpu"), ("k", float("nan"), "cpu")])
def test_a_key_that_cannot_be_stored_is_refused(cache: ConfigCache, key: Any) -> None:
    with pytest.raises(ConfigValueError):
        cache.set(*key, CONFIG)
    with pytest.raises(ConfigValueError):
        cache.get(*key)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
sizes = st.integers() | names | st.lists(st.integers(1, 2**20), max_size=4).map(tuple)


@given(st.dictionaries(st.tuples(names, sizes, names), st.dictionaries(names, nested, max_size=4), max_size=5))
def test_any_configs_come_back_as_they_were(entries: dict[Any, dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        caches = [ConfigCache(), ConfigCache(folder)]
        for cache in caches:
            for key, config in entries.items():
                cache.set(*key, config)
        for cache in [*caches, ConfigCache(folder)]:
            assert {key: cache.get(*key) for key in entries} == entries
            assert len(cache) == len(entries)
