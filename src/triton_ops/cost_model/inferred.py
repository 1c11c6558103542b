"""Work that was read from a kernel's TTIR: it fills the models of loops and of rows.

A launch with products of tiles is a pipelined loop, any other launch is rows that are walked over in chunks. Launches
of one config follow each other. docs/concepts/model.md says what is read, and where nothing can be told.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, TypeAlias

from triton_ops.base import cached_property
from triton_ops.cost_model import mma
from triton_ops.cost_model.blocks import chained_footprint, row_footprint, tile_footprint
from triton_ops.cost_model.inferred_rows import dram_bytes, least_bytes, main_loops, walk_of, why_silent
from triton_ops.cost_model.prediction import Fit, Model, ModelPrior
from triton_ops.cost_model.row_tiles import walk_schedule
from triton_ops.cost_model.tile_loop import LANES, TileLoop, loop_schedule
from triton_ops.cost_model.work_words import differences
from triton_ops.device import Machine
from triton_ops.kernel_ir import Access, KernelWork, LaunchWork, Product
from triton_ops.space import Config
from triton_ops.values import Footprint, Schedule, TilePlan, UnknownTileError, Work, warps_and_stages

DramBytes: TypeAlias = "Callable[[Machine, int], float]"
"""From a machine and the programs of a wave to the bytes that DRAM delivers for one program."""
_SPECIAL_PER_CYCLE = 16  # exponentials and the like of one multiprocessor: CUDA C++ Programming Guide


@dataclass(frozen=True, kw_only=True)
class AverageStep:
    """The average step of a launch with products: its totals, divided by the steps of all loops with products."""

    loop: TileLoop  # without what warps, stages and the device decide
    main: Product  # with the most operations
    products: tuple[Product, ...]
    loads: tuple[Access, ...]  # in such loops; all loads if the products stand outside of loops
    fed: float  # bytes that products read from shared memory and that a pipeline holds several times
    at_once: float  # the most of these bytes that one product reads
    operand_bytes: float  # that products read from shared memory and that were there before the loop
    turned: float  # bytes of first operands that are computed in the loop, and are in registers for warp groups
    stored: float  # bytes of second operands that are computed in the loop, which go through shared memory
    beside: float  # bytes that operands are computed from, and that a pipeline holds once less than it has stages
    depth: int | None  # stages that the kernel asks for; None if it leaves them to the launch
    results: float  # elements that a block holds; one loop's take the registers of another's
    passing: float  # those of them that become operands in the same step
    operations: float  # on single elements
    copied: float  # bytes loaded by pointers, masked elements included


def _step_of(launch: LaunchWork) -> AverageStep:
    loops = main_loops(launch)
    turning = [launch.loops[at] for at in loops]
    main = max(launch.products, key=lambda product: product.flops)
    steps = sum(one.turns for one in turning) or max(main.executions, 1.0)
    loads = tuple(a for a in launch.accesses if a.kind == "load" and (a.loop in loops or not loops))
    feeding = {at for product in launch.products for at in product.loads if at >= 0}
    fed = [launch.accesses[at] for at in feeding if launch.accesses[at] in loads]
    prefilled = [launch.accesses[at] for at in feeding if launch.accesses[at] not in loads]
    inside = [product for product in launch.products if product.loop in loops or not loops]
    computed = [product for product in inside if product.computed]
    waits = computed or any(product.beside for product in inside)
    others = {at for product in inside for at in product.made_of} - feeding
    return AverageStep(
        loop=TileLoop(
            blocks=launch.programs,
            steps=steps,
            stages=0,
            warps=0,
            mma_cycles=0.0,
            shared_bytes=0.0,
            lines=sum(a.lines * a.executions for a in loads if not a.descriptor) / steps,
            load_bytes=sum(access.bytes for access in loads) / steps,
            arithmetic_cycles=sum(max(one.plain / LANES, one.special / _SPECIAL_PER_CYCLE) for one in turning) / steps,
            dram_bytes=0.0,
            store_bytes=sum(a.bytes * (2 if a.kind == "atomic" else 1) for a in launch.accesses if a.kind != "load"),
            entries=sum(one.entries for one in turning) or 1.0,
            links=max(Counter(product.loop for product in inside).values()) if waits else 0,
            exchanged=any(product.after for product in launch.products),
        ),
        main=main,
        products=launch.products,
        loads=loads,
        fed=sum(_tile_bytes(access) * access.executions for access in fed) / steps,
        at_once=max(
            sum(_tile_bytes(launch.accesses[at]) for at in product.loads if at >= 0 and launch.accesses[at] in fed)
            for product in launch.products
        ),
        operand_bytes=sum(map(_tile_bytes, prefilled)) + _prior_operand_bytes(launch, loops),
        turned=max(map(_left_bytes, computed), default=0.0),
        stored=sum(one.columns * one.inner * one.item_bytes for one in computed if one.loads[1] < 0),
        beside=sum(_tile_bytes(launch.accesses[at]) for at in others if launch.accesses[at] in loads),
        depth=next((one.stages for one in turning if one.stages is not None), None),
        results=_result_elements(launch, range(len(launch.products))),
        passing=_result_elements(launch, {at for product in launch.products for at in product.after}),
        operations=sum(one.plain for one in turning) / steps,
        copied=sum(_tile_bytes(a) * a.executions for a in loads if not a.descriptor) / steps,
    )


def _tile_bytes(access: Access) -> float:
    return float(access.tile * access.item_bytes)


def _left_bytes(product: Product) -> float:
    return float(product.rows * product.inner * product.item_bytes)


def _prior_operand_bytes(launch: LaunchWork, loops: set[int]) -> float:
    """Bytes of operands that were computed before the loop, each once: the scaled queries of attention."""
    prior = [one for one in launch.products if one.loop in loops and one.loads[0] < 0 and not one.computed]
    return sum({(one.rows, one.inner): _left_bytes(one) for one in prior}.values())


def _result_elements(launch: LaunchWork, products: Iterable[int]) -> float:
    """Elements of the results of some products and of the sums beside them, of the loop with the most."""
    elements: dict[int, float] = {}
    for product in (launch.products[at] for at in products):
        tiles = product.batch * (2 if product.beside else 1)
        elements[product.loop] = elements.get(product.loop, 0.0) + tiles * product.rows * product.columns
    return max(elements.values(), default=0.0)


def product_plan(step: AverageStep, warps: int, stages: int, machine: Machine, dram_bytes: DramBytes) -> TilePlan:
    """A pipelined loop of products; `UnknownTileError` if the device has no known matrix rate for one."""
    for product in step.products:
        mma.check(machine, product.dtype)
    main = _block(step.main, warps, stages if step.depth is None else step.depth)
    grouped = mma.warp_groups(machine, main.rows, warps)

    def schedule(footprint: Footprint) -> Schedule:
        at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, warps)
        loop = _loop(step, main, machine, dram_bytes(machine, at_once * machine.units))
        loop = loop._replace(lockstep=mma.lockstep(machine, main, footprint.serialised))
        return loop_schedule(loop, footprint, machine)

    return TilePlan(warps, _guess(step, main, grouped, _repeated(step, main, machine)), schedule)


def _block(product: Product, warps: int, stages: int) -> mma.TileBlock:
    return mma.TileBlock(
        rows=product.rows, columns=product.columns, step=product.inner, group=1, warps=warps, stages=stages,
        item_bytes=product.item_bytes,
    )  # fmt: skip


def _repeated(step: AverageStep, block: mma.TileBlock, machine: Machine) -> float:
    """How often the warps of a block compute the same elements of a product that another one waits for.

    Triton 3.6.0 puts all warps along the rows of such a product (`AccelerateMatmul`, `warpsPerTileV3`), each with 16 of
    them, so that a softmax between both needs no exchange.
    """
    chained = any(product.after for product in step.products) and mma.warp_groups(machine, block.rows, block.warps)
    return max(1.0, 16 * block.warps / block.rows) if chained else 1.0


def _guess(step: AverageStep, main: mma.TileBlock, grouped: bool, repeated: float) -> Footprint:
    """Resources of a block; without a pipeline one product's operands take the place of another's."""
    threads = 32 * main.warps
    # Triton 3.6.0 pipelines into a buffer less than there are stages, and into one more for warp-group instructions,
    # which still read their operands while the next loads are issued
    buffers = main.stages if grouped else max(main.stages - 1, 1)
    shared = (buffers * step.fed if main.stages > 1 else step.at_once) + step.operand_bytes + step.stored
    shared += max(main.stages - 1, 0) * step.beside
    if not grouped:  # what was computed goes through shared memory into the layout of an operand
        shared += step.turned
    if step.passing:
        accumulator = step.results - step.passing
        operations = max(0.0, step.operations - accumulator) / step.passing  # what is kept is scaled once
        passing = repeated * step.passing / threads
        return chained_footprint(accumulator / threads, passing, operations, grouped, int(shared))
    return tile_footprint(step.results / threads, step.copied / 16 / threads, grouped, int(shared), 0.0)


def _loop(step: AverageStep, main: mma.TileBlock, machine: Machine, dram_bytes: float) -> TileLoop:
    cycles, reads, loop = 0.0, 0.0, step.loop
    first = {at for product in step.products for at in product.after}
    for at, product in enumerate(step.products):
        block = _block(product, main.warps, main.stages)
        again = _repeated(step, block, machine) if at in first else 1.0
        share = again * product.batch * product.executions / loop.steps
        cycles += share * mma.cycles(machine, block, product.dtype)
        reads += share * _operand_reads(product, block._replace(warps=int(main.warps / again)), machine)
    repeated, across = _repeated(step, main, machine), mma.warps_across(machine, main.rows, main.columns, main.warps)
    return loop._replace(
        stages=main.stages, warps=main.warps, mma_cycles=cycles, shared_bytes=reads + loop.load_bytes,
        dram_bytes=dram_bytes / loop.steps, mma_excess=machine.mma_excess(step.main.dtype),
        arithmetic_cycles=repeated * loop.arithmetic_cycles,
        exchanged=loop.exchanged and repeated == 1 and across > 1,
        tall=mma.tiles_of_warp(machine, main.rows, main.columns, main.warps),
    )  # fmt: skip


def _operand_reads(product: Product, block: mma.TileBlock, machine: Machine) -> float:
    """Bytes of shared memory that a product reads; an operand that the loop computes is in registers."""
    if product.computed and product.loads[0] < 0 and mma.warp_groups(machine, block.rows, block.warps):
        return float(product.columns * product.inner * block.item_bytes * max(product.rows // 64, 1))
    return mma.operand_bytes(machine, product.rows, product.columns, product.inner * block.item_bytes, block.warps)


@dataclass(frozen=True)
class InferredTiles:
    """The tiles into which a kernel cuts its work, by config."""

    work_of: Callable[[Mapping[str, Any]], KernelWork] = field(hash=False)  # its `silent` says why there is none
    dtype: str = ""  # of the operands of products; empty if there are none, or of several
    _facts: dict[int, _LaunchFacts] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan all launches of a config, one after another; `UnknownTileError` has the reason why not."""
        work = self.work_of(config)
        if work.silent or not work.launches:
            raise UnknownTileError(work.silent or "with this config no kernel is launched")
        plans = [_plan(self._of(launch), config, machine) for launch in work.launches]
        return plans[0] if len(plans) == 1 else _one_after_another(plans)

    def least(self, config: Mapping[str, Any]) -> tuple[Mapping[str, float], float]:
        """The operations of products by dtype, and the different bytes, of a config's launches."""
        flops: Counter[str] = Counter()
        moved = 0.0
        for facts in map(self._of, self.work_of(config).launches):
            flops.update(facts.flops)
            moved += facts.least_bytes
        return flops, moved

    def _of(self, launch: LaunchWork) -> _LaunchFacts:
        """The facts of a launch, which many configs of one work share."""
        # An id may have been that of another launch, which is gone.
        if (facts := self._facts.get(id(launch))) is None or facts.launch is not launch:
            facts = self._facts[id(launch)] = _LaunchFacts(launch)
        return facts


class _LaunchFacts:
    """The facts of a launch that do not depend on its launch options, each computed once."""

    def __init__(self, launch: LaunchWork) -> None:
        self.launch = launch
        self._dram: dict[tuple[int, float], float] = {}

    why_not = cached_property(lambda self: why_silent(self.launch))
    least_bytes = cached_property(lambda self: least_bytes(self.launch))
    step = cached_property(lambda self: _step_of(self.launch))  # if it has products
    walk = cached_property(lambda self: walk_of(self.launch))  # if it has none; with one warp and no pipeline

    @cached_property
    def flops(self) -> Mapping[str, float]:
        """The operations of the launch's products, by the dtype of their operands."""
        flops: Counter[str] = Counter()
        for product in self.launch.products:
            flops[product.dtype] += self.launch.programs * product.flops  # type: ignore[assignment]
        return flops

    def dram_bytes(self, machine: Machine, at_once: int) -> float:
        """Bytes that DRAM delivers for one program, in a wave of `at_once` programs."""
        key = (at_once, machine.l2_kept_bytes)
        if key not in self._dram:
            self._dram[key] = dram_bytes(self.launch, self.step.loads, machine, at_once)
        return self._dram[key]


def _plan(facts: _LaunchFacts, config: Mapping[str, Any], machine: Machine) -> TilePlan:
    if facts.why_not:
        raise UnknownTileError(facts.why_not)
    warps, stages = warps_and_stages(config)
    if facts.launch.products:
        return product_plan(facts.step, warps, stages, machine, facts.dram_bytes)
    walk = replace(facts.walk, warps=warps, stages=facts.walk.stages or stages)
    widest = max((access.tile for access in facts.launch.accesses), default=1)
    rows = max(1.0, *(loop.entries for loop in facts.launch.loops)) if facts.launch.loops else 1.0
    threads = 32 * walk.warps
    alive, loaded = facts.launch.alive / threads, facts.launch.loaded / threads
    guess = row_footprint(widest / threads, walk.warps, ceil(rows), alive, loaded)
    return TilePlan(walk.warps, guess, lambda footprint: walk_schedule(walk, footprint, machine))


def _one_after_another(plans: Sequence[TilePlan]) -> TilePlan:
    """Several launches: their times add up; the compiler tells the resources of the largest alone."""
    worst = max(plans, key=lambda plan: plan.footprint.registers)

    def schedule(footprint: Footprint) -> Schedule:
        share = 1.0 if footprint.known else footprint.registers / worst.footprint.registers  # a guess is off for all
        schedules = []
        for plan in plans:
            own = replace(plan.footprint, registers=round(plan.footprint.registers * share))
            schedules.append(plan.schedule(footprint if plan is worst else own))
        alone: Counter[str] = Counter()
        for one in schedules:
            alone.update(one.alone_ms)
        return Schedule(sum(one.time_ms for one in schedules), sum(one.waves for one in schedules), {**alone})

    return TilePlan(worst.warps, worst.footprint, schedule)


_NOT_READ = KernelWork(silent="its TTIR was not read")


@dataclass(frozen=True)
class Readings:
    """The work of those configs of a space that were read."""

    names: tuple[str, ...]  # the tunables on which TTIR depends, in order
    works: dict[tuple[Any, ...], KernelWork] = field(default_factory=dict)  # by the values of these tunables

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
        works = self.works.values()
        reasons = Counter(work.silent or next(filter(None, map(why_silent, work.launches)), "") for work in works)
        return reasons.most_common(1)[0][0] if reasons else "no config was read"

    @property
    def dtype(self) -> str:
        """The dtype of the operands of the products; empty if there are none, or of several dtypes."""
        dtypes = {product.dtype for work in self.known_works for launch in work.launches for product in launch.products}
        return dtypes.pop() if len(dtypes) == 1 else ""

    def least(self, config: Mapping[str, Any]) -> tuple[Mapping[str, float], float]:
        """The operations of products by dtype, and the different bytes, of a config's launches."""
        return InferredTiles(self.work_of).least(config)

    def differences(self, declared: Model, configs: Iterable[Config]) -> list[str]:
        """The differences between the declaration and the kernel over some configs, in words."""
        readable = [config for config in configs if not self.work_of(config).silent]
        work = self.work
        scores = declared.score(readable), Model(work, declared.machine).score(readable)
        return differences(declared.work, work, self.known_works, list(zip(*scores, strict=True)))

    @property
    def work(self) -> Work:
        """The work of the space: the operations, and the different bytes, of the configs with the fewest of each."""
        flops = min((sum(launch.flops for launch in work.launches) for work in self.known_works), default=0.0)
        moved = min((sum(map(least_bytes, work.launches)) for work in self.known_works), default=0.0)
        return Work(flops, moved, InferredTiles(self.work_of, self.dtype))

    def model(self, machine: Machine) -> Model:
        """The model of the space on one device."""
        return Model(self.work, machine)

    def prior(self, machine: Machine, configs: Sequence[Config]) -> InferredPrior:
        """The readings as the prior of a search among these configs."""
        return InferredPrior(self, machine, configs)

    def representatives(self, configs: Iterable[Config]) -> list[Config]:
        """One config of each different TTIR, in the order of the configs."""
        by_key: dict[tuple[Any, ...], Config] = {}
        for config in configs:
            by_key.setdefault(self.key(config), config)
        return list(by_key.values())


_FEWEST = 12  # configs with a forecast that a fit needs
_ALIKE = 1.02  # the slowest over the fastest below which a model orders nothing
_MOST_FITTED = 4_000


class InferredPrior(ModelPrior):
    """Expected times by the work that was read, and by a fit of them for other configs; none if `silent`."""

    def __init__(self, readings: Readings, machine: Machine, configs: Sequence[Config]) -> None:
        super().__init__(readings.model(machine))
        self.readings, self._configs = readings, configs
        self.renew()

    def renew(self) -> None:
        """Take in what was read since."""
        self._guessed = {config: ms for config, ms in self._guessed.items() if not math.isnan(ms)}
        some = [config for config in self._configs if self.readings.key(config) in self.readings.works][:_MOST_FITTED]
        pairs = zip(some, super().score(some), strict=True)
        self._samples = [(config, ms) for config, ms in pairs if math.isfinite(ms) and ms > 0]
        self._fit: Any = None
        self.silent = self.readings.silent or _why_useless([ms for _, ms in self._samples])

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds of each config: NaN without a forecast, infinity if its block does not fit.

        Cost: 0.1 ms per config, and less when it is asked for again.
        """
        times = super().score(configs)
        known = self.readings.works
        gaps = [at for at, ms in enumerate(times) if math.isnan(ms) and self.readings.key(configs[at]) not in known]
        if gaps and len(self._samples) >= _FEWEST:
            if self._fit is None:
                self._fit = Fit(*map(list, zip(*self._samples, strict=True)))
            for at, ms in zip(gaps, self._fit.times([configs[at] for at in gaps]), strict=True):
                times[at] = ms
        return times


def _why_useless(times: Sequence[float]) -> str:
    if not times:
        return "no config has a forecast on this device"
    if max(times) < _ALIKE * min(times):
        return f"all forecasts are within {_ALIKE - 1:.0%} of each other"
    return ""
