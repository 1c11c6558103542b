"""Between `triton.Config`s and this package's configs; and the hook that a decorator brings beside those of configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from triton_ops.backend import values_of
from triton_ops.base import require
from triton_ops.exceptions import ConfigValueError
from triton_ops.space import Config, Members, checked_value, given_back
from triton_ops.values import Trial

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def to_triton(config: Mapping[str, Any], listed: Iterable[Any] = (), members: Members | None = None) -> Any:
    """The `triton.Config` with these values: the one in the list that has them, with its hook, or else a new one.

    Args:
        config: The values, members of an `Enum` and dtypes by name or as they are.
        listed: The configs of a decorator.
        members: What the kernel of a new config is given in place of names.
    """
    wanted = dict(config.plain if isinstance(config, Config) else config)
    for one in listed:
        values = values_of(one)
        if all(name in values or name in _OPTIONS for name in wanted) and _equal(wanted, values):
            return one
    own = members or {}
    kwargs = {name: given_back(value, own.get(name, {})) for name, value in wanted.items() if name not in _OPTIONS}
    options = {name: wanted[name] for name in _OPTIONS if wanted.get(name) is not None}
    return require("triton", "launching a config").Config(kwargs, **options)


def _equal(wanted: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    if _tuned(values) != _tuned(wanted):
        return False
    return all(values.get(name) == wanted[name] for name in _OPTIONS if name in wanted)


def from_triton(config: Any) -> Config:
    """The values of a `triton.Config`, as they are shown; those that no config can hold appear as text."""
    return Config({name: _shown(name, value) for name, value in values_of(config).items()})


def timings(trials: Iterable[Trial], listed: Sequence[Any] = ()) -> dict[Any, list[float]]:
    """For each `triton.Config` that was tried median, 20 % and 80 % quantile in ms; infinite where it failed."""
    alike: dict[frozenset[Any], list[Any]] = {}  # all of a large list would be compared with each trial
    for one in listed:
        alike.setdefault(_tuned(values_of(one)), []).append(one)
    measured = {to_triton(one.config, alike.get(_tuned(one.config), ())): one.measurement for one in trials}
    return {
        config: [math.inf] * 3 if times is None else [times.median_ms, times.p20_ms, times.p80_ms]
        for config, times in measured.items()
    }


def _tuned(values: Mapping[str, Any]) -> frozenset[Any]:
    """The tunables with their values, without launch options."""
    return frozenset((name, _shown(name, value)) for name, value in values.items() if name not in _OPTIONS)


def _shown(name: str, value: Any) -> Any:
    """A value as a config holds it: a member by its name, and by its text what no config can hold."""
    try:
        return checked_value(name, value)
    except ConfigValueError:
        return str(value)


class BeforeLaunch:
    """A decorator's own hook before every launch of a tune."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, values: dict[str, Any]) -> None:
        """Call it with the arguments by name."""
        self.hook(values)
