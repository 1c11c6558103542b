"""Free rules, which judge a config by the sizes of the kernel's blocks alone: nothing is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.backend.kernel_source import Blocks
from triton_ops.device import Target
from triton_ops.values import Status, is_power_of_two

_LARGEST_BLOCK = 1 << 20  # elements: Triton's front end refuses a larger block
_MOST_ELEMENTS = 256
"""Elements per thread of one range from which rows spill.

Source: softmax and RMSNorm on sm_90, Triton 3.6.0: 256 elements per thread spill 216 to 8,824 bytes; 128 need at most
217 registers.
"""
_MOST_ACCUMULATORS = 256
"""Accumulator registers per thread from which a matrix product spills.

Source: matmul on sm_90, Triton 3.6.0 and 3.9.0: 48 of 48 configs with 256 or more spill, none of 336 with fewer spills
over 32 bytes; on an H200 the fastest of those with 256 reached 0.30 of the best one's speed.
"""
_MOST_ACCUMULATORS_ELSEWHERE = 512  # accumulators are in tensor memory on sm_100, in AMD's 512 registers per lane
_WIDEST_TILE = 2  # a tile wider than so many times the padded dimension is deferred


@dataclass(frozen=True)
class RuleInput:
    """The input of the rules: the sizes of the kernel's blocks with the config to judge."""

    target: Target
    blocks: Blocks
    warps: int
    stages: int = 0

    @property
    def threads(self) -> int:
        """The number of threads per block."""
        return self.warps * self.target.warp_size


Objection: TypeAlias = tuple[Status, str]
Rule = Callable[[RuleInput], Objection | None]


def _options(facts: RuleInput) -> Objection | None:
    refusal = facts.target.refusal(facts.warps, facts.stages)
    return (Status.RESOURCES, refusal) if refusal else None


def _ranges(facts: RuleInput) -> Objection | None:
    for name, size in facts.blocks.ranges:
        if not is_power_of_two(size):
            return (Status.CONSTRAINT, f"{name} is {size}; Triton's ranges must be powers of two")
        if size > _LARGEST_BLOCK:
            return (Status.CONSTRAINT, f"{name} is {size:,}; a block has at most {_LARGEST_BLOCK:,} elements")
    return None


def _accumulator(facts: RuleInput) -> Objection | None:
    if facts.blocks.warp_specialized:  # the compiler adds warps, which share the accumulator
        return None
    elsewhere = 100 <= facts.target.capability < 120 or facts.target.vendor.registers_per_thread > _MOST_ACCUMULATORS
    limit = _MOST_ACCUMULATORS_ELSEWHERE if elsewhere else _MOST_ACCUMULATORS
    for shape in facts.blocks.accumulators:
        each = math.prod(shape) // facts.threads
        if each >= limit:
            extents = " by ".join(map(str, shape))
            why = f"an accumulator of {extents} takes {each} registers of each thread: {limit} or more spill"
            return Status.DEFERRED, why
    return None


def _elements(facts: RuleInput) -> Objection | None:
    for name, size in facts.blocks.ranges:
        each = size // facts.threads
        if each >= _MOST_ELEMENTS:
            return Status.DEFERRED, f"{name} of {size:,} is {each} elements per thread: {_MOST_ELEMENTS} or more spill"
    return None


def _tiles(facts: RuleInput) -> Objection | None:
    for stepped in facts.blocks.stepped:
        padded = 1 << max(stepped.size - 1, 0).bit_length()
        if stepped.tile > _WIDEST_TILE * padded and stepped.tile > 16:  # 16: the least that tl.dot takes
            message = f"{stepped.tile_name} is {stepped.tile}, over twice the padded {stepped.extent} of {padded}"
            return (Status.DEFERRED, message)
    return None


RULES: tuple[Rule, ...] = (_options, _ranges, _accumulator, _elements, _tiles)
