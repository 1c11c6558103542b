"""`triton-ops rank`: the configs of TARGET's space in the order of their expected times, without a GPU."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.cli.console import (
    CacheDir,
    Dtype,
    Json,
    Space,
    TargetName,
    Verbose,
    bold,
    only_data_on_stdout,
    say,
    say_json,
    table,
    tell,
    width,
)
from triton_ops.cli.problem import check_filled, operation_of, parse_shapes, parse_space, tell_left_out
from triton_ops.cli.target import load_target
from triton_ops.exceptions import TargetError
from triton_ops.lab import RankedConfig, rank

_HEADER = ("expected", "lower bound", "limited by", "config")
_SHOWN = 20


def rank_command(
    target: TargetName,
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Dtype = None,
    space: Space = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here, such as 'NVIDIA H200'.")
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", min=1, help="Configs to show; default 20, with --json all.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes that read; default one for each CPU.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Rank every config of TARGET by the time that the model expects, the shortest first.

    Nothing is run, and no GPU is needed with --gpu. Where the kernel declares no work, the work is read from it.
    """
    shapes, values = parse_shapes(shape), parse_space(space or [])
    with only_data_on_stdout():
        operation, narrowed, extents, chosen = operation_of(_operation(target), values, shapes, dtype)
        allowed = narrowed or operation.space_for(operation.problem(extents, chosen))
        check_filled(allowed, values)
        found = rank(
            operation, space=narrowed, shape=extents, dtype=chosen, gpu=gpu, jobs=jobs, cache_dir=cache_dir
        )  # fmt: skip
    if len(found) < allowed.size.valid:
        tell(f"{len(found)} of {allowed.size.valid} configs are ranked")
    else:
        tell_left_out(allowed, values, [one.config for one in found])
    if as_json:
        say_json([_as_json(one) for one in found[:top]])
    else:
        header, *lines = table(_HEADER, [_row(one) for one in found[: top or _SHOWN]], width(), _HEADER[:2])
        say(bold(header), *lines)


def _operation(text: str) -> Operation:
    found = load_target(text)
    if not isinstance(found, Operation):
        raise TargetError(f"{text} is a function; its space and its problem are not known", hint="name an Operation")
    return found


def _as_json(one: RankedConfig) -> dict[str, Any]:
    return {
        "config": dict(one.config),
        "expected_ms": one.expected_ms if math.isfinite(one.expected_ms) else None,
        "lower_bound_ms": one.lower_bound_ms,
        "source": one.source,
        "limited_by": one.limited_by,
    }


def _row(one: RankedConfig) -> list[str]:
    expected = f"{one.expected_ms:.4g} ms" if math.isfinite(one.expected_ms) else "-"
    return [expected, f"{one.lower_bound_ms:.4g} ms", one.limited_by, str(one.config)]
