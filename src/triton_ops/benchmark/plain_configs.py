"""Plain config dicts: their documented cache, and documented spaces as lists of them.

The cache is a thin layer over the stores of `triton_ops.records`. It holds the configs that its caller calls best, and
knows nothing of kernels, versions or measurements. Records of tunes, which hold all of that, are kept by the same
stores, but not by this class.

The spaces are plain dicts from parameter name to candidate values. Nothing here depends on a device: whether a config
fits one is found out by trying it.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec

from triton_ops import settings
from triton_ops.base import DamagedError, Sealed, fingerprint
from triton_ops.device import probe
from triton_ops.exceptions import CacheError, ConfigValueError, EmptySpaceError, SettingsError
from triton_ops.records import Codec, DirectoryStore, LayeredStore, MemoryStore

_OF_A_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_DEEPEST = 32  # levels of nesting; a deeper value is taken for one that contains itself


@dataclass(frozen=True)
class _Key:
    kernel_type: str
    problem_size: Any
    device: str

    @property
    def id(self) -> str:
        return fingerprint([self.kernel_type, self.problem_size, self.device])


@dataclass(frozen=True)
class _StoredConfig:
    key: _Key
    config: dict[str, Any]


def _decode(content: Mapping[str, Any]) -> _StoredConfig:
    with CacheError.when("it is not well formed", "", DamagedError, ConfigValueError):
        entry = Sealed.typed(dict(content), _StoredConfig)
        _json_value(entry.config, "config")
        _json_value(entry.key.problem_size, "problem_size")
    return entry


# Schema history: 1  first form
_ENTRIES: Codec[_StoredConfig] = Codec(
    kind="triton-ops config",
    schema_version=1,
    suffix="config",
    encode=msgspec.to_builtins,
    decode=_decode,
    id_of=lambda entry: entry.key.id,
)


class ConfigCache:
    """Best configs by kernel type, problem size and device, for many threads and processes.

    Without `cache_dir` entries live as long as this object. With it they are also readable JSON files there,
    `<id>.config.json`, each with its key inside, and all processes that name this folder share them: `get` sees entries
    that another process has set, and misses those it has cleared. While the folder cannot be reached, and for entries
    that it did not take (full disk, read-only folder), memory answers.

    A problem size may be a whole number, also one of NumPy's, a string, or a list or tuple of such; lists and tuples
    count as equal. Configs are copied in and out. They hold only values that JSON has: tuples come back as lists.

    A file that is damaged, or that is no entry of a ConfigCache, is a miss and a warning of the logger `triton_ops`; it
    is never removed.

    Different devices are different entries, and a device is what its label says: `cuda:0`, `cuda:1` and the name of the
    GPU are three. With `by_model`, `cpu`, `cuda` and `cuda:N` stand for the name of that processor or GPU, so that
    equal GPUs, of other machines too, share their entries.

    Attributes:
        cache_dir: The folder, with `~` expanded; None for memory only.
        by_model: Whether the label of a device that is here stands for its name.
    """

    def __init__(self, cache_dir: str | os.PathLike[str] | None = None, *, by_model: bool = False) -> None:
        """Open a cache.

        Raises:
            CacheError: `cache_dir` is a file, no path, empty, or cannot be made.
        """
        self.by_model = by_model
        self.cache_dir: Path | None = None
        self._store: MemoryStore[_StoredConfig] | LayeredStore[_StoredConfig] = MemoryStore(_ENTRIES)
        if cache_dir is not None:
            files = DirectoryStore(_folder(cache_dir), _ENTRIES)
            self.cache_dir = files.folder
            self._store = LayeredStore(files)

    def get(self, kernel_type: str, problem_size: Any, device: Any) -> dict[str, Any] | None:
        """A copy of the config that was set for this key; None if there is none.

        Raises:
            ConfigValueError: The key cannot be stored as JSON: see `set`.
            DeviceError: With `by_model`, there is no such GPU here.

        Cost: about 0.05 ms in memory, 0.1 ms with a folder.
        """
        entry = self._store.get(self._key(kernel_type, problem_size, device).id)
        return None if entry is None else entry.config

    def set(self, kernel_type: str, problem_size: Any, device: Any, config: Mapping[str, Any]) -> None:
        """Keep a copy of `config`, in place of an earlier one for this key.

        If the folder does not take the entry, there is a warning, and this process keeps it in memory.

        Args:
            kernel_type: Name of the kernel family.
            problem_size: Int, string, or list or tuple of such.
            device: A label such as `cuda:0` or a device's name; a `torch.device` counts as its text. Different labels
                are different entries.
            config: Parameter name to value.

        Raises:
            ConfigValueError: The key or a value in the config cannot be stored as JSON; nothing was changed.
            DeviceError: With `by_model`, there is no such GPU here.

        Cost: with a folder two fsyncs, 1 ms on an idle disk.
        """
        key = self._key(kernel_type, problem_size, device)
        if not isinstance(config, Mapping):
            raise ConfigValueError(f"a config is a mapping from names to values, not {config!r}", hint="give a dict")
        self._store.put(_StoredConfig(key, _json_value(config, "config")))

    def clear(self) -> None:
        """Forget every entry, in memory and in the folder, also those of other processes.

        Other processes miss the entries from now on; only entries that the folder never took stay,
        in the memory of the process that set them. Files that are not entries of a ConfigCache
        stay, and so do entries that are set after this call.

        Raises:
            CacheError: The folder cannot be changed; its entries are still there.
        """
        self._store.clear()

    def get_all_keys(self) -> list[str]:
        """The ids of all entries, sorted: 32 hexadecimal digits each, as in the file names.

        Cost: reads every entry's file.
        """
        return sorted(entry.key.id for entry in self._store)

    def __contains__(self, key: object) -> bool:
        """Tell whether `(kernel_type, problem_size, device)` has an entry."""
        return isinstance(key, tuple) and len(key) == 3 and self.get(*key) is not None

    def __len__(self) -> int:
        return len(self.get_all_keys())

    def _key(self, kernel_type: Any, problem_size: Any, device: Any) -> _Key:
        if not isinstance(kernel_type, str):
            message = f"kernel_type is {kernel_type!r}; it must be a string"
            raise ConfigValueError(message, hint="name the kernel family")
        label = str(device)
        if self.by_model and _OF_A_DEVICE.fullmatch(label):
            label = probe(label).name
        return _Key(kernel_type, _json_value(problem_size, "problem_size"), label)


def _folder(path: Any) -> str | os.PathLike[str]:
    if settings.is_path(path) and os.fspath(path):
        return path
    raise CacheError(f"cache_dir is {path!r}; it must be a folder", hint="None keeps configs in memory only")


def _json_value(value: Any, where: str, depth: int = 0) -> Any:
    """A copy of `value` in plain JSON types; a ConfigValueError names the place of a part that has no such type."""
    if depth > _DEEPEST:
        raise ConfigValueError(f"{where[:60]}… is nested deeper than {_DEEPEST} levels", hint="does it contain itself?")
    if value is None or isinstance(value, (bool, str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Integral):  # one of NumPy's, as extents often are
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_text(name, where): _json_value(item, f"{where}[{name!r}]", depth + 1) for name, item in value.items()}
    raise ConfigValueError(
        f"{where} is {value!r} of type {type(value).__name__}, which JSON cannot hold; "
        "allowed are None, bool, int, finite float, str, lists and dicts with string keys",
        hint="use x.item() for a NumPy number, x.tolist() for an array, and a dtype's name instead of the dtype",
    )


def _text(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise ConfigValueError(f"{where} has the key {name!r}; keys must be strings", hint="use str(key)")
    return name


#: The documented space of `fused_rmsnorm_rope`: 45 configs, from the name of a parameter to its values.
RMSNORM_ROPE_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_SIZE": [64, 128, 256, 512, 1024],
    "num_warps": [2, 4, 8],
    "num_stages": [1, 2, 3],
}

#: The documented space of `fused_gated_mlp`: 108 configs, from the name of a parameter to its values.
GATED_MLP_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_M": [32, 64, 128],
    "BLOCK_N": [32, 64, 128],
    "BLOCK_K": [32, 64],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
}

#: The documented space of `fp8_gemm`: 216 configs, from the name of a parameter to its values.
FP8_GEMM_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_M": [64, 128, 256],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [32, 64],
    "GROUP_SIZE_M": [4, 8],
    "num_warps": [4, 8],
    "num_stages": [3, 4, 5],
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "rmsnorm_rope": {"BLOCK_SIZE": 128, "num_warps": 4, "num_stages": 2},
    "gated_mlp": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3},
    "fp8_gemm": {
        "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_SIZE_M": 8,
        "num_warps": 4, "num_stages": 4,
    },
}  # fmt: skip


def generate_configs(config_space: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, each as a new dict.

    Names keep their order; the last name's value changes fastest. An empty space has one combination: `[{}]`.

    Args:
        config_space: Parameter name to its candidate values, in the order in which they are tried.

    Returns:
        The configs, each a new dict, the last name's values fastest.

    Raises:
        EmptySpaceError: A parameter has no values.
        ConfigValueError: The space is no mapping from strings, or a parameter's values are no list.
    """
    if not isinstance(config_space, Mapping):
        raise ConfigValueError(
            f"a config space is a mapping from names to lists of values, not {config_space!r}",
            hint='write {"BLOCK_SIZE": [64, 128]}',
        )
    names = list(config_space)
    values = [_values_of(name, config_space[name]) for name in names]
    return [dict(zip(names, copy.deepcopy(combination), strict=True)) for combination in itertools.product(*values)]


def filter_valid_configs(
    configs: Iterable[Mapping[str, Any]],
    hidden_dim: int | None = None,
    intermediate_dim: int | None = None,
    M: int | None = None,
    N: int | None = None,
    K: int | None = None,
) -> list[dict[str, Any]]:
    """The configs whose blocks are not wastefully larger than the problem, in their order.

    The list may be empty. A bound of None drops no config, and a config without the name that a bound concerns is kept.

    Args:
        configs: Configs, such as those of `generate_configs`; the result holds copies of them.
        hidden_dim: Drops `BLOCK_SIZE` > hidden_dim.
        intermediate_dim: Columns of a gated MLP's output, which acts as N does: drops `BLOCK_N` > 2 · intermediate_dim.
        M: Drops `BLOCK_M` > 2 · M; up to half of a block may be masked.
        N: Drops `BLOCK_N` > 2 · N.
        K: Drops `BLOCK_K` > K.

    Raises:
        SettingsError: A bound is not a positive integer; it is a ValueError as well.
        ConfigValueError: `configs` is no list, a config is no mapping, or its block is not a number.
    """
    bounds = [
        ("BLOCK_SIZE", "hidden_dim", hidden_dim, 1), ("BLOCK_N", "intermediate_dim", intermediate_dim, 2),
        ("BLOCK_M", "M", M, 2), ("BLOCK_N", "N", N, 2), ("BLOCK_K", "K", K, 1),
    ]  # fmt: skip
    hint = "leave it out to drop no config by it"
    limits = [
        (block, int(SettingsError.checked(name, bound, whole=True, hint=hint)) * factor)
        for block, name, bound, factor in bounds
        if bound is not None
    ]
    if isinstance(configs, Mapping) or not isinstance(configs, Iterable):
        message = f"configs is a {type(configs).__name__}; it must be a list of configs"
        raise ConfigValueError(message, hint="a space becomes one by generate_configs")
    return [copy.deepcopy(dict(config)) for config in configs if _fits(config, limits)]


def get_default_config(kernel_type: str) -> dict[str, Any]:
    """The config with which a kernel family runs untuned, as a new dict; `{}` for a family that is not known.

    Args:
        kernel_type: The family: `rmsnorm_rope`, `gated_mlp` or `fp8_gemm`.
    """
    return dict(_DEFAULTS.get(kernel_type, {}))


def _values_of(name: Any, listed: Any) -> list[Any]:
    if not isinstance(name, str):
        raise ConfigValueError(f"a parameter's name must be a string, not {name!r}", hint="use the keyword's name")
    # Sets have no order of their own that is the same in every process.
    if isinstance(listed, (str, bytes, Mapping, set, frozenset)) or not isinstance(listed, Iterable):
        message = f"parameter {name!r} has {listed!r} instead of a list of values"
        raise ConfigValueError(message, hint=f"write [{listed!r}] for a single value")
    if not (values := list(listed)):
        raise EmptySpaceError(f"parameter {name!r} has no values", hint="give it at least one value, or leave it out")
    return values


def _fits(config: Any, limits: list[tuple[str, int]]) -> bool:
    if not isinstance(config, Mapping):
        raise ConfigValueError(f"{config!r} is not a config", hint="give a list of dicts, as from generate_configs")
    for name, limit in limits:
        if (block := config.get(name)) is None:
            continue
        if isinstance(block, bool) or not isinstance(block, (int, float)):
            raise ConfigValueError(f"{name} is {block!r}; it must be a number to be compared with {limit}")
        if block > limit:
            return False
    return True
