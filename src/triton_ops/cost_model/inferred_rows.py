"""Launches without products of tiles: what a block reads, writes and calculates on its walk over memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, prod

from triton_ops.cost_model.row_tiles import Again, MemoryWalk, TileReduction, TileWork, Turning
from triton_ops.device import Machine
from triton_ops.kernel_ir import Access, LaunchWork

_MOST_UNKNOWN = 1 / 3  # share of the bytes at unknown addresses from which on nothing is told


def main_loops(launch: LaunchWork) -> set[int]:
    """The loops with products in them; without products that of the most bytes; -1 stands for outside of loops."""
    if launch.products:
        return {product.loop for product in launch.products} - {-1}
    by_loop: dict[int, float] = {}
    for access in launch.accesses:
        by_loop[access.loop] = by_loop.get(access.loop, 0.0) + access.bytes
    return {max(by_loop, key=lambda at: by_loop[at])} - {-1} if by_loop else set()


def why_silent(launch: LaunchWork) -> str:
    """The reason why a launch has no forecast; empty if it has one."""
    total = sum(access.bytes for access in launch.accesses)
    unknown = sum(access.bytes for access in launch.accesses if not access.known)
    if not total and not launch.flops:
        return "none of its loads, stores and products could be read"
    if unknown > _MOST_UNKNOWN * total:
        return f"{unknown / total:.0%} of its bytes are at unknown addresses; a forecast allows {_MOST_UNKNOWN:.0%}"
    main = main_loops(launch)
    if any(launch.loops[at].by_data and launch.loops[at].turns == launch.loops[at].entries for at in main):
        return "the end of its main loop depends on data"
    return ""


def dram_bytes(launch: LaunchWork, loads: Sequence[Access], machine: Machine, at_once: int) -> float:
    """Bytes that DRAM delivers for one program, in a wave of `at_once` programs.

    What programs of a wave share is read once. What an earlier wave has read is found in L2 as far as L2 holds all that
    is read; only half of L2 counts where each of the chip's two halves keeps its own copy of a line.
    """
    resident = min(at_once, launch.programs)
    waves = launch.programs / resident
    wave, two = (
        sum(different(access, launch, programs) * own_bytes(access) for access in loads)
        for programs in (resident, min(2 * resident, launch.programs))
    )
    bounded = _once(launch, loads)  # what DRAM delivers if L2 keeps everything
    again = max(0.0, wave * waves - bounded)
    # two neighbouring waves read `2 * wave - two` bytes both, which L2 has to keep for one wave only
    next_wave = min(again, max(0.0, 2 * wave - two) * (waves - 1))
    missed = next_wave * _past_l2(two, machine) + (again - next_wave) * _past_l2(bounded, machine)
    return (bounded + missed) / launch.programs


def _past_l2(bytes_: float, machine: Machine) -> float:
    """The share of bytes that L2 no longer holds when so many different ones have been read meanwhile."""
    return 1 - min(1.0, machine.l2_kept_bytes / max(bytes_, 1.0))


def least_bytes(launch: LaunchWork) -> float:
    """Different bytes that all programs of a launch load, and those that they store."""
    loads = [access for access in launch.accesses if access.kind != "store"]
    return _once(launch, loads) + _once(launch, [access for access in launch.accesses if access.kind != "load"])


def _once(launch: LaunchWork, accesses: Sequence[Access]) -> float:
    """The bytes of some accesses, each place of each argument once."""
    by_argument: dict[int, float] = {}
    for access in accesses:
        if access.again < 0:
            whole = different(access, launch, launch.programs) * own_bytes(access)
            by_argument[access.argument] = by_argument.get(access.argument, 0.0) + whole
    # an argument whose size is not known has 0 bytes, and bounds nothing
    return sum(
        min(whole, (launch.arguments[argument].bytes if 0 <= argument < len(launch.arguments) else 0) or whole)
        for argument, whole in by_argument.items()
    )


def own_bytes(access: Access) -> float:
    """Different bytes that one program moves by an access."""
    return access.bytes * access.distinct / access.repeats


def different(access: Access, launch: LaunchWork, programs: int) -> float:
    """Different places to which so many programs go that follow each other."""
    sizes = [*(1 << power for power in range(len(access.shared) - 1)), launch.looked_at]
    if programs >= sizes[-1]:  # further programs go to new places as often as the last half of them did
        growth = log(max(access.shared[-1], 1e-6) / max(access.shared[-2], 1e-6)) if len(sizes) > 1 else 0.0
        doublings = log(programs / sizes[-1]) / log(sizes[-1] / sizes[-2]) if len(sizes) > 1 else 0.0
        return float(access.shared[-1] * exp(max(growth, 0.0) * doublings))
    after = next(at for at, size in enumerate(sizes) if size >= programs)
    if sizes[after] == programs:
        return access.shared[after]
    low, high = max(access.shared[after - 1], 1e-6), max(access.shared[after], 1e-6)
    share = log(programs / sizes[after - 1]) / log(sizes[after] / sizes[after - 1])
    return float(low * (high / low) ** share)


_COPY_BYTES = 16  # the most that a lane loads at once
_RUN = 4.0  # neighbours that a lane holds of what was not loaded: 16 bytes of float32
_SECTOR_BYTES = 32  # the least that L2 moves
_SCATTERED = 2.0  # bytes that L2 moves for each that is asked for, from which on lines limit the load unit
_SPECIAL_INSTRUCTIONS = 5.5  # of an exponential or a division; counted in the machine code of a softmax for sm_90
_MOVED_INSTRUCTIONS = 0.6  # of an element that is loaded or stored; counted in that of a norm and of a softmax


def passes_of(launch: LaunchWork) -> int:
    """The number of times that a program reads most of its data."""
    loads = [access for access in launch.accesses if access.kind == "load"]
    most = max((own_bytes(access) for access in loads), default=0.0)
    return 1 + max((_repeats(launch, access) for access in loads if own_bytes(access) > most / 2), default=0)


def walk_of(launch: LaunchWork) -> MemoryWalk:
    """The walk of one block, with one warp and no pipeline of its own."""
    loads = [access for access in launch.accesses if access.kind == "load" and access.elements]
    stores = [access for access in launch.accesses if access.kind != "load" and access.elements]
    first = [access for access in loads if access.again < 0]
    own = sum(own_bytes(access) * _fresh(access, launch) for access in first)
    everything = (*loads, *stores)
    useful_bytes = sum(access.bytes * access.distinct for access in everything)
    through = sum(map(_sector_bytes, everything))
    depth = [launch.loops[at].stages for at in main_loops(launch)]
    reduced = _reduced(launch)
    return MemoryWalk(
        blocks=launch.programs,
        warps=1,
        stages=next((stages for stages in depth if stages is not None), 0),
        work=_work(launch, everything),
        batches=float(any(access.loop < 0 for access in first)),
        near=_waits(launch, loads) - _waits(launch, first),
        turns=sum(launch.loops[at].turns for at in {access.loop for access in everything} - {-1}) or 1.0,
        own_bytes=own,
        again=_again(launch, loads),
        common=_common(launch, first),
        written_bytes=sum(own_bytes(access) * _touches(access) for access in stores if access.again < 0),
        through_bytes=sum(_sector_bytes(a) / a.repeats * _fresh(a, launch) for a in first)
        + sum(_sector_bytes(a) / a.repeats * a.anew for a in loads)
        + sum(_sector_bytes(a) * _touches(a) for a in stores),
        streamed_bytes=sum(access.bytes * access.distinct for access in loads),
        reductions=launch.reductions,
        reduced=reduced,
        loops=(loops := _turning(launch, first, reduced)),
        restarts=max((each.entries for each in loops), default=1.0) - 1,
        lines=sum(a.lines * a.executions for a in everything) if through > _SCATTERED * useful_bytes else 0.0,
    )


def _reduced(launch: LaunchWork) -> tuple[TileReduction, ...]:
    tiles: list[TileReduction] = []
    for one in launch.reduced:
        elements, length, columns = prod(one.shape), one.shape[one.axis], one.shape[-1]
        alike = [access for access in launch.accesses if access.kind == "load" and access.tile == elements]
        by_row = not alike or any(access.run_bytes >= columns * access.item_bytes for access in alike)
        tile = TileReduction(
            length=length, inner=prod(one.shape[one.axis + 1 :]), elements=elements,
            vector=int(min(map(_vector, alike), default=_RUN)), operands=one.operands, operations=one.operations,
            executions=one.executions, scans=one.scans,
            across=by_row and length > 1 and not one.scans and one.axis < len(one.shape) - 1,
        )  # fmt: skip
        tiles.append(tile)
    return tuple(tiles)


def _touches(access: Access) -> int:
    """An atomic operation reads and writes."""
    return 2 if access.kind == "atomic" else 1


def _sector_bytes(access: Access) -> float:
    return max(access.bytes * access.distinct, access.sectors * _SECTOR_BYTES * access.executions)


def _work(launch: LaunchWork, accesses: Sequence[Access]) -> tuple[TileWork, ...]:
    """Accesses with their tiles, and the arithmetic of each loop with the largest tile of the loop."""
    parts = [TileWork(_MOVED_INSTRUCTIONS * a.executions, float(a.tile)) for a in accesses]
    widest = max((access.tile for access in accesses), default=1)
    counts = {-1: (launch.plain, launch.special)}
    counts |= {at: (loop.plain, loop.special) for at, loop in enumerate(launch.loops)}
    for at, (plain, special) in counts.items():
        inside = [access.tile for access in accesses if access.loop == at >= 0]
        inside += [prod(one.shape) for one in launch.reduced if at >= 0 and one.executions >= launch.loops[at].turns]
        tile = max(inside, default=widest)
        parts.append(TileWork((plain + _SPECIAL_INSTRUCTIONS * special) / tile, float(tile)))
    return tuple(part for part in parts if part.instructions > 0)


def _waits(launch: LaunchWork, loads: Sequence[Access]) -> float:
    """The number of times that a block waits for loads, those of one turn of a loop together."""
    return sum(launch.loops[at].turns if at >= 0 else 1.0 for at in {access.loop for access in loads})


def _turning(launch: LaunchWork, loads: Sequence[Access], reduced: Sequence[TileReduction]) -> tuple[Turning, ...]:
    """The loads of each loop.

    Of tiles of several rows that are reduced across these, a thread holds a sum for every element, and ptxas 12.8 adds
    up a load before it begins another one or two.
    """
    loops: list[Turning] = []
    for at in sorted({access.loop for access in loads} - {-1}):
        loop, here = launch.loops[at], [access for access in loads if access.loop == at]
        tall = {each.elements for each in reduced if each.across and each.executions < loop.turns}
        serial = sum(access.tile / _vector(access) for access in here if access.tile in tall)
        constant = loop.written and all(other.parent != at for other in launch.loops)  # the innermost ones are unrolled
        largest = float(max(access.tile for access in here))
        turning = Turning(entries=loop.entries, turns=loop.turns, elements=largest, serial=serial, constant=constant)
        loops.append(turning)
    return tuple(loops)


def _vector(access: Access) -> float:
    """The most elements that a thread loads at once."""
    return max(1.0, min(access.run_bytes, _COPY_BYTES) / access.item_bytes)


def _again(launch: LaunchWork, loads: Sequence[Access]) -> tuple[Again, ...]:
    """The bytes that are read once more: by a later load, or by the same one in a later turn of a loop."""
    pairs = [(a, a.bytes * a.distinct * (1 - a.anew)) for a in loads if a.again >= 0]
    pairs += [(a, a.bytes * a.distinct - own_bytes(a)) for a in loads if a.again < 0 and a.repeats > 1]
    return tuple(_after(launch, bytes_, _meanwhile(launch, access)) for access, bytes_ in pairs)


def _common(launch: LaunchWork, first: Sequence[Access]) -> tuple[Again, ...]:
    """The bytes that other blocks read too, with those read until the next block comes to the same place."""
    between = {at: own_bytes(each) for at, each in enumerate(launch.accesses) if each in first}
    pairs = [(a, 1 - share) for a in first if (share := _fresh(a, launch)) < 1]
    return tuple(
        _after(launch, _sector_bytes(a) / a.repeats * share, between, different(a, launch, launch.programs))
        for a, share in pairs
    )


def _after(launch: LaunchWork, bytes_: float, between: Mapping[int, float], blocks: float = 1.0) -> Again:
    """Bytes that are read again after so many blocks have read those between."""
    own = sum(each * _fresh(launch.accesses[at], launch) for at, each in between.items())
    return Again(bytes_, blocks * own, sum(between.values()) - own)


def _meanwhile(launch: LaunchWork, access: Access) -> dict[int, float]:
    """Different bytes, by access, that a block reads until it reads these again: in a turn of the loop around.

    None for a first chunk, which the loop over all chunks reads again at once.
    """
    if access.again > launch.accesses.index(access):
        return {}
    around = _around(launch, access.loop)
    if access.again >= 0:
        outer_loops = _around(launch, launch.accesses[access.again].loop)
        loop = next((at for at in around if at in outer_loops), -1)
    else:
        loop = around[-1] if around else -1
    turns = max(launch.loops[loop].turns, 1.0) if loop >= 0 else 1.0
    return {
        at: other.bytes * other.distinct / (turns if loop in _around(launch, other.loop) else max(other.repeats, 1.0))
        for at, other in enumerate(launch.accesses)
        if other.kind == "load" and other.again < 0 and (loop < 0 or loop in _around(launch, other.loop))
    }


def _around(launch: LaunchWork, loop: int) -> list[int]:
    loops: list[int] = []
    while loop >= 0:
        loops.append(loop)
        loop = launch.loops[loop].parent
    return loops


def _fresh(access: Access, launch: LaunchWork) -> float:
    """The share of an access's places that only one program goes to."""
    return min(1.0, different(access, launch, launch.programs) / launch.programs / min(access.executions, 1.0))


def _repeats(launch: LaunchWork, access: Access) -> int:
    count = 0
    while access.again >= 0 and not access.anew:
        access, count = launch.accesses[access.again], count + 1
    return count
