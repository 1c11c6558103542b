"""The config with which a shipped kernel runs: the caller's own, or what the ladder of `dispatch` answers.

The ladder is lockfile, record, record of a problem nearby, default. It is asked once for each problem, folder and
process. Nothing is ever tuned unless the caller asks for it: by `tune=True`, inside `with tuning():`, or by the policy
`tune` of `on_miss`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from triton_ops.backend import Operation
from triton_ops.dispatch import (
    DEFAULT,
    FALLBACK,
    RECORD,
    TUNE,
    Decision,
    Found,
    decided,
    ladder_of,
    ledger,
    policy_of,
    told,
    tune_options,
    within,
)
from triton_ops.exceptions import ConfigValueError, SettingsError, TritonKernelError, UnknownTunableError, UntunedError
from triton_ops.records import cache_folder, recall
from triton_ops.space import Config, Tunable


class ValueRule(NamedTuple):
    """A test of a tunable's value, with its words: what the value must be."""

    words: str
    holds: Callable[[Any], bool]


_FLAG = ValueRule("true or false", lambda value: type(value) is bool)
_POWER_OF_TWO = ValueRule(
    "a power of two, such as 64", lambda value: type(value) is int and value > 0 and value & (value - 1) == 0
)


def whole_from(least: int) -> ValueRule:
    """Whole numbers from `least` on."""
    return ValueRule(f"a whole number from {least}", lambda value: type(value) is int and value >= least)


def one_of(values: Sequence[Any]) -> ValueRule:
    """These values alone."""
    return ValueRule(
        f"one of {', '.join(map(str, values))}",
        lambda value: any(type(value) is type(each) and value == each for each in values),
    )


def _rule_of(tunable: Tunable) -> ValueRule:
    """The rule where a kernel's space has `tunable`: numbers may lie beyond those that are worth trying."""
    kinds = set(map(type, tunable))
    if kinds == {bool}:
        return _FLAG
    if kinds != {int}:
        return one_of(tunable.values)
    if tunable.ordered and all(map(_POWER_OF_TWO.holds, tunable)):
        return _POWER_OF_TWO
    return whole_from(min(1, *tunable))


class OwnConfigs:
    """The configs that a kernel takes from its callers.

    Args:
        tunables: The tunables of the kernel's space.
        optional: Names that a config may leave out.
        rules: Rules of tunables of which the kernel takes more, or less, than the kind of their values tells.
    """

    def __init__(
        self,
        tunables: Mapping[str, Tunable],
        optional: Collection[str] = (),
        rules: Mapping[str, ValueRule] = MappingProxyType({}),
    ) -> None:
        self._rules = {name: rules.get(name) or _rule_of(tunable) for name, tunable in tunables.items()}
        self._optional = tuple(optional)
        self._essentials = tuple(name for name in tunables if name not in optional)

    def checked(self, config: Mapping[str, Any], kernel: str) -> Config:
        """`config` as a `Config` that the kernel of this name takes.

        Raises:
            UnknownTunableError: A tunable is missing, or a name is no tunable of the kernel.
            ConfigValueError: A value is none that the kernel takes, or of a type that no config can hold.
        """
        unknown = [name for name in config if name not in self._rules]
        absent = [name for name in self._essentials if name not in config]
        if unknown or absent:
            wrong = [f"has no tunable {name!r}" for name in unknown]
            wrong += [f"needs a value for {name!r}" for name in absent]
            rest = f", and if you like {', '.join(self._optional)}" if self._optional else ""
            raise UnknownTunableError(
                f"{kernel} {', '.join(wrong)}", hint=f"give exactly {', '.join(self._essentials)}{rest}"
            )
        checked = config if isinstance(config, Config) else Config(config)
        for name, value in checked.items():
            if not self._rules[name].holds(value):
                raise ConfigValueError(f"{kernel}: {name} is {value!r}; it must be {self._rules[name].words}")
        return checked


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
        """The decisions so far."""
        return list(self._by_problem.values())

    def begin_anew(self) -> None:
        """Forget every decision: in a forked child."""
        self._by_problem.clear()

    def forget(self) -> None:
        """Have every problem decided again."""
        self._by_problem.clear()

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
    own: OwnConfigs,
    tune: bool = False,
) -> Config:
    """The config of one call.

    Args:
        operation: The operation of the kernel.
        values: The arguments that decide which config is best, by name, in the order of the kernel's parameters.
        default: Gives the untuned config of the problem.
        config: The caller's own config; None asks the ladder.
        own: The configs that the kernel takes from callers.
        tune: Whether to tune a problem without a winner, as inside `with tuning():`.

    Raises:
        UnknownTunableError, ConfigValueError: `config` does not fit the kernel.
        UntunedError: No winner is known, and `on_miss` is `error`.
        TuningFailedError and others: What `tune` raises, if it is asked for.
    """
    if config is not None:
        return own.checked(config, operation.name)
    options = _tuning.get()
    options = {} if tune and options is None else options
    folder = (options or {}).get("cache_dir")
    place = (operation.name, cache_folder(folder), *map(told, values.values()))
    to_tune = options is not None

    def decide() -> Decision:
        decision = _decision(operation, values, default(), TUNE if to_tune else None, options)
        return _of_other_space(operation, values, decision, folder, own) if decision.missed else decision

    return _choices.of(place, to_tune, decide).found.config


def forget() -> None:
    """Look every winner up again: for a process that should see what others have tuned since."""
    _choices.forget()


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
    operation: Operation, values: Mapping[str, Any], miss: Decision, folder: Any, own: OwnConfigs
) -> Decision:
    """The winner of a record that was found in another space, such as the documented one, if the kernel takes it."""
    if ladder_of(folder).only_lockfile or miss.key is None:
        return miss
    record = recall(operation, kwargs=values, cache_dir=folder)
    if record is None:
        return miss
    try:
        config = own.checked(record.winner, operation.name)
    except (UnknownTunableError, ConfigValueError):
        return miss
    winner = Found(config=config, rung=RECORD, why="a record of another space", record=record.id)
    return replace(miss, found=winner, policy=None)
