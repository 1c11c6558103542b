"""Tiles that were read from a kernel's TTIR: the work of each config fills the models of loops and of rows.

A launch with products of tiles is a pipelined loop, any other launch is rows that are walked over in chunks. Launches
of one config follow each other. docs/concepts/inferred.md says what is read, and where nothing can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any

from triton_ops.hardware import Machine
from triton_ops.ranking.inferred_products import Step, product_plan, step_of
from triton_ops.ranking.inferred_rows import walk_of
from triton_ops.ranking.inferred_traffic import dram_bytes, main_loops
from triton_ops.ranking.resource_guess import row_footprint
from triton_ops.ranking.row_walk import Walk, walk_schedule
from triton_ops.ttir.launch_work import KernelWork, LaunchWork
from triton_ops.work import Footprint, Schedule, TilePlan, UnknownTileError, warps_and_stages

_UNTOLD = 1 / 3  # share of the bytes at unknown addresses from which on nothing is told


@dataclass(frozen=True)
class InferredTiles:
    """How a kernel cuts its work into tiles, by config.

    Attributes:
        work_of: The work of a config; its `silent` says why there is none.
        dtype: Dtype of the operands of products; empty if there are none.
    """

    work_of: Callable[[Mapping[str, Any]], KernelWork] = field(hash=False)
    dtype: str = ""
    _told: dict[int, _Told] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan all launches of a config, one after another.

        Raises:
            UnknownTileError: The work of the config cannot be told, or the device has no rate for its products.
        """
        work = self.work_of(config)
        if work.silent or not work.launches:
            raise UnknownTileError(work.silent or "it launches nothing")
        plans = [_plan(self._of(launch), config, machine) for launch in work.launches]
        return plans[0] if len(plans) == 1 else _one_after_another(plans)

    def _of(self, launch: LaunchWork) -> _Told:
        """What does not depend on launch options, which many configs of one work share."""
        told = self._told.get(id(launch))
        if told is None or told.launch is not launch:
            told = self._told[id(launch)] = _Told(launch)
        return told


class _Told:
    """What is told of a launch whatever its launch options, found once.

    Args:
        launch: The launch.
    """

    def __init__(self, launch: LaunchWork) -> None:
        self.launch = launch
        self._dram: dict[tuple[int, int], float] = {}

    @cached_property
    def why_not(self) -> str:
        """Why it has no forecast; empty if it has one."""
        return untold(self.launch)

    @cached_property
    def step(self) -> Step:
        """Its average step, if it has products."""
        return step_of(self.launch)

    @cached_property
    def walk(self) -> Walk:
        """Its walk, if it has no products, with one warp and no pipeline of its own."""
        return walk_of(self.launch)

    def dram_bytes(self, machine: Machine, at_once: int) -> float:
        """Bytes that DRAM delivers for one program, in a wave of `at_once` programs."""
        key = (at_once, machine.l2_bytes)
        if key not in self._dram:
            self._dram[key] = dram_bytes(self.launch, self.step.loads, machine, at_once)
        return self._dram[key]


def _plan(told: _Told, config: Mapping[str, Any], machine: Machine) -> TilePlan:
    """The plan of one launch.

    Raises:
        UnknownTileError: Too much of the launch's work is not known.
    """
    if told.why_not:
        raise UnknownTileError(told.why_not)
    warps, stages = warps_and_stages(config)
    if told.launch.products:
        return product_plan(told.step, warps, stages, machine, told.dram_bytes)
    return _walk_plan(told.launch, replace(told.walk, warps=warps, stages=told.walk.stages or stages), machine)


def _walk_plan(launch: LaunchWork, walk: Walk, machine: Machine) -> TilePlan:
    """Blocks that walk over memory without products."""
    widest = max((access.tile for access in launch.accesses), default=1)
    rows = max(1.0, *(loop.entries for loop in launch.loops)) if launch.loops else 1.0
    threads = 32 * walk.warps
    guess = row_footprint(widest / threads, walk.warps, ceil(rows), launch.alive / threads)
    return TilePlan(walk.warps, guess, lambda footprint: walk_schedule(walk, footprint, machine))


def _scaled(footprint: Footprint, share: float) -> Footprint:
    return replace(footprint, registers=round(footprint.registers * share))


def untold(launch: LaunchWork) -> str:
    """Why a launch has no forecast; empty if it has one."""
    moved = sum(access.bytes for access in launch.accesses)
    unknown = sum(access.bytes for access in launch.accesses if not access.known)
    if not moved and not launch.flops:
        return "no load, store or product of it can be told"
    if unknown > _UNTOLD * moved:
        return f"{unknown / moved:.0%} of the bytes that it moves are at addresses that cannot be told"
    main = main_loops(launch)
    if any(launch.loops[at].by_data and launch.loops[at].turns == launch.loops[at].entries for at in main):
        return "data decide when its main loop ends"
    return ""


def _one_after_another(plans: Sequence[TilePlan]) -> TilePlan:
    """Several launches: their times add up; the compiler tells the resources of the largest alone."""
    worst = max(plans, key=lambda plan: plan.footprint.registers)

    def schedule(footprint: Footprint) -> Schedule:
        share = 1.0 if footprint.known else footprint.registers / worst.footprint.registers  # a guess is off for all
        found = [plan.schedule(footprint if plan is worst else _scaled(plan.footprint, share)) for plan in plans]
        alone: dict[str, float] = {}
        for one in found:
            for name, each in one.alone_ms.items():
                alone[name] = alone.get(name, 0.0) + each
        return Schedule(sum(one.time_ms for one in found), sum(one.waves for one in found), alone)

    return TilePlan(worst.warps, worst.footprint, schedule)
