"""Launches without products of tiles: what a block reads, writes and calculates on its walk over memory."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.ranking.inferred_traffic import different, main_loops, own_bytes
from triton_ops.ranking.row_walk import Again, Walk, Work
from triton_ops.ttir.launch_work import Access, LaunchWork

_SECTOR_BYTES = 32  # the least that L2 moves
_SCATTERED = 2.0  # bytes that L2 moves for each that is asked for, from which on lines limit the load unit
_SPECIAL_INSTRUCTIONS = 5.5  # of an exponential or a division; counted in the machine code of a softmax for sm_90
_MOVED_INSTRUCTIONS = 0.6  # of an element that is loaded or stored; counted in that of a norm and of a softmax


def passes_of(launch: LaunchWork) -> int:
    """How often a program reads most of what it reads."""
    loads = [access for access in launch.accesses if access.kind == "load"]
    most = max((own_bytes(access) for access in loads), default=0.0)
    return 1 + max((_repeats(launch, access) for access in loads if own_bytes(access) > most / 2), default=0)


def walk_of(launch: LaunchWork) -> Walk:
    """The walk of one block, with one warp and no pipeline of its own."""
    loads = [access for access in launch.accesses if access.kind == "load" and access.elements]
    stores = [access for access in launch.accesses if access.kind != "load" and access.elements]
    first = [access for access in loads if access.again < 0]
    own = sum(own_bytes(access) * _fresh(access, launch) for access in first)
    everything = (*loads, *stores)
    moved = sum(access.bytes * access.distinct for access in everything)
    through = sum(map(_sector_bytes, everything))
    depth = [launch.loops[at].stages for at in main_loops(launch)]
    return Walk(
        blocks=launch.programs,
        warps=1,
        stages=next((stages for stages in depth if stages is not None), 0),
        work=_work(launch, everything),
        batches=_waits(launch, first),
        near=_waits(launch, loads) - _waits(launch, first),
        turns=sum(launch.loops[at].turns for at in {access.loop for access in everything} - {-1}) or 1.0,
        own_bytes=own,
        again=_again(launch, loads),
        written_bytes=sum(own_bytes(access) * _touches(access) for access in stores if access.again < 0),
        through_bytes=sum(_sector_bytes(a) / a.repeats for a in first)
        + sum(_sector_bytes(a) * _touches(a) for a in stores),
        streamed_bytes=sum(access.bytes * access.distinct for access in loads),
        reductions=launch.reductions,
        lines=sum(a.lines * a.executions for a in everything) if through > _SCATTERED * moved else 0.0,
    )


def _touches(access: Access) -> int:
    """An atomic operation reads and writes."""
    return 2 if access.kind == "atomic" else 1


def _sector_bytes(access: Access) -> float:
    """Bytes that L2 moves for an access."""
    return max(access.bytes * access.distinct, access.sectors * _SECTOR_BYTES * access.executions)


def _work(launch: LaunchWork, accesses: Sequence[Access]) -> tuple[Work, ...]:
    """Accesses with their tiles, and the arithmetic of each loop with the largest tile of the loop."""
    found = [Work(_MOVED_INSTRUCTIONS * a.executions, float(a.tile)) for a in accesses]
    widest = max((access.tile for access in accesses), default=1)
    counts = {-1: (launch.plain, launch.special)}
    counts |= {at: (loop.plain, loop.special) for at, loop in enumerate(launch.loops)}
    for at, (plain, special) in counts.items():
        tile = max((access.tile for access in accesses if access.loop == at), default=widest)
        found.append(Work((plain + _SPECIAL_INSTRUCTIONS * special) / tile, float(tile)))
    return tuple(part for part in found if part.instructions > 0)


def _waits(launch: LaunchWork, loads: Sequence[Access]) -> float:
    """How often a block waits for loads, those of one turn of a loop together."""
    return sum(launch.loops[at].turns if at >= 0 else 1.0 for at in {access.loop for access in loads})


def _again(launch: LaunchWork, loads: Sequence[Access]) -> tuple[Again, ...]:
    """What is read once more: by a later load, or by the same one in a later turn of a loop."""
    found = [Again(access.bytes * access.distinct, _meanwhile(launch, access)) for access in loads if access.again >= 0]
    found += [
        Again(access.bytes * access.distinct - own_bytes(access), _meanwhile(launch, access))
        for access in loads
        if access.again < 0 and access.repeats > 1
    ]
    return tuple(found)


def _meanwhile(launch: LaunchWork, access: Access) -> float:
    """Different bytes that a block reads until it reads these again: in a turn of the loop around both, or in all."""
    around = _around(launch, access.loop)
    if access.again >= 0:
        earlier = _around(launch, launch.accesses[access.again].loop)
        loop = next((at for at in around if at in earlier), -1)
    else:
        loop = around[-1] if around else -1
    turns = max(launch.loops[loop].turns, 1.0) if loop >= 0 else 1.0
    return sum(
        other.bytes * other.distinct / (turns if loop in _around(launch, other.loop) else max(other.repeats, 1.0))
        for other in launch.accesses
        if other.kind == "load" and other.again < 0 and (loop < 0 or loop in _around(launch, other.loop))
    )


def _around(launch: LaunchWork, loop: int) -> list[int]:
    """The loops around, the innermost first."""
    found: list[int] = []
    while loop >= 0:
        found.append(loop)
        loop = launch.loops[loop].parent
    return found


def _fresh(access: Access, launch: LaunchWork) -> float:
    """The share of an access's places that only one program goes to."""
    return min(1.0, different(access, launch, launch.programs) / launch.programs / min(access.executions, 1.0))


def _repeats(launch: LaunchWork, access: Access) -> int:
    """How many earlier accesses go to the same places."""
    count = 0
    while access.again >= 0:
        access, count = launch.accesses[access.again], count + 1
    return count
