"""Knowledge from tunes of other problems: priors of a search, configs to try first.

They come from the cache and from the lockfiles that packages bring. A tune of a few seconds has time for some dozens of
trials; the winner of a neighbour is mostly within some percent of the best, and costs one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from triton_ops.cost_model import Model, ModelPrior
from triton_ops.device import Calibration, Machine
from triton_ops.records import FollowedLockfile, Record, Runs
from triton_ops.request import Task
from triton_ops.search import Prior, ProblemPlace
from triton_ops.space import Config
from triton_ops.values import Key, Mapper, Measurement, Status, Trial

_MOST = 4  # places whose trials guide a search, the nearest ones


def model_of(task: Task, folder: Path) -> list[Prior]:
    """The model of the work that the kernel's author declared; an empty list where the model can say nothing."""
    if task.work is None or task.work.tiles is None:
        return []
    machine = Machine.of(task.device, Calibration.load(folder, task.device.name))
    return [] if machine is None else [ModelPrior(Model(task.work, machine))]


def transfers_to(task: Task, key: Key, records: Iterable[Record], folder: Path) -> list[Prior]:
    """Priors from the records of the same kernel on other problems and devices, the nearest first, four at most.

    A key with an unknown part gets none, and such records give none, since kernels that cannot be told from each other
    share a name; nor do those that run as Python where this one does not, or the other way round. A record whose run
    logs are still in the cache folder contributes every trial, any other only winner, ties and default.
    """
    here = place_of(key)
    if key.unknown is not None:
        return []
    others = [record for record in records if record.key.kernel == key.kernel and not _same_problem(record.key, key)]
    others = [r for r in others if r.key.unknown is None and r.key.interpreted == key.interpreted]
    others.sort(key=lambda record: (place_of(record.key).distance(here), record.id))
    priors: list[Prior] = []
    for record in others:
        trials = trials_of(record, folder) or _summary(record)
        transfer = ProblemPlace.transfer(task.space, trials, place_of(record.key).distance(here))
        if transfer is not None:
            priors.append(transfer)
        if len(priors) == _MOST:
            break
    return priors


def trials_of(record: Record, folder: Path) -> list[Trial]:
    """The trials of all kept runs of a record's problem, with those of the record's own run first."""
    return Runs(folder, record.id).trials(record.run)


def _same_problem(one: Key, other: Key) -> bool:
    """True if two keys have the same problem and device, and differ at most in source, versions or cache state.

    The winner of such a record is tried as it stands, and is no prior.
    """
    return dict(one.problem) == dict(other.problem) and one.device.get("name") == other.device.get("name")


def place_of(key: Key) -> ProblemPlace:
    """The problem and the device of a key, for its distance from another; a bucket is at its largest problem."""
    return ProblemPlace.of_arguments(Mapper.unkeyed(key.problem)[0], str(key.device.get("name", "")))


def _summary(record: Record) -> list[Trial]:
    """The winner, the configs that tied with the winner, and the default, as trials."""
    times: dict[Config, float] = {}
    if record.default is not None and record.default_timing is not None:
        times[record.default] = record.default_timing.median_ms
    times.update((config, record.timing.median_ms) for config in (record.winner, *record.ties))
    return [Trial(config, Status.OK, Measurement((ms,), record.mode)) for config, ms in times.items()]


_NEARBY_MOST = 3  # configs
_FARTHEST = 4.0  # doublings of extents, other dtypes and other choices, together


def winners_nearby(task: Task, key: Key, records: Iterable[Record]) -> list[Config]:
    """The winners for problems nearby that the space allows, the nearest first, three at most.

    A key with an unknown part has no neighbours, since it may stand for several kernels.
    """
    if key.unknown is not None:
        return []
    here = place_of(key)
    distances = [(place.distance(here), config) for place, config in _winners(key, records)]
    near = sorted((each for each in distances if each[0] <= _FARTHEST), key=lambda each: each[0])
    return [config for config in dict.fromkeys(config for _, config in near) if not task.space.why_not(config)][
        :_NEARBY_MOST
    ]


def _winners(key: Key, records: Iterable[Record]) -> Iterator[tuple[ProblemPlace, Config]]:
    """Every winner of the key's kernel on its device, with its place."""
    device = key.device.get("name")
    for record in records:
        if record.undecided or record.key.unknown is not None:
            continue
        if record.key.kernel == key.kernel and record.key.device.get("name") == device:
            yield place_of(record.key), record.winner
    for entry in FollowedLockfile.shared_entries(key):
        yield place_of(replace(key, problem=entry.problem)), entry.config
