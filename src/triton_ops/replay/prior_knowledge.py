"""The prior knowledge of a replayed search: the model of the kernel's work, and records of other places."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from triton_ops.exceptions import SpaceError
from triton_ops.hardware import machine_of, spec_named
from triton_ops.ranking.inferred_prior import InferredPrior
from triton_ops.ranking.prior import ModelPrior
from triton_ops.ranking.readings import Readings, readings_of
from triton_ops.ranking.recorded_work import recorded_model
from triton_ops.replay.recording import Recording
from triton_ops.search import Place, Prior, make_transfer

_log = logging.getLogger("triton_ops")


def priors_for(target: Recording, undeclared: bool = False) -> list[Prior]:
    """The model of the declared work, else of the work that was read of the kernel; empty if there is no forecast.

    Args:
        target: The recording that is searched.
        undeclared: Whether a declared work is passed over.
    """
    declared = None if uses_readings(target, undeclared) else recorded_model(target.head)
    if declared is not None:
        return [ModelPrior(declared)]
    read, spec = recorded_readings(target), spec_named(target.device)
    machine = machine_of(spec) if spec is not None else None
    if read is None or machine is None:
        return []
    prior = InferredPrior(read, machine, list(target.space))
    return [] if prior.silent else [prior]


def uses_readings(target: Recording, undeclared: bool) -> bool:
    """Whether a search on a recording goes by what was read of the kernel: only if no work is declared that counts."""
    return undeclared or recorded_model(target.head) is None


def recorded_readings(target: Recording) -> Readings | None:
    """What was read of the recorded kernel; None, with a warning, if it has another version's form."""
    plain = target.head.get("inferred")
    if not isinstance(plain, Mapping):
        return None
    try:
        return readings_of(plain)
    except SpaceError as error:
        _log.warning("%s is searched without a model: %s", target.file, error.message)
        return None


def transfers_for(target: Recording, records: Sequence[Recording]) -> list[Prior]:
    """The recordings in `records` of the same kernel with the same tunables as priors, nearest first.

    A recording of the same problem and device is left out, because it would give the answer away.
    """
    helpful = [other for other in records if _helps(target, other)]
    helpful.sort(key=lambda other: (_distance(target, other), other.file))
    made = (make_transfer(target.space, list(o.trials.values()), _distance(target, o)) for o in helpful)
    return [transfer for transfer in made if transfer is not None]


def _helps(target: Recording, other: Recording) -> bool:
    same_kernel = target.kernel == other.kernel and set(target.space.tunables) == set(other.space.tunables)
    return same_kernel and not target.same_place(other)


def _distance(target: Recording, other: Recording) -> float:
    by_tensors = bool(target.arguments and other.arguments)
    return _place(target, by_tensors).distance(_place(other, by_tensors))


def _place(recording: Recording, by_tensors: bool) -> Place:
    """The place of a recording: by its tensors as in a live tune if both recordings have them, else by its extents."""
    if by_tensors:
        return Place.of_arguments(recording.arguments, recording.device)
    return Place.of_shape(recording.problem, recording.dtype, recording.device)
