"""Which config a shipped kernel runs with: the caller's, the winner of a record, or the default one.

A record is looked up once for each problem, folder and process: one file is read. Nothing is ever tuned unless the
caller asks for it, by `tune=True` or inside `with tuning():`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Operation
from triton_ops.dispatch import ledger
from triton_ops.dispatch.decision import FALLBACK, Decision, Found
from triton_ops.dispatch.operations import decided, told
from triton_ops.dispatch.policy import within
from triton_ops.dispatch.tuner import tune as run_tune
from triton_ops.dispatch.tuner import tune_options
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.history.recall import cache_folder
from triton_ops.kernels.call import checked_config
from triton_ops.space import Config

_log = logging.getLogger("triton_ops")
_tuning: ContextVar[Mapping[str, Any] | None] = ContextVar("triton_ops_tuning", default=None)
_DECIDED_BY_THE_CALL = frozenset((
    "target", "args", "kwargs", "space", "shape", "dtype", "device", "reference", "tolerance", "check", "cold",
))  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """The config of a problem in this process, and where it comes from."""

    decision: Decision

    @property
    def recorded(self) -> bool:
        """Whether a record or a lockfile has it."""
        return not self.decision.missed


_known: dict[tuple[Any, ...], _Known] = {}


class _Remembered:
    """What this process has decided for the shipped kernels, whose launches are counted."""

    @property
    def decisions(self) -> list[Decision]:
        """The decisions so far."""
        return [known.decision for known in list(_known.values())]

    def begin_anew(self) -> None:
        """Forget every decision: in a forked child."""
        _known.clear()

    def forget(self) -> None:
        """Have every call decided again."""
        ledger.drop(self.decisions)
        _known.clear()


_remembered = _Remembered()
ledger.register(_remembered)


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
    allowed = tune_options() - _DECIDED_BY_THE_CALL
    if unknown := sorted(set(options) - allowed):
        raise SettingsError(
            f"tuning takes no option {', '.join(unknown)}", hint=f"the options are {', '.join(sorted(allowed))}"
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
    key = (operation.name, cache_folder(folder), *map(told, values.values()))
    found = _known.get(key)
    if found is None or (options is not None and not found.recorded) or not found.decision.holds(within):
        found = (
            _looked_up(operation, values, default, folder) if options is None else _tuned(operation, values, options)
        )
        _known[key] = found
    found.decision.count.up()
    return found.decision.found.config


def forget() -> None:
    """Look every record up again: for a process that should see what others have tuned since."""
    ledger.drop(_remembered.decisions)
    _known.clear()


def _looked_up(operation: Operation, values: Mapping[str, Any], default: Callable[[], Config], folder: Any) -> _Known:
    untuned = default()
    try:
        decision = decided(operation, values, default=untuned, options={"cache_dir": folder})
    except CacheError as error:  # a kernel must run where the cache cannot be read
        _log.warning("%s runs with its default config: %s", operation.name, error)
        found = Found(config=untuned, rung=FALLBACK, why=error.message)
        decision = Decision(found=found, kernel=operation.name, problem="")
    _log.info(
        "%s runs with (%s), %s: %s", operation.name, decision.found.config, decision.found.rung, decision.found.why
    )
    return _Known(decision)


def _tuned(operation: Operation, values: Mapping[str, Any], options: Mapping[str, Any]) -> _Known:
    found = run_tune(operation, kwargs=values, **options)
    problem = str(found.problem_size or "")
    start = Decision(found=Found(config=Config(), rung=FALLBACK, why=""), kernel=operation.name, problem=problem)
    return _Known(start.tuned(found))
