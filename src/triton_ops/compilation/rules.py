"""The first tier before a launch: rules that need only the config and the kernel's source, and so cost nothing.

A rule refuses a config that cannot be launched. A rule defers a config that can be launched but is of a kind that has
always been slow: such a config is run only if no other config works. Every rule gives its reason with the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import AheadOfTime
from triton_ops.compilation.block_sizes import Blocks, blocks_of
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import Status, is_power_of_two

_DEFAULT_WARPS = 4  # Triton's default
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
class Objection:
    """The objection of a rule to a config.

    Attributes:
        status: The status of the config's trial, which ends without a run: `constraint` or `resources`; `deferred` for
            a config that can be launched, and is run only if no other config works.
        reason: Why the rule objects, with the numbers.
    """

    status: Status
    reason: str

    @property
    def deferred(self) -> bool:
        """Tell whether the config can be launched."""
        return self.status is Status.DEFERRED


@dataclass(frozen=True)
class RuleInput:
    """The input of the rules: a config to judge, and the sizes of the kernel's blocks with it."""

    config: Config
    target: Target
    blocks: Blocks
    warps: int

    @property
    def threads(self) -> int:
        """The number of threads per block."""
        return self.warps * self.target.warp_size


Rule = Callable[[RuleInput], Objection | None]


def foresee(ahead: AheadOfTime, config: Config) -> Objection | None:
    """The first objection of the rules to a config; None if there is none.

    Args:
        ahead: What would be compiled: the kernel's source is read, scalars among the arguments are used as dimensions,
            and the target has the limits.
        config: Tunables and launch options.

    Cost: 20 microseconds, and 70 for a kernel with many helpers.
    """
    names, arguments = ahead.kernel.parameter_names, ahead.arguments
    positional = {name: value for name, value in zip(names, arguments.positional, strict=False) if name is not None}
    values: dict[str, Any] = {**positional, **arguments.keyword, **config}
    warps = config.get("num_warps", values.get("num_warps", _DEFAULT_WARPS))
    for name, number in (("num_warps", warps), ("num_ctas", config.get("num_ctas", 1))):
        if isinstance(number, bool) or not isinstance(number, int):
            message = f"{name} is {number!r} of type {type(number).__name__}; it must be an int, such as 4"
            return Objection(Status.CONSTRAINT, message)
        if not is_power_of_two(number):
            return Objection(Status.CONSTRAINT, f"{name} is {number}; it must be a power of two")
    parsed = ahead.kernel.parsed
    blocks = blocks_of(parsed, values) if parsed is not None else Blocks()
    facts = RuleInput(config, ahead.target, blocks, warps)
    objections = (rule(facts) for rule in RULES)
    return next((objection for objection in objections if objection is not None), None)


def _threads(facts: RuleInput) -> Objection | None:
    limit = facts.target.threads_per_block
    if facts.threads <= limit:
        return None
    return Objection(
        Status.RESOURCES,
        f"{facts.warps} warps of {facts.target.warp_size} are {facts.threads:,} threads per block; "
        f"{facts.target.arch} has {limit:,}",
    )


def _ranges(facts: RuleInput) -> Objection | None:
    for name, size in facts.blocks.ranges:
        if not is_power_of_two(size):
            return Objection(Status.CONSTRAINT, f"{name} is {size}; Triton's ranges must be powers of two")
        if size > _LARGEST_BLOCK:
            return Objection(Status.CONSTRAINT, f"{name} is {size:,}; a block has at most {_LARGEST_BLOCK:,} elements")
    return None


def _accumulator(facts: RuleInput) -> Objection | None:
    if facts.blocks.warp_specialized:  # the compiler adds warps, which share the accumulator
        return None
    tensor_memory = 100 <= facts.target.capability < 120
    limit = _MOST_ACCUMULATORS_ELSEWHERE if tensor_memory or facts.target.kind == "hip" else _MOST_ACCUMULATORS
    for shape in facts.blocks.accumulators:
        each = math.prod(shape) // facts.threads
        if each >= limit:
            extents = " by ".join(map(str, shape))
            return Objection(
                Status.DEFERRED,
                f"an accumulator of {extents} takes {each} registers of each thread: {limit} or more spill",
            )
    return None


def _elements(facts: RuleInput) -> Objection | None:
    for name, size in facts.blocks.ranges:
        each = size // facts.threads
        if each >= _MOST_ELEMENTS:
            return Objection(
                Status.DEFERRED, f"{name} of {size:,} is {each} elements per thread: {_MOST_ELEMENTS} or more spill"
            )
    return None


def _tiles(facts: RuleInput) -> Objection | None:
    for stepped in facts.blocks.stepped:
        padded = 1 << max(stepped.size - 1, 0).bit_length()
        if stepped.tile > _WIDEST_TILE * padded and stepped.tile > 16:  # 16: the least that tl.dot takes
            message = f"{stepped.tile_name} is {stepped.tile}, over twice the padded {stepped.extent} of {padded}"
            return Objection(Status.DEFERRED, message)
    return None


RULES: tuple[Rule, ...] = (_threads, _ranges, _accumulator, _elements, _tiles)
