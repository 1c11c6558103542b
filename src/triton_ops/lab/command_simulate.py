"""`triton-ops simulate`: configs of a workload in the order in which the model expects them to be fast, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops.lab.recorded_overlay import Overlay, overlay_of
from triton_ops.lab.simulated_ranking import WORKLOADS, PlacedConfig
from triton_ops.lab.simulation import DEVICE, Dial, Simulation, simulate, whole_space, workload_named
from triton_ops.lab.simulator_page import answers_of, page_of
from triton_ops.lab.stage_timelines import LEGEND, drawn
from triton_ops.request import parse_config, parse_shapes, parse_space
from triton_ops.space import Config
from triton_ops.terminal import (
    Dtype,
    Json,
    OneShape,
    Space,
    listing,
    paragraph,
    say,
    say_json,
    table,
    tell,
    width,
    write_output,
)

_HEADER = ("place", "expected", "score", "waves", "occupancy", "shared", "limited by", "config")
_SHOWN = 20


def simulation_lines(result: Simulation, columns: int | None, top: int, why: int, over: str | None) -> list[str]:
    """The ranking, the advice, and the reasons of one place; then each knob of the winner turned alone."""
    shape = " ".join(f"{name}={extent}" for name, extent in zip(result.workload.extents, result.shape, strict=True))
    standings = result.standings
    lines = paragraph("", f"{result.workload.title}: {shape} {result.dtype} on {result.device}", columns)
    lines += paragraph("", f"{result.workload.sides}.", columns)
    lines += ["", *table(_HEADER, [one.cells for one in standings[:top]], columns, _HEADER[:6])]
    lines += paragraph("", f"{len(standings) - top} more, shown with --top", columns) if len(standings) > top else []
    lines += ["", *paragraph("", result.advice, columns), ""]
    standing = standings[min(why, len(standings)) - 1]
    lines += paragraph("", f"Why {standing.text}:", columns)
    lines += listing({f"  {name}": text for name, text in result.reasons(standing)}, columns)
    if result.dials:
        lines += ["", "The winner with one knob turned, in milliseconds:", *_dial_lines(result.dials, columns)]
        lines += _pipeline_lines(standings[0])
    return lines + (_over_lines(result, over, columns) if over else [])


def _dial_lines(dials: Sequence[Dial], columns: int | None) -> list[str]:
    rows = []
    for dial in sorted(dials, key=lambda dial: -dial.range):
        turns = [
            f"{turn.value}{'*' if turn.own else ''}: {'-' if turn.why_not else format(turn.expected_ms, '.4g')}"
            for turn in dial.turns
        ]
        rows.append([f"  {dial.name}", f"{dial.range:.2f} x", ", ".join(turns)])
    return table(["  knob", "range", "expected at each value"], rows, columns)


def _pipeline_lines(winner: PlacedConfig) -> list[str]:
    """The pipeline of the winner's loop by stages; nothing for a kernel without one."""
    lines = []
    for timeline in winner.timelines:
        mark = "  <- the winner" if timeline.stages == winner.stages else ""
        lines.append(f"  num_stages={timeline.stages}: the units compute in {timeline.busy:.0%} of the time{mark}")
        lines += [f"    {line}" for line in drawn(timeline)]
    return ["", f"One block's loop by stages, a line for each buffer: {LEGEND}", *lines] if lines else []


def _over_lines(result: Simulation, extent: str, columns: int | None) -> list[str]:
    """The winner at each size of an extent, and how much slower each other config is there."""
    points, configs = result.over(extent), result.compared_texts
    header = [extent, "best", *(f"({at})" for at in range(1, len(configs) + 1)), "winner"]
    at = result.workload.extents.index(extent)
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


def overlay_lines(overlay: Overlay, columns: int | None, top: int) -> list[str]:
    """A recording beside the prediction: the correlation, and the first configs with both times and places."""
    by_time = sorted(overlay.measured.values())
    header = ("place", "measured", "expected", "took", "limited by", "config")
    rows = []
    for one in overlay.standings[:top]:
        ms = overlay.measured[Config(one.config)]
        expected = "-" if one.forecast is None or one.why_not else f"{one.forecast.expected_ms:.4g} ms"
        places = [str(one.place) if one.place else "-", str(by_time.index(ms) + 1)]
        rows.append([*places, expected, f"{ms:.4g} ms", one.limited_by, one.text])
    head = paragraph("", f"{overlay.title} on {overlay.device}, recorded in {overlay.file}", columns)
    return [*head, "", *table(header, rows, columns, header[:4]), "", *paragraph("", overlay.agreement, columns)]


def simulate_with(serve_page: Callable[[Callable[..., Any], int, Callable[[str], None]], None]) -> Callable[..., None]:
    """The command, whose `--serve` serves a page with `serve_page`."""

    def simulate_command(
        workload: Annotated[
            str | None, typer.Argument(metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them by default.")
        ] = None,
        shape: OneShape = None,
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
            bool,
            typer.Option("--undeclared", help="Use what was read of a recorded kernel, even where work is declared."),
        ] = False,
        jitter: Annotated[
            float,
            typer.Option(
                "--jitter", metavar="SHARE", min=0, max=1, help="Disturb the expected times, to see what stays."
            ),
        ] = 0.0,
        seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of --jitter.")] = 0,
        html: Annotated[
            Path | None,
            typer.Option("--html", metavar="FILE", help="Write a page with rankings at named sizes instead."),
        ] = None,
        serve: Annotated[
            bool, typer.Option("--serve", help="Serve a page that ranks what it is asked, to this machine's browsers.")
        ] = False,
        port: Annotated[
            int | None, typer.Option("--port", metavar="N", help="With --serve; default a free port.")
        ] = None,
        as_json: Json = False,
    ) -> None:
        """Rank configs by the time that the model expects of them, and explain each place; nothing is run."""
        shapes = parse_shapes(shape)
        if len(shapes) > 1:
            raise ShapeMismatchError(
                "a workload takes one shape", hint="write it without commas: --shape 4096x4096x4096"
            )
        if html is not None and as_json:
            raise SettingsError("--html and --json exclude each other", hint="give one of them")
        if serve and (html is not None or as_json):
            raise SettingsError(
                f"--serve and {'--json' if as_json else '--html'} exclude each other", hint="give one of them"
            )
        if port is not None and not serve:
            raise SettingsError("--port is for --serve", hint="give both, or leave it out")
        overlays = [overlay_of(path, undeclared=undeclared) for path in recording or []]
        names = _names(
            workload,
            overlays,
            page=serve or html is not None,
            has_options=bool(shapes or config or space or whole or over),
        )
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
            write_output(html, page_of(simulations[0], overlays), "choose another --html")
            tell(f"{html} is the page; open it in a browser")
        elif as_json:
            say_json({
                "simulations": [one.as_json(over) for one in simulations],
                "recordings": [one.as_json() for one in overlays],
            })  # fmt: skip
        else:
            blocks = [simulation_lines(one, width(), top, why, over) for one in simulations]
            blocks += [overlay_lines(one, width(), top) for one in overlays]
            say(*_apart(blocks))

    return simulate_command


def _names(workload: str | None, overlays: Sequence[Overlay], *, page: bool, has_options: bool) -> list[str]:
    """The workloads that are asked for: all without a name, none if recordings alone are."""
    if workload is not None:
        return [workload_named(workload).name]
    if has_options:
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
    values = parse_space(space)
    return whole_space({**workload_named(name).space, **(values or {})}) if whole or values else None


def _apart(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Blocks of lines with an empty line between them."""
    return [line for at, block in enumerate(blocks) for line in ([""] if at else []) + list(block)]
