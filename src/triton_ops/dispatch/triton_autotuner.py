"""Parts of Triton's `Autotuner` that others read, change or replace: its cache, its `run`.

Facts used, from Triton 3.6 to 3.9: `Autotuner.run` looks its key up in `cache`; where that is missing, it asks
`prune_configs`, measures each config by `_bench` and `do_bench`, or has `check_disk_cache` do so if `cache_results` is
set, calls `pre_hook(arguments, reset_only=True)`, and launches the winner once. From 3.8 on, one config that is left is
not measured, and `knobs.autotuning.listener` is told. The constructor makes `_do_bench` of its deprecated options by a
function of its own module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import TritonKernel
from triton_ops.base import BoundedDict, require
from triton_ops.exceptions import ConfigValueError
from triton_ops.space import CONFIG_FIELDS, Config, Members, checked_value, given_back
from triton_ops.values import Trial

_upstream: Any = require("triton.runtime.autotuner", "triton_ops.autotune")
_knobs: Any = require("triton.knobs", "triton_ops.autotune")
AUTOTUNER: Any = _upstream.Autotuner
# The listener and the launch of one config without a measurement both came with Triton 3.8.
MEASURES_ONE = not hasattr(_knobs.autotuning, "listener")
"""Tell whether one config that is left after pruning is measured too."""
RUN_OF_TRITON: Callable[..., Any] = AUTOTUNER.run


def is_tritons(function: object) -> bool:
    """Tell whether a function or method is Triton's own code."""
    function = getattr(function, "__func__", function)
    return getattr(function, "__globals__", None) is vars(_upstream)


class Expected:
    """The function in the place of `Autotuner.run` while nobody but this package has put something there."""

    run: Any = RUN_OF_TRITON if is_tritons(RUN_OF_TRITON) else None
    installed = False


def measures_itself(autotuner: Any) -> str:
    """Function of somebody's by which an `Autotuner` measures configs, asked by Triton's own loop alone; else empty.

    What Triton makes of its deprecated options is no such thing.
    """
    kind = type(autotuner)
    if autotuner._do_bench is not None and not is_tritons(autotuner._do_bench):
        return "the decorator brings do_bench"
    if not is_tritons(autotuner._bench):
        return f"{kind.__qualname__} has a _bench of its own"
    measure = vars(autotuner).get("do_bench")  # Triton's, or its driver's, once it has measured
    set_later = measure is not None and str(getattr(measure, "__module__", "triton")).partition(".")[0] != "triton"
    if kind.do_bench is not AUTOTUNER.do_bench or set_later:
        return f"{kind.__qualname__} has a do_bench of its own"
    return ""


def reset(autotuner: Any, values: Mapping[str, Any]) -> None:
    """Do what Triton does after a tune, before the winner is launched: `reset_to_zero`, or a hook in its place."""
    if not is_tritons(autotuner.pre_hook):
        autotuner.pre_hook(dict(values), reset_only=True)
        return
    for name in autotuner.reset_to_zero:
        if values.get(name) is not None:
            values[name].zero_()


def tell_listener(autotuner: Any, function: Any, key: Any, config: Any, *, measured: bool) -> None:
    """Tell who listens to Triton's tunes of one that this package has taken the place of."""
    if (listener := getattr(_knobs.autotuning, "listener", None)) is not None:
        listener(
            fn=function, key=key, best_config=config, configs_timings=autotuner.configs_timings,
            duration=autotuner.bench_time if measured else None, cache_hit=not measured,
        )  # fmt: skip


_MOST = 65_536  # keys of one kernel


def triton_key(autotuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a call in the `cache` of an `Autotuner`, as Triton makes it."""
    values = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    by_name = {name: value for name, value in values.items() if name in autotuner.arg_names}
    dtypes = [str(value.dtype) for value in by_name.values() if hasattr(value, "dtype")]
    return (*(by_name[name] for name in autotuner.keys if name in by_name), *dtypes)


def standing(cache: Any, key: Any) -> Any:
    """Config that stands in a cache for a key, asked as Triton asks it; None if nothing does."""
    try:
        return cache[key] if key in cache else None  # noqa: SIM401 - a caller's own cache may answer in its own way
    except KeyError:  # another thread has taken it away
        return None


class Winners(dict[Any, Any]):
    """The configs by Triton's key. No known launch asks it: its kernel is told when others have changed it."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def tells(self, kernel: object) -> bool:
        """Tell whether it is this kernel that is told."""
        return getattr(self._changed, "__self__", None) is kernel

    def keep(self, key: object, config: object) -> None:
        """Show a decision, which changes nothing."""
        super().__setitem__(key, config)

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles are plain ones."""
        return dict, (dict(self),)


def _told(name: str) -> Callable[..., object]:
    change = getattr(dict, name)

    def method(self: Winners, *args: object, **kwargs: object) -> object:
        try:
            return change(self, *args, **kwargs)
        finally:
            self._changed()

    method.__name__, method.__doc__ = name, change.__doc__
    return method


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(Winners, _name, _told(_name))


@dataclass
class Entry:
    """A config in a cache, the place of its decision, and those of all decisions that the key does not tell apart."""

    config: Any
    place: Any
    places: set[Any] = field(default_factory=set)


class Shown:
    """Configs that this package has put into the cache of an `Autotuner`, told apart from what others put there.

    The cache may be any object that the caller has put on the kernel: it is asked by `in` and `[]`, as Triton asks it.
    """

    def __init__(self, autotuner: Callable[[], Any]) -> None:
        self._autotuner, self._entries = autotuner, BoundedDict[Any, Entry](_MOST)  # a lost one counts as set by others

    def by_others(self, key: Any) -> Any:
        """The config that others have put there for a key; None if there is none."""
        there, entry = standing(self._autotuner().cache, key), self._entries.get(key)
        return None if entry is not None and there is entry.config else there

    def taken_away(self, key: object) -> set[object]:
        """The places whose decisions others have taken away by removing what stood there for a key."""
        return self._entries.pop(key).places if key not in self._autotuner().cache and key in self._entries else set()

    def put(self, key: Any, place: Any, config: Any) -> bool:
        """Show a decision; returns whether nothing stood there for its key."""
        cache = self._autotuner().cache
        there, entry = standing(cache, key), self._entries.get(key)
        if there is None or (entry is not None and entry.place == place and there is not config):
            if isinstance(cache, Winners):
                cache.keep(key, config)
            else:
                cache[key] = config
            entry = Entry(config, place, set() if entry is None else entry.places)
        entry = self._entries[key] = entry or Entry(config, place)
        entry.places.add(place)
        return there is None

    def take_back(self) -> None:
        """Leave to the cache what others have put there, and no decision."""
        cache = self._autotuner().cache
        for key, entry in self._entries.items():
            if standing(cache, key) is entry.config and hasattr(cache, "pop"):
                cache.pop(key, None)
        self._entries.clear()

    @property
    def others(self) -> dict[object, object]:
        """Configs that others have put into a plain cache."""
        configs = {key: self.by_others(key) for key in list(self._autotuner().cache)}
        return {key: config for key, config in configs.items() if config is not None}


def to_triton(config: Mapping[str, Any], listed: Iterable[Any] = (), members: Members | None = None) -> Any:
    """The `triton.Config` with these values: the one in the list that has them, with its hook, or else a new one.

    Members of an `Enum` and dtypes stand by name or as they are; a new config is given those in `members`.
    """
    plain = dict(config.plain if isinstance(config, Config) else config)
    for one in listed:
        values = TritonKernel.values_of(one)
        alike = all(name in values or name in CONFIG_FIELDS for name in plain) and _tuned(values) == _tuned(plain)
        if alike and all(values.get(name) == plain[name] for name in CONFIG_FIELDS if name in plain):
            return one
    own = members or {}
    kwargs = {name: given_back(value, own.get(name, {})) for name, value in plain.items() if name not in CONFIG_FIELDS}
    options = {name: plain[name] for name in CONFIG_FIELDS if plain.get(name) is not None}
    return require("triton", "launching a config").Config(kwargs, **options)


def from_triton(config: object) -> Config:
    """The values of a `triton.Config`, as they are shown; those that no config can hold appear as text."""
    return Config({name: _shown(name, value) for name, value in TritonKernel.values_of(config).items()})


def timings(trials: Iterable[Trial], listed: Sequence[object] = ()) -> dict[object, list[float]]:
    """For each `triton.Config` that was tried median, 20 % and 80 % quantile in ms; infinite where it failed."""
    alike: dict[frozenset[Any], list[Any]] = {}  # all of a large list would be compared with each trial
    for one in listed:
        alike.setdefault(_tuned(TritonKernel.values_of(one)), []).append(one)
    measured = {to_triton(one.config, alike.get(_tuned(one.config), ())): one.measurement for one in trials}
    return {
        config: [math.inf] * 3 if times is None else [times.median_ms, times.p20_ms, times.p80_ms]
        for config, times in measured.items()
    }


def _tuned(values: Mapping[str, object]) -> frozenset[object]:
    return frozenset((name, _shown(name, value)) for name, value in values.items() if name not in CONFIG_FIELDS)


def _shown(name: str, value: object) -> object:
    """A value as a config holds it: a member by its name, and by its text what no config can hold."""
    try:
        return checked_value(name, value)
    except ConfigValueError:
        return str(value)


class BeforeLaunch:
    """A decorator's own hook before every launch of a tune."""

    def __init__(self, hook: Callable[..., object]) -> None:
        self.hook = hook

    def __call__(self, values: dict[str, object]) -> None:
        """Call it with the arguments by name."""
        self.hook(values)
