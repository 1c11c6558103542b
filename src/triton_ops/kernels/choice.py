"""Which config a shipped kernel runs with: the caller's, the winner of a record, or the default one.

A record is looked up once for each problem, folder and process: one file is read. Nothing is ever tuned unless the
caller asks for it, by `tune=True` or inside `with tuning():`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Operation, is_tensor
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.history.recall import cache_folder, recall
from triton_ops.kernels.call import checked_config
from triton_ops.runner.session import tune as run_tune
from triton_ops.space import Config
from triton_ops.tensors import ALIGNMENT_BYTES

_log = logging.getLogger("triton_ops")
_tuning: ContextVar[Mapping[str, Any] | None] = ContextVar("triton_ops_tuning", default=None)
_OPTIONS = frozenset(inspect.signature(run_tune).parameters) - {
    "target", "args", "kwargs", "space", "shape", "dtype", "device", "reference", "tolerance", "check", "cold",
}  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """The config of a problem in this process, and whether a record has it."""

    config: Config
    recorded: bool


_known: dict[tuple[Any, ...], _Known] = {}


@contextmanager
def tuning(**options: Any) -> Iterator[None]:
    """Inside, the shipped kernels of this package tune each problem that has no record yet, before they run it.

    The arguments of a call are copied for its tune, so that the call itself computes what it always does.

    Args:
        **options: Options of `tune`, such as `effort`, `budget_s`, `cache_dir` and `listener`.

    Raises:
        SettingsError: `tune` has no such option, or it is not one of these.

    Cost: a tune for every new problem, from seconds to minutes by its effort.
    """
    if unknown := sorted(set(options) - _OPTIONS):
        raise SettingsError(
            f"tuning takes no option {', '.join(unknown)}", hint=f"the options are {', '.join(sorted(_OPTIONS))}"
        )
    before = _tuning.set(options)
    try:
        yield
    finally:
        _tuning.reset(before)


def config_for(
    operation: Operation,
    values: Mapping[str, Any],
    default: Callable[[], Config],
    *,
    config: Mapping[str, Any] | None = None,
    tunables: tuple[tuple[str, ...], tuple[str, ...]],
    tune: bool = False,
) -> Config:
    """The config of one call.

    Args:
        operation: The operation of the kernel.
        values: The arguments that decide which config is best, by name, in the order of the kernel's parameters.
        default: Gives the untuned config of the problem.
        config: The caller's own config; None looks for a record, and takes the default where there is none.
        tunables: The names that an own config must give, and those that it may leave out.
        tune: Whether to tune a problem without a record, as inside `with tuning():`.

    Raises:
        UnknownTunableError, ConfigValueError: `config` does not fit the kernel.
        TuningFailedError and others: What `tune` raises, if it is asked for.
    """
    if config is not None:
        return checked_config(config, *tunables, operation.name)
    options = {} if tune else _tuning.get()
    folder = (options or {}).get("cache_dir")
    key = (operation.name, cache_folder(folder), *map(_told, values.values()))
    found = _known.get(key)
    if found is None or (options is not None and not found.recorded):
        found = (
            _looked_up(operation, values, default, folder) if options is None else _tuned(operation, values, options)
        )
        _known[key] = found
    return found.config


def forget() -> None:
    """Look every record up again: for a process that should see what others have tuned since."""
    _known.clear()


def _looked_up(operation: Operation, values: Mapping[str, Any], default: Callable[[], Config], folder: Any) -> _Known:
    try:
        record = recall(operation, kwargs=values, cache_dir=folder)
    except CacheError as error:  # a kernel must run where the cache cannot be read
        _log.warning("%s runs with its default config: %s", operation.name, error)
        record = None
    if record is None:
        chosen = default()
        _log.info("%s runs with its default config (%s): no record of this problem", operation.name, chosen)
        return _Known(chosen, recorded=False)
    _log.info("%s runs with (%s), the winner of a record", operation.name, record.winner)
    return _Known(record.winner, recorded=True)


def _tuned(operation: Operation, values: Mapping[str, Any], options: Mapping[str, Any]) -> _Known:
    found = run_tune(operation, kwargs=values, **options)
    return _Known(Config(found.best_config), recorded=True)


def _told(value: Any) -> Any:
    """What tells a problem's argument from others: of a tensor all that its spec has, and its device."""
    if not is_tensor(value):
        return value
    return (value.shape, value.dtype, value.stride(), value.data_ptr() % ALIGNMENT_BYTES == 0, value.device)
