"""The neighbours of a config: the valid configs that differ in one tunable."""

from __future__ import annotations

from collections.abc import Iterator

from triton_ops.space import Config, ConfigSpace, Value


def neighbours(space: ConfigSpace, config: Config, *, steps_only: bool = False) -> Iterator[Config]:
    """The valid configs that differ from `config` in one tunable, in the order of the tunables and their values.

    Args:
        space: The space of the neighbours.
        config: The config, which need not be in the space itself.
        steps_only: For ordered tunables, take only the next larger and the next smaller value.

    Cost: one check of the constraints for each neighbour, and no memory.
    """
    for name, tunable in space.tunables.items():
        values = _next_to(tunable.values, config[name]) if steps_only and tunable.ordered else tunable.values
        for value in values:
            if type(value) is not type(config[name]) or value != config[name]:
                neighbour = Config({**config, name: value})
                if neighbour in space:
                    yield neighbour


def _next_to(values: tuple[Value, ...], value: Value) -> tuple[Value, ...]:
    if value not in values:
        return values
    at = values.index(value)
    return values[max(at - 1, 0) : at] + values[at + 1 : at + 2]
