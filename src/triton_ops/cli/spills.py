"""`triton-ops spills`: what a config of TARGET spills to local memory, and which change of it cures that."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.cli.console import (
    Dtype,
    Json,
    TargetName,
    Verbose,
    bold,
    listing,
    only_data_on_stdout,
    paragraph,
    say,
    say_json,
    table,
    width,
)
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes
from triton_ops.cli.target import load_target
from triton_ops.exceptions import TargetError
from triton_ops.lab import SpillEvidence, SpillReport, Tried, cure_spills

_HEADER = ("change", "verdict", "registers", "spilled", "frame", "local", "shared", "ms", "config")
_CANNOT_RUN = 1
_NUMBERS = ("registers", "spilled", "frame", "local", "shared", "ms")


def spills_command(
    target: TargetName,
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Dtype = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=V",
            help="Values of tunables; repeat it, or NAME=V,NAME=V. The rest as in the default.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option("--target", metavar="ARCH", help="Such as sm_90, gfx942, or a GPU's name; default the GPU."),
    ] = None,
    measure: Annotated[
        bool | None,
        typer.Option("--measure/--no-measure", help="Time what helps on the GPU; default if --target is left out."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int:
    """Say what a config spills, and try what may cure it: a smaller tile, more warps, fewer stages.

    Each change is compiled, and kept only if it helps. No GPU is needed with --target.
    """
    shapes, values = parse_shapes(shape), parse_config(config or [], "--config")
    found = load_target(target)
    if not isinstance(found, Operation):
        raise TargetError(f"{target} is a function; its problem is not known", hint="name an Operation")
    with only_data_on_stdout():
        operation, _, extents, chosen = operation_of(found, None, shapes, dtype)
        report = cure_spills(operation, config=values, shape=extents, dtype=chosen, arch=arch, measure=measure)
    if as_json:
        say_json(_as_json(str(operation.problem(extents, chosen)), report))
        return _code(report)
    say(*listing(_facts(str(operation.problem(extents, chosen)), report), width()))
    if report.tried:
        header, *lines = table(_HEADER, [row for one in report.tried for row in _rows(one)], width(), _NUMBERS)
        say(bold(header), *lines)
    say(*map(bold, paragraph("", report.advice, width())))
    return _code(report)


def _code(report: SpillReport) -> int:
    return 0 if report.before.compiled else _CANNOT_RUN


def _facts(problem: str, report: SpillReport) -> dict[str, str]:
    seen = report.before
    rows = {"problem": problem, "target": report.target, "config": str(seen.config)}
    if seen.reason:
        rows["compiler"] = f"{seen.status}: {seen.reason}"
    if seen.registers is not None:
        full = ", all that there are" if seen.registers >= seen.most_registers else ""
        rows["registers"] = f"{seen.registers} of {seen.most_registers} per thread{full}"
        rows["frame"] = f"{seen.stack_bytes:,} bytes per thread, {_spilled(seen)}"
        rows["local memory"] = _local(seen)
    if seen.accumulator is not None:
        across = "x".join(map(str, seen.accumulator))
        rows["accumulator"] = (
            f"{across} is {seen.accumulator_bytes:,} bytes of registers, {seen.accumulator_registers:g} per thread"
        )
    if seen.residents is not None:
        rows["occupancy"] = f"{seen.residents.occupancy:.0%}, limited by {' and '.join(seen.residents.limited_by)}"
    if seen.median_ms is not None:
        rows["measured"] = f"{seen.median_ms:.4g} ms"
    return rows | {f"note {number}": said for number, said in enumerate(report.notes, 1)}


def _spilled(seen: SpillEvidence) -> str:
    if (seen.spill_bytes or 0) > (seen.stack_bytes or 0):  # LLVM counts each register that it has spilled
        return f"where {seen.spill_bytes:,} bytes of spilled registers take turns"
    return f"{seen.spill_bytes:,} of them spilled registers"


def _local(seen: SpillEvidence) -> str:
    if seen.local is None:
        return "not known: no nvdisasm can be run for this architecture"
    found = seen.local
    return (
        f"{found.loads:,} loads of {found.load_bytes:,} bytes and {found.stores:,} stores of {found.store_bytes:,} "
        f"bytes per thread in the code, {found.in_loops:,} of them in loops"
    )


def _rows(tried: Tried) -> list[list[str]]:
    """One row for each config of a change, with the verdict on that config."""
    if not tried.steps:
        return [[tried.name, tried.verdict, *["-"] * 6, "no further step"]]
    rows = []
    for step in tried.steps:
        figures = [_figure(step.registers), _figure(step.spill_bytes), _figure(step.stack_bytes), _traffic(step)]
        took = "-" if step.median_ms is None else f"{step.median_ms:.4g}"
        rows.append(
            [tried.name, tried.verdict_on(step), *figures, _figure(step.shared_bytes), took, _change(tried, step)]
        )
    return rows


def _change(tried: Tried, step: SpillEvidence) -> str:
    changed = [f"{name}={value}" for name, value in step.config.items() if tried.before.config.get(name) != value]
    return " ".join(changed) + (f": {step.reason}" if not step.compiled and step.reason else "")


def _traffic(step: SpillEvidence) -> str:
    return "-" if step.local is None else f"{step.local.loads + step.local.stores:,}"


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _as_json(problem: str, report: SpillReport) -> dict[str, Any]:
    return {
        "problem": problem,
        "target": report.target,
        "spills": report.spills,
        "before": _evidence_json(report.before),
        "cures": [
            {
                "change": one.name,
                "why": one.why,
                "verdict": one.verdict,
                "kept": one.kept,
                "best": None if one.best is None else dict(one.best.config),
                "steps": [_evidence_json(step) for step in one.steps],
            }
            for one in report.tried
        ],
        "cure": None if report.cure is None or report.cure.best is None else dict(report.cure.best.config),
        "advice": report.advice,
        "notes": list(report.notes),
    }


def _evidence_json(seen: SpillEvidence) -> dict[str, Any]:
    return {
        "config": dict(seen.config), "status": seen.status.value, "reason": seen.reason, "registers": seen.registers,
        "most_registers": seen.most_registers, "stack_bytes": seen.stack_bytes, "spill_bytes": seen.spill_bytes,
        "shared_bytes": seen.shared_bytes, "accumulator_bytes": seen.accumulator_bytes,
        "accumulator_registers": seen.accumulator_registers,
        "occupancy": None if seen.residents is None else seen.residents.occupancy,
        "local": None if seen.local is None else asdict(seen.local), "median_ms": seen.median_ms,
    }  # fmt: skip
