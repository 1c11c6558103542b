"""The tiers before a launch: free rules, exact shared memory, and the full compile.

A rule refuses a config that cannot be launched. A rule defers a config that can be launched but is of a kind that has
always been slow: such a config is run only if no other config works. Every rule gives its reason with the numbers.

The rules need only the config and the kernel's source, and so cost nothing; the shared memory is known from the TTGIR.
All tiers work without a GPU and without a driver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from triton_ops.backend import AheadOfTime, Built, CandidateError, together
from triton_ops.compilation.block_sizes import Blocks, blocks_of
from triton_ops.device import Machine, Target
from triton_ops.exceptions import CacheError, TargetError
from triton_ops.kernel_ir import binary_facts
from triton_ops.space import Config
from triton_ops.values import Compiled, Resources, Status, is_power_of_two

_WARPS = 4  # Triton's default for a config that names none


def with_residents(compiled: Compiled, machine: Machine | None) -> Compiled:
    """`compiled` with the number of its blocks on a multiprocessor of `machine` at a time, if that is known."""
    resources, warps = compiled.resources, compiled.config.get("num_warps", _WARPS)
    if machine is None or resources is None or resources.registers is None or not isinstance(warps, int) or warps < 1:
        return compiled
    return replace(compiled, resident=machine.blocks_at_once(resources.registers, resources.shared_bytes or 0, warps))


HEAVY_SPILL_BYTES = 256
"""A config that spills more bytes than this per thread is deferred.

Source: seven recorded spaces on an H200 (Triton 3.6.0): no config with more than 64 bytes reached 0.51 of the best
config's speed, and none with more than 256 bytes reached 0.31.
"""
_TENSOR_MEMORY_COLUMNS = 512  # columns of Blackwell's tensor memory; Triton refuses to load a kernel that needs more
_WARP_REGISTERS = 256  # a warp gets registers in units of this many
_PTXAS_TROUBLE = ("error", "fatal", "nsufficient", "nresolved")


def examine(ahead: AheadOfTime, config: Config) -> Compiled:
    """Compile `config` into Triton's disk cache, and judge it; its own failure becomes the status of the result.

    45 ms for a config over the limit of shared memory, else 0.1 to some seconds; 1 ms from the disk cache. `CacheError`
    if the compiler cannot write its files, `TargetError` if the kernel cannot be compiled without being launched.
    """
    target = ahead.target
    if strange := ahead.unknown_names(config):
        reason = f"{', '.join(strange)} is no parameter of {ahead.kernel.name} and no launch option for {target.arch}"
        return Compiled(config, Status.CONSTRAINT, reason)
    start = time.perf_counter()
    try:
        kernels = ahead.built(config, lambda shared, _: _check_shared(shared, target))
        parts = [resources_of(one, target) for one in kernels]
        for part, one in zip(parts, kernels, strict=True):
            _check(part, one.metadata, target)
        resources = together(parts)
    except TargetError:
        raise
    except _OverLimitError as error:
        resources = Resources(shared_bytes=error.shared_bytes)
        return Compiled(config, Status.RESOURCES, str(error), resources, compile_s=time.perf_counter() - start)
    except Exception as error:
        failure = _failure(error)
        if isinstance(failure, CacheError):
            raise failure from error
        taken_s = time.perf_counter() - start
        return Compiled(config, failure.status, str(failure), compile_s=taken_s, trace=CandidateError.trace_of(error))
    reason = _spills(resources)
    status = Status.DEFERRED if reason else Status.OK
    return Compiled(config, status, reason, resources, compile_s=time.perf_counter() - start)


def resources_of(built: Built, target: Target) -> Resources:
    """The resources and the features of a compiled config."""
    facts = binary_facts(target.vendor.assembly, built.binary, built.assembly)
    return Resources(shared_bytes=built.metadata["shared"], binary=built.digest, **facts)


class _OverLimitError(Exception):
    """A config needs more than the target has."""

    def __init__(self, text: str, shared_bytes: int | None = None) -> None:
        super().__init__(text)
        self.shared_bytes = shared_bytes


def _check_limit(needed: int, limit: int | None, what: str, target: Target, shared_bytes: int) -> None:
    if limit is not None and needed > limit:
        raise _OverLimitError(f"needs {needed:,} {what}; {target.arch} has {limit:,}", shared_bytes)


def _check_shared(shared_bytes: int, target: Target) -> None:
    what = "bytes of shared memory per block"
    _check_limit(shared_bytes, target.shared_bytes_per_block, what, target, shared_bytes)


def _check(resources: Resources, metadata: Mapping[str, Any], target: Target) -> None:
    """Check the limits of the compiled kernel, shared memory included for a kernel from the disk cache."""
    shared, warps = resources.shared_bytes or 0, metadata["num_warps"]
    columns = metadata.get("tmem_size") or 0
    per_warp = -(-(resources.registers or 0) * target.warp_size // _WARP_REGISTERS) * _WARP_REGISTERS
    _check_shared(shared, target)
    _check_limit(warps * target.warp_size, target.threads_per_block, "threads per block", target, shared)
    _check_limit(columns, _TENSOR_MEMORY_COLUMNS, "columns of tensor memory", target, shared)
    _check_limit(per_warp * warps, target.registers_per_block, "registers per block", target, shared)


def _spills(resources: Resources) -> str:
    spilled = resources.spill_bytes or 0
    if spilled <= HEAVY_SPILL_BYTES:
        return ""
    return f"spills {spilled:,} bytes per thread; over {HEAVY_SPILL_BYTES} has always been slow"


def _failure(error: Exception) -> CandidateError | CacheError:
    """The typed failure of a compiler; of ptxas' output, the line with the cause and not the command."""
    if type(error).__name__ != "PTXASError":
        return CandidateError.of_compiler(error)
    lines = str(error).strip().splitlines()
    messages = [line.partition(":")[2].strip() for line in lines if line.startswith("ptxas")]
    line = next((text for text in messages if any(word in text for word in _PTXAS_TROUBLE)), (messages or lines)[0])
    status = Status.RESOURCES if "nsufficient registers" in line else Status.COMPILE
    return CandidateError(status, f"ptxas: {line}")


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
    """The objection of a rule to a config, whose trial ends with `status` without a run.

    The status is `constraint` or `resources`, or `deferred` for a config that can be launched, and is run only if no
    other config works. The reason has the numbers.
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

    The kernel's source is read, and scalars among the arguments are used as dimensions. 20 microseconds, and 70 for a
    kernel with many helpers.
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
    elsewhere = 100 <= facts.target.capability < 120 or facts.target.vendor.registers_per_thread > _MOST_ACCUMULATORS
    limit = _MOST_ACCUMULATORS_ELSEWHERE if elsewhere else _MOST_ACCUMULATORS
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
