"""The config with which a shipped kernel runs: the caller's own, or what the ladder of `dispatch` answers.

The ladder is lockfile, record, record of a problem nearby, default. It is asked once for each problem, folder and
process. Nothing is ever tuned unless the caller asks for it: by `tune=True`, inside `with tuning():`, or by the policy
`tune` of `on_miss`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from triton_ops.backend import Operation
from triton_ops.dispatch import Choices, check_tune_options
from triton_ops.exceptions import ConfigValueError, UnknownTunableError
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
    check_tune_options(options, "tuning takes", "the options")
    before = _tuning.set(options)
    try:
        yield
    finally:
        _tuning.reset(before)


_choices = Choices()
forget = _choices.forget


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
    return _choices.of(operation, values, default, own.checked, options)
