"""The configs that are proposed next: those of a searcher that are new, and those that trials suggest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from triton_ops.device import Machine
from triton_ops.exceptions import SettingsError
from triton_ops.search import Searcher
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Trial

_REPEATED_ANSWERS = 100  # after so many answers in a row without a new config, the searcher counts as exhausted


def new_configs(searcher: Searcher, count: int, proposed: Collection[Config]) -> list[Config]:
    """Up to `count` configs from `searcher` that are not in `proposed`; an empty list when no new config comes.

    A searcher that repeats configs is asked again: it may continue an interrupted run without a memory of the trials.
    Raises SettingsError if it proposes an object that is no config.
    """
    for _ in range(_REPEATED_ANSWERS):
        answer: Sequence[Any] = searcher.ask(count)  # the searcher may be a user's, so its answer is checked
        if wrong := [config for config in answer if not isinstance(config, Config)]:
            message = f"{type(searcher).__qualname__}.ask returned {wrong[0]!r}, which is no Config"
            hint = "return configs of the space, or make one with triton_ops.Config(BLOCK=128)"
            raise SettingsError(message, hint=hint)
        if fresh := [config for config in dict.fromkeys(answer) if config not in proposed]:
            return fresh
        if not answer:
            break
    return []


_LIMITED, _MOST_LIMITED = 2, 8  # fastest configs whose limits are tried at a time, and limits in a tune


def limited_registers(space: ConfigSpace, machine: Machine | None, trials: Collection[Trial]) -> list[Config]:
    """The fastest configs of trials with other limits of registers; none of a space that leaves no limit open.

    ptxas settles by itself for few registers where more loads could be under way, and for many where one block more
    would fit. Limits are tried last, since only what was compiled says which of them have a use.
    """
    if machine is None or not isinstance(space, UnlistedSpace) or not space.limits_registers:
        return []
    room = _MOST_LIMITED - sum("maxnreg" in trial.config for trial in trials)
    known = [trial for trial in trials if trial.ok and trial.resources and trial.resources.registers]
    fastest = sorted(known, key=lambda trial: (trial.rank, trial.config.text))[:_LIMITED]
    return [config for trial in fastest for config in _beside(trial, machine)][: max(room, 0)]


def _beside(trial: Trial, machine: Machine) -> Iterator[Config]:
    """The config of a trial with the limits of registers beside those that it has."""
    warps, resources = trial.config.get("num_warps", 4), trial.resources
    if resources is not None and resources.registers is not None and isinstance(warps, int):
        for limit in machine.limits.register_limits(resources.registers, resources.shared_bytes or 0, warps):
            yield Config({**trial.config, "maxnreg": limit})
