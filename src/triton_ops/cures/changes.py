"""The changes of a config that may cure a spill, in the order in which they are tried.

The order is that of the lesson on pitfalls from which this project grew: a smaller tile, more warps, fewer stages, and
if nothing helps, a kernel that is split. A limit of registers that the config itself sets comes first, since taking it
back costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from triton_ops.hardware import Target
from triton_ops.space import Config, ConfigSpace
from triton_ops.work import warps_and_stages

SIZE = Callable[[Config], "int | None"]
"""Elements of a config's accumulator, or of its largest tile; None if that is not known."""
_LEAST_SIDE = 16  # `tl.dot` takes no smaller side
_TILE_STEPS = 3
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True)
class Change:
    """One kind of change.

    Attributes:
        name: Its name, in words.
        why: What it is expected to do.
        steps: The configs to try, each going further than the one before.
    """

    name: str
    why: str
    steps: Callable[[], Iterator[Config]]


def changes(config: Config, space: ConfigSpace, target: Target, size: SIZE) -> tuple[Change, ...]:
    """The changes of a config that may cure a spill, in order.

    Args:
        config: The config that spills.
        space: Its space, of which the values of tunables are taken where they are listed.
        target: What is compiled for.
        size: Tells the size of a config's accumulator or tile.
    """
    found = [
        Change("smaller tile", "half of the accumulator, or of the row, is half of its registers",
               lambda: _smaller(config, space, size)),
        Change("more warps", "the same registers are spread over more threads", lambda: _wider(config, target)),
        Change("fewer stages", "fewer tiles are under way", lambda: _shallower(config)),
    ]  # fmt: skip
    if config.get("maxnreg") is not None:
        freed = Change("no limit of registers", "maxnreg takes registers away", lambda: _unlimited(config))
        found.insert(0, freed)
    return tuple(found)


def _smaller(config: Config, space: ConfigSpace, size: SIZE) -> Iterator[Config]:
    """Configs of which each has half of the tile of the one before."""
    before = config
    for _ in range(_TILE_STEPS):
        smaller = _halved(before, space, size)
        if smaller is None:
            return
        yield smaller
        before = smaller


def _halved(config: Config, space: ConfigSpace, size: SIZE) -> Config | None:
    """The config with the longest side of its tile made shorter; None if no tunable does that."""
    now = size(config)
    sides = [
        (value, place, name)
        for place, name in enumerate(space.tunables)
        if isinstance(value := config[name], int) and not isinstance(value, bool) and name not in _LAUNCH_OPTIONS
    ]
    for value, _, name in sorted(sides, reverse=True):
        less = _less(space.tunables[name].values, value)
        if less is None:
            continue
        shorter = Config({**config, name: less})
        then = size(shorter)
        if now is not None and then is not None and then < now:
            return shorter
    return None


def _less(values: tuple[object, ...], value: int) -> int | None:
    """The next smaller value of a tunable, or half of it where none is listed; None below the least side of a tile."""
    listed = [one for one in values if isinstance(one, int) and not isinstance(one, bool) and one < value]
    less = max(listed, default=value // 2 if value % 2 == 0 else 0)
    return less if less >= _LEAST_SIDE else None


def _wider(config: Config, target: Target) -> Iterator[Config]:
    warps, _ = warps_and_stages(config)
    while (warps := warps * 2) * target.warp_size <= target.threads_per_block:
        yield Config({**config, "num_warps": warps})


def _shallower(config: Config) -> Iterator[Config]:
    _, stages = warps_and_stages(config)
    for fewer in (2, 1):
        if fewer < stages:
            yield Config({**config, "num_stages": fewer})


def _unlimited(config: Config) -> Iterator[Config]:
    yield Config({**config, "maxnreg": None})
