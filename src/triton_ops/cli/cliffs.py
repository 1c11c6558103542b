"""`triton-ops cliffs`: the shapes at which a config of TARGET needs one more wave that is mostly empty."""

from __future__ import annotations

import re
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.cli.console import (
    CacheDir,
    Json,
    TargetName,
    Verbose,
    bold,
    listing,
    only_data_on_stdout,
    say,
    say_json,
    table,
    width,
)
from triton_ops.cli.explain import config_of, operation_named
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes
from triton_ops.cli.record_selection import folder_of
from triton_ops.device import DeviceSpec, load_calibration
from triton_ops.exceptions import SettingsError
from triton_ops.lab import (
    MOST_POINTS,
    Cliff,
    Knob,
    Sensitivity,
    ShapePoint,
    Sweep,
    cliffs,
    device_spec,
    read_recording,
    sensitivity,
    sweep,
)

_SENSITIVITY_HEADER = ("tunable", "share", "span", "fixed", "best", "by value: slower than the best value")
_JUMPS = ("step", "pairs", "slower", "steep", "spills", "if spilled", "fails")
_SHOWN = 12


def sensitivity_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Run logs, or recordings of whole spaces.")],
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say which tunables matter in a measured space, what each value costs, and at which steps times jump.

    Reads run logs of tunes, recordings of `triton-ops record`, and Kernel Tuner's cache files.
    """
    recordings = [read_recording(file) for file in files]
    found = [(sensitivity(one), cliffs(one)) for one in recordings]
    if as_json:
        say_json(
            [_sensitivity_as_json(str(file), seen, jumps) for file, (seen, jumps) in zip(files, found, strict=True)]
        )
        return
    for number, (seen, jumps) in enumerate(found):
        say(*([""] if number else []), *_lines(seen, jumps))


def _lines(seen: Sensitivity, jumps: list[Cliff]) -> list[str]:
    facts = {
        "space": f"{seen.kernel}, {seen.device or 'device not named'}",
        "configs": f"{seen.configs} ran, {seen.failed} failed",
        "fastest": f"{seen.best_ms:.4g} ms: {seen.best}",
        "explained": f"{seen.explained:.0%} of the differences by tunables alone, the rest by tunables together",
    }
    header, *rows = table(
        _SENSITIVITY_HEADER, [_sensitivity_row(knob) for knob in seen.knobs], width(), _SENSITIVITY_HEADER[1:4]
    )
    lines = [*listing(facts, width()), bold(header), *rows]
    if jumps:
        header, *rows = table(_JUMPS, [_jump(one) for one in jumps[:_SHOWN]], width(), _JUMPS[1:])
        lines += [bold(header), *rows]
    return lines


def _sensitivity_row(knob: Knob) -> list[str]:
    by_value = ", ".join(
        f"{one.value}: {'none ran' if one.slower is None else f'+{one.slower:.0%}'}" for one in knob.effects
    )
    figures = [f"{knob.share:.0%}", f"+{knob.span:.0%}", f"+{knob.most_lost:.0%}"]
    return [knob.name, *figures, str(knob.best.value), by_value]


def _jump(one: Cliff) -> list[str]:
    def times(ratio: float | None) -> str:
        return "-" if ratio is None else f"{ratio:.2f}x"

    step = f"{one.name} {one.before} -> {one.after}"
    return [
        step, str(one.pairs), times(one.slower), str(one.steep), str(one.spills), times(one.slower_if_spilled),
        str(one.fails),
    ]  # fmt: skip


def _sensitivity_as_json(file: str, seen: Sensitivity, jumps: list[Cliff]) -> dict[str, Any]:
    return {
        "file": file, "kernel": seen.kernel, "device": seen.device, "configs": seen.configs, "failed": seen.failed,
        "best": dict(seen.best), "best_ms": seen.best_ms, "explained": seen.explained,
        "knobs": [
            {"name": knob.name, "share": knob.share, "span": knob.span, "most_lost": knob.most_lost,
             "best": knob.best.value, "values": [asdict(one) for one in knob.effects]}
            for knob in seen.knobs
        ],
        "cliffs": [asdict(one) for one in jumps],
    }  # fmt: skip


_HEADER = ("from", "waves", "used", "expected", "to", "waves", "used", "expected")
_SERIES = re.compile(r"(\w+)=(\d+):(\d+)(?::(\d+))?")
_POINTS = 32  # without a step


def cliffs_command(
    target: TargetName,
    vary: Annotated[
        str, typer.Option("--vary", metavar="NAME=LOW:HIGH[:STEP]", help="The extent to vary, and its values.")
    ],
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The other extents.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp8.")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=V", help="Values of tunables; the rest as in the default."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here, such as 'NVIDIA H200'.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say at which shapes a config needs one more wave of blocks that is mostly empty.

    Nothing is run, and no GPU is needed with --gpu.
    """
    axis, extents = _series(vary)
    shapes, values, spec = parse_shapes(shape), parse_config(config or [], "--config"), device_spec(gpu)
    with only_data_on_stdout():
        operation, _, given, chosen = operation_of(operation_named(target), None, shapes, dtype)
        whole = operation.full_shape(given)
        tile = config_of(operation, operation.problem(whole, chosen), values or {})
        calibration = load_calibration(folder_of(cache_dir), spec.name)
        found = sweep(operation, tile, whole, chosen, axis, extents, spec, calibration)
    if as_json:
        say_json(_as_json(operation.name, spec, found))
        return
    say(*listing(_facts(operation.name, whole, spec, found), width()))
    if found.cliffs:
        rows = [[*_row(axis, one.before), *_row(axis, one.after)] for one in found.cliffs]
        header, *lines = table(_HEADER, rows, width(), _HEADER)
        say(bold(header), *lines)


def _series(text: str) -> tuple[str, list[int]]:
    match = _SERIES.fullmatch(text)
    if match is None:
        raise SettingsError(f"--vary is {text!r}", hint="write NAME=LOW:HIGH:STEP, such as M=1024:8192:256")
    low, high = int(match[2]), int(match[3])
    step = int(match[4]) if match[4] else max(1, (high - low) // _POINTS)
    if step < 1 or low < 1 or high <= low or (high - low) // step >= MOST_POINTS:
        raise SettingsError(
            f"--vary is {text!r}, which is no series of 2 to {MOST_POINTS} values", hint="such as M=1024:8192:256"
        )
    return match[1], list(range(low, high + 1, step))


def _facts(name: str, whole: tuple[int, ...], spec: DeviceSpec, found: Sweep) -> dict[str, str]:
    first, last = found.points[0], found.points[-1]
    most = max(found.points, key=lambda point: point.waves.used)
    least = min(found.points, key=lambda point: point.waves.used)
    rows = {
        "kernel": f"{name} at {'x'.join(map(str, whole))}, {found.axis} from {first.extent} to {last.extent}",
        "device": f"{spec.name}, {spec.units * found.blocks_per_unit} blocks at a time",
        "config": str(found.config),
        "places used": (
            f"{least.waves.used:.0%} at {found.axis}={least.extent} "
            f"to {most.waves.used:.0%} at {found.axis}={most.extent}"
        ),
        "cliffs": str(len(found.cliffs)),
    }
    return rows | ({"no times": found.silent} if found.silent else {})


def _row(axis: str, point: ShapePoint) -> list[str]:
    took = "-" if point.expected_ms is None else f"{point.expected_ms:.4g} ms"
    return [f"{axis}={point.extent}", str(ceil(point.waves.waves)), f"{point.waves.used:.0%}", took]


def _as_json(name: str, spec: DeviceSpec, found: Sweep) -> dict[str, Any]:
    def point(one: ShapePoint) -> dict[str, Any]:
        return {
            "extent": one.extent, "blocks": one.waves.grid, "waves": one.waves.waves, "used": one.waves.used,
            "tail_blocks": one.waves.tail_blocks, "expected_ms": one.expected_ms, "of_limit": one.of_limit,
        }  # fmt: skip

    return {
        "kernel": name, "device": spec.name, "config": dict(found.config), "axis": found.axis,
        "blocks_per_unit": found.blocks_per_unit, "at_once": found.blocks_per_unit * spec.units,
        "silent": found.silent, "points": [point(one) for one in found.points],
        "cliffs": [{"before": point(one.before), "after": point(one.after)} for one in found.cliffs],
    }  # fmt: skip
