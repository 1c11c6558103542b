"""A ranking in words: the reasons of each place, and one sentence of advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_ops.cost_model import MOST_REGISTERS
from triton_ops.device import Machine
from triton_ops.lab.simulator.places import Standing

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


def percent(share: float) -> str:
    """A share in whole percents."""
    return f"{100 * share:.0f} %"


def config_text(config: Mapping[str, Any]) -> str:
    """A config as it is typed."""
    return " ".join([f"{name}={value}" for name, value in config.items()])


def place_cells(one: Standing) -> list[str]:
    """A line of a ranking: place, expected time, score, waves, occupancy, shared memory, what limits it, config."""
    if one.forecast is None or one.why_not:
        shared = percent(one.of_shared) if one.of_shared else "-"
        return ["-", "-", "-", "-", "-", shared, one.why_not, config_text(one.config)]
    return [
        f"{one.place} *" if one.place == 1 else f"{one.place}  ", f"{one.forecast.expected_ms:.4g} ms",
        f"{one.score:.1f}", f"{one.forecast.waves:.2f}", percent(one.occupancy), percent(one.of_shared),
        one.limited_by, config_text(one.config),
    ]  # fmt: skip


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
    said = f"{config_text(first.config)} is expected to win, limited by {first.limited_by}"
    remedy = _HELP.get(first.limited_by, "")
    return f"{lead}{said}: {remedy}." if remedy else f"{lead}{said}."


def reasons(one: Standing, machine: Machine) -> list[tuple[str, str]]:
    """What explains the place of a config: names and sentences, the most important first."""
    found = one.forecast
    if found is None:
        return [("cannot run", one.why_not)]
    said = [("cannot run", one.why_not)] if one.why_not else _times(one)
    kib, limit = found.shared_bytes / 1024, machine.shared_bytes_per_block / 1024
    said.append(("shared memory", f"{kib:.1f} of {limit:.1f} KiB per block, {percent(one.of_shared)}"))
    spilled = f"{found.spill_bytes:.0f} bytes per thread are spilled" if found.spill_bytes > 0 else "nothing is spilled"
    source = "by the compiler" if found.compiled else "a guess"
    said.append(("registers", f"{found.registers} of {MOST_REGISTERS} per thread, {spilled}; {source}"))
    if one.why_not:
        return said
    said += _residents(one, machine)
    said.append(("pipeline", _pipeline(one)))
    return said


def _times(one: Standing) -> list[tuple[str, str]]:
    found = one.forecast
    assert found is not None
    parts = [f"{term.name} {term.alone_ms:.3g} ms" for term in found.terms[:_SHOWN]]
    share = 100 * found.lower_bound_ms / found.expected_ms
    return [
        ("expected", f"{found.expected_ms:.4g} ms, {one.score:.1f} % of the winner's speed"),
        ("lower bound", f"{found.lower_bound_ms:.4g} ms, {share:.0f} % of the expected time"),
        ("alone", ", ".join(parts)),
    ]


def _residents(one: Standing, machine: Machine) -> list[tuple[str, str]]:
    found = one.forecast
    assert found is not None
    blocks = "1 block" if found.blocks_per_unit == 1 else f"{found.blocks_per_unit} blocks"
    said = [("waves", f"{found.waves:.2f} of {blocks} on each of {machine.units} multiprocessors; {_tail(one)}")]
    if one.residents is not None:
        held, limits = one.residents, " and ".join(one.residents.limited_by)
        share = f"{held.warps} of {held.most_warps} warps, {percent(held.occupancy)}"
        said.append(("occupancy", f"{share}; limited by {limits}"))
    return said


def _tail(one: Standing) -> str:
    if one.idle < 0.005:
        return "every wave is full"
    if one.forecast is not None and one.forecast.waves < 1:
        return f"{percent(one.idle)} of the places stay empty, since there are too few blocks"
    return f"{percent(one.idle)} of the places stay empty, since the last wave is not full"


def _pipeline(one: Standing) -> str:
    if one.forecast is not None and "waits" in [term.name for term in one.forecast.terms]:
        return (
            "plain loads are not pipelined" if one.stages == 1 else "plain loads are not pipelined; stages gain nothing"
        )
    if one.stages == 1:
        return "one stage: every step waits for its loads"
    ahead = "1 step" if one.stages == 2 else f"{one.stages - 1} steps"
    return f"loads run {ahead} ahead of the products"
