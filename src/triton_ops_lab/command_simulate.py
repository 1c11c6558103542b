"""`triton-ops simulate`: configs of a workload or a TARGET in the order in which they are expected to be fast, and why.

Its charts are plain SVG made by its own script. A plotting library would add one to four and a half megabytes to every
page for bars and a scatter plot, and has marks that neither a keyboard nor a screen reader reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from triton_ops.backend import Operation
from triton_ops.device import DeviceSpec, Machine, device_spec
from triton_ops.exceptions import SettingsError, TargetError, TritonKernelError
from triton_ops.space import Config
from triton_ops.terminal import Facts, Page, PageServer, option, tell
from triton_ops.tuner import Survey
from triton_ops.typed import TypedTarget, parse_config
from triton_ops_lab.expectation import LEGEND, drawn, pipeline_lines
from triton_ops_lab.simulated_ranking import FLOORS, Overlay, PlacedConfig, advice, known_devices, table_name
from triton_ops_lab.simulation import LARGEST, LESSON, WORKLOADS, Simulation, SizePoint, Workload, simulate

SHOWN = 50  # places of one ranking in a file, which has many rankings
_TERMS = 8  # resources in the drawing of one config


def ranking(simulation: Simulation, config: str = "", most: int = SHOWN) -> dict[str, Any]:
    """A simulation: its first places, knobs and pipeline of the winner or of a config, and configs at other shapes."""
    standings = simulation.standings
    subject = next((one for one in standings if str(one.config) == config), standings[0])
    extents = simulation.workload.operation.extents if simulation.question.declared else ()  # others would be read anew
    return {
        **_shown(standings, subject, most), "note": simulation.note,
        "advice": simulation.advice, "knobs": simulation.dials_of(subject),
        "compared": list(map(str, simulation.compared)),
        "shapes": {extent: _shapes(simulation.over(extent), axis) for axis, extent in enumerate(extents)},
    }  # fmt: skip


def recorded_ranking(overlay: Overlay) -> dict[str, Any]:
    """A recording laid over the prediction: the first places with both times, and every config as a point."""
    places = {ms: place for place, ms in reversed(list(enumerate(sorted(overlay.measured.values()), 1)))}
    shown = _shown(overlay.standings, overlay.standings[0], SHOWN)
    for row, one in zip(shown["rows"], overlay.standings, strict=False):
        ms = overlay.measured[one.config]
        row["measured"] = [f"{ms:.4g} ms", str(places[ms])]
    return {
        **shown, "file": overlay.file, "title": overlay.title, "advice": advice(overlay.standings, ""),
        "note": f"Recorded in {overlay.file}; {overlay.failed} further configs did not run.",
        "agreement": f"{overlay.title} on {table_name(overlay.spec)}. {overlay.agreement}",
        "figures": [
            str(len(overlay.measured)), f"{overlay.spearman:.3f}", str(FLOORS[overlay.kind]), overlay.verdict,
            f"{overlay.first_share:.0%}",
        ],
        "knobs": [], "points": [pair for pair in overlay.pairs if math.isfinite(pair[0])], "shapes": {},
    }  # fmt: skip


def _shown(standings: Sequence[PlacedConfig], subject: PlacedConfig, most: int) -> dict[str, Any]:
    """What every ranking shows: its first places, and the pipeline of one config."""
    return {
        "count": len(standings), "rows": [_row(one) for one in standings[:most]], "chosen": str(subject.config),
        "stages": subject.image.stages if subject.place else 0,
        "pipeline": [
            {"stages": line.stages, "busy": f"{line.busy:.0%}", "lines": drawn(line)}
            for line in (subject.image.timelines if subject.place else ())
        ],
    }  # fmt: skip


def _row(one: PlacedConfig) -> dict[str, Any]:
    forecast = one.expectation.forecast
    terms = [] if forecast is None or one.why_not else forecast.terms[:_TERMS]
    return {
        "place": one.place, "config": str(one.config), "cells": one.cells, "score": one.score,
        "reasons": list(one.reasons.items()), "terms": [[term.name, term.alone_ms] for term in terms],
    }  # fmt: skip


def _shapes(points: Sequence[SizePoint], axis: int) -> dict[str, Any]:
    return {
        "extents": [point.extents[axis] for point in points],
        "winners": [point.winner for point in points],
        "slower": [[round(slower, 2) for slower in point.slower] for point in points],
    }


Grid = Mapping[str, Mapping[str, Mapping[str, dict[str, Any]]]]
_SCRIPTS = ("charts.js", "views.js", "controls.js")
_ASKED = "as asked"  # the name of a size that is none of the workload's own
_SERVED_ROWS = 1000
_MOST_FIELDS = 16  # of a question


def grid_of(first: Simulation) -> Grid:
    """The rankings of a file, by workload, device and size: of every textbook's workload, and the one that was asked.

    That of a TARGET is alone, since others take a compiler. Cost: three seconds for the textbook's workloads.
    """
    if not first.workload.least:
        return {first.workload.operation.name: {table_name(first.spec): {_ASKED: ranking(first)}}}
    devices = {**known_devices(), table_name(first.spec): first.spec}
    grid = {}
    for name, workload in WORKLOADS.items():
        simulations = _simulations(workload, first)
        grid[name] = {
            device: {size: ranking(replace(one, spec=spec)) for size, one in simulations.items()}
            for device, spec in devices.items()
        }
    return grid


def _simulations(workload: Workload, first: Simulation) -> dict[str, Simulation]:
    lesson = replace(first, workload=workload, configs=LESSON, factors=())
    sizes = workload.operation.problems.items() if workload.least else ()
    simulations = {size: replace(lesson, shape=shape) for size, (shape, _) in sizes}
    if workload == first.workload and first not in simulations.values():
        simulations[_ASKED] = first
    return simulations


def answers_of(
    first: Simulation, overlays: Sequence[Overlay] = (), *, on_recording: bool = False
) -> Callable[[str], tuple[HTTPStatus, str, str] | None]:
    """The function by which a server answers for the page: path and query in; status, text and media type out."""
    page = page_of(first, None, overlays, on_recording=on_recording)

    def answer(question: str) -> tuple[HTTPStatus, str, str] | None:
        path, _, query = question.partition("?")
        if path == "":
            return HTTPStatus.OK, page, "text/html"
        return (HTTPStatus.OK, Page.json(_answer(query)), "application/json") if path == "ranking.json" else None

    return answer


def _answer(query: str) -> dict[str, Any]:
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
        return ranking(_simulation(fields), fields.get("config", ""), _SERVED_ROWS)
    except TritonKernelError as error:
        return {"problem": f"{error.message[:1].upper()}{error.message[1:]}."}
    except ValueError as error:  # too many fields
        return {"problem": f"The question cannot be read: {error}."}


def _simulation(fields: Mapping[str, str]) -> Simulation:
    workload = _textbook(fields.get("workload", ""))
    source = fields.get("source", "lesson")
    configs: Sequence[Config] = LESSON
    if source != "lesson":
        configs = workload.whole() if source == "space" else workload.parsed(fields.get("own", ""))
    texts = fields.get("extents", "").split(",")
    for name, text in zip(workload.operation.extents, texts, strict=False):
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST):
            raise SettingsError(f"{name} is {text[:20]!r}; it must be a whole number from 1 to {LARGEST:,}")
    return simulate(
        workload, device_spec(fields.get("device", "")), shape=list(map(int, texts)), dtype=fields.get("dtype"),
        configs=configs,
    )  # fmt: skip


def page_of(
    first: Simulation, grid: Grid | None, overlays: Sequence[Overlay] = (), *, on_recording: bool = False
) -> str:
    """The page, at most 2 MB and 0.2 MB for each recording. It opens on the first recording, or on the workload.

    With the rankings of `grid_of` it needs no network; without a grid it asks its server.
    """
    data = {**_data(first, overlays, grid), "on_recording": on_recording}
    return Page("Config ranking simulator", "triton_ops_lab", _SCRIPTS, data, asks=grid is None).html


def _data(first: Simulation, overlays: Sequence[Overlay], grid: Grid | None) -> dict[str, Any]:
    is_textbook = bool(first.workload.least)
    devices = {**(known_devices() if is_textbook else {}), table_name(first.spec): first.spec}
    own = first.workload.operation.name
    workloads = WORKLOADS if is_textbook else {own: first.workload}
    sizes = {name: _simulations(workload, first) for name, workload in workloads.items()}
    machines = [machine for spec in devices.values() if (machine := Machine.of(spec)) is not None]
    return {
        "workloads": [
            {
                "name": name, "title": workload.title, "extents": workload.operation.extents,
                "shape": sizes[name]["medium"].shape if is_textbook else first.shape,
                "sizes": {size: one.shape for size, one in sizes[name].items()},
            }
            for name, workload in workloads.items()
        ],
        "devices": list(devices), "silent_devices": [name for name in DeviceSpec.names() if name not in devices],
        "dtypes": list(dict.fromkeys(name for machine in machines for name in machine.mma_flops_per_cycle)),
        "lesson": len(LESSON) if is_textbook else 0,
        "first": {
            "workload": own, "shape": first.shape, "dtype": first.dtype,
            "device": table_name(first.spec),
            "size": next(size for size, one in sizes[own].items() if one == first or size == _ASKED),
            "own": "" if first.configs == LESSON else "\n".join(map(str, first.configs)),
        },
        "recordings": [recorded_ranking(one) for one in overlays],
        "grid": grid,
    }  # fmt: skip


_HEADER = ("rank", "expected", "score", "waves", "occupancy", "shared", "limited by", "config")
_SHOWN = 20


def _add_simulation(facts: Facts, result: Simulation, top: int, why: int) -> None:
    """Add the ranking, the advice, and the reasons of one rank; then each tunable of the winner varied alone."""
    standings = result.standings
    title = f"{result.workload.title}: {result.problem} on {table_name(result.spec)}"
    facts.heading(result.workload.title).text(title)
    more = f"{len(standings) - top} more, shown with --top" if len(standings) > top else ""
    facts.text(result.note).lines("")
    facts.table(_HEADER, [one.cells for one in standings[:top]], _HEADER[:6], note=more)
    standing = standings[min(why, len(standings)) - 1]
    facts.lines("").text(result.advice).lines("").text(f"Why {standing.config}:")
    facts.listing({f"  {name}": text for name, text in standing.reasons.items()})
    if dials := result.dials_of(standings[0]):
        rows = []
        for dial in sorted(dials, key=lambda dial: -dial.range):
            turns = [
                f"{turn.value}{'*' if turn.own else ''}: {'-' if turn.why_not else format(turn.expected_ms, '.4g')}"
                for turn in dial.turns
            ]
            rows.append([f"  {dial.name}", f"{dial.range:.2f} x", ", ".join(turns)])
        facts.lines("", "The winner with one knob turned, in milliseconds:")
        facts.table(("  knob", "range", "expected at each value"), rows)
        if lines := pipeline_lines(standings[0].image.timelines, standings[0].image.stages, "the winner", "  "):
            facts.lines("", f"One block's loop by stages, a line for each buffer: {LEGEND}", *lines)


def _add_sizes(facts: Facts, result: Simulation, extent: str, points: Sequence[SizePoint]) -> None:
    """Add the winner at each size of an extent, and how much slower each other config is there."""
    configs = list(map(str, result.compared))
    header = [extent, "best", *(f"({at})" for at in range(1, len(configs) + 1)), "winner"]
    at = result.workload.operation.axis(extent)
    rows = [
        [
            str(point.extents[at]),
            f"{point.best_ms:.4g} ms" if point.best_ms else "-",
            *(f"{slower:.2f}" if slower else "-" for slower in point.slower),
            configs[point.winner] if point.winner >= 0 else "-",
        ]
        for point in points
    ]
    facts.lines("", f"Time over the best, as {extent} grows; the configs by number are:")
    facts.lines(*(f"  ({number}) {text}" for number, text in enumerate(configs, 1)))
    facts.table(header, rows, header[:-1])


def _add_overlay(facts: Facts, overlay: Overlay, top: int) -> None:
    """Add a recording beside the prediction: the correlation, and the first configs with both times and ranks."""
    by_time = sorted(overlay.measured.values())
    header = ("rank", "measured", "expected", "took", "limited by", "config")
    rows = []
    for one in overlay.standings[:top]:
        ms = overlay.measured[one.config]
        expected = "-" if one.why_not else f"{one.expected_ms:.4g} ms"
        places = [str(one.place) if one.place else "-", str(by_time.index(ms) + 1)]
        rows.append([*places, expected, f"{ms:.4g} ms", one.limited_by, str(one.config)])
    facts.heading(overlay.title)
    facts.text(f"{overlay.title} on {table_name(overlay.spec)}, recorded in {overlay.file}").lines("")
    facts.table(header, rows, header[:4]).lines("").text(overlay.agreement)


def _check_outputs(html: Path | None, *, serve: bool, port: int | None, as_json: bool, is_target: bool) -> None:
    typed = [name for name, has in (("--serve", serve), ("--html", html is not None), ("--json", as_json)) if has]
    if len(typed) > 1:
        raise SettingsError(f"{' and '.join(typed)} exclude each other", hint="give one of them")
    if html is not None and not html.expanduser().absolute().parent.is_dir():  # a page takes seconds to make
        raise SettingsError(f"{html} cannot be written: its folder is not there", hint="choose another --html")
    if port is not None and not serve:
        raise SettingsError("--port is for --serve", hint="give both, or leave it out")
    if serve and is_target:
        raise SettingsError(f"--serve is for {', '.join(WORKLOADS)}", hint="write the page of a TARGET with --html")


def simulate_command(
    text: Annotated[
        str,
        option(
            "TARGET",
            f"{', '.join(WORKLOADS)}, all of them by default; or any TARGET, as of explain rank.",
            show_default=False,
        ),
    ] = "",
    *,
    target: Annotated[TypedTarget, "shape dtype arg"],
    gpu: Annotated[str, option("--gpu", "A device of the table.", "NAME")] = "NVIDIA H200",
    configs: Annotated[
        list[str] | None, option("--config", "A config; repeat it. Default: five textbook configs.", "NAME=V,NAME=V")
    ] = None,
    space: list[str] | None = None,
    whole: Annotated[bool, option("--whole", "Rank a workload's whole space; a TARGET's always is.")] = False,
    top: Annotated[int, option("--top", "Configs to show.", "N", min=1)] = _SHOWN,
    why: Annotated[int, option("--why", "The config to explain.", "RANK", min=1)] = 1,
    over: Annotated[str | None, option("--over", "Compare the configs at sizes of this extent too.", "EXTENT")] = None,
    recording: Annotated[
        list[Path] | None, option("--recording", "A recorded space to lay over the prediction; repeat it.", "FILE")
    ] = None,
    undeclared: Annotated[
        bool, option("--undeclared", "Use what was read of a recorded kernel, even where work is declared.")
    ] = False,
    jitter: Annotated[
        float, option("--jitter", "Random factor on each time, to see which ranks stay.", "SHARE", min=0, max=1)
    ] = 0.0,
    seed: Annotated[int, option("--seed", "The seed of --jitter.", "N")] = 0,
    html: Annotated[Path | None, option("--html", "Write a page with rankings at named sizes instead.", "FILE")] = None,
    serve: Annotated[
        bool, option("--serve", "Serve a page that ranks what it is asked, to this machine's browsers.")
    ] = False,
    port: Annotated[int | None, option("--port", "With --serve; default a free port.", "N")] = None,
    cache_dir: str | None = None,
    as_json: bool = False,
) -> Facts:
    """Rank configs by the time that the model expects of them, and explain each rank; nothing is run.

    The four workloads have datasheet figures, so that the same question has the same answer everywhere. Any other
    TARGET has the times of `explain rank`. With --recording both times of each config are shown, and Spearman's
    correlation of the two orders.
    """
    values = [parse_config([config], "--config") or {} for config in configs or []]
    typed = target.problem
    is_target = text not in WORKLOADS and (":" in text or text in Operation.shipped_names())
    if not is_target and (typed.arguments or len(typed.shapes) > 1):
        raise SettingsError("a workload takes one shape and no --arg", hint="such as --shape 4096x4096x4096")
    _check_outputs(html, serve=serve, port=port, as_json=as_json, is_target=is_target)
    if sum((bool(values), bool(space), whole)) > 1:
        raise SettingsError("--config, --space and --whole exclude each other", hint="give one of them")
    spec = device_spec(gpu).calibrated(cache_dir) if is_target else device_spec(gpu)
    overlays = [Overlay.of(path, undeclared=undeclared) for path in recording or []]
    if is_target:
        simulations = [_of_target(target, values, spec, over=over, jitter=jitter, seed=seed)]
    else:
        has_options = bool(typed.shapes or values or typed.space or whole or over)
        names = _names(text, overlays, page=serve or html is not None, has_options=has_options)
        simulations = [
            simulate(
                WORKLOADS[name], spec, shape=typed.shape, dtype=typed.dtype, jitter=jitter, seed=seed,
                configs=values or (WORKLOADS[name].whole(typed.space) if whole or typed.space else None),
            )
            for name in names
        ]  # fmt: skip
    if serve:
        PageServer.serve(answers_of(simulations[0], overlays, on_recording=bool(overlays)), port or 0, tell)
        return Facts("simulate")
    if html is not None:
        page = page_of(simulations[0], grid_of(simulations[0]), overlays, on_recording=bool(overlays))
        Facts.save(html, page, "choose another --html")
        return Facts("simulate").tell(f"{html} is the page; open it in a browser")
    points = [one.over(over) if over is not None else [] for one in simulations]
    facts = Facts("simulate", lambda: {
        "simulations": [
            one.as_json() | ({"over": {"extent": over, "shapes": sizes}} if sizes else {})
            for one, sizes in zip(simulations, points, strict=True)
        ],
        "recordings": [one.as_json() for one in overlays],
    })  # fmt: skip
    for one, sizes in zip(simulations, points, strict=True):
        _add_simulation(facts, one, top, why)
        if over and sizes:
            _add_sizes(facts, one, over, sizes)
    for overlay in overlays:
        _add_overlay(facts, overlay, top)
    return facts


def _of_target(
    target: TypedTarget, typed: Sequence[Mapping[str, Any]], spec: DeviceSpec, over: str | None, **jitter: Any
) -> Simulation:
    """The configs of a TARGET's space, or those that were typed, each with the default's values for the rest."""
    operation, space, shape, dtype = target.tuned(target.operation("; its space and its problem are not known"))
    own = operation.space_for(operation.problem(shape, dtype))
    if typed:  # whose values may be any, as those of --space
        values = {name: list(own.tunables.get(name, ())) for config in typed for name in config}
        for name, value in (item for config in typed for item in own.with_names(config).items()):
            values[name] += [] if value in values[name] else [value]
        space = own.with_values(values)
    workload = Workload(title=operation.name, operation=operation, space=space)
    if over is not None:
        operation.axis(over)  # before any work
    (space or own).check_filled(target.problem.space)
    configs = [Config({**own.default_config, **own.with_names(one)}) for one in typed]
    considered = configs or Survey.considered(space or own)
    return simulate(workload, spec, shape=shape, dtype=dtype, configs=considered, **jitter)


def _names(workload: str, overlays: Sequence[Overlay], *, page: bool, has_options: bool) -> list[str]:
    """The workloads that are asked for: all without a name, none if recordings alone are."""
    if workload:
        return [_textbook(workload).operation.name]
    if has_options:
        raise SettingsError("options of a workload are given, but none is named", hint=f"name {', '.join(WORKLOADS)}")
    return [next(iter(WORKLOADS))] if page else [] if overlays else list(WORKLOADS)


def _textbook(name: str) -> Workload:
    if name in WORKLOADS:
        return WORKLOADS[name]
    message = f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}"
    raise TargetError(message, hint=f"name one, or a TARGET: {TargetError.FORMS}")
