"""Launches with products of tiles: a pipelined loop of the average step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from triton_ops.cost_model.gemm import (
    Block,
    check_matrix_units,
    lockstep,
    mma_cycles,
    operand_bytes,
    tiles_of_warp,
    warp_groups,
    warps_across,
)
from triton_ops.cost_model.inferred_rows import main_loops
from triton_ops.cost_model.pipelined_loop import Loop, loop_schedule
from triton_ops.cost_model.resource_guess import chained_footprint, tile_footprint
from triton_ops.device import Machine
from triton_ops.kernel_ir import Access, LaunchWork, LoopWork, Product
from triton_ops.values import Footprint, Schedule, TilePlan

DramBytes: TypeAlias = "Callable[[Machine, int], float]"
"""From a machine and the programs of a wave to the bytes that DRAM delivers for one program."""
_LANES = 128
_SPECIAL_PER_CYCLE = 16  # exponentials and the like of one multiprocessor: CUDA C++ Programming Guide


@dataclass(frozen=True, kw_only=True)
class Step:
    """The average step of a launch with products: its totals, divided by the steps of all loops with products.

    Attributes:
        programs: Programs of the launch.
        steps: Steps of a program.
        entries: How often a program enters such a loop.
        main: The product with the most operations.
        products: All products.
        loads: The loads in such loops; all loads if the products stand outside of loops.
        fed: Bytes of a step that products read from shared memory and that a pipeline holds several times.
        at_once: The most of these bytes that one product reads.
        operand_bytes: Bytes that products read from shared memory and that were there before the loop.
        turned: Bytes of operands that are computed in the loop.
        depth: Stages of the pipeline that the kernel asks for; None if it leaves them to the launch.
        results: Elements of the results that a block holds; one loop's take the registers of another's.
        passing: Those of them that become operands in the same step.
        operations: Operations on single elements in a step.
        copied: Bytes of a step that are loaded by pointers, masked elements included.
        load_bytes: Bytes of a step that are loaded.
        lines: 128-byte lines of a step that are loaded by pointers.
        stored: Bytes that a program stores in all; an atomic operation loads and stores.
        arithmetic: Cycles of a step for operations on single elements.
        links: Products of a step of which one waits for another, or for arithmetic; 0 if none does.
        reduced: Whether what a product makes becomes the operand of another one.
    """

    programs: int
    steps: float
    entries: float
    main: Product
    products: tuple[Product, ...]
    loads: tuple[Access, ...]
    fed: float
    at_once: float
    operand_bytes: float
    turned: float
    depth: int | None
    results: float
    passing: float
    operations: float
    copied: float
    load_bytes: float
    lines: float
    stored: float
    arithmetic: float
    links: int
    reduced: bool


def step_of(launch: LaunchWork) -> Step:
    """The average step of a launch with products."""
    loops = main_loops(launch)
    main = max(launch.products, key=lambda product: product.flops)
    steps = sum(launch.loops[at].turns for at in loops) or max(main.executions, 1.0)
    loads = tuple(a for a in launch.accesses if a.kind == "load" and (a.loop in loops or not loops))
    feeding = {at for product in launch.products for at in product.loads if at >= 0}
    fed = [launch.accesses[at] for at in feeding if launch.accesses[at] in loads]
    prefilled = [launch.accesses[at] for at in feeding if launch.accesses[at] not in loads]
    return Step(
        programs=launch.programs,
        steps=steps,
        entries=sum(launch.loops[at].entries for at in loops) or 1.0,
        main=main,
        products=launch.products,
        loads=loads,
        fed=sum(_tile_bytes(access) * access.executions for access in fed) / steps,
        at_once=max(
            sum(_tile_bytes(launch.accesses[at]) for at in product.loads if at >= 0 and launch.accesses[at] in fed)
            for product in launch.products
        ),
        operand_bytes=sum(map(_tile_bytes, prefilled)) + _prior_operand_bytes(launch, loops),
        turned=max((_left_bytes(product) for product in launch.products if product.computed), default=0.0),
        depth=next((launch.loops[at].stages for at in loops if launch.loops[at].stages is not None), None),
        results=_result_elements(launch, range(len(launch.products))),
        passing=_result_elements(launch, {at for product in launch.products for at in product.after}),
        operations=sum(launch.loops[at].plain for at in loops) / steps,
        copied=sum(_tile_bytes(a) * a.executions for a in loads if not a.descriptor) / steps,
        load_bytes=sum(access.bytes for access in loads) / steps,
        lines=sum(a.lines * a.executions for a in loads if not a.descriptor) / steps,
        stored=sum(a.bytes * (2 if a.kind == "atomic" else 1) for a in launch.accesses if a.kind != "load"),
        arithmetic=sum(_arithmetic_cycles(launch.loops[at]) for at in loops) / steps,
        links=_links(launch),
        reduced=any(product.after for product in launch.products),
    )


def _arithmetic_cycles(loop: LoopWork) -> float:
    """Cycles of one multiprocessor; exponentials and the like have a unit of their own."""
    return max(loop.plain / _LANES, loop.special / _SPECIAL_PER_CYCLE)


def _links(launch: LaunchWork) -> int:
    """Products of the average step, if one of them waits for what is computed in the step."""
    if not any(product.computed for product in launch.products):
        return 0
    by_loop = Counter(product.loop for product in launch.products)
    return max(by_loop.values())


def _tile_bytes(access: Access) -> float:
    return float(access.tile * access.item_bytes)


def _left_bytes(product: Product) -> float:
    return float(product.rows * product.inner * _item_bytes(product))


def _prior_operand_bytes(launch: LaunchWork, loops: set[int]) -> float:
    """Bytes of operands that were computed before the loop, each once: the scaled queries of attention."""
    operands = {
        (product.rows, product.inner): _left_bytes(product)
        for product in launch.products
        if product.loop in loops and product.loads[0] < 0 and not product.computed
    }
    return sum(operands.values())


def _result_elements(launch: LaunchWork, products: Iterable[int]) -> float:
    """Elements of the results of some products, of the loop with the most."""
    elements: dict[int, float] = {}
    for product in (launch.products[at] for at in products):
        elements[product.loop] = elements.get(product.loop, 0.0) + product.batch * product.rows * product.columns
    return max(elements.values(), default=0.0)


def product_plan(step: Step, warps: int, stages: int, machine: Machine, dram_bytes: DramBytes) -> TilePlan:
    """A pipelined loop of products.

    Raises:
        UnknownTileError: The device has no known matrix rate for a product.
    """
    for product in step.products:
        check_matrix_units(machine, product.dtype)
    main = _block(step.main, warps, stages if step.depth is None else step.depth)
    grouped = warp_groups(machine, main.rows, warps)

    def schedule(footprint: Footprint) -> Schedule:
        at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, warps)
        dram = dram_bytes(machine, at_once * machine.units)
        loop = _loop(step, main, machine, dram)
        if not step.links:  # the constants of chains hold such waits: most attention kernels have them
            loop = replace(loop, lockstep=lockstep(machine, main, footprint.serialised))
        return loop_schedule(loop, footprint, machine)

    return TilePlan(warps, _guess(step, main, grouped), schedule)


def _item_bytes(product: Product) -> int:
    if product.element.startswith(("f8", "i8")):
        return 1
    return 4 if product.element in ("f32", "tf32") else 8 if product.element == "f64" else 2


def _block(product: Product, warps: int, stages: int) -> Block:
    return Block(
        rows=product.rows, columns=product.columns, step=product.inner, group=1, warps=warps, stages=stages,
        item_bytes=_item_bytes(product),
    )  # fmt: skip


def _guess(step: Step, main: Block, grouped: bool) -> Footprint:
    """Resources of a block; without a pipeline one product's operands take the place of another's."""
    threads = 32 * main.warps
    buffers = main.stages if grouped else max(main.stages - 1, 1)
    shared = (buffers * step.fed if main.stages > 1 else step.at_once) + step.operand_bytes
    if not grouped:  # what was computed goes through shared memory into the layout of an operand
        shared += step.turned
    if step.passing:
        accumulator = step.results - step.passing
        operations = max(0.0, step.operations - accumulator) / step.passing  # what is kept is scaled once
        return chained_footprint(accumulator / threads, step.passing / threads, operations, grouped, int(shared))
    return tile_footprint(step.results / threads, step.copied / 16 / threads, grouped, int(shared))


def _loop(step: Step, main: Block, machine: Machine, dram_bytes: float) -> Loop:
    cycles = reads = 0.0
    for product in step.products:
        share = product.batch * product.executions / step.steps
        block = _block(product, main.warps, main.stages)
        cycles += share * mma_cycles(machine, block, product.dtype)
        reads += share * _operand_reads(product, block, machine)
    return Loop(
        blocks=step.programs,
        steps=step.steps,
        stages=main.stages,
        warps=main.warps,
        mma_cycles=cycles,
        shared_bytes=reads + step.load_bytes,
        lines=step.lines,
        load_bytes=step.load_bytes,
        arithmetic_cycles=step.arithmetic,
        dram_bytes=dram_bytes / step.steps,
        mma_excess=machine.mma_excess(step.main.dtype),
        store_bytes=step.stored,
        entries=step.entries,
        links=step.links,
        exchanged=step.reduced and warps_across(machine, main.rows, main.columns, main.warps) > 1,
        tall=tiles_of_warp(machine, main.rows, main.columns, main.warps),
    )


def _operand_reads(product: Product, block: Block, machine: Machine) -> float:
    """Bytes of shared memory that a product reads; an operand that the loop computes is in registers."""
    if product.computed and product.loads[0] < 0 and warp_groups(machine, block.rows, block.warps):
        return float(product.columns * product.inner * block.item_bytes * max(product.rows // 64, 1))
    return operand_bytes(machine, product.rows, product.columns, product.inner * block.item_bytes, block.warps)
