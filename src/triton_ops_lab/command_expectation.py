"""Commands on what the model expects of configs of TARGET, on a device that need not be here."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Annotated, Any

from triton_ops.backend import Operation, ReadSpace
from triton_ops.cost_model import work_in_words
from triton_ops.device import DeviceSpec, Machine, device_spec, gpu_missing
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.space import Config
from triton_ops.terminal import Facts, option, tell
from triton_ops.typed import TypedTarget
from triton_ops.values import Resources, Status
from triton_ops_lab.expectation import LEGEND, Portrait, explain, pipeline_lines, portrait
from triton_ops_lab.ranking import GUESSED_TOO_LARGE, Expectation, ModelQuestion, left_out, rank, same_programs
from triton_ops_lab.sensitivities import MOST_POINTS, ShapePoint, Sweep, sweep

_TERMS_SHOWN = 8
_CONFIGS_SHOWN = 20
_POINTS = 32  # of a series without a step
_SERIES = re.compile(r"(\w+)=(\d+):(\d+)(?::(\d+))?")
_ASSUMED = "H100"
_NO_GPU = ", since there is no GPU here; --gpu names another"
_LACK = "; its problem is not known"
_RANK_HEADER = ("expected", "lower bound", "limited by", "config")
_CLIFF_HEADER = ("from", "waves", "used", "expected", "to", "waves", "used", "expected")


def explained_rows(spec: DeviceSpec, explained: Expectation, image: Portrait) -> dict[str, str]:
    """The rows below problem, device and config: a name and a text each."""
    forecast = explained.forecast
    rows = {"expected": _expected(explained, image)}
    if forecast is not None:
        rows |= {"lower bound": f"{explained.lower_bound_ms:.4g} ms", "limited by": explained.limited_by}
    if image.measured is not None:
        rows["measured"] = f"{image.measured.ms:.4g} ms{image.measured.reached}"
    rows |= _places(spec, explained, image) | _resources(explained, image) | image.roofline.rows
    if forecast is not None:
        rows |= {f"alone: {term.name}": f"{term.alone_ms:.4g} ms" for term in forecast.terms[:_TERMS_SHOWN]}
    rows |= _advice(image)
    if explained.work is not None:
        rows |= {f"read: {name}": text for name, text in work_in_words(explained.work).items()}
    if explained.differences:
        rows["but"] = "; ".join(explained.differences)
    return rows | {f"note {number}": remark for number, remark in enumerate(image.remarks, 1)}


def _explained_json(explained: Expectation, image: Portrait) -> dict[str, Any]:
    members, residents, tile, forecast = Facts.members, image.residents, image.accumulator, explained.forecast
    compiled = {  # where there is no forecast, by the compiler
        "lower_bound_ms": image.roofline.least_ms, "terms": [], "blocks_per_unit": residents and residents.blocks,
        "waves": image.waves and image.waves.waves, "compiled": image.compiled,
        **members(image.resources or Resources(), "registers", "spill_bytes", "shared_bytes"),
    }  # fmt: skip
    roof = image.roofline
    limits = {
        name: members(limit, "name", "peak", "measured", "unit")
        for name, limit in (("memory", roof.memory), ("units", roof.units))
    }
    return {
        **(compiled if forecast is None else vars(forecast)),
        **members(explained, "limited_by", "stages", "silent", "differences", expected_ms="finite_ms", inferred="work"),
        **members(image, "remarks", warps="warp_choices"),
        "roofline": {**members(roof, "flops", "bytes", "intensity", "ridge", "least_ms", "unknown"),
                     "limit": roof.limit and roof.limit.name, **limits, **members(image, "expected", "measured")},
        "compiler": members(explained.compiled, "status", "reason"),
        "occupancy": members(residents, "blocks", "warps", "most_warps", "limited_by", "by", share="occupancy"),
        "grid": members(image.waves, "at_once", "waves", "full", "tail_blocks", "used", blocks="grid"),
        "shared": {"bytes": image.resources.shared_bytes if image.resources else None, "limit": image.shared_limit},
        "accumulator": None if tile is None else {"tile": tile, "bytes": image.accumulator_bytes},
        "advice": [{**vars(habit), "here": value, "holds": habit.holds(value)} for habit, value in image.habits],
        "pipeline": {"timelines": [{**vars(timeline), "busy": timeline.busy} for timeline in image.timelines],
                     **members(image, "load_steps", known="load_known")},
    }  # fmt: skip


def _expected(explained: Expectation, image: Portrait) -> str:
    forecast = explained.forecast
    if explained.refused:
        return f"cannot run: {explained.refused}"
    if forecast is None:
        least = f"; {image.roofline.least_ms:.4g} ms at best" if image.roofline.least_ms else ""
        return f"no forecast: {explained.silent}{least}"
    if not math.isfinite(forecast.expected_ms):
        return "does not fit on the device"
    return f"{forecast.expected_ms:.4g} ms" + (image.expected.reached if image.expected else "")


def _places(spec: DeviceSpec, explained: Expectation, image: Portrait) -> dict[str, str]:
    residents, waves, forecast = image.residents, image.waves, explained.forecast
    if residents is None and explained.compiled is not None and explained.compiled.status is Status.RESOURCES:
        return {"occupancy": "0%: not even one block fits"}
    if residents is None:
        per_unit = f"{forecast.waves:.2f} waves of {forecast.blocks_per_unit} per multiprocessor" if forecast else ""
        return {"blocks": per_unit} if per_unit else {}
    limits = ", ".join(f"{name} {blocks}" for name, blocks in residents.by.items())
    warps = spec.vendor.warps if spec.vendor else "warps"
    rows = {
        "occupancy": (
            f"{residents.occupancy:.0%}: {residents.warps} of {residents.most_warps} {warps}, limited by "
            f"{' and '.join(residents.limited_by)} (blocks by {limits})"
        )
    }
    if waves is not None:
        plural = "s" * (waves.tail_blocks != 1)
        tail = f", the last with {waves.tail_blocks:,} block{plural}" if waves.tail_blocks and waves.full else ""
        rows["blocks"] = (
            f"{waves.grid:,} in {waves.waves:.2f} waves of {waves.at_once:,} ({residents.blocks} per multiprocessor)"
            f"{tail}; {waves.used:.0%} of the slots used"
        )
    elif forecast is not None and residents.blocks:
        rows["blocks"] = f"{forecast.waves:.2f} waves of {residents.blocks} per multiprocessor"
    return rows


def _resources(explained: Expectation, image: Portrait) -> dict[str, str]:
    resources, compiled = image.resources, explained.compiled
    rows = {}
    if resources is not None and resources.registers is not None:
        source, products = "by the compiler" if image.compiled else "guessed", ""
        if resources.mma is not None and image.accumulator is not None:
            instructions = "without matrix units" if resources.mma == "none" else f"by {resources.mma}"
            products = f", products {instructions}"
        rows["resources"] = (
            f"{resources.registers} registers, {resources.spill_bytes or 0} spilled bytes, "
            f"{resources.shared_bytes} bytes shared{products}; {source}"
        )
    if resources is not None and resources.shared_bytes is not None and image.shared_limit:
        share = resources.shared_bytes / image.shared_limit
        rows["shared memory"] = f"{resources.shared_bytes:,} of {image.shared_limit:,} bytes of a block, {share:.0%}"
    if compiled is not None and compiled.reason:
        rows["compiler"] = f"{compiled.status}: {compiled.reason}"
    return rows


def _advice(image: Portrait) -> dict[str, str]:
    rows = {}
    for habit, value in image.habits:
        span = str(habit.low) if habit.low == habit.high else f"{habit.low} to {habit.high}"
        outside = "" if habit.holds(value) else f"; {value} is outside"
        rows[f"begin with {habit.option}"] = f"{span}{outside}: {habit.why}"
    if image.accumulator is not None:
        across = "x".join(map(str, image.accumulator))
        by_warps = ", ".join(
            f"{choice.accumulator_registers:g} per thread with {choice.warps} warps{'' if choice.fits else ' (spills)'}"
            for choice in image.warp_choices
            if image.warps // 2 <= choice.warps <= image.warps * 2
        )
        rows["accumulator"] = f"{across} takes {image.accumulator_bytes:,} bytes of registers: {by_warps}"
    if image.timelines:
        busy = ", ".join(f"{timeline.busy:.0%}" for timeline in image.timelines)
        rows["pipeline"] = (
            f"one block alone computes {busy} of the time with 1 to {len(image.timelines)} stages; --pipeline draws it"
        )
    return rows


def explain_command(
    target: Annotated[TypedTarget, "text shape dtype arg config gpu"],
    measured_ms: Annotated[
        float | None, option("--measured", "Your own time of it, to see how near it is to the limit.", "MS")
    ] = None,
    pipeline: Annotated[bool, option("--pipeline", "Draw the pipeline for one to five stages.")] = False,
    shows_space: Annotated[bool, option("--space", "Say what may be tuned, read from the kernel, and why.")] = False,
    cache_dir: str | None = None,
) -> Facts:
    """Say what to expect of one config: time, occupancy, waves, shared memory, roofline, and what limits it.

    The work is the declared one, else it is read from the kernel. The config is compiled; nothing is run, and no GPU is
    needed with --gpu, or for --space.

    The rows `read:` say what the kernel's launches do, and a row `but` where a declaration says something else. A
    device of an architecture that the model does not know has no expected time. Exit code 2: nothing is known of
    the kernel; 3: no such device is in the table. --space compiles nothing.
    """
    if measured_ms is not None and not 0 < measured_ms < math.inf:
        raise SettingsError(f"--measured is {measured_ms:g}; it must be milliseconds over 0", hint="such as 0.21")
    if shows_space:
        assumed = target.gpu is None and gpu_missing() is not None
        target = replace(target, gpu=_ASSUMED) if assumed else target
        return _space_facts(device_spec(target.gpu), target, assumed)
    spec = device_spec(target.gpu).calibrated(cache_dir)
    operation, extents, element, whole = _asked(target)
    problem = operation.problem(extents, element)
    expected = ModelQuestion.of(operation, shape=extents, dtype=element)
    explained = explain(expected, whole, spec)
    if not explained.told:
        hint = "docs/concepts/model.md says what can be read, and how work is declared"
        raise TargetError(f"the model makes no forecast: {explained.silent}", hint=hint)
    image = portrait(explained, spec, measured_ms)
    data = {
        "problem": str(problem), "device": spec.name, "config": dict(whole), "source": explained.source,
        "arch": spec.arch, "units": spec.units, **_explained_json(explained, image),
    }  # fmt: skip
    unit = spec.vendor.units if spec.vendor else "multiprocessors"
    rows = {"problem": str(problem), "device": f"{spec.name} {spec.arch}, {spec.units} {unit}", "config": str(whole)}
    facts = Facts("explain", data).listing({**rows, **explained_rows(spec, explained, image)})
    if pipeline and image.timelines:
        source = "as the model expects" if image.load_known else "assumed"
        facts.lines(f"a load takes {image.load_steps:.1f} computed steps, {source}; each line is one buffer: {LEGEND}")
        facts.lines(*pipeline_lines(image.timelines, image.stages, "this config"))
    return facts


def _space_facts(spec: DeviceSpec, target: TypedTarget, assumed: bool) -> Facts:
    """The space that a kernel has by itself, whatever its list: at the call that is typed, else without extents."""
    kernel, grid, values = target.object(), None, dict[str, Any]()
    if not target.is_lone_kernel:
        operation, _, extents, element = target.tuned(target.operation(_LACK))
        values = getattr(operation, "values", None) or dict(operation.problem(extents, element).arguments)
        kernel = getattr(operation, "decorated", None) or getattr(operation.kernel, "function", None)
        grid = getattr(operation, "author_grid", None) or getattr(operation.kernel, "grid", None)
    if not hasattr(kernel, "arg_names"):
        message = f"{target.text} is no Triton kernel, whose source says what may be tuned"
        raise TargetError(message, hint=TargetError.FORMS)
    reading = ReadSpace.of(kernel, values, spec, grid=grid)
    size, tuned = reading.space.size, {**reading.tunables, **reading.options}
    derived = {name: value or "not known without its extent" for name, value in reading.derived.items()}
    rows = {"kernel": target.text, "device": f"{spec.name} {spec.arch}{_NO_GPU if assumed else ''}"}
    rows |= {f"tune {name}": f"{', '.join(map(str, tuned[name]))}: {reading.reasons[name]}" for name in tuned}
    rows |= {f"derived {name}": f"{value}: {reading.reasons[name]}" for name, value in derived.items()}
    rows |= {f"rule {rule.name}": rule.reason for rule in reading.constraints}
    rows |= {f"left alone {name}": reason for name, reason in reading.meaning.items()}
    rows |= {f"grid {number}": text for number, text in enumerate(reading.grid, 1)}
    rows |= {"default": str(reading.space.default_config), "configs": str(size)}
    data = {
        "kernel": target.text, "device": spec.name, "derived": reading.derived, "left_alone": reading.meaning,
        "tunables": {name: {"values": [*tunable], "reason": reading.reasons[name]} for name, tunable in tuned.items()},
        "rules": [Facts.members(rule, "name", "names", "reason") for rule in reading.constraints],
        "launch_options": list(reading.options), "grid": reading.grid, "default": dict(reading.space.default_config),
        "configs": size.valid,
    }  # fmt: skip
    return Facts("explain space", data).listing(rows)


def _asked(target: TypedTarget) -> tuple[Operation, tuple[int, ...] | None, str | None, Config]:
    """The operation, extents and dtype that were typed, with the default config in which the typed values stand.

    The values may be any, as those of `--space`; the rules of the space hold.
    """
    values = target.config or {}
    # as a space of one value each, so that names of members and dtypes are read as those of `--space`
    problem = replace(target.problem, space={name: [value] for name, value in values.items()} or None)
    operation, space, extents, element = replace(target, problem=problem).tuned(target.operation(_LACK))
    own = operation.space_for(operation.problem(extents, element))
    whole = Config({**own.default_config, **own.with_names(values)})
    return operation, extents, element, (space or own).checked(whole, operation.name)


def rank_command(
    target: Annotated[TypedTarget, "text shape dtype arg space gpu"],
    top: Annotated[int | None, option("--top", "Configs to show; default 20, with --json all.", "N", min=1)] = None,
    every: Annotated[bool, option("--all", "Compile and show every config, so that no time is guessed.")] = False,
    jobs: Annotated[int | None, option("--jobs", "Processes that compile; default one per CPU.", "N", min=1)] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Rank every config of TARGET by the time that the model expects, the shortest first.

    Nothing is run, and no GPU is needed with --gpu. Where the kernel declares no work, the work is read from it.

    Of up to 48 configs all are compiled for the device, and of more those that are expected to be fastest. A time
    with `~` is guessed, since its config is not compiled. Of a space of more than 5,000 configs some are drawn;
    stderr says how many. Configs that compile to one program have one row.
    """
    whole, gpu = target.operation("; its space and its problem are not known"), target.gpu
    operation, own_space, extents, element = target.tuned(whole)
    configs = own_space or operation.space_for(operation.problem(extents, element))
    configs.check_filled(target.problem.space)
    most = configs.size.total if every else top
    ranking = rank(
        operation, space=own_space, shape=extents, dtype=element, gpu=gpu, top=most, jobs=jobs, cache_dir=cache_dir
    )
    if len(ranking) < configs.size.valid:
        tell(f"{len(ranking)} of {configs.size.valid} configs are ranked")
    else:
        for text in left_out(configs, target.problem.space, [one.config for one in ranking]):
            tell(text)
    if unseen := Machine.known(device_spec(gpu)).unseen:
        tell(unseen)
    facts = Facts("explain rank", lambda: ranking[:most])
    guessed = [one for one in ranking if not one.compiled]  # but what a rule refuses for certain is no guess
    if guesses := [one for one in guessed if math.isfinite(one.expected_ms) or one.limited_by == GUESSED_TOO_LARGE]:
        what = "their times, marked ~, and whether they fit are guessed; --all compiles every config"
        tell(f"{len(guesses)} of {len(ranking)} configs are not compiled: {what}")
    rows = []
    for one, configs_text in same_programs(ranking, lambda one: one.program)[: most or _CONFIGS_SHOWN]:
        expected = f"{'' if one.compiled else '~'}{one.expected_ms:.4g} ms" if math.isfinite(one.expected_ms) else "-"
        rows.append([expected, f"{one.lower_bound_ms:.4g} ms", one.limited_by, configs_text])
    return facts.table(_RANK_HEADER, rows, _RANK_HEADER[:2])


def cliffs_command(
    vary: Annotated[str, option("--vary", "The extent to vary, and its values.", "NAME=LOW:HIGH[:STEP]")],
    target: Annotated[TypedTarget, "text shape dtype arg config gpu cache_dir", {"shape": "The other extents."}],
) -> Facts:
    """Say at which shapes a config needs one more wave of blocks that is mostly empty.

    Nothing is run, and no GPU is needed with --gpu.

    Times are shown where the kernel declares its tiles. Else the grid of each shape is read, of at most 64. Exit
    code 2: Triton or the device refuses the config.
    """
    axis, series = _series(vary)
    spec = device_spec(target.gpu).calibrated(target.cache_dir)
    operation, extents, element, tile = _asked(target)
    whole = operation.full_shape(extents)
    points = sweep(operation, tile, whole, element, axis, series, spec)
    facts = Facts("explain cliffs", _sweep_json(operation.name, spec, points))
    facts.listing(_sweep_facts(operation.name, whole, spec, points))
    rows = [[*_point_row(axis, before), *_point_row(axis, after)] for before, after in points.cliffs]
    return facts.table(_CLIFF_HEADER, rows, _CLIFF_HEADER)


def _series(text: str) -> tuple[str, list[int]]:
    if (match := _SERIES.fullmatch(text)) is None:
        raise SettingsError(f"--vary is {text!r}", hint="write NAME=LOW:HIGH:STEP, such as M=1024:8192:256")
    low, high = int(match[2]), int(match[3])
    step = int(match[4]) if match[4] else max(1, (high - low) // _POINTS)
    if step < 1 or low < 1 or high <= low or (high - low) // step >= MOST_POINTS:
        message = f"--vary is {text!r}, which is no series of 2 to {MOST_POINTS} values"
        raise SettingsError(message, hint="such as M=1024:8192:256")
    return match[1], list(range(low, high + 1, step))


def _sweep_facts(name: str, whole: tuple[int, ...], spec: DeviceSpec, points: Sweep) -> dict[str, str]:
    first, last = points.points[0], points.points[-1]
    most = max(points.points, key=lambda point: point.waves.used)
    least = min(points.points, key=lambda point: point.waves.used)
    rows = {
        "kernel": f"{name} at {'x'.join(map(str, whole))}, {points.axis} from {first.extent} to {last.extent}",
        "device": f"{spec.name}, {spec.units * points.blocks_per_unit} blocks at a time",
        "config": str(points.config),
        "slots used": (
            f"{least.waves.used:.0%} at {points.axis}={least.extent} "
            f"to {most.waves.used:.0%} at {points.axis}={most.extent}"
        ),
        "cliffs": str(len(points.cliffs)),
    }
    return rows | ({"no times": points.silent} if points.silent else {})


def _point_row(axis: str, point: ShapePoint) -> list[str]:
    waves, expected = point.waves, Facts.cell(point.expected_ms, ".4g", " ms")
    return [f"{axis}={point.extent}", str(math.ceil(waves.waves)), f"{waves.used:.0%}", expected]


def _sweep_json(name: str, spec: DeviceSpec, points: Sweep) -> dict[str, Any]:
    def point(one: ShapePoint) -> dict[str, Any]:
        waves = Facts.members(one.waves, "waves", "used", "tail_blocks", blocks="grid")
        return {**Facts.members(one, "extent", "expected_ms", "of_limit"), **waves}

    return {
        "kernel": name, "device": spec.name, **Facts.members(points, "config", "axis", "blocks_per_unit", "silent"),
        "at_once": points.blocks_per_unit * spec.units, "points": list(map(point, points.points)),
        "cliffs": [{"before": point(before), "after": point(after)} for before, after in points.cliffs],
    }  # fmt: skip
