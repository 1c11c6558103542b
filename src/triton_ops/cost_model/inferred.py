"""Tiles that were read from a kernel's TTIR: the work of each config fills the models of loops and of rows.

A launch with products of tiles is a pipelined loop, any other launch is rows that are walked over in chunks. Launches
of one config follow each other. docs/concepts/inferred.md says what is read, and where nothing can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any

import msgspec

from triton_ops.cost_model.inferred_products import Step, product_plan, step_of
from triton_ops.cost_model.inferred_rows import dram_bytes, least_bytes, main_loops, walk_of
from triton_ops.cost_model.prediction import Model
from triton_ops.cost_model.resource_guess import row_footprint
from triton_ops.cost_model.row_walk import Walk, walk_schedule
from triton_ops.device import Machine
from triton_ops.exceptions import SpaceError
from triton_ops.kernel_ir import KernelWork, LaunchWork
from triton_ops.space import Config
from triton_ops.values import Footprint, Schedule, TilePlan, UnknownTileError, Work, warps_and_stages

_MOST_UNKNOWN = 1 / 3  # share of the bytes at unknown addresses from which on nothing is told


@dataclass(frozen=True)
class InferredTiles:
    """The tiles into which a kernel cuts its work, by config.

    Attributes:
        work_of: The work of a config; its `silent` says why there is none.
        dtype: Dtype of the operands of products; empty if there are none.
    """

    work_of: Callable[[Mapping[str, Any]], KernelWork] = field(hash=False)
    dtype: str = ""
    _facts: dict[int, _LaunchFacts] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def _of(self, launch: LaunchWork) -> _LaunchFacts:
        """The facts of a launch, which many configs of one work share."""
        facts = self._facts.get(id(launch))
        if facts is None or facts.launch is not launch:
            facts = self._facts[id(launch)] = _LaunchFacts(launch)
        return facts


class _LaunchFacts:
    """The facts of a launch that do not depend on its launch options, each computed once."""

    def __init__(self, launch: LaunchWork) -> None:
        self.launch = launch
        self._dram: dict[tuple[int, int], float] = {}

    @cached_property
    def why_not(self) -> str:
        """The reason why it has no forecast; empty if it has one."""
        return why_silent(self.launch)

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


def _plan(facts: _LaunchFacts, config: Mapping[str, Any], machine: Machine) -> TilePlan:
    """The plan of one launch.

    Raises:
        UnknownTileError: Too much of the launch's work is not known.
    """
    if facts.why_not:
        raise UnknownTileError(facts.why_not)
    warps, stages = warps_and_stages(config)
    if facts.launch.products:
        return product_plan(facts.step, warps, stages, machine, facts.dram_bytes)
    return _walk_plan(facts.launch, replace(facts.walk, warps=warps, stages=facts.walk.stages or stages), machine)


def _walk_plan(launch: LaunchWork, walk: Walk, machine: Machine) -> TilePlan:
    """Blocks that walk over memory without products."""
    widest = max((access.tile for access in launch.accesses), default=1)
    rows = max(1.0, *(loop.entries for loop in launch.loops)) if launch.loops else 1.0
    threads = 32 * walk.warps
    guess = row_footprint(widest / threads, walk.warps, ceil(rows), launch.alive / threads)
    return TilePlan(walk.warps, guess, lambda footprint: walk_schedule(walk, footprint, machine))


def why_silent(launch: LaunchWork) -> str:
    """The reason why a launch has no forecast; empty if it has one."""
    total = sum(access.bytes for access in launch.accesses)
    unknown = sum(access.bytes for access in launch.accesses if not access.known)
    if not total and not launch.flops:
        return "no load, store or product of it can be told"
    if unknown > _MOST_UNKNOWN * total:
        return f"{unknown / total:.0%} of the bytes that it moves are at addresses that cannot be told"
    main = main_loops(launch)
    if any(launch.loops[at].by_data and launch.loops[at].turns == launch.loops[at].entries for at in main):
        return "data decide when its main loop ends"
    return ""


def _one_after_another(plans: Sequence[TilePlan]) -> TilePlan:
    """Several launches: their times add up; the compiler tells the resources of the largest alone."""
    worst = max(plans, key=lambda plan: plan.footprint.registers)

    def schedule(footprint: Footprint) -> Schedule:
        share = 1.0 if footprint.known else footprint.registers / worst.footprint.registers  # a guess is off for all
        schedules = []
        for plan in plans:
            own = replace(plan.footprint, registers=round(plan.footprint.registers * share))
            schedules.append(plan.schedule(footprint if plan is worst else own))
        alone: dict[str, float] = {}
        for one in schedules:
            for name, each in one.alone_ms.items():
                alone[name] = alone.get(name, 0.0) + each
        return Schedule(sum(one.time_ms for one in schedules), sum(one.waves for one in schedules), alone)

    return TilePlan(worst.warps, worst.footprint, schedule)


_NOT_READ = KernelWork(silent="its TTIR was not read")


@dataclass(frozen=True)
class Readings:
    """The work of those configs of a space that were read.

    Attributes:
        names: The tunables on which TTIR depends, in order.
        works: By the values of these tunables.
        capped: Whether some configs were left out to save time.
    """

    names: tuple[str, ...]
    works: dict[tuple[Any, ...], KernelWork] = field(default_factory=dict)
    capped: bool = False

    def key(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values that configs of the same TTIR have in common."""
        return tuple((type(value).__name__, value) for value in (config.get(name) for name in self.names))

    def work_of(self, config: Mapping[str, Any]) -> KernelWork:
        """The work of a config; its `silent` says why there is none."""
        return self.works.get(self.key(config), _NOT_READ)

    @property
    def known_works(self) -> list[KernelWork]:
        """The works that have a forecast."""
        return [w for w in self.works.values() if not w.silent and not any(map(why_silent, w.launches))]

    @property
    def silent(self) -> str:
        """The reason why the work of no config is known, for most of them; empty if some is known."""
        if self.known_works:
            return ""
        reasons = Counter(_reason(work) for work in self.works.values())
        return reasons.most_common(1)[0][0] if reasons else "no config was read"

    @property
    def flops(self) -> float:
        """Operations of products that the config with the fewest makes the matrix units do."""
        return min((sum(launch.flops for launch in work.launches) for work in self.known_works), default=0.0)

    @property
    def bytes(self) -> float:
        """Different bytes that the config with the fewest loads and stores."""
        return min((sum(map(least_bytes, work.launches)) for work in self.known_works), default=0.0)

    @property
    def dtype(self) -> str:
        """The dtype of the operands of the products; empty if there are none, or of several dtypes."""
        dtypes = {product.dtype for work in self.known_works for launch in work.launches for product in launch.products}
        return dtypes.pop() if len(dtypes) == 1 else ""

    def model(self, machine: Machine) -> Model:
        """The model of the space on one device."""
        return Model(Work(self.flops, self.bytes, InferredTiles(self.work_of, self.dtype)), machine)

    def representatives(self, configs: Iterable[Config]) -> list[Config]:
        """One config of each different TTIR, in the order of the configs."""
        by_key: dict[tuple[Any, ...], Config] = {}
        for config in configs:
            by_key.setdefault(self.key(config), config)
        return list(by_key.values())

    def as_json(self) -> dict[str, Any]:
        """The readings as plain values for a recording; `from_json` reads them back."""
        works = [
            {"values": [value for _, value in key], "work": msgspec.to_builtins(work)}
            for key, work in self.works.items()
        ]
        return {"names": list(self.names), "works": works}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Readings:
        """The readings that `as_json` wrote.

        Raises:
            SpaceError: They cannot be read.
        """
        try:
            readings = cls(tuple(str(name) for name in plain["names"]))
            for row in plain["works"]:
                config = Config.from_json(dict(zip(readings.names, row["values"], strict=True)))
                readings.works[readings.key(config)] = msgspec.convert(row["work"], KernelWork)
        except (LookupError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise SpaceError(f"what was read of the kernel cannot be read again: {error}") from error
        return readings


def _reason(work: KernelWork) -> str:
    return work.silent or next(filter(None, map(why_silent, work.launches)), "")
