"""A config on a device in figures: occupancy, waves, shared memory, roofline, advice, pipeline.

Nothing is run. Registers and shared memory are the compiler's where the kernel could be compiled for the device.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from math import ceil, prod

from triton_ops.compilation import CompilePool
from triton_ops.cost_model import Forecast, Model, Readings, differences, least_bytes
from triton_ops.device import (
    Calibration,
    DeviceSpec,
    Machine,
    Placed,
    Residents,
    Roofline,
    Target,
    target_of,
)
from triton_ops.exceptions import DeviceError, KernelTypeError, TargetError
from triton_ops.kernel_ir import KernelWork, LaunchWork
from triton_ops.lab.habits import (
    ACCUMULATED_BYTES,
    PRODUCTS,
    ROWS,
    Habit,
    WarpChoice,
    stages_habit,
    warp_choices,
    warps_habit,
)
from triton_ops.lab.ranking import DECLARED, INFERRED, ModelQuestion, ahead_of
from triton_ops.lab.stage_timelines import STAGES, Timeline, timeline
from triton_ops.space import Config
from triton_ops.tuner import Survey
from triton_ops.values import Compiled, Resources, Status, Work, warps_and_stages

_COMPARED = 64  # configs by which a declaration and the kernel are compared
_SURVEY = Survey(texts=16, promising=0, seconds=20.0)


@dataclass(frozen=True)
class Waves:
    """The waves of blocks in which a launch fills the device, the last of which may leave places empty.

    Attributes:
        at_once: Blocks that the device holds at a time.
    """

    grid: int
    at_once: int

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
        """Share of the device's places that blocks fill over all waves, if all blocks take equally long."""
        return self.waves / max(ceil(self.waves), 1)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The model's answer for one config.

    Attributes:
        source: `declared` or `inferred`.
        forecast: The expected time with its reasons; None if the model makes no forecast.
        silent: Why it makes none; empty if it makes one.
        work: The work as it was read; None for a kernel that Triton does not compile.
        differences: Where the declaration and the kernel differ, in words.
        compiled: What the compiler made of the config for the device; None for a kernel that Triton does not compile.
        refused: Why the config cannot run, by a limit of Triton or of the device; empty if it can, as far as is known.
        fitting: The same config with as many stages as fit, where it needs too much shared memory.
    """

    source: str
    forecast: Forecast | None
    silent: str
    work: KernelWork | None
    differences: tuple[str, ...] = ()
    compiled: Compiled | None = None
    refused: str = ""
    fitting: Compiled | None = None

    @property
    def told(self) -> bool:
        """True if anything is known of the config: a forecast, its work, or the compiler's result."""
        has_work = self.work is not None and not self.work.silent
        has_resources = self.compiled is not None and self.compiled.resources is not None
        return self.forecast is not None or has_work or has_resources


def explain(expected: ModelQuestion, config: Config, spec: DeviceSpec, machine: Machine | None) -> Explained:
    """The answers of model and compiler for a config; a kernel that Triton compiles is read, even if work is declared.

    Args:
        expected: The kernel with its arguments, its space and its declared work.
        config: The config.
        spec: The device, which need not be here.
        machine: The device's figures; None for an architecture that the model does not know, which has no forecast.
    """
    reading = _read(expected, config, spec)
    readings, refused = reading.readings, _refusal(reading.compiled)
    answer = Explained(
        source=DECLARED if expected.declared else INFERRED, forecast=None,
        silent=refused or f"the model does not know the architecture {spec.arch} of {spec.name}",
        work=None if readings is None else readings.work_of(config), compiled=reading.compiled, refused=refused,
        fitting=reading.fitting,
    )  # fmt: skip
    resources = reading.compiled.resources if reading.compiled is not None and reading.compiled.launchable else None
    if machine is None:
        return answer
    if not expected.declared or expected.work is None:
        forecast = None if readings is None else readings.model(machine).explain(config, resources)
        silent = reading.why_not or (readings.silent if readings is not None else "")
        return _with_forecast(answer, forecast, silent or "a product has a dtype without a known rate")
    model = Model(expected.work, machine)
    if readings is not None and readings.known_works:
        configs = [c for c in Survey.considered(expected.space) if not readings.work_of(c).silent]
        both = zip(model.score(configs), readings.model(machine).score(configs), strict=True)
        answer = replace(answer, differences=tuple(differences(expected.work, readings.known_works, list(both))))
    silent = "a tunable or a dtype that is declared is not one it can count"
    return _with_forecast(answer, model.explain(config, resources), silent)


def _refusal(compiled: Compiled | None) -> str:
    """The reason why a config cannot run, whatever its forecast; empty if it can, or if nobody knows."""
    if compiled is None or compiled.status not in (Status.CONSTRAINT, Status.RESOURCES):
        return ""
    return compiled.reason


def _with_forecast(answer: Explained, forecast: Forecast | None, silent: str) -> Explained:
    """The answer with a forecast, or with the reason why there is none."""
    if answer.refused:
        return answer
    return replace(answer, forecast=forecast, silent="" if forecast is not None else silent)


@dataclass(frozen=True)
class _Reading:
    """Readings of a config and of some others of its space, and the compiled config; or why there are none."""

    readings: Readings | None = None
    compiled: Compiled | None = None
    fitting: Compiled | None = None
    why_not: str = ""


def _read(expected: ModelQuestion, config: Config, spec: DeviceSpec) -> _Reading:
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        return _Reading(why_not=ahead)
    others = Survey.considered(expected.space)
    some = random.Random(0).sample(others, min(_COMPARED, len(others))) if expected.declared else []
    try:
        with CompilePool(ahead) as pool:
            compiling = pool.submit(config, anyway=True)
            readings = _SURVEY.read(list(dict.fromkeys([config, *some])), pool.read)
            return _Reading(readings, compiling.result(), _with_fewer_stages(compiling.result(), pool))
    except (KernelTypeError, TargetError) as error:
        return _Reading(why_not=error.message)


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
_FULL = 0.9  # share of the places that blocks fill from which a tail is not worth a word
_FEW = 0.25  # occupancy below which a config that is not made for it hides too little latency


@dataclass(frozen=True, kw_only=True)
class Portrait:
    """A config on a device.

    Attributes:
        resources: What one block takes; None if it is not known.
        compiled: Whether the compiler gave them; otherwise the model has guessed them.
        shared_limit: Most shared memory of one block.
        residents: The blocks that one multiprocessor holds at a time; None if resources or limits are not known.
        waves: How often the launch fills the device; None if the grid or the residents are not known.
        expected: The expected time below the roof; None without a forecast.
        measured: The measured time below the roof; None if none was given.
        accumulator: Rows and columns of the largest accumulator; None without products.
        habits: Where to begin with warps and stages, each with the config's own value.
        warp_choices: What other numbers of warps leave of the accumulator for one thread.
        timelines: The pipeline of one to five stages; empty for a kernel without products in a loop.
        load_steps: Computed steps that a load takes in these timelines.
        load_known: Whether the model told that; otherwise it is assumed.
        remarks: What stands out, in words.
    """

    resources: Resources | None
    compiled: bool
    warps: int
    stages: int
    shared_limit: int | None
    residents: Residents | None
    waves: Waves | None
    roofline: Roofline
    expected: Placed | None
    measured: Placed | None
    accumulator: tuple[int, int] | None
    habits: tuple[tuple[Habit, int], ...]
    warp_choices: tuple[WarpChoice, ...]
    timelines: tuple[Timeline, ...]
    load_steps: float
    load_known: bool
    remarks: tuple[str, ...]

    @property
    def accumulator_bytes(self) -> int | None:
        """Bytes of registers that the largest accumulator takes of a block; None without products."""
        return None if self.accumulator is None else ACCUMULATED_BYTES * prod(self.accumulator)


def portrait(
    explained: Explained, work: Work | None, config: Config, spec: DeviceSpec, *,
    calibration: Calibration | None = None, measured_ms: float | None = None,
) -> Portrait:  # fmt: skip
    """A config on a device.

    Args:
        explained: What the model says of the config, and what the compiler made of it.
        work: The work that is declared; None takes what was read.
        config: The config.
        spec: The device.
        calibration: What was measured on it.
        measured_ms: A time of the config that somebody measured.
    """
    launch = _main(explained.work.launches if explained.work is not None else ())
    warps, stages = warps_and_stages(config)
    resources, compiled = _resources(explained)
    limits, target = spec.limits, _target(spec)
    residents = None
    if limits is not None and resources is not None and resources.registers is not None:
        residents = limits.residents(resources.registers, resources.shared_bytes or 0, warps)
    waves = None
    if launch is not None and residents is not None and residents.blocks:
        waves = Waves(launch.programs, residents.blocks * spec.units)
    roof = _roofline(explained, work, spec, calibration)
    accumulator = explained.work.accumulator if explained.work is not None else None
    load, is_forecast = load_steps(explained.forecast, stages)
    depths = () if launch is None or accumulator is None else STAGES
    return Portrait(
        resources=resources, compiled=compiled, warps=warps, stages=stages,
        shared_limit=target.shared_bytes_per_block if target else None, residents=residents, waves=waves, roofline=roof,
        expected=_place(roof, explained.forecast.expected_ms if explained.forecast else None),
        measured=_place(roof, measured_ms), accumulator=accumulator,
        habits=_habits(target, launch, accumulator, warps, stages),
        warp_choices=warp_choices(target, ACCUMULATED_BYTES * prod(accumulator)) if target and accumulator else (),
        timelines=tuple(timeline(depth, load=load) for depth in depths), load_steps=load, load_known=is_forecast,
        remarks=(
            *_fit_remarks(explained, spec, warps),
            *_remarks(residents, waves, resources, stages if depths else 1, spec),
        ),
    )  # fmt: skip


def _target(spec: DeviceSpec) -> Target | None:
    try:
        return target_of(spec)
    except DeviceError:
        return None


def _main(launches: tuple[LaunchWork, ...]) -> LaunchWork | None:
    """The launch with the most products, or that moves the most bytes."""
    return max(launches, key=lambda one: (one.flops, one.moved_bytes("load", "store", "atomic")), default=None)


def _resources(explained: Explained) -> tuple[Resources | None, bool]:
    """The resources of one block, and True if they are the compiler's."""
    resources = explained.compiled.resources if explained.compiled is not None else None
    if resources is not None and resources.registers is not None:
        return resources, True
    guess = explained.forecast
    if guess is None:
        return resources, False
    return Resources(guess.registers, round(guess.spill_bytes), guess.shared_bytes), guess.compiled


def _roofline(explained: Explained, work: Work | None, spec: DeviceSpec, calibration: Calibration | None) -> Roofline:
    launches = explained.work.launches if explained.work is not None else ()
    products = [product for launch in launches for product in launch.products]
    dtype = "" if work is None else work.dtype
    dtype = dtype or (products[0].dtype if products else "float32")
    flops, traffic = (work.flops, work.bytes) if work is not None else (0.0, 0.0)
    operations = sum(launch.flops for launch in launches) or sum(map(_single, launches))
    return Roofline.of(
        spec, flops=flops or operations, bytes_=traffic or sum(map(least_bytes, launches)), dtype=dtype,
        products=bool(products) or bool(flops), calibration=calibration,
    )  # fmt: skip


def _single(launch: LaunchWork) -> float:
    """Operations on single elements of a launch."""
    each = launch.plain + launch.special + sum(loop.plain + loop.special for loop in launch.loops)
    return launch.programs * each


def _place(roof: Roofline, ms: float | None) -> Placed | None:
    return roof.placed(ms) if ms is not None and math.isfinite(ms) and ms > 0 else None


def _habits(
    target: Target | None, launch: LaunchWork | None, accumulator: tuple[int, int] | None, warps: int, stages: int
) -> tuple[tuple[Habit, int], ...]:
    if target is None or launch is None:
        return ()
    kind = PRODUCTS if accumulator else ROWS
    elements = prod(accumulator) if accumulator else max((access.tile for access in launch.accesses), default=0)
    pipelined = stages_habit(target.arch, kind) if launch.loops else None
    pairs = ((warps_habit(target, kind, elements), warps), (pipelined, stages))
    return tuple((habit, value) for habit, value in pairs if habit is not None)


def load_steps(forecast: Forecast | None, stages: int) -> tuple[float, bool]:
    """The length of a load in computed steps, and True if it is the model's."""
    alone = {term.name: term.alone_ms for term in forecast.terms} if forecast is not None else {}
    computed = max((alone.get(name, 0.0) for name in ("matrix units", "shared memory", "arithmetic")), default=0.0)
    if "load latency" not in alone or computed <= 0:
        return _ASSUMED_LOAD, False
    return min(max(alone["load latency"] * max(stages - 1, 1) / computed, _LOADS[0]), _LOADS[1]), True


def _fit_remarks(explained: Explained, spec: DeviceSpec, warps: int) -> list[str]:
    """A remark on the most stages that fit, where the config's own do not."""
    compiled = explained.fitting
    if compiled is None or compiled.resources is None:
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
            f"the last wave has {waves.tail_blocks:,} blocks and leaves {empty:,} of {waves.at_once:,} places empty: "
            f"over all waves {waves.used:.0%} of the places are used"
        )
    return remarks


def _on_blocks(residents: Residents, resources: Resources | None, stages: int, spec: DeviceSpec) -> list[str]:
    """Remarks on spills and on blocks at a time; where much is spilled, more blocks are no advice."""
    if not residents.blocks:
        return [f"not even one block fits: the limit is {' and '.join(residents.limited_by)}"]
    spilled, wasteful = (resources.spill_bytes or 0, resources.wasteful) if resources else (0, False)
    remarks: list[str] = []
    if wasteful or (spilled and residents.occupancy < _FEW):
        remarks.append(
            f"occupancy of {residents.occupancy:.0%} together with {spilled:,} spilled bytes per thread: "
            "triton-ops spills tries cures"
        )
    if not wasteful and residents.limited_by == ("shared memory",) and stages > 1:
        remarks += _too_deep(residents, resources, stages, spec)
    return remarks


def _too_deep(residents: Residents, resources: Resources | None, stages: int, spec: DeviceSpec) -> list[str]:
    """A remark where fewer stages would let one more block in."""
    limits, shared = spec.limits, resources.shared_bytes if resources else None
    if limits is None or not shared or resources is None or resources.registers is None:
        return []
    for fewer in range(stages - 1, 0, -1):
        blocks = limits.blocks_at_once(resources.registers, shared * fewer // stages, residents.warps_per_block)
        if blocks > residents.blocks:
            return [
                f"shared memory of {stages} stages keeps the blocks per multiprocessor at {residents.blocks}; "
                f"with {fewer} there would be room for {blocks}"
            ]
    return []
