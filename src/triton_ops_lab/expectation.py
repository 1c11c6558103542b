"""A config on a device in figures: occupancy, waves, shared memory, roofline, advice, pipeline.

Nothing is run. Registers and shared memory are the compiler's where the kernel could be compiled for the device.

It is advice only: what is fastest is measured. Sources: the configs of Triton's tutorials for NVIDIA's architectures,
those of ROCm's guide to Triton kernels for AMD's, and winners of recorded spaces on an H200 (docs/concepts/model.md);
the asynchronous copies that a pipeline needs are in NVIDIA's GPUs from sm_80 on (CUDA C++ Programming Guide).

With N stages the loop keeps N buffers and issues the load of step i + N - 1 just before it computes step i; with one
stage a load begins when the step before it is computed. Loads of different tiles wait at the same time. Each further
stage costs one more pair of tiles of shared memory, and helps until the units that compute never wait.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from triton_ops.compilation import CompilePool
from triton_ops.cost_model import Forecast
from triton_ops.device import DeviceSpec, Machine, Placed, Residents, Roofline, Target
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.space import Config
from triton_ops.tuner import Survey
from triton_ops.values import Compiled, Resources, Status, warps_and_stages
from triton_ops_lab.ranking import Expectation, Expecter, ModelQuestion

PRODUCTS, ROWS = "products", "rows and elements"
_LARGE = 32_768  # elements of a tile from which sixteen warps are worth a try
_MEDIUM = 8_192
_POWERS = (1, 2, 4, 8, 16, 32)
_ROW_EACH = (8, 64)  # elements per thread: below, loads are narrow; above, registers spill


@dataclass(frozen=True)
class Habit:
    """The range to begin with of `num_warps` or `num_stages`, with the reason."""

    option: str
    low: int
    high: int
    why: str

    def holds(self, value: int) -> bool:
        """Tell whether a value lies in the range."""
        return self.low <= value <= self.high


_ASYNCHRONOUS = "asynchronous copies hide the memory's latency with two to three tiles ahead"
_STAGES = {
    **dict.fromkeys(
        ("sm_70", "sm_75"),
        (1, 2, "without asynchronous copies loads pass through registers, and further stages take registers"),
    ),
    "sm_80": (3, 4, _ASYNCHRONOUS),
    **dict.fromkeys(("sm_86", "sm_89", "sm_120", "sm_121"), (2, 3, "99 KiB of shared memory per block hold few tiles")),
    "sm_90": (3, 5, "warp-group products are fast, so that more tiles must be under way; 227 KiB hold them"),
    **dict.fromkeys(
        ("sm_100", "sm_103"),
        (3, 5, "products run in tensor memory, so that shared memory is left for tiles under way"),
    ),
    **dict.fromkeys(("gfx90a", "gfx942"), (1, 2, "tiles pass through registers, and 64 KiB of LDS hold few of them")),
    "gfx950": (2, 3, "160 KiB of LDS hold more tiles, and loads may go to LDS directly"),
}


_UNITS = {"sm_90": "wgmma", "sm_100": "tcgen05", "sm_103": "tcgen05"}
"""The matrix instructions for which the advice of an architecture holds; others run as on the one before."""


def stages_habit(arch: str, kind: str, mma: str | None = None) -> Habit | None:
    """The range to begin with of `num_stages`, by `PRODUCTS` or `ROWS`; None for an architecture without a row.

    `mma` are the instructions of the products, or None if they are not known.
    """
    if arch not in _STAGES:
        return None
    if kind == ROWS:
        return Habit("num_stages", 1, 2, "memory limits it, and blocks beside each other hide the latency already")
    if mma not in (None, _UNITS.get(arch, mma)):
        return Habit("num_stages", 3, 4, _ASYNCHRONOUS)
    return Habit("num_stages", *_STAGES[arch])


def warps_habit(target: Target, kind: str, elements: int, mma: str | None = None) -> Habit | None:
    """The range to begin with of `num_warps`, as of `num_stages`; None where a tile's `elements` are not known."""
    if elements < 1:
        return None
    most = target.threads_per_block // target.warp_size
    if kind == ROWS:
        fewest, greatest = _ROW_EACH
        fit = [w for w in _POWERS if w <= most and fewest <= elements / (w * target.warp_size) <= greatest] or [1]
        why = f"{fewest} to {greatest} elements per thread load widely and do not spill"
        return Habit("num_warps", fit[0], fit[-1], why)
    low = 4 if elements >= _MEDIUM else 2
    high = 16 if elements >= _LARGE else 8 if elements >= _MEDIUM else 4
    why = "more warps share the accumulator among more registers"
    if target.arch == "sm_90" and low == 4 and mma in (None, "wgmma"):
        why = "warp-group products take groups of four warps, which share the accumulator"
    return Habit("num_warps", low, min(high, most), why)


@dataclass(frozen=True)
class WarpChoice:
    """The effect of a number of warps on a block, whose largest accumulator takes registers of each thread."""

    warps: int
    threads: int
    accumulator_registers: float
    fits: bool  # whether such accumulators left room for the rest, and did not spill, in recorded spaces


def warp_choices(target: Target, accumulator_bytes: int) -> tuple[WarpChoice, ...]:
    """The effects of each possible number of warps on an accumulator in a thread's registers."""
    room = (target.vendor.registers_per_thread + 1) // 2  # up to 128 of 255 nothing spilled in recorded spaces
    each = [(w, w * target.warp_size, accumulator_bytes / (4 * w * target.warp_size)) for w in _POWERS]
    return tuple(WarpChoice(*one, fits=one[2] <= room) for one in each if one[1] <= target.threads_per_block)


STAGES = (1, 2, 3, 4, 5)
_COLUMNS, _SCALE = 64, 4  # of a drawing, and of each unit of time
_LOADING, _READY, _COMPUTING, _EMPTY = "=", "-", "#", "."
LEGEND = f"{_LOADING} a tile is loaded, {_READY} it waits, {_COMPUTING} it is computed"


@dataclass(frozen=True)
class LoopStep:
    """One step of a pipelined loop; times are in units of one computed step."""

    buffer: int  # that holds its tile
    issued: float  # its load
    loaded: float
    begun: float  # its computation
    done: float


@dataclass(frozen=True)
class Timeline:
    """The first steps of a loop, in order."""

    stages: int
    steps: tuple[LoopStep, ...]

    @property
    def busy(self) -> float:
        """Share of the time in which something is computed, once the pipeline is filled."""
        first, last = self.steps[self.stages - 1], self.steps[-1]
        steps_done = sum(step.done - step.begun for step in self.steps[self.stages :])
        return steps_done / (last.done - first.done)


def timeline(stages: int, *, load: float) -> Timeline:
    """The timeline of a loop whose loads take `load` computed steps, of as many steps as show the rhythm."""
    done_steps: list[LoopStep] = []
    for at in range(4 * stages + 4):
        end = done_steps[-1].done if done_steps else 0.0
        issued = end
        if stages > 1:  # just before the step that runs `stages` - 1 steps ahead of it is computed
            issued = done_steps[at - stages + 1].begun if at >= stages - 1 else 0.0
        begun = max(issued + load, end)
        done_steps.append(LoopStep(at % stages, issued, issued + load, begun, begun + 1))
    return Timeline(stages, tuple(done_steps))


def drawn(loop: Timeline) -> list[str]:
    """A timeline as text: one line for each buffer, with time from left to right."""
    rows = [[_EMPTY] * _COLUMNS for _ in range(loop.stages)]
    for step in loop.steps:
        parts = ((_LOADING, step.issued, step.loaded), (_READY, step.loaded, step.begun))
        for mark, begin, end in (*parts, (_COMPUTING, step.begun, step.done)):
            for column in range(round(begin * _SCALE), min(round(end * _SCALE), _COLUMNS)):
                rows[step.buffer][column] = mark
    return ["".join(row) for row in rows]


def pipeline_lines(timelines: Sequence[Timeline], stages: int, mark: str, indent: str = "") -> list[str]:
    """Timelines as text, each below its share of the time; that of `stages` has the mark."""
    lines: list[str] = []
    for loop in timelines:
        own = f"  <- {mark}" if loop.stages == stages else ""
        lines.append(f"{indent}num_stages={loop.stages}: the units compute in {loop.busy:.0%} of the time{own}")
        lines += [f"{indent}  {line}" for line in drawn(loop)]
    return lines


_COMPARED = 64  # configs by which a declaration and the kernel are compared
ACCUMULATED_BYTES = 4  # of an element of a product's result: sums are in float32 or int32
_SURVEY = Survey(texts=16, promising=0, seconds=20.0)


@dataclass(frozen=True)
class Waves:
    """The waves of blocks in which a launch fills the device, the last of which may leave slots empty."""

    grid: int
    at_once: int  # blocks that the device holds at a time

    @property
    def waves(self) -> float:
        """Waves, the last one counted by its share."""
        return self.grid / self.at_once

    @property
    def full(self) -> int:
        """Waves that fill the device."""
        return self.grid // self.at_once

    @property
    def tail_blocks(self) -> int:
        """Blocks of the last wave, if it is not full; else 0."""
        return self.grid % self.at_once

    @property
    def used(self) -> float:
        """Share of the device's slots that blocks fill over all waves, if all blocks take equally long."""
        return self.waves / max(ceil(self.waves), 1)


def explain(question: ModelQuestion, config: Config, spec: DeviceSpec) -> Expectation:
    """The expectation of one config, whose kernel is read even if work is declared."""
    expecter = Expecter(question, spec)
    others = Survey.considered(question.space) if question.declared else []
    some = random.Random(0).sample(others, min(_COMPARED, len(others)))
    try:
        with CompilePool(question.compiler(spec)) as pool:
            readings = question.readings(list(dict.fromkeys([config, *some])), pool, None, _SURVEY)
            expecter = Expecter(question, spec, readings)
            (answer,) = expecter.all([config], pool)
            assert answer.compiled is not None
            answer = replace(answer, fitting=_with_fewer_stages(answer.compiled, pool))
    except (KernelTypeError, TargetError) as error:
        answer = expecter.of(config)
        return answer if answer.forecast is not None else replace(answer, silent=error.message)
    if question.declared and expecter.model is not None and readings.known_works:
        return replace(answer, differences=tuple(readings.differences(expecter.model, others)))
    return answer


def _with_fewer_stages(compiled: Compiled, pool: CompilePool) -> Compiled | None:
    """A config with fewer stages, where one needs too much shared memory; None if it fits, or if none does."""
    shared_bytes = compiled.resources.shared_bytes if compiled.resources is not None else None
    if compiled.status is not Status.RESOURCES or not shared_bytes:
        return None
    _, deep = warps_and_stages(compiled.config)
    for stages in range(deep - 1, 0, -1):
        fewer = pool.submit(Config({**compiled.config, "num_stages": stages}), anyway=True).result()
        if fewer.launchable:
            return fewer
    return None


_ASSUMED_LOAD = 2.0  # a load's wait in computed steps, where the model says nothing of it
_LOADS = (0.25, 8.0)  # what is drawn of it
_FLAT = "its loop has no pipeline: the program is the same with any num_stages"
_FULL = 0.9  # share of the slots that blocks fill from which a tail is not worth a word
_FEW = 0.25  # occupancy below which a config that is not made for it hides too little latency


@dataclass(frozen=True, kw_only=True)
class Portrait:
    """A config on a device, with None for each figure that is not known or not asked for."""

    resources: Resources | None  # of one block
    compiled: bool  # False if the model has guessed them
    warps: int
    stages: int
    shared_limit: int | None  # bytes, of one block
    residents: Residents | None  # of one multiprocessor
    waves: Waves | None
    roofline: Roofline
    expected: Placed | None
    measured: Placed | None
    accumulator: tuple[int, int] | None  # rows and columns of the largest; None without products
    habits: tuple[tuple[Habit, int], ...]  # each with the config's own value
    warp_choices: tuple[WarpChoice, ...]
    timelines: tuple[Timeline, ...]  # of one to five stages; empty for a kernel without products in a loop
    load_steps: float  # computed steps that a load takes in these timelines
    load_known: bool  # False if that is assumed, and not the model's
    remarks: tuple[str, ...]

    @property
    def accumulator_bytes(self) -> int | None:
        """Bytes of registers that the largest accumulator takes of a block; None without products."""
        return None if self.accumulator is None else ACCUMULATED_BYTES * prod(self.accumulator)


def portrait(explained: Expectation, spec: DeviceSpec, measured_ms: float | None = None) -> Portrait:
    """A config on a device; `measured_ms` is somebody's own time."""
    launches = explained.work.launches if explained.work is not None else ()
    sizes = [(launch.flops, launch.moved_bytes("load", "store", "atomic")) for launch in launches]
    launch = launches[sizes.index(max(sizes))] if launches else None  # with the most products, or bytes
    warps, stages = warps_and_stages(explained.config)
    resources, compiled = _resources(explained)
    limits, target, residents = spec.limits, spec.target, None
    if limits is not None and resources is not None and resources.registers is not None:
        residents = limits.residents(resources.registers, resources.shared_bytes or 0, warps)
    waves = None
    if launch is not None and residents is not None and residents.blocks:
        waves = Waves(launch.programs, residents.blocks * spec.units)
    roof = explained.bound
    assert roof is not None  # as of every config on a device
    accumulator = explained.work.accumulator if explained.work is not None else None
    load, is_forecast = load_steps(explained.forecast, stages)
    habits: tuple[tuple[Habit, int], ...] = ()
    if target is not None and launch is not None:
        widest = max((access.tile for access in launch.accesses), default=0)
        habits = _habits(explained, target, widest, bool(launch.loops), resources)
    has_products = is_forecast if launch is None else accumulator is not None
    pipelined = has_products and explained.pipelined is not False
    return Portrait(
        resources=resources, compiled=compiled, warps=warps, stages=stages,
        shared_limit=target.shared_bytes_per_block if target else None, residents=residents, waves=waves, roofline=roof,
        expected=_place(roof, explained.expected_ms), measured=_place(roof, measured_ms), accumulator=accumulator,
        habits=habits,
        warp_choices=warp_choices(target, ACCUMULATED_BYTES * prod(accumulator)) if target and accumulator else (),
        timelines=tuple(timeline(depth, load=load) for depth in STAGES if pipelined), load_steps=load,
        load_known=is_forecast,
        remarks=(
            *_fit_remarks(explained, spec, warps),
            *_remarks(residents, waves, resources, stages if pipelined else 1, spec),
            *([machine.unseen] if explained.forecast and (machine := Machine.of(spec)) and machine.unseen else []),
            *([_FLAT] if explained.pipelined is False and launch is not None and launch.loops else []),
        ),
    )  # fmt: skip


def _resources(explained: Expectation) -> tuple[Resources | None, bool]:
    resources = explained.compiled.resources if explained.compiled is not None else None
    if resources is not None and resources.registers is not None:
        return resources, True
    if (guess := explained.forecast) is None:
        return resources, False
    return Resources(guess.registers, round(guess.spill_bytes), guess.shared_bytes), guess.compiled


def _place(roof: Roofline, ms: float | None) -> Placed | None:
    return roof.placed(ms) if ms is not None and math.isfinite(ms) and ms > 0 else None


def _habits(
    explained: Expectation, target: Target, widest: int, has_loops: bool, resources: Resources | None
) -> tuple[tuple[Habit, int], ...]:
    """Ranges to begin with, each with the config's own value; of stages only where they can change the program."""
    accumulator = explained.work.accumulator if explained.work is not None else None
    mma, kind = resources.mma if resources is not None else None, PRODUCTS if accumulator else ROWS
    elements = prod(accumulator) if accumulator else widest
    pipelined = stages_habit(target.arch, kind, mma) if has_loops and explained.pipelined is not False else None
    pairs = zip((warps_habit(target, kind, elements, mma), pipelined), warps_and_stages(explained.config), strict=True)
    return tuple((habit, value) for habit, value in pairs if habit is not None)


def load_steps(forecast: Forecast | None, stages: int) -> tuple[float, bool]:
    """The length of a load in computed steps, and True if it is the model's."""
    alone = {term.name: term.alone_ms for term in forecast.terms} if forecast is not None else {}
    computed = max((alone.get(name, 0.0) for name in ("matrix units", "shared memory", "arithmetic")), default=0.0)
    if "load latency" not in alone or computed <= 0:
        return _ASSUMED_LOAD, False
    return min(max(alone["load latency"] * max(stages - 1, 1) / computed, _LOADS[0]), _LOADS[1]), True


def _fit_remarks(explained: Expectation, spec: DeviceSpec, warps: int) -> list[str]:
    if (compiled := explained.fitting) is None or compiled.resources is None:
        return []
    resources, limits, details = compiled.resources, spec.limits, ""
    if limits is not None and resources.registers is not None:
        at_once = limits.residents(resources.registers, resources.shared_bytes or 0, warps)
        details = f", occupancy {at_once.occupancy:.0%}, limited by {' and '.join(at_once.limited_by)}"
    if resources.wasteful:
        details += f", but {resources.spill_bytes:,} spilled bytes per thread"
    stages = compiled.config["num_stages"]
    return [f"with num_stages={stages} it fits: {resources.shared_bytes:,} bytes shared{details}"]


def _remarks(
    residents: Residents | None, waves: Waves | None, resources: Resources | None, stages: int, spec: DeviceSpec
) -> list[str]:
    remarks = _on_blocks(residents, resources, stages, spec) if residents is not None else []
    if waves is not None and not waves.full:
        many = "1 block fills" if waves.grid == 1 else f"{waves.grid:,} blocks fill"
        remarks.append(f"{many} {waves.used:.0%} of the device: smaller tiles, or a split reduction, are more blocks")
    elif waves is not None and waves.used < _FULL:
        empty = waves.at_once - (waves.tail_blocks or waves.at_once)
        remarks.append(
            f"the last wave has {waves.tail_blocks:,} blocks and leaves {empty:,} of {waves.at_once:,} slots empty: "
            f"over all waves {waves.used:.0%} of the slots are used"
        )
    return remarks


def _on_blocks(residents: Residents, resources: Resources | None, stages: int, spec: DeviceSpec) -> list[str]:
    """Remarks on spills and on blocks at a time; where much is spilled, more blocks are no advice."""
    if not residents.blocks:
        return [f"not even one block fits: the limit is {' and '.join(residents.limited_by)}"]
    spilled, wasteful = (resources.spill_bytes or 0, resources.wasteful) if resources else (0, False)
    remarks: list[str] = []
    if wasteful or (spilled and residents.occupancy < _FEW):
        both = f"occupancy of {residents.occupancy:.0%} together with {spilled:,} spilled bytes per thread"
        remarks.append(f"{both}: triton-ops explain spills tries cures")
    if not wasteful and residents.limited_by == ("shared memory",) and stages > 1:
        remarks += _too_deep(residents, resources, stages, spec)
    return remarks


def _too_deep(residents: Residents, resources: Resources | None, stages: int, spec: DeviceSpec) -> list[str]:
    limits, shared = spec.limits, resources.shared_bytes if resources else None
    if limits is None or not shared or resources is None or resources.registers is None:
        return []
    for fewer in range(stages - 1, 0, -1):
        more = limits.residents(resources.registers, shared * fewer // stages, residents.warps_per_block)
        if more.blocks > residents.blocks:
            return [
                f"shared memory of {stages} stages keeps the blocks per multiprocessor at {residents.blocks}; "
                f"with {fewer} there would be room for {more.blocks}"
            ]
    return []
