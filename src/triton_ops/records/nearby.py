"""Winners of the same kernel for problems nearby, on the same device: the first configs to try for a new problem.

They come from the cache and from the lockfiles that packages bring. A tune of a few seconds has time for some dozens of
trials; the winner of a neighbour is mostly within some percent of the best, and costs one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from triton_ops.records.packaged_lockfiles import shared_entries
from triton_ops.records.record import Record
from triton_ops.records.transfer import place_of
from triton_ops.request import Task
from triton_ops.search import Place
from triton_ops.space import Config
from triton_ops.values import Key

_MOST = 3  # configs
_FARTHEST = 4.0  # doublings of extents, other dtypes and other choices, together


def winners_nearby(task: Task, key: Key, records: Iterable[Record]) -> list[Config]:
    """The winners for problems nearby that the space allows, the nearest first, three at most.

    Args:
        task: The task that is going to be tuned.
        key: The task's key; one with an unknown part has no neighbours, since it may stand for several kernels.
        records: The records of the cache.
    """
    if key.unknown is not None:
        return []
    here = place_of(key)
    distances = [(place.distance(here), config) for place, config in _winners(key, records)]
    near = sorted((each for each in distances if each[0] <= _FARTHEST), key=lambda each: each[0])
    return [config for config in dict.fromkeys(config for _, config in near) if not task.space.why_not(config)][:_MOST]


def _winners(key: Key, records: Iterable[Record]) -> Iterator[tuple[Place, Config]]:
    """Every winner of the key's kernel on its device, with its place."""
    device = key.device.get("name")
    for record in records:
        if record.undecided or record.key.unknown is not None:
            continue
        if record.key.kernel == key.kernel and record.key.device.get("name") == device:
            yield place_of(record.key), record.winner
    for entry in shared_entries(key):
        yield place_of(replace(key, problem=entry.problem)), entry.config
