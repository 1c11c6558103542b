"""Work that was read from a kernel's TTIR: it fills the models of loops and of rows, and is told in words.

A launch with products of tiles is a pipelined loop, any other launch is rows that are walked over in chunks. Launches
of one config follow each other. docs/concepts/model.md says what is read, and where nothing can be told.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from math import ceil
from typing import Any, TypeAlias

from triton_ops.base import cached_property
from triton_ops.cost_model import mma
from triton_ops.cost_model.blocks import chained_footprint, row_footprint, tile_footprint
from triton_ops.cost_model.inferred_rows import dram_bytes, least_bytes, main_loops, passes_of, walk_of, why_silent
from triton_ops.cost_model.prediction import Fit, Model, ModelPrior
from triton_ops.cost_model.row_tiles import walk_schedule
from triton_ops.cost_model.tile_loop import LANES, TileLoop, loop_schedule
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
            links=max(Counter(product.loop for product in inside).values()) if computed else 0,
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
    """Elements of the results of some products, of the loop with the most."""
    elements: dict[int, float] = {}
    for product in (launch.products[at] for at in products):
        elements[product.loop] = elements.get(product.loop, 0.0) + product.batch * product.rows * product.columns
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
            raise UnknownTileError(work.silent or "it launches nothing")
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
        if (facts := self._facts.get(id(launch))) is None or facts.launch is not launch:
            facts = self._facts[id(launch)] = _LaunchFacts(launch)
        return facts


def flops_of(launch: LaunchWork) -> dict[str, float]:
    """The operations of a launch's products, by the dtype of their operands."""
    flops: Counter[str] = Counter()
    for product in launch.products:
        flops[product.dtype] += launch.programs * product.flops  # type: ignore[assignment]
    return dict(flops)


class _LaunchFacts:
    """The facts of a launch that do not depend on its launch options, each computed once."""

    def __init__(self, launch: LaunchWork) -> None:
        self.launch = launch
        self._dram: dict[tuple[int, float], float] = {}

    why_not = cached_property(lambda self: why_silent(self.launch))
    flops = cached_property(lambda self: flops_of(self.launch))
    least_bytes = cached_property(lambda self: least_bytes(self.launch))
    step = cached_property(lambda self: _step_of(self.launch))  # if it has products
    walk = cached_property(lambda self: walk_of(self.launch))  # if it has none; with one warp and no pipeline

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


_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_AGREE = 0.8  # Spearman's correlation below which two rankings of a space differ
_LEAST_SHARE, _MOST_SHARE = 0.8, 1.25  # of the declared bytes or operations


def work_in_words(work: KernelWork) -> dict[str, str]:
    """The launches of a config in words: a name and a text for each part."""
    if work.silent:
        return {"work": f"cannot be read: {work.silent}"}
    facts: dict[str, str] = {}
    for number, launch in enumerate(work.launches, 1):
        before = f"launch {number}: " if len(work.launches) > 1 else ""
        for name, text in _launch_words(launch):
            names = chain((before + name,), (f"{before}{name} {at}" for at in count(2)))  # a second load is `load 2`
            facts[next(one for one in names if one not in facts)] = text
    return facts


def differences(
    declared: Work, read: Work, works: Sequence[KernelWork], scores: Sequence[tuple[float, float]]
) -> list[str]:
    """The differences of a declaration and of what was read, in words; `scores` are pairs of their expected times."""
    sentences: list[str] = []
    passes = getattr(declared.tiles, "passes", None)
    walks = {passes_of(launch) for work in works for launch in work.launches if not launch.products}
    if passes is not None and walks and passes not in walks:
        times = " or ".join(map(str, sorted(walks)))
        sentences.append(f"{passes} passes over a row are declared, and the kernel reads it {times} times")
    for amount, least, unit in ((declared.flops, read.flops, "FLOP"), (declared.bytes, read.bytes, "B")):
        if amount and least and not _LEAST_SHARE <= least / amount <= _MOST_SHARE:
            sentences.append(f"{_short(amount)}{unit} are declared, and the kernel's least is {_short(least)}{unit}")
    pairs = [(a, b) for a, b in scores if math.isfinite(a) and math.isfinite(b)]
    if len(pairs) > 2 and (rho := Model.spearman(*zip(*pairs, strict=True))) < _AGREE:
        sentences.append(f"both order {len(pairs)} configs in other ways: their rank correlation is {rho:.2f}")
    return sentences


def _launch_words(launch: LaunchWork) -> list[tuple[str, str]]:
    lines = [("programs", " x ".join(str(extent) for extent in launch.grid if extent > 1) or "1")]
    lines += [("loop", text) for text in _loops_in_words(launch)]
    lines += [("product", _product_in_words(product, launch)) for product in launch.products]
    lines += [(access.kind, _access_in_words(access, launch)) for access in launch.accesses if access.elements]
    lines += [("reductions", f"{_count(launch.reductions)} per program")] if launch.reductions else []
    lines += [("note", note) for note in launch.notes]
    if why := why_silent(launch):
        lines.append(("no forecast", why))
    return lines


def _times(count: float, word: str) -> str:
    return f"{_count(count)} {word}{'' if _count(count) == '1' else 's'}"


def _loops_in_words(launch: LaunchWork) -> Iterator[str]:
    for loop in launch.loops:
        text = _times(loop.turns, "iteration")
        text += f", {_count(loop.most)} at most" if loop.most > 1.01 * loop.turns else ""
        text += f" in {_count(loop.entries)} walks" if loop.entries > 1.01 else ""
        text += f", {loop.stages} stage{'s' if loop.stages != 1 else ''} asked for" if loop.stages is not None else ""
        yield text + (", its bounds are data" if loop.by_data else "")


def _product_in_words(product: Product, launch: LaunchWork) -> str:
    tile = f"{product.rows}x{product.columns}, sums of {product.inner}, {product.dtype}"
    computed = [name for name, load in zip(("left", "right"), product.loads, strict=True) if load < 0]
    text = f"{tile}, {_times(product.executions, 'time')}; {_short(product.flops * launch.programs)}FLOP in all"
    text += f"; the {computed[0]} operand is computed" if len(computed) == 1 else ""
    if product.after:
        names = " and ".join("product" if at == 0 else f"product {at + 1}" for at in product.after)  # as listed
        return f"{text}; in each iteration it waits for {names}"
    return text + ("; in each iteration it waits for arithmetic" if product.computed else "")


def _access_in_words(access: Access, launch: LaunchWork) -> str:
    name = launch.arguments[access.argument].name if 0 <= access.argument < len(launch.arguments) else ""
    text = f"{name or 'what is pointed to'}: {_short(access.bytes)}B per program"
    text += f" in {_count(access.executions)} iterations" if access.executions > 1.01 else ""
    text += f", {_short(access.bytes * launch.programs)}B in all, runs of {_count(access.run_bytes)} B"
    if not access.known:
        return text + ", at addresses that cannot be told"
    shared = launch.looked_at / max(access.shared[-1], 1e-9)
    text += f", each address by {_count(shared)} programs" if shared > 1.5 and access.kind == "load" else ""
    text += f", the same addresses {_count(access.repeats)} times" if access.repeats > 1.01 else ""
    if access.again < 0:
        return text
    share = f"{1 - access.anew:.0%} of its addresses with" if access.anew else "the same addresses as"
    return text + f", {share} {_listed_name(launch, access.again)}"


def _listed_name(launch: LaunchWork, at: int) -> str:
    """An access by the name under which it stands in the list."""
    kind = launch.accesses[at].kind
    number = sum(access.kind == kind and access.elements > 0 for access in launch.accesses[: at + 1])
    return kind if number == 1 else f"{kind} {number}"


def _short(number: float) -> str:
    for size, unit in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g} "


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


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
        """The work of the space."""
        return Work(self.flops, self.bytes, InferredTiles(self.work_of, self.dtype))

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
        """Expected milliseconds, once in 0.1 ms each: NaN for one without a forecast, infinite if it does not fit."""
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
