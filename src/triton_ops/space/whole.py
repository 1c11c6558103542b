"""All configs of a space at once, where they are few: however many combinations of values the constraints leave out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from triton_ops.space.config import Config
from triton_ops.space.groups import Group, groups_of
from triton_ops.space.space import ConfigSpace
from triton_ops.space.walk import Asks, TooManyAsks, Walk

_MOST_ASKS = 1_000_000  # of the constraints of all groups together: at most about two seconds


def all_configs(space: ConfigSpace, most: int) -> list[Config] | None:
    """Every valid config, in the order of enumeration; None if there are more than `most`, or finding them takes long.

    Each group of tunables that constraints join is walked by itself, once: the cost goes by what the constraints leave
    of the groups, and not by the combinations of all values.

    Cost: at most a million asks of constraints, two seconds; for most spaces some hundredths of a second.

    Raises:
        ConstraintError: A predicate raised.
    """
    if space.size.valid > most:
        return None
    if space.listed is not None:
        return list(space)
    if not all(constraint.kept_by({}) for constraint in space.constraints if not constraint.names):
        return []
    rows = _rows_of_groups(groups_of(space.tunables, space.constraints), most)
    if rows is None or math.prod(map(len, rows)) > most:
        return None
    places = {name: {repr(value): at for at, value in enumerate(it.values)} for name, it in space.tunables.items()}

    def place(values: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(known[repr(values[name])] for name, known in places.items())  # the text tells True from 1

    joined = ({name: value for row in found for name, value in row.items()} for found in itertools.product(*rows))
    return [Config({name: values[name] for name in places}) for values in sorted(joined, key=place)]


def _rows_of_groups(groups: tuple[Group, ...], most: int) -> list[list[dict[str, Any]]] | None:
    """The rows of each group; None if one has more than `most`, or if they cannot be found in time."""
    asks, found = Asks(_MOST_ASKS), []
    try:
        for group in groups:
            walk = Walk(group.names, group.joined, group.domains, asks=asks)
            found.append(list(itertools.islice(walk.rows(), most + 1)))
    except TooManyAsks:
        return None
    return None if all(found) and any(len(rows) > most for rows in found) else found
