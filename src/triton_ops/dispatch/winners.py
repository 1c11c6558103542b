"""The `cache` of a decorated kernel, by which others read, clear and set winners as they do with Triton's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST = 65_536  # keys of one kernel


def triton_key(autotuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a call in the `cache` of an `Autotuner`, as Triton makes it."""
    values = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    named = {name: value for name, value in values.items() if name in autotuner.arg_names}
    dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*(named[name] for name in autotuner.keys if name in named), *dtypes)


def standing(cache: Any, key: Any) -> Any:
    """Config that stands in a cache for a key, asked as Triton asks it; None if nothing does."""
    try:
        return cache[key] if key in cache else None  # noqa: SIM401 - a caller's own cache may answer in its own way
    except KeyError:  # another thread has taken it away
        return None


class Winners(dict[Any, Any]):
    """The configs by Triton's key. No known launch asks it: its kernel is told when others have changed it.

    Args:
        changed: A method of the kernel, called after each change by others.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def tells(self, kernel: Any) -> bool:
        """Tell whether it is this kernel that is told."""
        return getattr(self._changed, "__self__", None) is kernel

    def keep(self, key: Any, config: Any) -> None:
        """Show a decision, which changes nothing."""
        super().__setitem__(key, config)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are plain ones."""
        return dict, (dict(self),)


def _told(name: str) -> Any:
    change = getattr(dict, name)

    def method(self: Winners, *args: Any, **kwargs: Any) -> Any:
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
    """Config that a kernel has put into its cache under one key.

    Attributes:
        config: The `triton.Config`.
        place: The decision that it shows.
        places: All decisions for calls with that key; they may differ in what Triton's key does not have.
    """

    config: Any
    place: Any
    places: set[Any] = field(default_factory=set)


class Shown:
    """Configs that this package has put into the cache of an `Autotuner`, told apart from what others put there.

    The cache may be any object that the caller has put on the kernel: it is asked by `in` and `[]`, as Triton asks it.
    """

    def __init__(self, autotuner: Callable[[], Any]) -> None:
        self._autotuner, self._entries = autotuner, dict[Any, Entry]()

    def by_others(self, key: Any) -> Any:
        """The config that others have put there for a key; None if there is none."""
        there, entry = standing(self._autotuner().cache, key), self._entries.get(key)
        return None if entry is not None and there is entry.config else there

    def taken_away(self, key: Any) -> set[Any]:
        """The places whose decisions others have taken away by removing what stood there for a key."""
        gone = key not in self._autotuner().cache
        return self._entries.pop(key).places if gone and key in self._entries else set()

    def put(self, key: Any, place: Any, config: Any) -> bool:
        """Show a decision; returns whether nothing stood there for its key."""
        cache = self._autotuner().cache
        there, entry = standing(cache, key), self._entries.get(key)
        if len(self._entries) >= _MOST:
            self._entries.clear()  # what stands in the cache counts as set by others from now on
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
    def others(self) -> dict[Any, Any]:
        """Configs that others have put into a plain cache."""
        configs = {key: self.by_others(key) for key in list(self._autotuner().cache)}
        return {key: config for key, config in configs.items() if config is not None}
