"""`triton-ops explain`: what to expect of one config of TARGET on a device that need not be here, and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.cli import explain as explain_facts
from triton_ops.cli.console import (
    CacheDir,
    Json,
    TargetName,
    Verbose,
    listing,
    only_data_on_stdout,
    say,
    say_json,
    width,
)
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_target
from triton_ops.compilation import LEGEND, WarpChoice, drawn
from triton_ops.cost_model import Forecast, work_in_words
from triton_ops.device import Ceiling, DeviceSpec, load_calibration, machine_of, reached, roof_rows
from triton_ops.exceptions import ConfigValueError, SettingsError, TargetError
from triton_ops.lab import Explained, Portrait, device_spec, expected_of, explain, portrait
from triton_ops.space import Config
from triton_ops.values import Problem, Status

_SHOWN = 8


def rows_of(head: Mapping[str, str], spec: DeviceSpec, explained: Explained, seen: Portrait) -> dict[str, str]:
    """The rows of the whole answer: a name and a text each.

    Args:
        head: The rows that say what is explained.
        spec: The device.
        explained: What model and compiler say.
        seen: What the config makes of the device.
    """
    found = explained.forecast
    rows = {**head, "expected": _expected(explained, seen)}
    if found is not None:
        rows["lower bound"] = f"{found.lower_bound_ms:.4g} ms"
    rows |= _times(seen) | _places(spec, explained, seen) | _resources(explained, seen) | roof_rows(seen.roofline)
    if found is not None:
        rows |= {f"alone: {term.name}": f"{term.alone_ms:.4g} ms" for term in found.terms[:_SHOWN]}
    rows |= _advice(seen)
    if explained.work is not None:
        rows |= {f"read: {name}": text for name, text in work_in_words(explained.work).items()}
    if explained.differences:
        rows["but"] = "; ".join(explained.differences)
    return rows | {f"note {number}": said for number, said in enumerate(seen.remarks, 1)}


def pipeline_lines(seen: Portrait) -> list[str]:
    """The drawing of the pipeline for one to five stages; empty for a kernel without products in a loop."""
    if not seen.timelines:
        return []
    source = "as the model expects" if seen.load_known else "assumed"
    lines = [f"a load takes {seen.load_steps:.1f} computed steps, {source}; each line is one buffer: {LEGEND}"]
    for found in seen.timelines:
        here = "  <- this config" if found.stages == seen.stages else ""
        lines.append(f"num_stages={found.stages}: the units compute in {found.busy:.0%} of the time{here}")
        lines += [f"  {line}" for line in drawn(found)]
    return lines


def as_json(explained: Explained, seen: Portrait) -> dict[str, Any]:
    """The whole answer as plain values."""
    forecast = asdict(explained.forecast) if explained.forecast is not None else _no_forecast(seen)
    if not math.isfinite(forecast["expected_ms"] or 0.0):
        forecast["expected_ms"] = None
    work = None if explained.work is None else asdict(explained.work)
    compiled = explained.compiled
    return {
        **forecast,
        "silent": explained.silent,
        "inferred": work,
        "differences": list(explained.differences),
        "compiler": None if compiled is None else {"status": compiled.status.value, "reason": compiled.reason},
        "occupancy": _occupancy_json(seen),
        "grid": _waves_json(seen),
        "shared": {"bytes": seen.resources.shared_bytes if seen.resources else None, "limit": seen.shared_limit},
        "roofline": _roofline_json(seen),
        "accumulator": None
        if seen.accumulator is None
        else {"tile": list(seen.accumulator), "bytes": seen.accumulator_bytes},
        "advice": [{**asdict(habit), "here": value, "holds": habit.holds(value)} for habit, value in seen.habits],
        "warps": [asdict(choice) for choice in seen.warp_choices],
        "pipeline": {
            "load_steps": seen.load_steps,
            "known": seen.load_known,
            "timelines": [{**asdict(found), "busy": found.busy} for found in seen.timelines],
        },
        "remarks": list(seen.remarks),
    }


def _no_forecast(seen: Portrait) -> dict[str, Any]:
    """The fields of a forecast where there is none, with what the compiler says."""
    made = seen.resources
    return {
        "expected_ms": None, "lower_bound_ms": seen.roofline.least_ms, "terms": [],
        "blocks_per_unit": seen.residents.blocks if seen.residents else None,
        "waves": seen.waves.waves if seen.waves else None, "registers": made.registers if made else None,
        "spill_bytes": made.spill_bytes if made else None, "shared_bytes": made.shared_bytes if made else None,
        "compiled": seen.compiled,
    }  # fmt: skip


def _occupancy_json(seen: Portrait) -> dict[str, Any] | None:
    at_once = seen.residents
    if at_once is None:
        return None
    return {
        "share": at_once.occupancy, "blocks": at_once.blocks, "warps": at_once.warps, "most_warps": at_once.most_warps,
        "limited_by": list(at_once.limited_by), "by": dict(at_once.by),
    }  # fmt: skip


def _waves_json(seen: Portrait) -> dict[str, Any] | None:
    found = seen.waves
    if found is None:
        return None
    return {
        "blocks": found.grid, "at_once": found.at_once, "waves": found.waves, "full": found.full,
        "tail_blocks": found.tail_blocks, "used": found.used,
    }  # fmt: skip


def _roofline_json(seen: Portrait) -> dict[str, Any]:
    roof = seen.roofline

    def ceiling(found: Ceiling | None) -> dict[str, Any] | None:
        return None if found is None else {**asdict(found), "unit": found.unit}

    return {
        "flops": roof.flops, "bytes": roof.bytes, "intensity": roof.intensity, "ridge": roof.ridge,
        "limit": roof.limit.name if roof.limit else None, "least_ms": roof.least_ms, "memory": ceiling(roof.memory),
        "units": ceiling(roof.units), "expected": asdict(seen.expected) if seen.expected else None,
        "measured": asdict(seen.measured) if seen.measured else None,
    }  # fmt: skip


def _expected(explained: Explained, seen: Portrait) -> str:
    found: Forecast | None = explained.forecast
    if explained.refused:
        return f"cannot run: {explained.refused}"
    if found is None:
        least = f"; {seen.roofline.least_ms:.4g} ms at best" if seen.roofline.least_ms else ""
        return f"no forecast: {explained.silent}{least}"
    if not math.isfinite(found.expected_ms):
        return "does not fit on the device"
    return f"{found.expected_ms:.4g} ms" + reached(seen.expected)


def _times(seen: Portrait) -> dict[str, str]:
    if seen.measured is None:
        return {}
    return {"measured": f"{seen.measured.ms:.4g} ms" + reached(seen.measured)}


def _places(spec: DeviceSpec, explained: Explained, seen: Portrait) -> dict[str, str]:
    """Occupancy and waves."""
    at_once, waves, found = seen.residents, seen.waves, explained.forecast
    if at_once is None and explained.compiled is not None and explained.compiled.status is Status.RESOURCES:
        return {"occupancy": "0%: not even one block fits"}
    if at_once is None:
        return {"blocks": f"{found.waves:.2f} waves of {found.blocks_per_unit} per multiprocessor"} if found else {}
    limits = ", ".join(f"{name} {blocks}" for name, blocks in at_once.by.items())
    warps = "wavefronts" if spec.kind == "hip" else "warps"
    rows = {
        "occupancy": (
            f"{at_once.occupancy:.0%}: {at_once.warps} of {at_once.most_warps} {warps}, limited by "
            f"{' and '.join(at_once.limited_by)} (blocks by {limits})"
        )
    }
    if waves is not None:
        tail = (
            f", the last with {waves.tail_blocks:,} block{'s' * (waves.tail_blocks != 1)}"
            if waves.tail_blocks and waves.full
            else ""
        )
        rows["blocks"] = (
            f"{waves.grid:,} in {waves.waves:.2f} waves of {waves.at_once:,} ({at_once.blocks} per multiprocessor)"
            f"{tail}; {waves.used:.0%} of the places used"
        )
    elif found is not None and at_once.blocks:
        rows["blocks"] = f"{found.waves:.2f} waves of {at_once.blocks} per multiprocessor"
    return rows


def _resources(explained: Explained, seen: Portrait) -> dict[str, str]:
    made, compiled = seen.resources, explained.compiled
    rows = {}
    if made is not None and made.registers is not None:
        source = "by the compiler" if seen.compiled else "guessed"
        rows["resources"] = (
            f"{made.registers} registers, {made.spill_bytes or 0} spilled bytes, {made.shared_bytes} bytes shared"
            f"{_products(made.mma, seen)}; {source}"
        )
    if made is not None and made.shared_bytes is not None and seen.shared_limit:
        share = made.shared_bytes / seen.shared_limit
        rows["shared memory"] = f"{made.shared_bytes:,} of {seen.shared_limit:,} bytes of a block, {share:.0%}"
    if compiled is not None and compiled.reason:
        rows["compiler"] = f"{compiled.status}: {compiled.reason}"
    return rows


def _products(mma: str | None, seen: Portrait) -> str:
    """Which instructions do the products."""
    if mma is None or seen.accumulator is None:
        return ""
    return ", products without matrix units" if mma == "none" else f", products by {mma}"


def _advice(seen: Portrait) -> dict[str, str]:
    rows = {}
    for habit, value in seen.habits:
        span = str(habit.low) if habit.low == habit.high else f"{habit.low} to {habit.high}"
        here = "" if habit.holds(value) else f"; {value} is outside"
        rows[f"begin with {habit.option}"] = f"{span}{here}: {habit.why}"
    if seen.accumulator is not None:
        across = "x".join(map(str, seen.accumulator))
        rows["accumulator"] = f"{across} takes {seen.accumulator_bytes:,} bytes of registers: {_by_warps(seen)}"
    if seen.timelines:
        busy = ", ".join(f"{found.busy:.0%}" for found in seen.timelines)
        rows["pipeline"] = (
            f"one block alone computes {busy} of the time with 1 to {len(seen.timelines)} stages; --pipeline draws it"
        )
    return rows


def _by_warps(seen: Portrait) -> str:
    def said(choice: WarpChoice) -> str:
        return f"{choice.accumulator_registers:g} per thread with {choice.warps} warps" + (
            "" if choice.fits else " (spills)"
        )

    near = [choice for choice in seen.warp_choices if seen.warps // 2 <= choice.warps <= seen.warps * 2]
    return ", ".join(map(said, near))


def explain_command(
    target: TargetName,
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp8.")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=V",
            help="Values of tunables; repeat it, or NAME=V,NAME=V. The rest as in the default.",
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here, such as 'NVIDIA H200'.")
    ] = None,
    measured_ms: Annotated[
        float | None, typer.Option("--measured", metavar="MS", help="A time that you measured: how near to the limit?")
    ] = None,
    pipeline: Annotated[bool, typer.Option("--pipeline", help="Draw the pipeline for one to five stages.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say what to expect of one config: time, occupancy, waves, shared memory, roofline, and what limits it.

    The work is the declared one, else it is read from the kernel. The config is compiled; nothing is run, and no GPU is
    needed with --gpu.
    """
    _check(measured_ms)
    shapes, values = parse_shapes(shape), parse_config(config or [], "--config")
    spec = device_spec(gpu)
    with only_data_on_stdout():
        operation, _, extents, chosen_dtype = operation_of(operation_named(target), None, shapes, dtype)
        problem = operation.problem(extents, chosen_dtype)
        chosen = config_of(operation, problem, values or {})
        expected = expected_of(operation, shape=extents, dtype=chosen_dtype)
        calibration = load_calibration(folder_of(cache_dir), spec.name)
        explained = explain(expected, chosen, spec, machine_of(spec, calibration))
    if not explained.told:
        raise TargetError(
            f"the model makes no forecast: {explained.silent}",
            hint="docs/concepts/inferred.md says what can be read, docs/concepts/model.md how work is declared",
        )
    seen = portrait(explained, expected.work, chosen, spec, calibration=calibration, measured_ms=measured_ms)
    if as_json:
        about = {"problem": str(problem), "device": spec.name, "config": dict(chosen), "source": explained.source}
        say_json({**about, "arch": spec.arch, "units": spec.units, **explain_facts.as_json(explained, seen)})
        return
    unit = "compute units" if spec.kind == "hip" else "multiprocessors"
    head = {"problem": str(problem), "device": f"{spec.name} {spec.arch}, {spec.units} {unit}", "config": str(chosen)}
    say(*listing(explain_facts.rows_of(head, spec, explained, seen), width()))
    if pipeline:
        say(*explain_facts.pipeline_lines(seen))


def _check(measured_ms: float | None) -> None:
    if measured_ms is not None and not 0 < measured_ms < math.inf:
        raise SettingsError(f"--measured is {measured_ms:g}; it must be milliseconds over 0", hint="such as 0.21")


def operation_named(target: str) -> Operation:
    """The operation that a TARGET names.

    Raises:
        TargetError: It is a function, whose problem is not known, or cannot be found.
    """
    found = load_target(target)
    if not isinstance(found, Operation):
        raise TargetError(f"{target} is a function; its problem is not known", hint="name an Operation")
    return found


def config_of(operation: Operation, problem: Problem, values: dict[str, Any]) -> Config:
    """The default config, in which the given values replace its own.

    Raises:
        ConfigValueError: The operation has no such tunable, or the config is not in its space.
    """
    space = operation.space_for(problem)
    wrong = [name for name in values if name not in space.tunables]
    if wrong:
        raise ConfigValueError(
            f"{operation.name} has no tunable {', '.join(wrong)}", hint=f"it has {', '.join(space.tunables)}"
        )
    config = Config({**space.default_config, **space.with_names(values)})
    if (reason := space.why_not(config)) is not None:
        raise ConfigValueError(
            f"config ({config}) is not in the space of {operation.name}: {reason}", hint="take a config of the space"
        )
    return config
