"""Accesses of shared memory whose threads wait for each other: compiled for a GPU that need not be here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import one_line
from triton_ops.kernel_ir import SharedAccess, SourcePlace, Traffic, traffic
from triton_ops.lint.compiled import compile_variant, in_words, known_configs
from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import AccessFact
from triton_ops.lint.meaning.terms import constant
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant
from triton_ops.lint.rules.indices import indices

_WAYS = 2  # steps for each that would do, from which a line is told
_GLOBAL_BYTES = 32
"""Bytes that a multiprocessor gets from global memory while its banks take a step.

An A100 has 13, an H200 21 (bandwidth over multiprocessors and clock), and L2 about twice that: a conflict that
takes fewer steps than the kernel's global memory takes is hidden behind it.
"""
_REDUCE_ONCE = (
    "keep one value for each element of the tile, and reduce once after the loop; or reduce along the axis along which "
    "the tile lies in memory; Triton 3.8 and later exchange what they reduce without conflicts"
)
_AS_MULTIPLIED = (
    "let tiles of 32 bits lie in memory along the axis of the sum, so that they are copied 16 bytes at a time and not "
    "transposed; or multiply them in 16 bits, which are transposed on the way"
)
_MOST_CONFIGS = 4  # of several, those that are looked at where the first has conflicts


@dataclass(frozen=True)
class _SourceLine:
    """The accesses of one line.

    Attributes:
        bytes_moved: What the block moves from and to global memory meanwhile.
    """

    place: tuple[str, int]
    accesses: tuple[SharedAccess, ...]
    bytes_moved: int

    @property
    def steps(self) -> int:
        return sum(one.steps or 0 for one in self.accesses)

    @property
    def fewest(self) -> int:
        return sum(one.fewest or 0 for one in self.accesses)

    @property
    def matters(self) -> bool:
        """Check whether threads wait for banks longer than for global memory."""
        return self.steps >= _WAYS * self.fewest and _GLOBAL_BYTES * (self.steps - self.fewest) > self.bytes_moved


def _decide_variant(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    if not _rearranges(variant):
        return
    if kernel.target.kind != "cuda":
        yield rule.undecided(kernel, f"how {kernel.target.arch} accesses its shared memory is not read; PTX is")
        return
    if kernel.uses.descriptors and not kernel.guesses:
        yield rule.undecided(kernel, "the blocks of the descriptors that it is given are not in the file")
        return
    configs = list(known_configs(kernel))
    if not configs:
        yield rule.undecided(kernel, "the tiles and warps that it is launched with are not in the file")
        return
    if not kernel.guesses and (loose_access := _access_of_unknown_strides(variant)) is not None:
        line = kernel.place(loose_access).line
        yield rule.undecided(kernel, f"line {line}: along which axis its elements lie side by side is up to callers")
        return
    try:
        yield from _decide_compiled(rule, kernel, configs)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        yield rule.undecided(kernel, f"{kernel.target.arch} refuses {in_words(configs[0])}: {one_line(error)}")


def _decide_compiled(rule: Rule, kernel: KernelReading, configs: Sequence[Mapping[str, Any]]) -> Iterator[Statement]:
    movement = _traffic(kernel, configs[0])
    if any(one.steps is None for one in movement.shared):
        first = next(one.line for one in movement.shared if one.steps is None)
        yield rule.undecided(kernel, f"line {first}: where its threads access shared memory depends on data")
    lines = [line for line in _lines(movement) if line.matters]
    if lines and movement.bulk:
        yield rule.undecided(kernel, "how many bytes its bulk copies move, behind which conflicts hide, is not read")
        return
    more = configs[1 :: max(1, len(configs) // _MOST_CONFIGS)][: _MOST_CONFIGS - 1] if lines else []
    others = [{line.place for line in _lines(_traffic(kernel, config)) if line.matters} for config in more]
    for line in lines:
        if all(line.place in places for places in others):  # else a tune chooses one without
            place = _place(kernel, line)
            yield rule.found(kernel, place, _evidence(kernel, line, configs[0]), fix=_fix(kernel, place))


def _traffic(kernel: KernelReading, config: Mapping[str, Any]) -> Traffic:
    variant = kernel.with_values(config)
    if variant is None:
        raise ValueError(f"it cannot be lowered with {in_words(config)}")
    return traffic(compile_variant(kernel, variant, config).assembly)


def _lines(movement: Traffic) -> list[_SourceLine]:
    """The lines of what runs again and again, or of the whole kernel if nothing that moves data does."""
    loops = movement.loop_bytes > 0 or any(one.in_loop for one in movement.shared)
    by_place: dict[tuple[str, int], list[SharedAccess]] = {}
    for one in movement.shared:
        if one.in_loop == loops:
            by_place.setdefault((one.file, one.line), []).append(one)
    size = movement.loop_bytes if loops else movement.global_bytes
    return [_SourceLine(place, tuple(accesses), size) for place, accesses in by_place.items()]


def _place(kernel: KernelReading, line: _SourceLine) -> SourcePlace:
    """The line in the kernel's file, or in that of a function that it calls."""
    name, number = line.place
    facts = kernel.variants[0].facts
    files = (frame.file for one in (*facts.accesses, *facts.reductions, *facts.products) for frame in one.frames)
    file = next((file for file in (kernel.file, *files) if file.rpartition("/")[2] == name), None)
    return SourcePlace(kernel.file, kernel.line) if file is None else SourcePlace(file, number)


def _fix(kernel: KernelReading, place: SourcePlace) -> str:
    facts = kernel.variants[0].facts
    if place in map(kernel.place, facts.reductions):
        return _REDUCE_ONCE
    return _AS_MULTIPLIED if facts.products else ""


def _rearranges(variant: Variant) -> bool:
    """Check whether elements go from one thread to another other than as one sum of a block with one axis."""
    shapes = [access.type.shape for access in variant.facts.accesses]
    shapes += [value.type.shape for reduction in variant.facts.reductions for value in reduction.inputs]
    return variant.rearranges or any(sum(extent > 1 for extent in shape) > 1 for shape in shapes)


def _access_of_unknown_strides(variant: Variant) -> AccessFact | None:
    """An access of a block with several axes of which no neighbours are known to lie side by side."""
    for access in variant.facts.accesses:
        along = indices(variant.facts, access)
        strides = [constant(index.stride) for index in along]
        if sum(extent > 1 for extent in access.type.shape) > 1 and strides and not {1, -1} & set(strides):
            return access
    return None


def _evidence(kernel: KernelReading, line: _SourceLine, config: Mapping[str, Any]) -> str:
    worst = max(line.accesses, key=lambda one: (one.steps or 0) / max(1, one.fewest or 0))
    kinds = {one.kind for one in line.accesses}
    widths = sorted({one.lane_bytes for one in line.accesses})
    often = " in each turn of a loop" if worst.in_loop else ""
    ways = (worst.steps or 0) / max(1, worst.fewest or 0)
    return (
        f"compiled for {kernel.target.arch} with {in_words(config)}, {len(line.accesses)} instructions "
        f"({' and '.join(sorted(kinds))}, {' and '.join(map(str, widths))} bytes a thread) take {line.steps:,} steps "
        f"of the banks for a block{often}, where {line.fewest:,} would do: up to {ways:.3g} ways; global memory takes "
        f"{-(-line.bytes_moved // _GLOBAL_BYTES):,} of {_GLOBAL_BYTES} bytes meanwhile"
    )


CONFLICTS = Rule(
    id="bank-conflict",
    level="binary",
    symptom="slow by a factor beside a kernel that moves as much: threads ask one bank of shared memory for different "
    "words, and wait for each other",
    fix="try other warps and another tile, or load the tile in the order in which it is stored",
    decide=in_each_variant(_decide_variant, 1),
)
