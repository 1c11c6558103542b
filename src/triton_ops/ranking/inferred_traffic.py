"""What the accesses of a launch move: the loops they are in, and bytes that a wave or all programs read once."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from triton_ops.hardware import Machine
from triton_ops.ttir.launch_work import Access, LaunchWork


def main_loops(launch: LaunchWork) -> set[int]:
    """The loops with products in them; without products that of the most bytes; -1 stands for outside of loops."""
    if launch.products:
        return {product.loop for product in launch.products} - {-1}
    by_loop: dict[int, float] = {}
    for access in launch.accesses:
        by_loop[access.loop] = by_loop.get(access.loop, 0.0) + access.bytes
    return {max(by_loop, key=lambda at: by_loop[at])} - {-1} if by_loop else set()


def dram_bytes(launch: LaunchWork, loads: Sequence[Access], machine: Machine, at_once: int) -> float:
    """Bytes that DRAM delivers for one program, in a wave of `at_once` programs.

    What programs of a wave share is read once. What an earlier wave has read is found in L2 as far as L2 holds all that
    is read; only half of L2 counts, because each of the chip's two halves keeps its own copy of a line.
    """
    here = min(at_once, launch.programs)
    waves = launch.programs / here
    wave = sum(different(access, launch, here) * own_bytes(access) for access in loads)
    bounded = _once(launch, loads)
    kept = min(1.0, machine.l2_bytes / 2 / max(bounded, 1.0))
    return (bounded + max(0.0, wave * waves - bounded) * (1 - kept)) / launch.programs


def least_bytes(launch: LaunchWork) -> float:
    """Different bytes that all programs of a launch load, and those that they store."""
    loads = [access for access in launch.accesses if access.kind != "store"]
    return _once(launch, loads) + _once(launch, [access for access in launch.accesses if access.kind != "load"])


def _once(launch: LaunchWork, accesses: Sequence[Access]) -> float:
    """The bytes of some accesses, each place of each argument once."""
    found: dict[int, float] = {}
    for access in accesses:
        if access.again < 0:
            whole = different(access, launch, launch.programs) * own_bytes(access)
            found[access.argument] = found.get(access.argument, 0.0) + whole
    return sum(min(whole, _span(launch, argument) or whole) for argument, whole in found.items())


def own_bytes(access: Access) -> float:
    """Different bytes that one program moves by an access."""
    return access.bytes * access.distinct / access.repeats


def _span(launch: LaunchWork, argument: int) -> int:
    """Bytes of the tensor that an argument is; 0 if they are not known."""
    return launch.arguments[argument].bytes if 0 <= argument < len(launch.arguments) else 0


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
