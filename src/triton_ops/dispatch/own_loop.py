"""Triton's own `run`, and its parts in whose place somebody has put others.

Facts used, from Triton 3.6 to 3.9: `Autotuner.run` looks its key up in `cache`; where that is missing, it asks
`prune_configs`, measures each config by `_bench` and `do_bench`, or has `check_disk_cache` do so if `cache_results` is
set, calls `pre_hook(arguments, reset_only=True)`, and launches the winner once. From 3.8 on, one config that is left is
not measured, and `knobs.autotuning.listener` is told. The constructor makes `_do_bench` of its deprecated options by a
function of its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton_ops.base import require

_upstream: Any = require("triton.runtime.autotuner", "triton_ops.autotune")
_knobs: Any = require("triton.knobs", "triton_ops.autotune")
AUTOTUNER: Any = _upstream.Autotuner
MEASURES_ONE = not hasattr(_knobs.autotuning, "listener")
"""Tell whether one config that is left after pruning is measured too."""
RUN_OF_TRITON: Callable[..., Any] = AUTOTUNER.run


def is_tritons(function: Any) -> bool:
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
    if kind.do_bench is not AUTOTUNER.do_bench or _set_later(vars(autotuner).get("do_bench")):
        return f"{kind.__qualname__} has a do_bench of its own"
    return ""


def _set_later(measure: Any) -> bool:
    """Tell whether this is neither Triton's nor its driver's, which are kept in the same place once they are used."""
    return measure is not None and str(getattr(measure, "__module__", "triton")).partition(".")[0] != "triton"


def asks_its_own_disk(autotuner: Any) -> bool:
    """Tell whether somebody's own `check_disk_cache` is asked for winners."""
    return bool(autotuner.cache_results) and not is_tritons(autotuner.check_disk_cache)


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
