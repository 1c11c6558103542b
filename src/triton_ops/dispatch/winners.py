"""The `cache` of a decorated kernel, which others read, clear and fill as they do that of Triton's `Autotuner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def seeded_in(cache: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """What others have put into a cache; all of a plain one."""
    return cache.seeded if isinstance(cache, Winners) else cache


def triton_key(tuned: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a call in the `cache` of an `Autotuner`, as Triton makes it."""
    given = {**dict(zip(tuned.arg_names, args, strict=False)), **kwargs}
    named = {name: value for name, value in given.items() if name in tuned.arg_names}
    dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*(named[name] for name in tuned.keys if name in named), *dtypes)


class Winners(dict[Any, Any]):
    """The configs by Triton's key, where others may look, clear, and put their own."""

    def __init__(self, forget: Callable[[], None], winners: Mapping[Any, Any]) -> None:
        super().__init__(winners)
        self.seeded: dict[Any, Any] = dict(winners)
        self._forget = forget

    def keep(self, key: Any, config: Any) -> None:
        """Show a decision, which nobody else has set."""
        super().__setitem__(key, config)

    def __setitem__(self, key: Any, config: Any) -> None:
        self.seeded[key] = config
        super().__setitem__(key, config)
        self._forget()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Put several."""
        for key, config in dict(*args, **kwargs).items():
            self[key] = config

    def __ior__(self, others: Any) -> Winners:  # type: ignore[misc]
        self.update(others)
        return self

    def setdefault(self, key: Any, config: Any = None) -> Any:
        """The config for a key; `config` is put where there is none."""
        if key not in self:
            self[key] = config
        return self[key]

    def clear(self) -> None:
        """Forget every winner, those that were set as well."""
        self.seeded.clear()
        super().clear()
        self._forget()

    def pop(self, key: Any, *default: Any) -> Any:
        """Forget one winner; every call is decided again."""
        self.seeded.pop(key, None)
        found = super().pop(key, *default)
        self._forget()
        return found

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def popitem(self) -> tuple[Any, Any]:
        """Forget the winner that was put last; every call is decided again.

        Raises:
            KeyError: There is no winner.
        """
        key = next(reversed(self), None)
        if key is None:
            raise KeyError("popitem(): dictionary is empty")
        return key, self.pop(key)
