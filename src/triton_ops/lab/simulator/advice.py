"""A ranking in words: the reasons of each place, and one sentence of advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from triton_ops.cost_model import MOST_REGISTERS
from triton_ops.device import Machine
from triton_ops.lab.simulator.places import Standing, percent

_HELP = {
    "matrix units": "the matrix units are busy, as they should be",
    "shared memory": "larger tiles would read each operand from shared memory less often",
    "load unit": "wider steps would touch fewer lines at a time",
    "L2": "larger tiles would bring less through L2",
    "DRAM": "memory is busy, as it should be for such work",
    "load latency": "another stage would hide more of the wait for loads",
    "arithmetic": "the arithmetic between the products sets the pace",
    "spills": "a smaller tile or more warps would end the spilling",
    "chain": "products wait for each other, so that another block on the multiprocessor would fill the gaps",
    "loop": "a longer step would turn the loop less often",
    "turnover": "more work per block would make starts and ends of blocks rarer",
    "launch": "the launch itself takes longest, so that no config can gain much",
    "issue": "the instructions themselves set the pace",
    "waits": "fewer rows per program, or longer chunks, would wait less often",
    "one block's loads": "more blocks at a time would share the wait for loads",
    "dependent arithmetic": "more warps would hide the latency of arithmetic",
    "reductions": "fewer warps per row would have shorter reductions",
    "spill waits": "a smaller chunk or more warps would end the spilling",
    "block launch": "fewer and larger blocks would be begun sooner",
    "exchange": "fewer warps would have less to exchange at a reduction",
    "stragglers": "more and smaller blocks would even out the end",
    "second launch": "parts that are added up by a second launch cost more than they gain",
}
_SHOWN = 6  # terms in the reasons of one config


def advice(standings: Sequence[Standing], rule: str) -> str:
    """One sentence: what wins such work as a rule, which config is expected to win here, and what limits it.

    Args:
        standings: The ranking.
        rule: What wins such work, as the beginning of a sentence; empty if nothing is known of it.
    """
    able = [one for one in standings if one.place > 0]
    if not able:
        which = "The config cannot" if len(standings) == 1 else f"None of the {len(standings)} configs can"
        return f"{which} run here: {standings[0].why_not}." if standings else ""
    first = able[0]
    lead = f"{rule[:1].upper()}{rule[1:]}; here " if rule else "Here "
    remedy = _HELP.get(first.limited_by, "")
    return f"{lead}{first.text} is expected to win, limited by {first.limited_by}{f': {remedy}' if remedy else ''}."


def reasons(one: Standing, machine: Machine) -> list[tuple[str, str]]:
    """The explanation of a config's place: names and sentences, the most important first."""
    forecast = one.forecast
    if forecast is None:
        return [("cannot run", one.why_not)]
    facts = [("cannot run", one.why_not)] if one.why_not else _times(one)
    kib, limit = forecast.shared_bytes / 1024, machine.shared_bytes_per_block / 1024
    facts.append(("shared memory", f"{kib:.1f} of {limit:.1f} KiB per block, {percent(one.of_shared)}"))
    spilled = f"{forecast.spill_bytes:.0f} bytes per thread are" if forecast.spill_bytes > 0 else "nothing is"
    source = "by the compiler" if forecast.compiled else "a guess"
    facts.append(("registers", f"{forecast.registers} of {MOST_REGISTERS} per thread, {spilled} spilled; {source}"))
    if one.why_not:
        return facts
    facts += _residents(one, machine)
    facts.append(("pipeline", _pipeline(one)))
    return facts


def _times(one: Standing) -> list[tuple[str, str]]:
    assert one.forecast is not None
    forecast = one.forecast
    parts = [f"{term.name} {term.alone_ms:.3g} ms" for term in forecast.terms[:_SHOWN]]
    share = 100 * forecast.lower_bound_ms / forecast.expected_ms
    return [
        ("expected", f"{forecast.expected_ms:.4g} ms, {one.score:.1f} % of the winner's speed"),
        ("lower bound", f"{forecast.lower_bound_ms:.4g} ms, {share:.0f} % of the expected time"),
        ("alone", ", ".join(parts)),
    ]


def _residents(one: Standing, machine: Machine) -> list[tuple[str, str]]:
    forecast = one.forecast
    assert forecast is not None
    blocks = "1 block" if forecast.blocks_per_unit == 1 else f"{forecast.blocks_per_unit} blocks"
    facts = [("waves", f"{forecast.waves:.2f} of {blocks} on each of {machine.units} multiprocessors; {_tail(one)}")]
    if one.residents is not None:
        warps = f"{one.residents.warps} of {one.residents.most_warps} warps, {percent(one.occupancy)}"
        facts.append(("occupancy", f"{warps}; limited by {' and '.join(one.residents.limited_by)}"))
    return facts


def _tail(one: Standing) -> str:
    if one.idle < 0.005:
        return "every wave is full"
    if one.forecast is not None and one.forecast.waves < 1:
        return f"{percent(one.idle)} of the places stay empty, since there are too few blocks"
    return f"{percent(one.idle)} of the places stay empty, since the last wave is not full"


def _pipeline(one: Standing) -> str:
    if one.forecast is not None and "waits" in [term.name for term in one.forecast.terms]:
        return "plain loads are not pipelined" + ("" if one.stages == 1 else "; stages gain nothing")
    if one.stages == 1:
        return "one stage: every step waits for its loads"
    ahead = "1 step" if one.stages == 2 else f"{one.stages - 1} steps"
    return f"loads run {ahead} ahead of the products"


def standing_json(one: Standing, machine: Machine) -> dict[str, Any]:
    """One config in a ranking as plain values."""
    forecast = one.forecast
    figures = {} if forecast is None else {**asdict(forecast), "terms": {t.name: t.alone_ms for t in forecast.terms}}
    expected_ms = figures.pop("expected_ms", None)
    return {
        "place": one.place or None,
        "config": dict(one.config),
        "expected_ms": expected_ms if expected_ms is not None and math.isfinite(expected_ms) else None,
        "score": one.score,
        "why_not": one.why_not or None,
        "limited_by": one.limited_by,
        "occupancy": one.occupancy,
        "idle": one.idle,
        "of_shared": one.of_shared,
        **figures,
        "reasons": dict(reasons(one, machine)),
    }
