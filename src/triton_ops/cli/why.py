"""`triton-ops why`: the config that a call of TARGET would run, or those that a process ran, and from which rung."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.base import counted
from triton_ops.cli.console import (
    CacheDir,
    Device,
    Dtype,
    Json,
    Verbose,
    listing,
    only_data_on_stdout,
    say,
    say_json,
    width,
)
from triton_ops.cli.problem import operation_of, parse_shapes
from triton_ops.cli.target import load_target
from triton_ops.dispatch import Decision, LaunchedConfig, read_report, would_run
from triton_ops.exceptions import TargetError
from triton_ops.records import read_lockfile

_REPORT = ".json"


def why_command(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="As for tune; or a FILE.json that TRITON_OPS_REPORT named.")
    ],
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    lockfile: Annotated[
        Path | None, typer.Option("--lockfile", metavar="FILE", help="The lockfile that is asked first.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say which config a call would run, from which rung of the ladder, and why every rung above did not answer.

    Nothing is run or compiled. For a report of a process, say what was launched, how often, and why.
    """
    if target.endswith(_REPORT):
        _tell_report(target, as_json)
        return
    shapes = parse_shapes(shape)
    with only_data_on_stdout():
        operation, _, extents, chosen_dtype = operation_of(_operation(target), None, shapes, dtype)
    decision = would_run(
        operation, shape=extents, dtype=chosen_dtype, device=device, cache_dir=cache_dir,
        lockfile=None if lockfile is None else read_lockfile(lockfile),
    )  # fmt: skip
    if as_json:
        say_json(_document(decision))
    else:
        say(*listing(_facts(decision), width()))


def _operation(target: str) -> Operation:
    found = load_target(target)
    if not isinstance(found, Operation):
        raise TargetError(f"{target} is a function, whose calls nothing decides", hint="name an Operation")
    return found


def _document(decision: Decision) -> dict[str, Any]:
    found = decision.found
    return {
        "kernel": decision.kernel, "problem": decision.problem, "device": decision.device, "rung": found.rung,
        "config": dict(found.config), "why": found.why, "record": found.record, "passed": list(decision.passed),
    }  # fmt: skip


def _facts(decision: Decision) -> dict[str, str]:
    found = decision.found
    facts = {
        "kernel": f"{decision.kernel} {decision.problem}".rstrip(),
        "device": decision.device,
        "config": str(found.config),
        "from": found.rung,
        "why": found.why,
    }
    passed = [text.partition(": ") for text in decision.passed]
    return {**facts, **{f"not from {rung}": why for rung, _, why in passed}}


def _tell_report(path: str, as_json: bool) -> None:
    rows = read_report(path)
    if as_json:
        say_json({"launches": [_row(row) for row in rows]})
        return
    total = sum(row.launches for row in rows)
    say(f"{counted(total, 'launch')} in {counted(len(rows), 'problem')}")
    for row in rows:
        say(row.text)


def _row(row: LaunchedConfig) -> dict[str, Any]:
    return {**{name: getattr(row, name) for name in row.__dataclass_fields__}, "config": dict(row.config)}
