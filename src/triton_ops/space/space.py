"""A config space: tunables, the constraints among them, and the default config.

A space is either a product of tunables or an explicit list of configs; searchers, tuners and messages see no
difference. Enumeration is lazy and cuts off partial configs that already break a constraint, so a space of 10^9
points costs nothing until somebody asks for its points.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from triton_ops._hashing import canonical_json, fingerprint
from triton_ops.exceptions import EmptySpaceError, SpaceError, UnknownTunableError
from triton_ops.space.config import Config
from triton_ops.space.constraint import Constraint
from triton_ops.space.tunable import Tunable, Value, as_tunable

_COUNT_LIMIT = 50_000  # partial configs walked before a size is estimated instead: about 0.1 s
_ESTIMATE_SAMPLES = 4_000  # standard error of the valid share below 0.8 %
_REJECTION_TRIES = 100


@dataclass(frozen=True)
class SpaceSize:
    """How many configs there are, before and after the constraints.

    Attributes:
        total: Product of the tunables' sizes, or the length of the list.
        valid: Those that keep every constraint.
        exact: False when `valid` was estimated from a random sample, because counting would take too long.
    """

    total: int
    valid: int
    exact: bool = True

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        return f"{self.total:,} configs, {about}{self.valid:,} valid"


@dataclass(frozen=True)
class ConfigSpace:
    """What may be tried.

    Attributes:
        tunables: Name to tunable, or to a plain list of values; order is the order of enumeration, the last fastest.
        constraints: Rules every config must keep.
        default: The config that runs when nothing is tuned; it is always a candidate. None takes the first valid one.
        listed: The configs of an explicit list; None for a product. Use `from_configs`.

    Raises:
        EmptySpaceError: No tunables, or a tunable without values.
        UnknownTunableError: A constraint or the default names a tunable that is not there.
        SpaceError: The default breaks a constraint, or lacks a tunable.
        ConfigValueError: A value that cannot be stored.
    """

    tunables: Mapping[str, Tunable]
    constraints: tuple[Constraint, ...] = ()
    default: Config | None = None
    listed: tuple[Config, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.tunables, Mapping):
            raise SpaceError(
                f"a config space is a mapping from names to values, not {type(self.tunables).__name__}",
                hint='write {"BLOCK": [64, 128]}, or use ConfigSpace.from_configs for a list of configs',
            )
        if not self.tunables:
            raise EmptySpaceError("the config space has no tunables", hint='name at least one: {"BLOCK": [64, 128]}')
        tunables = {name: as_tunable(name, given) for name, given in self.tunables.items()}
        object.__setattr__(self, "tunables", tunables)
        object.__setattr__(self, "constraints", tuple(self.constraints))
        for constraint in self.constraints:
            self._check_names(constraint.names, f"constraint {constraint.name!r}")
        if self.default is not None:
            object.__setattr__(self, "default", self._checked_default(Config(self.default)))

    @classmethod
    def from_configs(
        cls,
        configs: Iterable[Any],
        constraints: Iterable[Constraint] = (),
        default: Mapping[str, Any] | None = None,
    ) -> ConfigSpace:
        """A space of exactly these configs: mappings, or `triton.Config` objects.

        A `triton.Config` becomes one flat config with its meta-parameters, `num_warps`, `num_stages`, and `num_ctas`
        and `maxnreg` where some config sets them. Repeated configs count once.

        Raises:
            EmptySpaceError: The list is empty.
            SpaceError: Configs with different names, or a `triton.Config` with a `pre_hook` or `ir_override`,
                which a stored config could not hold.
        """
        listed = tuple(dict.fromkeys(_flat_configs(list(configs))))
        if not listed:
            raise EmptySpaceError("the list of configs is empty", hint="give at least one config")
        names = list(listed[0])
        for config in listed:
            if set(config) != set(names):
                raise SpaceError(
                    f"config ({config}) has the names {sorted(config)}, the first one has {sorted(names)}",
                    hint="give every config the same names",
                )
        by_text = {name: {canonical_json(c[name]): c[name] for c in listed} for name in names}
        tunables = {name: Tunable(tuple(values.values())) for name, values in by_text.items()}
        return cls(tunables, tuple(constraints), None if default is None else Config(default), listed)

    def __iter__(self) -> Iterator[Config]:
        """All valid configs, lazily, in product order (last tunable fastest) or list order."""
        if self.listed is not None:
            return (config for config in self.listed if not self.broken(config))
        return (Config(values) for values in self._walk({}, list(self.tunables)))

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and self.why_not(Config(config)) is None

    @cached_property
    def size(self) -> SpaceSize:
        """Size before and after the constraints; walks at most 50,000 configs (about 0.1 s), then estimates."""
        if self.listed is not None:
            return SpaceSize(len(self.listed), sum(1 for _ in self))
        total = math.prod(len(tunable) for tunable in self.tunables.values())
        if not self.constraints:
            return SpaceSize(total, total)
        if total <= _COUNT_LIMIT:
            return SpaceSize(total, sum(1 for _ in self))
        rng = random.Random(0)
        kept = sum(not self.broken(self._draw(rng)) for _ in range(_ESTIMATE_SAMPLES))
        if kept == 0:  # rarer than a sample can tell: say 1 rather than 0 if there is any
            return SpaceSize(total, int(next(iter(self), None) is not None), exact=False)
        return SpaceSize(total, round(total * kept / _ESTIMATE_SAMPLES), exact=False)

    @cached_property
    def default_config(self) -> Config:
        """The config that runs when nothing is tuned: the given default, else the first valid config.

        Raises:
            EmptySpaceError: The constraints refuse every config.
        """
        config = self.default or next(iter(self), None)
        if config is None:
            reasons = ", ".join(constraint.name for constraint in self.constraints)
            raise EmptySpaceError(
                f"none of the {self.size.total:,} configs keeps every constraint ({reasons})",
                hint="widen a tunable or loosen a constraint",
            )
        return config

    @cached_property
    def fingerprint(self) -> str:
        """Names the space's content: tunables with their values, constraints by name and reason, default."""
        return fingerprint(
            {
                "tunables": [[name, list(tunable.values)] for name, tunable in self.tunables.items()],
                "constraints": [[c.name, c.reason, list(c.names)] for c in self.constraints],
                "default": None if self.default is None else self.default.text,
                "listed": None if self.listed is None else [config.text for config in self.listed],
            }
        )

    def broken(self, config: Mapping[str, Any]) -> list[Constraint]:
        """The constraints that `config`, a full config, breaks."""
        return [constraint for constraint in self.constraints if not constraint.kept_by(config)]

    def why_not(self, config: Config) -> str | None:
        """Why `config` is not in this space; None if it is. The default always is."""
        if set(config) != set(self.tunables):
            return f"names {sorted(config)} instead of {sorted(self.tunables)}"
        if config == self.default:
            return None
        # Values before constraints: a predicate need only answer for values that the space has.
        for name, texts in self._value_texts.items():
            if canonical_json(config[name]) not in texts:
                return f"{name}={config[name]!r} is none of {list(self.tunables[name].values)}"
        if self.listed is not None and config not in self._listed_set:
            return "not in the list of configs"
        if broken := self.broken(config):
            return broken[0].explain(config)
        return None

    def sample(self, rng: random.Random) -> Config:
        """One valid config: uniform if rejection sampling finds one soon, else by a random walk down the tunables.

        Raises:
            EmptySpaceError: The constraints refuse every config.
        """
        for _ in range(_REJECTION_TRIES):
            config = self._draw(rng)
            if not self.broken(config):
                return config
        if self.listed is not None:
            valid = list(self)
            return rng.choice(valid) if valid else self.default_config
        found = next(self._walk({}, list(self.tunables), rng), None)
        return Config(found) if found is not None else self.default_config

    def with_values(self, values: Mapping[str, Any]) -> ConfigSpace:
        """This space with the values of some tunables replaced; the default stays a candidate.

        Raises:
            UnknownTunableError: A name that this space does not have.
            SpaceError: This space is an explicit list of configs.
        """
        if self.listed is not None:
            raise SpaceError("a list of configs has no values to replace", hint="give a whole space instead")
        self._check_names(values, "the replacement")
        tunables = {name: values.get(name, tunable) for name, tunable in self.tunables.items()}
        return ConfigSpace(tunables, self.constraints, self.default)

    def take(self, count: int) -> list[Config]:
        """The first `count` valid configs in order of enumeration."""
        return list(islice(iter(self), count))

    @cached_property
    def _listed_set(self) -> frozenset[Config]:
        return frozenset(self.listed or ())

    @cached_property
    def _value_texts(self) -> dict[str, frozenset[str]]:
        """Per tunable, its values as canonical JSON, which tells True from 1 and 64 from 64.0."""
        return {name: frozenset(map(canonical_json, tunable)) for name, tunable in self.tunables.items()}

    @cached_property
    def _checks_at(self) -> dict[str, list[Constraint]]:
        """Per tunable, the constraints that can be decided once it is chosen."""
        order = {name: position for position, name in enumerate(self.tunables)}
        checks: dict[str, list[Constraint]] = {name: [] for name in order}
        for constraint in self.constraints:
            last = max(constraint.names, key=order.__getitem__, default=next(iter(order)))
            checks[last].append(constraint)
        return checks

    def _walk(
        self, chosen: dict[str, Value], names: Sequence[str], rng: random.Random | None = None
    ) -> Iterator[dict[str, Value]]:
        if not names:
            yield dict(chosen)
            return
        name, rest = names[0], names[1:]
        values = list(self.tunables[name])
        if rng is not None:
            rng.shuffle(values)
        for value in values:
            chosen[name] = value
            if all(constraint.kept_by(chosen) for constraint in self._checks_at[name]):
                yield from self._walk(chosen, rest, rng)
        chosen.pop(name, None)

    def _draw(self, rng: random.Random) -> Config:
        if self.listed is not None:
            return rng.choice(self.listed)
        return Config({name: rng.choice(tunable.values) for name, tunable in self.tunables.items()})

    def _checked_default(self, config: Config) -> Config:
        self._check_names(config, "the default config")
        if missing := [name for name in self.tunables if name not in config]:
            raise SpaceError(
                f"the default config lacks {', '.join(missing)}",
                hint="give it a value for every tunable",
            )
        if broken := self.broken(config):
            raise SpaceError(
                f"the default config ({config}) breaks {broken[0].explain(config)}",
                hint="the default is what runs untuned: it must be valid",
            )
        return config

    def _check_names(self, names: Iterable[str], who: str) -> None:
        if unknown := [name for name in names if name not in self.tunables]:
            raise UnknownTunableError(
                f"{who} names {', '.join(map(repr, unknown))}; the tunables are {', '.join(self.tunables)}",
                hint="correct the name, or add the tunable",
            )


def as_space(given: Any) -> ConfigSpace:
    """A space from what a user wrote: a space, a mapping from names to values, or a list of configs."""
    if isinstance(given, ConfigSpace):
        return given
    if isinstance(given, Mapping):
        return ConfigSpace(given)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        return ConfigSpace.from_configs(given)
    raise SpaceError(
        f"a config space cannot be made from {given!r}",
        hint='give a mapping like {"BLOCK": [64, 128]}, a list of configs, or a ConfigSpace',
    )


_TRITON_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}


def _flat_configs(configs: list[Any]) -> Iterator[Config]:
    triton_configs = [config for config in configs if not isinstance(config, Mapping)]
    optional = [
        name
        for name in ("num_ctas", "maxnreg")
        if any(getattr(config, name, None) != _TRITON_OPTIONS[name] for config in triton_configs)
    ]
    for config in configs:
        yield (Config(config) if isinstance(config, Mapping) else _flat(config, ["num_warps", "num_stages", *optional]))


def _flat(config: Any, options: list[str]) -> Config:
    if not isinstance(getattr(config, "kwargs", None), Mapping):
        raise SpaceError(f"{config!r} is neither a mapping nor a triton.Config", hint="give a list of either")
    for name in ("pre_hook", "ir_override"):
        if getattr(config, name, None) is not None:
            raise SpaceError(
                f"triton.Config ({config}) has a {name}, which a stored configuration cannot hold",
                hint=f"tune without {name}; zero or restore outputs through the kernel's `outputs` instead",
            )
    return Config({**config.kwargs, **{name: getattr(config, name) for name in options}})
