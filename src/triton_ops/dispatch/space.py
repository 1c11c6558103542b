"""The config space of a choice: the implementations that apply, each with the config that it was tuned to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triton_ops.base import fingerprint
from triton_ops.dispatch.choice_kernel import IMPLEMENTATION, TILES
from triton_ops.space import Config, ConfigSpace


@dataclass(frozen=True)
class ChoiceSpace(ConfigSpace):
    """One config for each implementation that takes part. A config of a record may have other tiles, if they are valid.

    Attributes:
        refusals: Why the other implementations do not take part, by name.
        why_no_tiles: From a name and tiles to why they cannot be taken; None if they can.
    """

    refusals: Mapping[str, str] = field(default_factory=dict)
    why_no_tiles: Callable[[str, Config], str | None] = lambda _name, _tiles: None

    @classmethod
    def of(
        cls,
        tiles: Mapping[str, Config],
        refusals: Mapping[str, str],
        why_no_tiles: Callable[[str, Config], str | None],
        *,
        tiled: bool,
    ) -> ChoiceSpace:
        """The space of implementations by name, each with the config of its operation, empty where it has none.

        Args:
            tiles: The implementations that take part, in order, at least one.
            refusals: Why the others do not.
            why_no_tiles: As the attribute.
            tiled: Whether some implementation, applicable or not, has an operation, so that configs have tiles.
        """
        listed = [choice(name, configs, tiled) for name, configs in tiles.items()]
        plain = ConfigSpace.from_configs(listed)
        return cls(plain.tunables, (), listed[0], plain.listed, refusals, why_no_tiles)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The implementations that do not take part."""
        return tuple(f"{name}: does not apply: {why}" for name, why in self.refusals.items())

    @cached_property
    def fingerprint(self) -> str:
        """Names what was to choose from: tiles do not count, since a later tune of them leaves the choice open."""
        return fingerprint([config[IMPLEMENTATION] for config in self.listed or ()])

    def why_not(self, config: Config) -> str | None:
        """Reason for which `config` is not in this space; None if it is."""
        if set(config) != set(self.tunables):
            return f"names {sorted(config)} instead of {sorted(self.tunables)}"
        name = str(config[IMPLEMENTATION])
        if name in self.refusals:
            return f"{name} does not apply: {self.refusals[name]}"
        if name not in (names := [each[IMPLEMENTATION] for each in self.listed or ()]):
            return f"there is no implementation {name}; there are {', '.join(map(str, names))}"
        return self.why_no_tiles(name, tiles_of(config))


def choice(name: str, tiles: Mapping[str, Any], tiled: bool) -> Config:
    """The config that names an implementation, with the config of its operation where there are such."""
    named: dict[str, Any] = {IMPLEMENTATION: name}
    return Config({**named, TILES: tuple(tiles.items())} if tiled else named)


def tiles_of(config: Mapping[str, Any]) -> Config:
    """The config of the operation in a choice; empty if there is none."""
    return Config(dict(config.get(TILES, ())))
