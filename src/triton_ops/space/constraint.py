"""A constraint: a named rule that a config must keep, with the reason for the rule.

The same object serves the space, the default config, the checks at call time and the messages. The parameters of a
predicate are the tunables that it needs, so a space can refuse a partial config once these are chosen, and never
enumerates combinations that cannot become valid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_ops.exceptions import ConstraintError, KernelTypeError
from triton_ops.space.config import Members, given_back


@dataclass(frozen=True)
class Constraint:
    """A rule over some tunables.

    Attributes:
        name: A short and stable name, for trials and tables.
        predicate: A function of tunables, called with keywords; true means that the config keeps the rule.
        reason: Why a config that breaks the rule is refused; `{BM}` stands for the config's value of BM.
        members: Members of an `Enum` that the predicate is given in place of their names; a space sets them.
        names: The tunables that the predicate needs, which are its parameters.

    Raises:
        KernelTypeError: `predicate` is not callable, or takes `*args` or `**kwargs`, so that its tunables are unknown.
    """

    name: str
    predicate: Callable[..., bool]
    reason: str
    members: Members = field(default_factory=dict, repr=False, compare=False)
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _parameter_names(self.name, self.predicate))

    def kept_by(self, values: Mapping[str, Any]) -> bool:
        """True if `values`, which must have all of `names`, keep this rule; ConstraintError if the predicate raised."""
        arguments = {name: values[name] for name in self.names}
        if self.members:
            arguments = {name: given_back(value, self.members.get(name, {})) for name, value in arguments.items()}
        try:
            return bool(self.predicate(**arguments))
        except Exception as error:
            raise ConstraintError(
                f"constraint {self.name!r} raised {type(error).__name__}: {error} for {arguments}",
                hint="a predicate must answer true or false for every combination of its values",
            ) from error

    def explain(self, values: Mapping[str, Any]) -> str:
        """The text `name: reason`, with the config's values filled in."""
        try:
            reason = self.reason.format(**values)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            reason = self.reason  # the braces in the reason were not meant as names
        return f"{self.name}: {reason}"


def _parameter_names(name: str, predicate: Any) -> tuple[str, ...]:
    if not callable(predicate):
        raise KernelTypeError(f"constraint {name!r} has the predicate {predicate!r}, which is not callable")
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except ValueError as error:
        raise KernelTypeError(
            f"constraint {name!r} has the predicate {predicate!r}, which does not tell its parameters",
            hint="write a lambda around it, with the tunables as its parameters",
        ) from error
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise KernelTypeError(
                f"constraint {name!r} takes {parameter}; its parameters must be tunables by name",
                hint="write the tunables that the rule looks at: lambda BM, BN: BM * BN <= 32768",
            )
    return tuple(parameter.name for parameter in parameters if parameter.default is parameter.empty)
