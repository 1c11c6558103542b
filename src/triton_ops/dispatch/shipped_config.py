"""The config with which a shipped kernel runs: the caller's own, or what the ladder answers.

The ladder is lockfile, record, record of a problem nearby, default. It is asked once for each problem, folder and
process. Nothing is ever tuned unless the caller asks for it: by `tune=True`, inside `with tuning():`, or by the policy
`tune` of `on_miss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from triton_ops.backend import Operation
from triton_ops.dispatch.operations import Choices
from triton_ops.request import TuneOptions
from triton_ops.space import Config

_tuning: ContextVar[Mapping[str, Any] | None] = ContextVar("triton_ops_tuning", default=None)


@contextmanager
def tuning(**options: Any) -> Iterator[None]:
    """Inside, the shipped kernels of this package tune each problem that has no winner yet, before they run it.

    The arguments of a call are copied for its tune, so that the call itself computes what it always does.

    Args:
        **options: Options of `tune`, such as `effort`, `budget_s`, `cache_dir` and `listener`.

    Raises:
        SettingsError: `tune` has no such option, or it is not one of these.

    Cost: a tune for every new problem, from seconds to minutes by its effort.
    """
    TuneOptions.check_names(options, "tuning takes", "the options")
    before = _tuning.set(options)
    try:
        yield
    finally:
        _tuning.reset(before)


_choices = Choices()


def config_for(
    operation: Operation,
    values: Mapping[str, Any],
    default: Callable[[], Config],
    *,
    config: Mapping[str, Any] | None = None,
    check: Callable[[Mapping[str, Any], str], Config],
    tune: bool = False,
) -> Config:
    """The config of one call.

    `check` makes a config of the caller's own one that the kernel takes; `config` None asks the ladder. `values` are
    the arguments that decide which config is best, in the order of the kernel's parameters. `tune` tunes a problem
    without a winner, as inside `with tuning():`.

    Raises:
        UnknownTunableError, ConfigValueError: `config` does not fit the kernel.
        UntunedError: No winner is known, and `on_miss` is `error`.
        TuningFailedError and others: What `tune` raises, if it is asked for.
    """
    if config is not None:
        return check(config, operation.name)
    options = _tuning.get()
    options = {} if tune and options is None else options
    return _choices.of(operation, values, default, check, options)
