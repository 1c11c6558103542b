"""What is known of a problem before anything is tried: a model of its work, and the kernel's trials elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from triton_ops.cache import Key, Record
from triton_ops.hardware import load_calibration, machine_of
from triton_ops.history.runs import Runs
from triton_ops.ranking.predict import Model
from triton_ops.ranking.prior import ModelPrior
from triton_ops.search import Place, Prior, make_transfer
from triton_ops.space import Config
from triton_ops.task.task import Task
from triton_ops.trial import Measurement, Status, Trial

_MOST = 4  # other places that a search listens to, the nearest ones


def model_of(task: Task, folder: Path) -> list[Prior]:
    """The model of the work that the kernel's author declared; none where it would be silent."""
    machine = machine_of(task.device, load_calibration(folder, task.device.name))
    if machine is None or task.work is None or task.work.tiles is None:
        return []
    return [ModelPrior(Model(task.work, machine))]


def transfers_to(task: Task, key: Key, records: Iterable[Record], folder: Path) -> list[Prior]:
    """What `records` of the same kernel on other problems and devices say, nearest first, four at most.

    Args:
        task: What is going to be tuned.
        key: Its key; records of it are left out. One with an unknown part learns from no record: kernels that cannot be
            told apart share a name.
        records: Those of the cache; those with an unknown part are left out.
        folder: The cache folder: a record whose run logs are still there brings every trial, others winner and default.
    """
    here = place_of(key)
    if key.unknown is not None:
        return []
    others = [record for record in records if record.key.kernel == key.kernel and not _same_problem(record.key, key)]
    others = [record for record in others if record.key.unknown is None]
    others.sort(key=lambda record: (place_of(record.key).distance(here), record.id))
    found: list[Prior] = []
    for record in others:
        trials = trials_of(record, folder) or _summary(record)
        transfer = make_transfer(task.space, trials, place_of(record.key).distance(here))
        if transfer is not None:
            found.append(transfer)
        if len(found) == _MOST:
            break
    return found


def trials_of(record: Record, folder: Path) -> list[Trial]:
    """The trials of all kept runs of a record's problem, with those of the record's own run first."""
    return Runs(folder, record.id).trials(record.run)


def _same_problem(one: Key, other: Key) -> bool:
    """Whether two keys differ in the kernel's source, the versions or the cache state at most.

    The winner of such a record is a candidate here, not a hint.
    """
    return dict(one.problem) == dict(other.problem) and one.device.get("name") == other.device.get("name")


def place_of(key: Key) -> Place:
    """The problem and the device of a key, for its distance from another."""
    return Place.of_arguments(key.problem, str(key.device.get("name", "")))


def _summary(record: Record) -> list[Trial]:
    """The winner, what tied with it, and the default, as trials."""
    times: dict[Config, float] = {}
    if record.default is not None and record.default_timing is not None:
        times[Config.from_json(record.default)] = record.default_timing.median_ms
    configs: list[Mapping[str, Any]] = [record.winner, *record.ties]
    times.update((Config.from_json(config), record.timing.median_ms) for config in configs)
    return [Trial(config, Status.OK, Measurement((ms,), record.mode)) for config, ms in times.items()]
