"""The config with which a shipped kernel runs: the caller's own, or what the ladder answers.

The ladder is lockfile, record, record of a problem nearby, default. It is asked once for each problem, folder and
process. Nothing is ever tuned unless the caller asks for it: by `tune=True`, inside `with tuning():`, or by the policy
`tune` of `on_miss`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from triton_ops.backend import Operation
from triton_ops.dispatch import ledger
from triton_ops.dispatch.decision import FALLBACK, RECORD, Decision, Found
from triton_ops.dispatch.ladder import ladder_of
from triton_ops.dispatch.operations import decided, told
from triton_ops.dispatch.options import DEFAULT, TUNE, policy_of, within
from triton_ops.dispatch.tuner import tune_options
from triton_ops.exceptions import ConfigValueError, SettingsError, TritonKernelError, UnknownTunableError, UntunedError
from triton_ops.records import cache_folder, recall
from triton_ops.space import Config

_log = logging.getLogger("triton_ops")
_tuning: ContextVar[Mapping[str, Any] | None] = ContextVar("triton_ops_tuning", default=None)
_OF_A_CALL = frozenset({
    "target", "args", "kwargs", "space", "shape", "dtype", "device", "reference", "tolerance", "check", "cold",
})  # fmt: skip
_MOST = 4_096  # problems of all kernels


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
    names = tune_options() - _OF_A_CALL
    if unknown := sorted(set(options) - names):
        raise SettingsError(
            f"tuning takes no option {', '.join(unknown)}", hint=f"the options are {', '.join(sorted(names))}"
        )
    before = _tuning.set(options)
    try:
        yield
    finally:
        _tuning.reset(before)


class _Choices:
    """Decisions for the problems with which the shipped kernels of this process were called."""

    def __init__(self) -> None:
        self._by_problem: dict[Any, Decision] = {}

    @property
    def decisions(self) -> list[Decision]:
        return list(self._by_problem.values())

    def forget(self) -> None:
        """Have every problem decided again."""
        self._by_problem.clear()

    begin_anew = forget

    def of(self, place: Any, to_tune: bool, decide: Callable[[], Decision]) -> Decision:
        """The decision of a problem: the one before if it holds, and, where a winner is wanted, if it is one."""
        decision = self._by_problem.get(place)
        if decision is None or not decision.holds(within) or (to_tune and decision.missed):
            decision = decide()
            if len(self._by_problem) >= _MOST:
                self.forget()
            self._by_problem[place] = ledger.counted(decision)
            _log.info("%s", decision.text)
        decision.count.up()
        return decision


_choices = _Choices()
ledger.register(_choices)


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
    folder = (options or {}).get("cache_dir")
    place = (operation.name, cache_folder(folder), *map(told, values.values()))
    to_tune = options is not None

    def decide() -> Decision:
        decision = _decision(operation, values, default(), TUNE if to_tune else None, options)
        return _of_other_space(operation, values, decision, folder, check) if decision.missed else decision

    return _choices.of(place, to_tune, decide).found.config


def _decision(
    operation: Operation,
    values: Mapping[str, Any],
    default: Config,
    on_miss: str | None,
    options: Mapping[str, Any] | None,
) -> Decision:
    """A decision that no unreadable cache stops, unless a tune or an error is asked for."""
    try:
        return decided(operation, values, default=default, on_miss=on_miss, options=options)
    except UntunedError:
        raise
    except TritonKernelError as error:
        if policy_of(on_miss, DEFAULT) != DEFAULT:
            raise
        _log.warning("%s runs with its default config: %s", operation.name, error)
        fallback = Found(config=default, rung=FALLBACK, why=error.message)
        return Decision(found=fallback, kernel=operation.name, problem="", policy=DEFAULT, within=within())


def _of_other_space(
    operation: Operation,
    values: Mapping[str, Any],
    miss: Decision,
    folder: Any,
    check: Callable[[Mapping[str, Any], str], Config],
) -> Decision:
    """The winner of a record that was found in another space, such as the documented one, if the kernel takes it."""
    if ladder_of(folder).only_lockfile or miss.key is None:
        return miss
    record = recall(operation, kwargs=values, cache_dir=folder)
    if record is None:
        return miss
    try:
        config = check(record.winner, operation.name)
    except (UnknownTunableError, ConfigValueError):
        return miss
    winner = Found(config=config, rung=RECORD, why="a record of another space", record=record.id)
    return replace(miss, found=winner, policy=None)
