"""Tiles that were read from a kernel's TTIR: the work of each config fills the models of loops and of rows.

A launch with products of tiles is a pipelined loop, any other launch is rows that are walked over in chunks. Launches
of one config follow each other. docs/concepts/inferred.md says what is read, and where nothing can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, log
from typing import Any

from triton_ops.hardware import Machine
from triton_ops.ranking.gemm import Block, check_matrix_units, mma_cycles, operand_bytes, serialised, warp_groups
from triton_ops.ranking.pipelined_loop import Loop, loop_schedule
from triton_ops.ranking.resource_guess import tile_footprint
from triton_ops.ranking.rows import Chunks, row_plan
from triton_ops.ttir.launch_work import Access, KernelWork, LaunchWork, Product
from triton_ops.work import Footprint, Schedule, TilePlan, UnknownTileError, warps_and_stages

_SECTOR_BYTES = 32  # the least that L2 moves
_SCATTERED = 2.0  # bytes that L2 moves for each that is asked for, from which on lines limit the load unit
_LANES = 128
_SPECIAL_PER_CYCLE = 16  # exponentials and the like of one multiprocessor: CUDA C++ Programming Guide
_SPECIAL_INSTRUCTIONS = 2  # of a row kernel's element, beside those that load, store and convert it
_MOVED_INSTRUCTIONS = 2
_NORM_INSTRUCTIONS = 6  # of an element and pass of a norm, which has the weight 1
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
    def step(self) -> _Step:
        """Its average step, if it has products."""
        return _step_of(self.launch)

    @cached_property
    def chunks(self) -> Chunks:
        """Its chunks, if it has no products, with one warp and no pipeline of its own."""
        return _chunks(self.launch)

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
        return _product_plan(told, warps, stages, machine)
    return row_plan(replace(told.chunks, warps=warps, stages=told.chunks.stages or stages), machine)


def untold(launch: LaunchWork) -> str:
    """Why a launch has no forecast; empty if it has one."""
    moved = sum(access.bytes for access in launch.accesses)
    unknown = sum(access.bytes for access in launch.accesses if not access.known)
    if not moved and not launch.flops:
        return "no load, store or product of it can be told"
    if unknown > _UNTOLD * moved:
        return f"{unknown / moved:.0%} of the bytes that it moves are at addresses that cannot be told"
    main = _main_loops(launch)
    if any(launch.loops[at].by_data and launch.loops[at].turns == launch.loops[at].entries for at in main):
        return "data decide when its main loop ends"
    return ""


def _one_after_another(plans: Sequence[TilePlan]) -> TilePlan:
    """Several launches: their times add up; the compiler tells the resources of the largest alone."""
    worst = max(plans, key=lambda plan: plan.footprint.registers)

    def schedule(footprint: Footprint) -> Schedule:
        found = [plan.schedule(footprint if plan is worst else plan.footprint) for plan in plans]
        alone: dict[str, float] = {}
        for one in found:
            for name, each in one.alone_ms.items():
                alone[name] = alone.get(name, 0.0) + each
        return Schedule(sum(one.time_ms for one in found), sum(one.waves for one in found), alone)

    return TilePlan(worst.warps, worst.footprint, schedule)


def _main_loops(launch: LaunchWork) -> set[int]:
    """The loops with products in them; without products that of the most bytes; -1 stands for outside of loops."""
    if launch.products:
        return {product.loop for product in launch.products} - {-1}
    by_loop: dict[int, float] = {}
    for access in launch.accesses:
        by_loop[access.loop] = by_loop.get(access.loop, 0.0) + access.bytes
    return {max(by_loop, key=lambda at: by_loop[at])} - {-1} if by_loop else set()


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The average step of a launch with products: its totals, divided by the steps of all loops with products.

    Attributes:
        steps: Steps of a program.
        entries: How often a program enters such a loop.
        main: The product with the most operations.
        products: All products.
        loads: The loads in such loops; all loads if the products stand outside of loops.
        fed: Bytes of a step that products read from shared memory and that a pipeline holds several times.
        kept: Bytes that products read from shared memory and that were loaded before the loop.
        depth: Stages of the pipeline that the kernel asks for; None if it leaves them to the launch.
        held: Elements of the results that a block holds; one loop's take the registers of another's.
        copied: Bytes of a step that are loaded by pointers, masked elements included.
        loaded: Bytes of a step that are loaded.
        lines: 128-byte lines of a step that are loaded by pointers.
        stored: Bytes that a program stores in all; an atomic operation loads and stores.
        arithmetic: Cycles of a step for operations on single elements.
    """

    steps: float
    entries: float
    main: Product
    products: tuple[Product, ...]
    loads: tuple[Access, ...]
    fed: float
    kept: float
    depth: int | None
    held: float
    copied: float
    loaded: float
    lines: float
    stored: float
    arithmetic: float


def _step_of(launch: LaunchWork) -> _Step:
    loops = _main_loops(launch)
    main = max(launch.products, key=lambda product: product.flops)
    steps = sum(launch.loops[at].turns for at in loops) or max(main.executions, 1.0)
    loads = tuple(a for a in launch.accesses if a.kind == "load" and (a.loop in loops or not loops))
    feeding = {at for product in launch.products for at in product.loads if at >= 0}
    fed = [launch.accesses[at] for at in feeding if launch.accesses[at] in loads]
    kept = [launch.accesses[at] for at in feeding if launch.accesses[at] not in loads]
    return _Step(
        steps=steps,
        entries=sum(launch.loops[at].entries for at in loops) or 1.0,
        main=main,
        products=launch.products,
        loads=loads,
        fed=sum(access.tile * access.item_bytes * access.executions for access in fed) / steps,
        kept=sum(access.tile * access.item_bytes for access in kept),
        depth=next((launch.loops[at].stages for at in loops if launch.loops[at].stages is not None), None),
        held=_held(launch),
        copied=sum(a.tile * a.item_bytes * a.executions for a in loads if not a.descriptor) / steps,
        loaded=sum(access.bytes for access in loads) / steps,
        lines=sum(a.lines * a.executions for a in loads if not a.descriptor) / steps,
        stored=sum(a.bytes * (2 if a.kind == "atomic" else 1) for a in launch.accesses if a.kind != "load"),
        arithmetic=sum(launch.loops[at].plain / _LANES + launch.loops[at].special / _SPECIAL_PER_CYCLE for at in loops)
        / steps,
    )


def _held(launch: LaunchWork) -> float:
    held: dict[int, float] = {}
    for product in launch.products:
        held[product.loop] = held.get(product.loop, 0.0) + product.batch * product.rows * product.columns
    return max(held.values())


def _product_plan(told: _Told, warps: int, stages: int, machine: Machine) -> TilePlan:
    """A pipelined loop of products."""
    step = told.step
    for product in step.products:
        check_matrix_units(machine, product.dtype)
    main = _block(step.main, warps, stages if step.depth is None else step.depth)
    grouped = warp_groups(machine, main.rows, warps)

    def schedule(footprint: Footprint) -> Schedule:
        at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, warps)
        return loop_schedule(_loop(told, main, machine, at_once), footprint, machine)

    return TilePlan(warps, _guess(step, main, grouped), schedule)


def _block(product: Product, warps: int, stages: int) -> Block:
    item = 4 if product.element in ("f32", "tf32") else 8 if product.element == "f64" else 2
    item = 1 if product.element.startswith(("f8", "i8")) else item
    return Block(
        rows=product.rows, columns=product.columns, step=product.inner, group=1, warps=warps, stages=stages,
        item_bytes=item,
    )  # fmt: skip


def _guess(step: _Step, main: Block, grouped: bool) -> Footprint:
    threads = 32 * main.warps
    buffers = main.stages if grouped else max(main.stages - 1, 1)
    shared = int(buffers * step.fed + step.kept)
    return tile_footprint(step.held / threads, step.copied / 16 / threads, grouped, shared)


def _loop(told: _Told, main: Block, machine: Machine, at_once: int) -> Loop:
    step = told.step
    cycles = reads = 0.0
    for product in step.products:
        share = product.batch * product.executions / step.steps
        block = _block(product, main.warps, main.stages)
        cycles += share * mma_cycles(machine, block, product.dtype)
        reads += share * _operand_reads(product, block, machine)
    return Loop(
        blocks=told.launch.programs,
        steps=step.steps,
        stages=main.stages,
        warps=main.warps,
        mma_cycles=cycles,
        shared_bytes=reads + step.loaded,
        lines=step.lines,
        load_bytes=step.loaded,
        arithmetic_cycles=step.arithmetic,
        dram_bytes=told.dram_bytes(machine, at_once * machine.units) / step.steps,
        mma_excess=machine.mma_excess(step.main.dtype),
        store_bytes=step.stored,
        entries=step.entries,
        lockstep=warp_groups(machine, main.rows, main.warps) and serialised(main),
    )


def _operand_reads(product: Product, block: Block, machine: Machine) -> float:
    """Bytes of shared memory that a product reads; an operand that was computed is in registers."""
    if product.loads[0] < 0 and warp_groups(machine, block.rows, block.warps):
        return float(product.columns * product.inner * block.item_bytes * max(product.rows // 64, 1))
    return operand_bytes(machine, product.rows, product.columns, product.inner * block.item_bytes, block.warps)


def dram_bytes(launch: LaunchWork, loads: Sequence[Access], machine: Machine, at_once: int) -> float:
    """Bytes that DRAM delivers for one program, in a wave of `at_once` programs.

    What programs of a wave share is read once. What an earlier wave has read is found in L2 as far as L2 holds all that
    is read; only half of L2 counts, because each of the chip's two halves keeps its own copy of a line.
    """
    here = min(at_once, launch.programs)
    waves = launch.programs / here
    wave = sum(_different(access, launch, here) * _own_bytes(access) for access in loads)
    bounded = _once(launch, loads)
    kept = min(1.0, machine.l2_bytes / 2 / max(bounded, 1.0))
    return (bounded + max(0.0, wave * waves - bounded) * (1 - kept)) / launch.programs


def least_bytes(launch: LaunchWork) -> float:
    """Different bytes that all programs of a launch load, and those that they store."""
    loads = [access for access in launch.accesses if access.kind != "store"]
    return _once(launch, loads) + _once(launch, [access for access in launch.accesses if access.kind != "load"])


def _once(launch: LaunchWork, accesses: Sequence[Access]) -> float:
    """The bytes of some accesses, each place of each argument once."""
    found: dict[int, float] = {}
    for access in accesses:
        if access.again < 0:
            whole = _different(access, launch, launch.programs) * _own_bytes(access)
            found[access.argument] = found.get(access.argument, 0.0) + whole
    return sum(min(whole, _span(launch, argument) or whole) for argument, whole in found.items())


def _own_bytes(access: Access) -> float:
    """Different bytes that one program moves by an access."""
    return access.bytes * access.distinct / access.repeats


def _span(launch: LaunchWork, argument: int) -> int:
    """Bytes of the tensor that an argument is; 0 if they are not known."""
    return launch.arguments[argument].bytes if 0 <= argument < len(launch.arguments) else 0


def _different(access: Access, launch: LaunchWork, programs: int) -> float:
    """Different places to which so many programs go that follow each other."""
    sizes = [*(1 << power for power in range(len(access.shared) - 1)), launch.looked_at]
    if programs >= sizes[-1]:  # further programs go to new places as often as the last half of them did
        growth = log(max(access.shared[-1], 1e-6) / max(access.shared[-2], 1e-6)) if len(sizes) > 1 else 0.0
        doublings = log(programs / sizes[-1]) / log(sizes[-1] / sizes[-2]) if len(sizes) > 1 else 0.0
        return float(access.shared[-1] * exp(max(growth, 0.0) * doublings))
    after = next(at for at, size in enumerate(sizes) if size >= programs)
    if sizes[after] == programs:
        return access.shared[after]
    low, high = max(access.shared[after - 1], 1e-6), max(access.shared[after], 1e-6)
    share = log(programs / sizes[after - 1]) / log(sizes[after] / sizes[after - 1])
    return float(low * (high / low) ** share)


def passes_of(launch: LaunchWork) -> int:
    """How often a program reads most of what it reads."""
    loads = [access for access in launch.accesses if access.kind == "load"]
    most = max((_own_bytes(access) for access in loads), default=0.0)
    return 1 + max((_repeats(launch, access) for access in loads if _own_bytes(access) > most / 2), default=0)


def _chunks(launch: LaunchWork) -> Chunks:
    """Rows that are walked over in chunks, once or several times."""
    loads = [access for access in launch.accesses if access.kind == "load" and access.elements]
    stores = [access for access in launch.accesses if access.kind != "load" and access.elements]
    everything = (*loads, *stores)
    main = max(loads or stores, key=_own_bytes)
    passes = passes_of(launch)
    loop = launch.loops[main.loop] if main.loop >= 0 else None
    rows = max(1.0 if loop is None else loop.entries, 1.0)
    width = max(1, sum(_beside(main, access) for access in loads))
    elements = max(main.elements * width, 1.0)
    fresh = sum(_own_bytes(access) * _fresh(access, launch) for access in loads if access.again < 0) * passes
    written = sum(_own_bytes(access) * (2 if access.kind == "atomic" else 1) for access in stores if access.again < 0)
    moved = sum(access.bytes * access.distinct for access in everything)
    through = sum(max(a.bytes * a.distinct, a.sectors * _SECTOR_BYTES * a.executions) for a in everything)
    worked = launch.plain + sum(each.plain for each in launch.loops)
    worked += _SPECIAL_INSTRUCTIONS * (launch.special + sum(each.special for each in launch.loops))
    worked += _MOVED_INSTRUCTIONS * sum(access.elements for access in everything)
    return Chunks(
        blocks=launch.programs,
        rows=rows,
        columns=elements / rows,
        chunk=main.tile * width,
        passes=passes,
        warps=1,
        stages=(None if loop is None else loop.stages) or 0,
        read_bytes=fresh / passes / elements,
        written_bytes=written / elements,
        weight=worked / passes / elements / _NORM_INSTRUCTIONS,
        lines=sum(a.lines * a.executions for a in everything) if through > _SCATTERED * moved else 0.0,
        spread=max(1.0, through / max(fresh + written, 1.0)),
    )


def _fresh(access: Access, launch: LaunchWork) -> float:
    """The share of an access's places that only one program goes to."""
    return min(1.0, _different(access, launch, launch.programs) / launch.programs / min(access.executions, 1.0))


def _beside(main: Access, access: Access) -> bool:
    """Whether an access takes its part of the same rows: a row that is loaded in two halves is as long as both."""
    return (access.argument, access.loop, access.tile) == (main.argument, main.loop, main.tile)


def _repeats(launch: LaunchWork, access: Access) -> int:
    """How many earlier accesses go to the same places."""
    count = 0
    while access.again >= 0:
        access, count = launch.accesses[access.again], count + 1
    return count
