"""A config space: tunables, the constraints among them, and the default config.

A space is either a product of tunables or an explicit list of configs, and all users of a space treat both alike.
Enumeration is lazy and leaves out partial configs that cannot become valid, and every question is
asked of tunables that constraints join, not of the whole product: a space of 10^12 configs costs
nothing until its configs are asked for, and that no config is valid is found out or said in seconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from triton_ops.base import BoundedDict, Frozen, cached_property, canonical_json, fingerprint, warn
from triton_ops.exceptions import ConfigValueError, EmptySpaceError, SpaceError, UnknownTunableError
from triton_ops.space.config import Config, Members, Value, members_among, named_shortly, values_of_members
from triton_ops.space.options import CONFIG_FIELDS, LAUNCH_OPTIONS
from triton_ops.space.tunable import Constraint, Tunable
from triton_ops.space.walk import Asks, Completions, Group, RowOutcome, SpaceWalk, TooManyAsks, groups_of

_LIMIT = "maxnreg"


def flat_configs(configs: Sequence[Any]) -> Iterator[Config]:
    """Mappings and `triton.Config` objects as configs with the same names; SpaceError for anything else."""
    triton_configs = [config for config in configs if not isinstance(config, Mapping)]
    optional = [
        name
        for name in ("num_ctas", "maxnreg", "ir_override")
        if any(_option(config, name) != CONFIG_FIELDS[name] for config in triton_configs)
    ]
    for config in configs:
        yield (Config(config) if isinstance(config, Mapping) else _flat(config, ["num_warps", "num_stages", *optional]))


def _flat(config: Any, options: list[str]) -> Config:
    if not isinstance(getattr(config, "kwargs", None), Mapping):
        raise SpaceError(f"{config!r} is neither a mapping nor a triton.Config", hint="give a list of either")
    if getattr(config, "pre_hook", None) is not None:
        message = f"triton.Config ({config}) has a pre_hook, which a stored configuration cannot hold"
        hint = "give the list itself as the space, or the hook to the kernel: TritonKernel(..., pre_hook=...)"
        raise SpaceError(message, hint=hint)
    own = {name: value for name, value in _brought(config).items() if name not in CONFIG_FIELDS}
    return Config({**own, **{name: _option(config, name) for name in options}})


def _brought(config: Any) -> Mapping[str, Any]:
    """The values that a config brings to a launch, which a class of the caller's may give in its own way."""
    return cast(
        "Mapping[str, Any]", config.all_kwargs() if hasattr(config, "all_kwargs") else getattr(config, "kwargs", {})
    )


def _option(config: Any, name: str) -> Any:
    return _brought(config).get(name, getattr(config, name, None))


_ESTIMATE_SAMPLES = 4_000  # gives a standard error of the valid share below 0.8 %
_REJECTION_TRIES = 100
_PATIENCE_ASKS = 2_000_000  # asks for the next valid config of an enumeration, which then ends: about three seconds


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

    tunables: Mapping[str, Tunable | Any]
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
        tunables = {name: Tunable.of(name, values) for name, values in self.tunables.items()}
        object.__setattr__(self, "tunables", Frozen(tunables))
        members, rules = self.members, tuple(self.constraints)
        object.__setattr__(
            self, "constraints", tuple(replace(it, members=members) for it in rules) if members else rules
        )
        for constraint in self.constraints:
            self._check_names(constraint.names, f"constraint {constraint.name!r}")
        if self.default is not None:
            object.__setattr__(self, "default", self._checked_default(Config(self.default)))

    @classmethod
    def from_configs(
        cls, configs: Iterable[Any], constraints: Iterable[Constraint] = (), default: Mapping[str, Any] | None = None
    ) -> ConfigSpace:
        """A space of exactly these configs, given as mappings or `triton.Config` objects.

        A `triton.Config` becomes one flat config with its meta-parameters, `num_warps`, `num_stages`, and, if some
        config sets them, `num_ctas`, `maxnreg` and `ir_override`. Repeated configs count once. Without `maxnreg` a
        config has no limit of registers, whatever others have.

        Raises:
            EmptySpaceError: The list is empty.
            SpaceError: The configs have different names, or a `triton.Config` has a `pre_hook`, which a stored config
                cannot have.
        """
        entries = list(configs)
        if not (distinct := tuple(dict.fromkeys(flat_configs(entries)))):
            raise EmptySpaceError("the list of configs is empty", hint="give at least one config")
        names = list(dict.fromkeys(name for config in distinct for name in config))
        for config in distinct:
            if (config.keys() ^ distinct[0].keys()) - {_LIMIT}:
                message = f"config ({config}) has the names {sorted(config)}, the first one has {sorted(distinct[0])}"
                raise SpaceError(message, hint="give every config the same names")
        # by their texts, because True equals 1
        by_text = {name: {canonical_json(c.get(name)): c.get(name) for c in distinct} for name in names}
        rows = [entry if isinstance(entry, Mapping) else entry.kwargs for entry in entries]
        tunables = {
            name: Tunable(tuple(values.values()), members=members_among([row.get(name) for row in rows], name))
            for name, values in by_text.items()
        }
        return cls(tunables, tuple(constraints), None if default is None else Config(default), distinct)

    def __iter__(self) -> Iterator[Config]:
        """Give all valid configs lazily, in product order (last tunable fastest) or list order.

        Where valid configs are too rare, the enumeration ends with a warning after two million asks for the next one.
        """
        if self.listed is not None:
            return (config for config in self.listed if not self.broken(config))
        return self._enumerate()

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and self.why_not(Config(config)) is None

    @property
    def members(self) -> Members:
        """The members of an `Enum` among the values, for each tunable that has any; see `Config.with_members`."""
        return {name: tunable.members for name, tunable in self.tunables.items() if tunable.members}

    @cached_property
    def size(self) -> SpaceSize:
        """The size before and after the constraints.

        It is exact if constraints join at most 50,000 combinations, or few asks find out the rest; this takes about
        0.1 s. Else it is estimated.
        """
        if self.listed is not None:
            return SpaceSize(len(self.listed), sum(1 for _ in self))
        total = math.prod(len(tunable) for tunable in self.tunables.values())
        if (lacking := self._without_rows) is not None:
            return SpaceSize(total, 0, exact=lacking.sure)
        counts = [group.count for group in self._groups]
        if None not in counts:
            return SpaceSize(total, math.prod(count for count in counts if count is not None))
        rng = random.Random(0)  # the same estimate, and with it the same search, in every process
        valid = sum(not self.broken(self._draw(rng)) for _ in range(_ESTIMATE_SAMPLES))
        # Valid configs may be too rare for the sample; one at least is known, since each group has a row.
        return SpaceSize(total, max(1, round(total * valid / _ESTIMATE_SAMPLES)), exact=False)

    @cached_property
    def default_config(self) -> Config:
        """The config that runs untuned: the given default, else `first_config()`, which raises EmptySpaceError."""
        return self.default or self.first_config()

    def first_config(self) -> Config:
        """The first valid config in the order of enumeration, whatever the default is.

        Raises:
            EmptySpaceError: The constraints refuse every config, or none was found by a million asks of each group.
        """
        if self.listed is None and self._without_rows is None:
            return self._join(row for group in self._groups if (row := group.first.row) is not None)
        if (config := next(iter(self), None)) is None:
            raise self._empty()
        return config

    def check_filled(self, values: Mapping[str, Any] | None) -> None:
        """Raise `EmptySpaceError` if no config is valid; of these values of tunables, one that is refused is named."""
        try:
            self.first_config()
        except EmptySpaceError as error:
            for name in values or {}:
                config = Config({**(self.default or {}), name: self.tunables[name].values[0]})
                if set(config) == set(self.tunables) and (rules := self.broken(config)):
                    message = f"no config is valid; {name}={config[name]}: {rules[0].explain(config)}"
                    raise EmptySpaceError(message, hint=error.hint) from error
            raise

    def checked(self, config: Config, name: str) -> Config:
        """The config, if it is in this space, which is that of a kernel; else `ConfigValueError`."""
        if (reason := self.why_not(config)) is not None:
            message = f"config ({config}) is not in the space of {name}: {reason}"
            raise ConfigValueError(message, hint="take a config of the space")
        return config

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digits for the content: tunables with their values, constraints by name and reason, default."""
        return fingerprint(
            {
                "tunables": [
                    [name, list(tunable.values), *filter(None, [values_of_members(tunable.members)])]
                    for name, tunable in self.tunables.items()
                ],
                "constraints": [[c.name, c.reason, list(c.names)] for c in self.constraints],
                "default": None if self.default is None else self.default.text,
                "listed": None if self.listed is None else [config.text for config in self.listed],
            }
        )

    def broken(self, config: Mapping[str, Any]) -> list[Constraint]:
        """The constraints that `config`, which has all tunables, breaks."""
        return [constraint for constraint in self.constraints if not constraint.kept_by(config)]

    def names_agree(self, config: Config) -> bool:
        """Tell whether a config has a value for each tunable and nothing else; a limit of registers may be left out."""
        return not config.keys() - self.tunables.keys() and self.tunables.keys() - config.keys() <= {_LIMIT}

    def why_not(self, config: Config) -> str | None:
        """The reason why `config` is not in this space; None if it is. The default always is in the space."""
        if set(config) != set(self.tunables) and config not in self._listed_set:
            return f"its names are {sorted(config)}, and the space has {sorted(self.tunables)}"
        why = self._why_refused(config)
        return None if why is None or config == self.default else why

    def _why_refused(self, config: Config) -> str | None:
        # Values are checked before constraints, since a predicate need only work for values of the space.
        for name, texts in self._value_texts.items():
            if repr(value := config.get(name)) not in texts:
                return f"{name}={value!r} is none of {list(self.tunables[name].values)}"
        if self.listed is not None and config not in self._listed_set:
            return f"it is none of the {len(self.listed)} configs of the list"
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
        rows = [group.draw(rng) for group in self._groups] if self._never is None else [None]
        parts = [row for row in rows if row is not None]
        return self._join(parts) if len(parts) == len(rows) else self.default_config

    def neighbours(self, config: Config, *, steps_only: bool = False) -> Iterator[Config]:
        """The valid configs that differ from `config` in one tunable, in the order of the tunables and their values.

        Args:
            config: The config, which need not be in the space itself.
            steps_only: For ordered tunables, take only the next larger and the next smaller value.

        Cost: one check of the constraints for each neighbour, and no memory.
        """
        for name, tunable in self.tunables.items():
            own = config.get(name)
            values = _next_to(tunable.values, own) if steps_only and tunable.ordered else tunable.values
            others = (Config({**config, name: value}) for value in values)
            yield from (other for other in others if (other[name] != own or other != config) and other in self)

    def with_values(self, values: Mapping[str, Any]) -> ConfigSpace:
        """A space with other values of some tunables; the default stays a candidate.

        Of a list each config gets every combination of the values. Members of an `Enum` may be given by name, as `FAST`
        or `Mode.FAST`.

        Raises:
            UnknownTunableError: A name is no tunable of this space.
        """
        self._check_names(values, "the replacement")
        own_values = self.with_names(values)
        if self.listed is None:
            return ConfigSpace({**self.tunables, **own_values}, self.constraints, self.default)
        rows = [dict(zip(own_values, row, strict=True)) for row in itertools.product(*own_values.values())]
        configs = [{**config.with_members(self.members), **row} for config in self.listed for row in rows]
        return ConfigSpace.from_configs(configs, self.constraints, self.default)

    def take(self, count: int) -> list[Config]:
        """The first `count` valid configs in the order of enumeration."""
        return list(islice(iter(self), count))

    def with_names(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by tunable, single ones or lists, with the members of an `Enum` that texts such as `FAST` name."""
        options = {name: (self.members.get(name, {}), self.tunables.get(name, ())) for name in values}
        return {name: named_shortly(value, *options[name]) for name, value in values.items()}

    @cached_property
    def _listed_set(self) -> frozenset[Config]:
        return frozenset(self.listed or ())

    @cached_property
    def _value_texts(self) -> dict[str, frozenset[str]]:
        """The values of each tunable as text, which tells True from 1 and 64 from 64.0."""
        return {name: frozenset(map(repr, tunable)) for name, tunable in self.tunables.items()}

    @cached_property
    def _groups(self) -> tuple[Group, ...]:
        return groups_of(self.tunables, self.constraints)

    @cached_property
    def _never(self) -> RowOutcome | None:
        """The outcome of constraints over no tunable, if they refuse every config."""
        refusing = tuple(each for each in self.constraints if not each.names and not each.kept_by({}))
        return RowOutcome(None, refusing=refusing) if refusing else None

    @property
    def _without_rows(self) -> RowOutcome | None:
        """A search that found no valid config, a sure one if there is one; None if there are valid configs."""
        searches = [search for group in self._groups if (search := group.first).row is None]
        return self._never or min(searches, key=lambda lacking: not lacking.sure, default=None)

    def _join(self, rows: Iterable[Mapping[str, Any]]) -> Config:
        together = {name: value for row in rows for name, value in row.items()}
        return Config({name: together[name] for name in self.tunables})

    def _enumerate(self) -> Iterator[Config]:
        if (lacking := self._without_rows) is not None and lacking.sure:
            return
        names, asks = list(self.tunables), Asks(_PATIENCE_ASKS)
        domains = {name: values for group in self._groups for name, values in group.domains.items()}
        joining = [constraint for constraint in self.constraints if len(constraint.names) > 1]
        walk = SpaceWalk(names, joining, domains, asks=asks, promising=Completions(names, self._groups))
        try:
            for row in walk.rows():
                asks.restart()
                yield Config(row)
        except TooManyAsks:
            warn(
                "the search for further valid configs ended after the constraints were asked %s times in a row "
                "without one; constraints over fewer tunables are found out sooner",
                f"{_PATIENCE_ASKS:,}",
            )

    def _empty(self) -> EmptySpaceError:
        total = len(self.listed) if self.listed is not None else self.size.total
        lacking = None if self.listed is not None else self._without_rows
        names = ", ".join(c.name for c in (lacking.refusing if lacking is not None else self.constraints))
        if lacking is None or lacking.sure:
            message = f"none of the {total:,} configs keeps every constraint ({names})"
            return EmptySpaceError(message, hint="widen a tunable or loosen a constraint")
        return EmptySpaceError(
            f"no valid config was found among {total:,}: the search ended after the constraints ({names}) were asked "
            "about a million times",
            hint="give a default config that keeps them, or write the rule as constraints over fewer tunables",
        )

    def _draw(self, rng: random.Random) -> Config:
        if self.listed is not None:
            return rng.choice(self.listed)
        return Config({name: rng.choice(tunable.values) for name, tunable in self.tunables.items()})

    def _checked_default(self, config: Config) -> Config:
        self._check_names(config, "the default config")
        if (missing := [name for name in self.tunables if name not in config]) and config not in self._listed_set:
            raise SpaceError(f"the default config lacks {', '.join(missing)}", hint="give it a value for every tunable")
        if broken := self.broken(config):
            message = f"the default config ({config}) breaks {broken[0].explain(config)}"
            raise SpaceError(message, hint="the default is what runs untuned: it must be valid")
        return config

    def _check_names(self, names: Iterable[str], who: str) -> None:
        if unknown := [name for name in names if name not in self.tunables]:
            message = f"{who} names {', '.join(map(repr, unknown))}; the tunables are {', '.join(self.tunables)}"
            raise UnknownTunableError(message, hint="correct the name, or add the tunable")

    @staticmethod
    def from_user(source: Any) -> ConfigSpace:
        """A space from a user's space, mapping from names to values, or list of configs.

        Equal mappings of plain values give one and the same space, so that its default and fingerprint are found once.
        """
        if isinstance(source, ConfigSpace):
            return source
        if isinstance(source, Mapping):
            return _space_of(source)
        if isinstance(source, Iterable) and not isinstance(source, (str, bytes)):
            return ConfigSpace.from_configs(source)
        message = f"a config space cannot be made from {source!r}"
        raise SpaceError(message, hint='give a mapping like {"BLOCK": [64, 128]}, a list of configs, or a ConfigSpace')

    @staticmethod
    def text_of(source: Any) -> str | None:
        """A mapping from names to lists of plain values as text; None for what else a space may be made of."""
        if type(source) is not dict or any(type(name) is not str for name in source):
            return None
        if all(type(values) in (list, tuple) and _PLAIN.issuperset(map(type, values)) for values in source.values()):
            return repr(source)
        return None

    def all_configs(self, most: int) -> list[Config] | None:
        """Every valid config, in the order of enumeration; None if they are more than `most`, or finding takes long.

        Each group of tunables that constraints join is walked by itself, once: the cost goes by what the constraints
        leave of the groups, and not by the combinations of all values. It is at most a million asks of constraints, two
        seconds; for most spaces some hundredths of a second.
        """
        if self.size.valid > most:
            return None
        if self.listed is not None:
            return list(self)
        if self._never is not None:
            return []
        rows = _rows_of_groups(self._groups, most)
        if rows is None or math.prod(map(len, rows)) > most:
            return None
        places = {name: {repr(value): at for at, value in enumerate(it.values)} for name, it in self.tunables.items()}

        def place(values: Mapping[str, Any]) -> tuple[int, ...]:
            # the text tells True from 1
            return tuple(places_of[repr(values[name])] for name, places_of in places.items())

        return sorted(map(self._join, itertools.product(*rows)), key=place)


@dataclass(frozen=True)
class UnlistedSpace(ConfigSpace):
    """A config space whose values nobody has listed, but for `seeds`, which are tried first.

    Attributes:
        tiles: The tunables that must be shown to change no result.
        seeds: Configs that somebody has written, the first of which is the default; empty if the default is made up.
        limits_registers: Whether a config may limit a thread's registers too, by `maxnreg`, which is no tunable: which
            limits have a use depends on what the compiler has made of the config without one.
    """

    tiles: tuple[str, ...] = ()
    seeds: tuple[Config, ...] = ()
    limits_registers: bool = False

    @classmethod
    def around(
        cls, space: ConfigSpace, seeds: Sequence[Mapping[str, Any]], tiles: Iterable[str], *,
        limits_registers: bool = False,
    ) -> UnlistedSpace:  # fmt: skip
        """A space with the values of seeds beside its own; the seeds are in it, whatever rules they break."""
        whole = tuple(Config({**space.default_config, **seed}) for seed in seeds)
        tunables = dict(space.tunables)
        for name, tunable in tunables.items():
            values = {repr(value): value for value in (*tunable.values, *(seed[name] for seed in whole))}.values()
            # by types first, since a text cannot be compared with a number
            tunables[name] = Tunable.of(name, sorted(values, key=lambda value: (str(type(value)), value)))
        default = next(iter(whole), space.default_config)
        return cls(
            tunables, space.constraints, default, tiles=tuple(name for name in tiles if name in tunables), seeds=whole,
            limits_registers=limits_registers and _LIMIT not in tunables,
        )  # fmt: skip

    @property
    def made_up(self) -> bool:
        """Tell whether nobody has written the default."""
        return not self.seeds

    def broken(self, config: Mapping[str, Any]) -> list[Constraint]:
        """The constraints that a config breaks; a seed breaks none."""
        return [] if config in self.seeds else super().broken(config)

    def why_not(self, config: Config) -> str | None:
        """The reason why `config` is not in this space; None if it is, with a limit of registers or without one."""
        if self.limits_registers and (limit := config.get(_LIMIT)) is not None:
            if limit not in LAUNCH_OPTIONS[_LIMIT]:
                return f"{_LIMIT} is {limit!r}, and may be {LAUNCH_OPTIONS[_LIMIT]}"
            config = Config({name: value for name, value in config.items() if name != _LIMIT})
        return super().why_not(config)


def _next_to(values: tuple[Value, ...], value: Value) -> tuple[Value, ...]:
    if value not in values:
        return values
    at = values.index(value)
    return values[max(at - 1, 0) : at] + values[at + 1 : at + 2]


_PLAIN = {bool, int, float, str, type(None)}  # types whose text says all
_spaces = BoundedDict[str, ConfigSpace](64)  # by the text of the mapping that a space was made from


def _space_of(mapping: Mapping[str, Any]) -> ConfigSpace:
    if (text := ConfigSpace.text_of(mapping)) is None:
        return ConfigSpace(mapping)
    if (space := _spaces.get(text)) is None:
        space = _spaces[text] = ConfigSpace(mapping)
    return space


_MOST_ASKS = 1_000_000  # of the constraints of all groups together: at most about two seconds


def _rows_of_groups(groups: tuple[Group, ...], most: int) -> list[list[dict[str, Any]]] | None:
    """The rows of each group; None if one has more than `most`, or if they cannot be found in time."""
    asks, rows_of = Asks(_MOST_ASKS), []
    try:
        for group in groups:
            walk = SpaceWalk(group.names, group.joined, group.domains, asks=asks)
            rows_of.append(list(itertools.islice(walk.rows(), most + 1)))
    except TooManyAsks:
        return None
    return None if all(rows_of) and any(len(rows) > most for rows in rows_of) else rows_of
