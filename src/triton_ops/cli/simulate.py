"""`triton-ops simulate`: configs of a workload in the order in which the model expects them to be fast, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.base import write_named
from triton_ops.cli.console import Dtype, Json, Space, Verbose, listing, paragraph, say, say_json, table, tell, width
from triton_ops.cli.problem import parse_config, parse_shapes, parse_space
from triton_ops.compilation import LEGEND, drawn
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops.lab import (
    DEVICE,
    WORKLOADS,
    Overlay,
    Simulation,
    answers_of,
    overlay_of,
    page_of,
    simulate,
    whole_space,
    workload_named,
)
from triton_ops.report import serve_page
from triton_ops.space import Config

_HEADER = ("place", "expected", "score", "waves", "occupancy", "shared", "limited by", "config")


def simulation_lines(found: Simulation, columns: int | None, top: int, why: int, over: str | None) -> list[str]:
    """The ranking, the advice, and the reasons of one place; then each knob of the winner turned alone."""
    shape = " ".join(f"{name}={extent}" for name, extent in zip(found.workload.extents, found.shape, strict=True))
    standings = found.standings
    lines = paragraph("", f"{found.workload.title}: {shape} {found.dtype} on {found.device}", columns)
    lines += paragraph("", f"{found.workload.sides}.", columns)
    lines += ["", *table(_HEADER, [one.cells for one in standings[:top]], columns, _HEADER[:6])]
    lines += paragraph("", f"{len(standings) - top} more, shown with --top", columns) if len(standings) > top else []
    lines += ["", *paragraph("", found.advice, columns), ""]
    chosen = standings[min(why, len(standings)) - 1]
    lines += paragraph("", f"Why {chosen.text}:", columns)
    lines += listing({f"  {name}": text for name, text in found.reasons(chosen)}, columns)
    if found.dials:
        lines += ["", "The winner with one knob turned, in milliseconds:", *_dial_lines(found, columns)]
        lines += _pipeline_lines(found)
    return lines + (_over_lines(found, over, columns) if over else [])


def _dial_lines(simulation: Simulation, columns: int | None) -> list[str]:
    rows = []
    for dial in sorted(simulation.dials, key=lambda dial: -dial.range):
        turns = [
            f"{turn.value}{'*' if turn.own else ''}: {'-' if turn.why_not else format(turn.expected_ms, '.4g')}"
            for turn in dial.turns
        ]
        rows.append([f"  {dial.name}", f"{dial.range:.2f} x", ", ".join(turns)])
    return table(["  knob", "range", "expected at each value"], rows, columns)


def _pipeline_lines(simulation: Simulation) -> list[str]:
    """The pipeline of the winner's loop by stages; nothing for a kernel without one."""
    winner, lines = simulation.standings[0], []
    for found in winner.timelines:
        here = "  <- the winner" if found.stages == winner.stages else ""
        lines.append(f"  num_stages={found.stages}: the units compute in {found.busy:.0%} of the time{here}")
        lines += [f"    {line}" for line in drawn(found)]
    return ["", f"One block's loop by stages, a line for each buffer: {LEGEND}", *lines] if lines else []


def _over_lines(found: Simulation, extent: str, columns: int | None) -> list[str]:
    """The winner at each size of an extent, and how much slower each other config is there."""
    points, configs = found.over(extent), found.compared_texts
    header = [extent, "best", *(f"({at})" for at in range(1, len(configs) + 1)), "winner"]
    at = found.workload.extents.index(extent)
    rows = [
        [
            str(point.extents[at]),
            f"{point.best_ms:.4g} ms",
            *(f"{slower:.2f}" if slower else "-" for slower in point.slower),
            configs[point.winner] if point.winner >= 0 else "-",
        ]
        for point in points
    ]
    lines = ["", f"Time over the best, as {extent} grows; the configs by number are:"]
    lines += [f"  ({number}) {text}" for number, text in enumerate(configs, 1)]
    return lines + table(header, rows, columns, header[:-1])


def overlay_lines(found: Overlay, columns: int | None, top: int) -> list[str]:
    """A recording beside the prediction: the correlation, and the first configs with both times and places."""
    by_time = sorted(found.measured.values())
    header = ("place", "measured", "expected", "took", "limited by", "config")
    rows = []
    for one in found.standings[:top]:
        took = found.measured[Config(one.config)]
        expected = "-" if one.forecast is None or one.why_not else f"{one.forecast.expected_ms:.4g} ms"
        place = str(one.place) if one.place else "-"
        rows.append([place, str(by_time.index(took) + 1), expected, f"{took:.4g} ms", one.limited_by, one.text])
    head = paragraph("", f"{found.title} on {found.device}, recorded in {found.file}", columns)
    return [*head, "", *table(header, rows, columns, header[:4]), "", *paragraph("", found.agreement, columns)]


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
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with rankings at named sizes instead.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve a page that ranks what it is asked, to this machine's browsers.")
    ] = False,
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="With --serve; default a free port.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Rank configs by the time that the model expects of them, and explain each place; nothing is run."""
    shapes = parse_shapes(shape)
    if len(shapes) > 1:
        raise ShapeMismatchError("a workload takes one shape", hint="write it without commas: --shape 4096x4096x4096")
    if html is not None and as_json:
        raise SettingsError("--html and --json exclude each other", hint="give one of them")
    if serve and (html is not None or as_json):
        raise SettingsError(
            f"--serve and {'--json' if as_json else '--html'} exclude each other", hint="give one of them"
        )
    if port is not None and not serve:
        raise SettingsError("--port is for --serve", hint="give both, or leave it out")
    overlays = [overlay_of(path, undeclared=undeclared) for path in recording or []]
    page = serve or html is not None
    names = _names(workload, overlays, page=page, given=bool(shapes or config or space or whole or over))
    simulations = [
        simulate(
            name, shape=shapes[0] if shapes else None, dtype=dtype, gpu=gpu,
            configs=_configs(name, config or [], space or [], whole=whole), jitter=jitter, seed=seed,
        )
        for name in names
    ]  # fmt: skip
    if serve:
        serve_page(answers_of(simulations[0], overlays), port or 0, tell)
    elif html is not None:
        _write_page(html, simulations[0], overlays)
    elif as_json:
        say_json({
            "simulations": [one.as_json(over) for one in simulations],
            "recordings": [one.as_json() for one in overlays],
        })  # fmt: skip
    else:
        blocks = [simulation_lines(one, width(), top, why, over) for one in simulations]
        blocks += [overlay_lines(one, width(), top) for one in overlays]
        say(*_apart(blocks))


def _names(workload: str | None, overlays: Sequence[Overlay], *, page: bool, given: bool) -> list[str]:
    """The workloads that are asked for: all without a name, none if recordings alone are."""
    if workload is not None:
        return [workload_named(workload).name]
    if given:
        raise SettingsError("options of a workload are given, but none is named", hint=f"name {', '.join(WORKLOADS)}")
    if page:
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
