"""`triton-ops simulate`: configs of a workload in the order in which the model expects them to be fast, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops._files import write_named
from triton_ops.cli.console import Dtype, Json, Space, Verbose, say, say_json, tell, width
from triton_ops.cli.problem import parse_config, parse_shapes, parse_space
from triton_ops.cli.simulate_lines import overlay_lines, simulation_lines
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops.simulator.as_json import overlay_json, simulation_json
from triton_ops.simulator.page.build import page_of
from triton_ops.simulator.recorded import Overlay, overlay_of
from triton_ops.simulator.simulation import DEVICE, Simulation, simulate, whole_space, workload_named
from triton_ops.simulator.workloads import WORKLOADS

_SHOWN = 20


def simulate_command(
    workload: Annotated[
        str | None, typer.Argument(metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them by default.")
    ] = None,
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Dtype = None,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="A device of the table.")] = DEVICE,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=V,NAME=V", help="A config; repeat it. Default: five of a lesson."),
    ] = None,
    space: Space = None,
    whole: Annotated[bool, typer.Option("--whole", help="Rank the workload's whole space.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Configs to show.")] = _SHOWN,
    why: Annotated[int, typer.Option("--why", metavar="PLACE", min=1, help="The config to explain.")] = 1,
    over: Annotated[
        str | None, typer.Option("--over", metavar="EXTENT", help="Also compare the configs at other sizes of it.")
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option("--recording", metavar="FILE", help="A recorded space to lay over the prediction; repeat it."),
    ] = None,
    undeclared: Annotated[
        bool, typer.Option("--undeclared", help="Use what was read of a recorded kernel, even where work is declared.")
    ] = False,
    jitter: Annotated[
        float,
        typer.Option("--jitter", metavar="SHARE", min=0, max=1, help="Disturb the expected times, to see what stays."),
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of --jitter.")] = 0,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the interactive page instead.")
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Rank configs by the time that the model expects of them, and explain each place; nothing is run."""
    shapes = parse_shapes(shape)
    if len(shapes) > 1:
        raise ShapeMismatchError("a workload takes one shape", hint="write it without commas: --shape 4096x4096x4096")
    if html is not None and as_json:
        raise SettingsError("--html and --json exclude each other", hint="give one of them")
    overlays = [overlay_of(path, undeclared=undeclared) for path in recording or []]
    names = _names(workload, overlays, html, given=bool(shapes or config or space or whole or over))
    simulations = [
        simulate(
            name, shape=shapes[0] if shapes else None, dtype=dtype, gpu=gpu,
            configs=_configs(name, config or [], space or [], whole=whole), jitter=jitter, seed=seed,
        )
        for name in names
    ]  # fmt: skip
    if html is not None:
        _write_page(html, simulations[0], overlays)
    elif as_json:
        say_json({
            "simulations": [simulation_json(one, over) for one in simulations],
            "recordings": [overlay_json(one) for one in overlays],
        })  # fmt: skip
    else:
        blocks = [simulation_lines(one, width(), top, why, over) for one in simulations]
        blocks += [overlay_lines(one, width(), top) for one in overlays]
        say(*_apart(blocks))


def _names(workload: str | None, overlays: Sequence[Overlay], html: Path | None, *, given: bool) -> list[str]:
    """The workloads that are asked for: all without a name, none if recordings alone are."""
    if workload is not None:
        return [workload_named(workload).name]
    if given:
        raise SettingsError("options of a workload are given, but none is named", hint=f"name {', '.join(WORKLOADS)}")
    if html is not None:
        return [next(iter(WORKLOADS))]
    return [] if overlays else list(WORKLOADS)


def _configs(name: str, configs: Sequence[str], space: list[str], *, whole: bool) -> Sequence[Mapping[str, Any]] | None:
    """The configs that are asked for; None for those of the lesson."""
    if sum((bool(configs), bool(space), whole)) > 1:
        raise SettingsError("--config, --space and --whole exclude each other", hint="give one of them")
    if configs:
        return [parse_config([text], "--config") or {} for text in configs]
    own = workload_named(name).space
    values = parse_space(space)
    return whole_space({**own, **(values or {})}) if whole or values else None


def _write_page(path: Path, first: Simulation, overlays: Sequence[Overlay]) -> None:
    try:
        write_named(path, page_of(first, overlays))
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror or error}", hint="choose another --html"
        ) from error
    tell(f"{path} is the page; open it in a browser")


def _apart(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Blocks of lines with an empty line between them."""
    return [line for at, block in enumerate(blocks) for line in ([""] if at else []) + list(block)]
