"""Simulations as lines of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.analysis.pipeline import LEGEND, drawn
from triton_ops.cli.layout import listing, paragraph, table
from triton_ops.simulator.advice import config_text, percent, reasons
from triton_ops.simulator.knobs import Dial, timelines
from triton_ops.simulator.recorded import Overlay
from triton_ops.simulator.simulation import Simulation
from triton_ops.simulator.standing import Standing
from triton_ops.space import Config

_HEADER = ("place", "expected", "score", "waves", "occupancy", "shared", "limited by", "config")


def simulation_lines(found: Simulation, columns: int | None, top: int, why: int, over: str | None) -> list[str]:
    """The ranking, the advice, and the reasons of one place; then each knob of the winner turned alone."""
    shape = " ".join(f"{name}={extent}" for name, extent in zip(found.workload.extents, found.shape, strict=True))
    standings = found.standings
    lines = paragraph("", f"{found.workload.title}: {shape} {found.dtype} on {found.device}", columns)
    lines += paragraph("", f"{found.workload.sides}.", columns)
    lines += ["", *table(_HEADER, [_row(one) for one in standings[:top]], columns, _HEADER[:6])]
    lines += paragraph("", f"{len(standings) - top} more, shown with --top", columns) if len(standings) > top else []
    lines += ["", *paragraph("", found.advice, columns), ""]
    chosen = standings[min(why, len(standings)) - 1]
    lines += paragraph("", f"Why {config_text(chosen.config)}:", columns)
    lines += listing({f"  {name}": text for name, text in reasons(chosen, found.machine)}, columns)
    if dials := found.dials:
        lines += ["", "The winner with one knob turned, in milliseconds:", *_dial_lines(dials, columns)]
        lines += _pipeline_lines(standings[0])
    return lines + (_over_lines(found, over, columns) if over else [])


def _row(one: Standing) -> list[str]:
    if one.forecast is None or one.why_not:
        return [
            "-",
            "-",
            "-",
            "-",
            "-",
            percent(one.of_shared) if one.of_shared else "-",
            one.why_not,
            _config(one),
        ]
    return [
        f"{one.place} *" if one.place == 1 else f"{one.place}  ",
        f"{one.forecast.expected_ms:.4g} ms",
        f"{one.score:.1f}",
        f"{one.forecast.waves:.2f}",
        percent(one.occupancy),
        percent(one.of_shared),
        one.limited_by,
        _config(one),
    ]


def _config(one: Standing) -> str:
    return config_text(one.config)


def _dial_lines(dials: Sequence[Dial], columns: int | None) -> list[str]:
    rows = []
    for dial in sorted(dials, key=lambda dial: -dial.range):
        turns = [
            f"{turn.value}{'*' if turn.own else ''}: {'-' if turn.why_not else format(turn.expected_ms, '.4g')}"
            for turn in dial.turns
        ]
        rows.append([f"  {dial.name}", f"{dial.range:.2f} x", ", ".join(turns)])
    return table(["  knob", "range", "expected at each value"], rows, columns)


def _pipeline_lines(winner: Standing) -> list[str]:
    """The pipeline of the winner's loop by stages; nothing for a kernel without one."""
    lines = []
    for found in timelines(winner):
        here = "  <- the winner" if found.stages == winner.stages else ""
        lines.append(f"  num_stages={found.stages}: the units compute in {found.busy:.0%} of the time{here}")
        lines += [f"    {line}" for line in drawn(found)]
    return ["", f"One block's loop by stages, a line for each buffer: {LEGEND}", *lines] if lines else []


def _over_lines(found: Simulation, extent: str, columns: int | None) -> list[str]:
    """The winner at each size of an extent, and how much slower each other config is there."""
    points, configs = found.over(extent), [config_text(config) for config in found.compared]
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
        rows.append([place, str(by_time.index(took) + 1), expected, f"{took:.4g} ms", one.limited_by, _config(one)])
    source = "read from the kernel" if found.read else "declared"
    verdict = "is reached" if found.spearman >= found.floor else "is missed"
    said = (
        f"Spearman's correlation of expected and measured times is {found.spearman:.3f} over {len(found.configs)} "
        f"configs; {found.floor} is asked of {found.kind}, and {verdict}. The config that is expected to win has "
        f"{100 * found.first_share:.1f} % of the best measured speed. The work was {source}."
    )
    head = paragraph("", f"{found.title} on {found.device}, recorded in {found.file}", columns)
    return [*head, "", *table(header, rows, columns, header[:4]), "", *paragraph("", said, columns)]
