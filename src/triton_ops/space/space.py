"""A config space: tunables, the constraints among them, and the default config.

A space is either a product of tunables or an explicit list of configs, and all users of a space treat both alike.
Enumeration is lazy and leaves out partial configs that already break a constraint, so a space of 10^9 configs costs
nothing until its configs are asked for.
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

_COUNT_LIMIT = 50_000  # configs of a space that is counted, in about 0.1 s; a larger size is estimated
_ESTIMATE_SAMPLES = 4_000  # gives a standard error of the valid share below 0.8 %
_REJECTION_TRIES = 100


@dataclass(frozen=True)
class SpaceSize:
    """The number of configs, before and after the constraints.

    Attributes:
        total: Product of the tunables' sizes, or the length of the list.
        valid: Number of configs that keep every constraint.
        exact: False if `valid` was estimated from a random sample, because counting would take too long.
    """

    total: int
    valid: int
    exact: bool = True

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        return f"{self.total:,} configs, {about}{self.valid:,} valid"


@dataclass(frozen=True)
class ConfigSpace:
    """The configs that may be tried.

    Attributes:
        tunables: Name to tunable, or to a plain list of values; in the order of enumeration, the last fastest.
        constraints: Rules that every config must keep.
        default: The config that runs untuned, which is always a candidate. None takes the first valid config.
        listed: The configs of an explicit list; None for a product. Use `from_configs`.

    Raises:
        EmptySpaceError: There is no tunable, or a tunable has no values.
        UnknownTunableError: A constraint or the default names a tunable that the space does not have.
        SpaceError: The default breaks a constraint, or lacks a tunable.
        ConfigValueError: A value cannot be stored.
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
        """A space of exactly these configs, given as mappings or `triton.Config` objects.

        A `triton.Config` becomes one flat config with its meta-parameters, `num_warps`, `num_stages`, and, if some
        config sets them, `num_ctas` and `maxnreg`. Repeated configs count once.

        Raises:
            EmptySpaceError: The list is empty.
            SpaceError: The configs have different names, or a `triton.Config` has a `pre_hook` or `ir_override`, which
                a stored config cannot have.
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
        """Give all valid configs lazily, in product order (last tunable fastest) or list order."""
        if self.listed is not None:
            return (config for config in self.listed if not self.broken(config))
        return (Config(values) for values in self._walk({}, list(self.tunables)))

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and self.why_not(Config(config)) is None

    @cached_property
    def size(self) -> SpaceSize:
        """The size before and after the constraints; counted up to 50,000 configs (about 0.1 s), else estimated."""
        if self.listed is not None:
            return SpaceSize(len(self.listed), sum(1 for _ in self))
        total = math.prod(len(tunable) for tunable in self.tunables.values())
        if not self.constraints:
            return SpaceSize(total, total)
        if total <= _COUNT_LIMIT:
            return SpaceSize(total, sum(1 for _ in self))
        rng = random.Random(0)
        kept = sum(not self.broken(self._draw(rng)) for _ in range(_ESTIMATE_SAMPLES))
        if kept == 0:  # valid configs are too rare for the sample: the size is then 1 if there is any, else 0
            return SpaceSize(total, int(next(iter(self), None) is not None), exact=False)
        return SpaceSize(total, round(total * kept / _ESTIMATE_SAMPLES), exact=False)

    @cached_property
    def default_config(self) -> Config:
        """The config that runs untuned: the given default, else the first valid config.

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
        """Hexadecimal digits for the content: tunables with their values, constraints by name and reason, default."""
        return fingerprint(
            {
                "tunables": [[name, list(tunable.values)] for name, tunable in self.tunables.items()],
                "constraints": [[c.name, c.reason, list(c.names)] for c in self.constraints],
                "default": None if self.default is None else self.default.text,
                "listed": None if self.listed is None else [config.text for config in self.listed],
            }
        )

    def broken(self, config: Mapping[str, Any]) -> list[Constraint]:
        """The constraints that `config`, which has all tunables, breaks."""
        return [constraint for constraint in self.constraints if not constraint.kept_by(config)]

    def why_not(self, config: Config) -> str | None:
        """Why `config` is not in this space; None if it is. The default always is in the space."""
        if set(config) != set(self.tunables):
            return f"names {sorted(config)} instead of {sorted(self.tunables)}"
        why = self._why_refused(config)
        return None if why is None or config == self.default else why

    def _why_refused(self, config: Config) -> str | None:
        # Values are checked before constraints, since a predicate need only work for values of the space.
        for name, texts in self._value_texts.items():
            if repr(config[name]) not in texts:
                return f"{name}={config[name]!r} is none of {list(self.tunables[name].values)}"
        if self.listed is not None and config not in self._listed_set:
            return "not in the list of configs"
        broken = self.broken(config)
        return broken[0].explain(config) if broken else None

    def sample(self, rng: random.Random) -> Config:
        """A random valid config: uniform if rejection sampling finds one soon, else by a random walk over the tunables.

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
        """A space with other values of some tunables; the default stays a candidate.

        Raises:
            UnknownTunableError: A name is no tunable of this space.
            SpaceError: This space is an explicit list of configs.
        """
        if self.listed is not None:
            raise SpaceError("a list of configs has no values to replace", hint="give a whole space instead")
        self._check_names(values, "the replacement")
        tunables = {name: values.get(name, tunable) for name, tunable in self.tunables.items()}
        return ConfigSpace(tunables, self.constraints, self.default)

    def take(self, count: int) -> list[Config]:
        """The first `count` valid configs in the order of enumeration."""
        return list(islice(iter(self), count))

    @cached_property
    def _listed_set(self) -> frozenset[Config]:
        return frozenset(self.listed or ())

    @cached_property
    def _value_texts(self) -> dict[str, frozenset[str]]:
        """The values of each tunable as text, which tells True from 1 and 64 from 64.0."""
        return {name: frozenset(map(repr, tunable)) for name, tunable in self.tunables.items()}

    @cached_property
    def _checks_at(self) -> dict[str, list[Constraint]]:
        """For each tunable, the constraints that can be decided once its value is chosen."""
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
    """A space from a user's space, mapping from names to values, or list of configs.

    Equal mappings of plain values give one and the same space, so that its default and its fingerprint are found once.
    """
    if isinstance(given, ConfigSpace):
        return given
    if isinstance(given, Mapping):
        return _space_of(given)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        return ConfigSpace.from_configs(given)
    raise SpaceError(
        f"a config space cannot be made from {given!r}",
        hint='give a mapping like {"BLOCK": [64, 128]}, a list of configs, or a ConfigSpace',
    )


_MOST_SPACES = 64
_PLAIN = {bool, int, float, str, type(None)}  # types whose text says all
_spaces: dict[str, ConfigSpace] = {}  # by the text of the mapping that a space was made from


def _space_of(given: Mapping[str, Any]) -> ConfigSpace:
    text = _plain_text(given)
    found = None if text is None else _spaces.get(text)
    if found is None:
        found = ConfigSpace(given)
        if text is not None:
            if len(_spaces) >= _MOST_SPACES:
                _spaces.clear()
            _spaces[text] = found
    return found


def _plain_text(given: Mapping[str, Any]) -> str | None:
    """A mapping from names to lists of plain values as text; None for what else a space may be made of."""
    if type(given) is not dict or any(type(name) is not str for name in given):
        return None
    if all(type(values) in (list, tuple) and _PLAIN.issuperset(map(type, values)) for values in given.values()):
        return repr(given)
    return None


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
