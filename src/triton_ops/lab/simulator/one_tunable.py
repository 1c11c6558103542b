"""Knobs turned alone: the winner with another value of it, the pipeline by stages, configs at other shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.cost_model import textbook_work
from triton_ops.device import Machine
from triton_ops.lab.simulator.places import outcome_of
from triton_ops.lab.simulator.workloads import least_sides
from triton_ops.values import STAGES, WARPS, Work

_WARPS = (1, 2, 4, 8, 16, 32)
_STAGES = (1, 2, 3, 4, 5, 6)
_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A config with another value of one knob.

    Attributes:
        expected_ms: Expected time; 0 if the config cannot run.
        why_not: Why it cannot run; empty if it can.
        own: Whether it is the value that the config has.
    """

    value: int
    expected_ms: float
    why_not: str
    own: bool


@dataclass(frozen=True)
class Dial:
    """One knob of a config, turned while the others stay.

    Attributes:
        name: The tunable.
        turns: Its values in order.
        range: The longest over the shortest expected time of the values that can run.
    """

    name: str
    turns: Sequence[Turn]
    range: float


def dials(work: Work, machine: Machine, config: Mapping[str, Any], sides: Mapping[str, int]) -> list[Dial]:
    """Each knob of a config turned alone: sides of tiles by factors of two, warps, and stages."""
    knobs: list[Dial] = []
    for name in [*sides, "num_warps", "num_stages"]:
        own = config.get(name, WARPS if name == "num_warps" else STAGES)
        values: Sequence[int] = _WARPS if name == "num_warps" else _STAGES
        if name in sides:
            values = [int(own * factor) for factor in _FACTORS if own * factor >= sides[name]]
        turns = [_turn(work, machine, {**config, name: value}, sides, name, own) for value in values]
        times = [turn.expected_ms for turn in turns if not turn.why_not]
        knobs.append(Dial(name, turns, max(times) / min(times) if times else 1.0))
    return knobs


def _turn(
    work: Work, machine: Machine, config: Mapping[str, Any], sides: Mapping[str, int], name: str, own: int
) -> Turn:
    outcome = outcome_of(work, machine, config, sides)
    value = config[name]
    return Turn(value=value, expected_ms=outcome.expected_ms, why_not=outcome.why_not, own=value == own)


@dataclass(frozen=True)
class ShapePoint:
    """A problem of a series, and how the configs do there.

    Attributes:
        extents: The problem.
        best_ms: Expected time of its winner; 0 if no config can run.
        winner: The place of the winner in the list of configs; -1 if none can run.
        slower: Each config's expected time over the winner's; 0 for one that cannot run.
    """

    extents: Sequence[int]
    best_ms: float
    winner: int
    slower: Sequence[float]


def over_shapes(
    family: str, shapes: Sequence[Sequence[int]], dtype: str, machine: Machine, configs: Sequence[Mapping[str, Any]]
) -> list[ShapePoint]:
    """The same configs at several shapes: a config that wins at one may be slow at the next."""
    sides, points = least_sides(family, dtype), []
    for extents in shapes:
        work = textbook_work(family, extents, dtype)
        times = [outcome_of(work, machine, config, sides).expected_ms for config in configs]
        best = min((time for time in times if time > 0), default=0.0)
        winner = times.index(best) if best else -1
        points.append(ShapePoint(extents, best, winner, [time / best if best else 0.0 for time in times]))
    return points


def series(extents: Sequence[int], axis: int, count: int) -> list[list[int]]:
    """Problems that differ along one axis, from a sixteenth of its extent on, each a third of an octave longer."""
    begin = max(1.0, extents[axis] / 16)
    values = [int(begin * 2 ** (at / 3)) for at in range(count)]
    rising = [value for at, value in enumerate(values) if at == 0 or value > values[at - 1]]
    return [[*extents[:axis], value, *extents[axis + 1 :]] for value in rising]
