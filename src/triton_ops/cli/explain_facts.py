"""The rows and the JSON of `triton-ops explain`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from triton_ops.analysis.habits import WarpChoice
from triton_ops.analysis.pipeline import LEGEND, drawn
from triton_ops.expectation.explanation import Explained
from triton_ops.expectation.portrait import Portrait
from triton_ops.hardware import DeviceSpec
from triton_ops.hardware.roofline import Ceiling
from triton_ops.hardware.roofline_words import reached, roof_rows
from triton_ops.ranking.in_words import work_in_words
from triton_ops.ranking.predict import Forecast
from triton_ops.trial import Status

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
