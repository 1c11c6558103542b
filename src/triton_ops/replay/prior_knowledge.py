"""The prior knowledge of a replayed search: the model of the declared work, and records of other places."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.ranking.prior import ModelPrior
from triton_ops.ranking.recorded_work import recorded_model
from triton_ops.replay.recording import Recording
from triton_ops.search import Place, Prior, make_transfer


def priors_for(target: Recording) -> list[Prior]:
    """The model of the work that the kernel's author declared; empty if the model makes no forecast."""
    model = recorded_model(target.head)
    return [] if model is None else [ModelPrior(model)]


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
