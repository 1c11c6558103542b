"""The second and third tier before a launch: exact shared memory from the TTGIR, then the full compile.

The first tier, free rules, is in `rules.py`. All tiers work without a GPU and without a driver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from triton_ops.backend import AheadOfTime, Built, CandidateError, compile_error, together, trace_of
from triton_ops.device import Machine, Target
from triton_ops.exceptions import CacheError, TargetError
from triton_ops.kernel_ir import binary_facts
from triton_ops.space import Config
from triton_ops.values import Compiled, Resources, Status

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
    """Compile `config` into Triton's disk cache, and judge the result.

    A failure that is the config's fault becomes the status of the result.

    Args:
        ahead: What to compile; its target has the limits.
        config: Tunables and launch options.

    Cost: 45 ms for a config over the limit of shared memory, else 0.1 to some seconds; 1 ms from the disk cache.

    Raises:
        CacheError: The compiler cannot write its files, as on a full disk.
        TargetError: The kernel cannot be compiled without being launched.
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
        return Compiled(config, failure.status, str(failure), compile_s=taken_s, trace=trace_of(error))
    reason = _spills(resources)
    status = Status.DEFERRED if reason else Status.OK
    return Compiled(config, status, reason, resources, compile_s=time.perf_counter() - start)


def resources_of(built: Built, target: Target) -> Resources:
    """The resources and the features of a compiled config."""
    facts = binary_facts(target.kind, built.binary, built.assembly)
    return Resources(shared_bytes=built.metadata["shared"], binary=built.digest, **facts)


class _OverLimitError(Exception):
    """A config needs more than the target has."""

    def __init__(self, text: str, shared_bytes: int | None = None) -> None:
        super().__init__(text)
        self.shared_bytes = shared_bytes


def _check_shared(shared_bytes: int, target: Target) -> None:
    if shared_bytes > target.shared_bytes_per_block:
        raise _OverLimitError(
            f"needs {shared_bytes:,} bytes of shared memory per block; {target.arch} has "
            f"{target.shared_bytes_per_block:,}",
            shared_bytes,
        )


def _check(resources: Resources, metadata: Mapping[str, Any], target: Target) -> None:
    """Check the limits of the compiled kernel, shared memory included for a kernel from the disk cache."""
    shared, warps = resources.shared_bytes or 0, metadata["num_warps"]
    _check_shared(shared, target)
    if (threads := warps * target.warp_size) > target.threads_per_block:
        raise _OverLimitError(
            f"needs {threads:,} threads per block; {target.arch} has {target.threads_per_block:,}", shared
        )
    if (columns := metadata.get("tmem_size") or 0) > _TENSOR_MEMORY_COLUMNS:
        raise _OverLimitError(
            f"needs {columns:,} columns of tensor memory; {target.arch} has {_TENSOR_MEMORY_COLUMNS}", shared
        )
    per_warp = -(-(resources.registers or 0) * target.warp_size // _WARP_REGISTERS) * _WARP_REGISTERS
    if target.registers_per_block is not None and per_warp * warps > target.registers_per_block:
        raise _OverLimitError(
            f"needs {per_warp * warps:,} registers per block; {target.arch} has {target.registers_per_block:,}", shared
        )


def _spills(resources: Resources) -> str:
    spilled = resources.spill_bytes or 0
    if spilled <= HEAVY_SPILL_BYTES:
        return ""
    return f"spills {spilled:,} bytes per thread; over {HEAVY_SPILL_BYTES} has always been slow"


def _failure(error: Exception) -> CandidateError | CacheError:
    """The typed failure of a compiler; of ptxas' output, the line with the cause and not the command."""
    if type(error).__name__ != "PTXASError":
        return compile_error(error)
    lines = str(error).strip().splitlines()
    messages = [line.partition(":")[2].strip() for line in lines if line.startswith("ptxas")]
    line = next((text for text in messages if any(word in text for word in _PTXAS_TROUBLE)), (messages or lines)[0])
    status = Status.RESOURCES if "nsufficient registers" in line else Status.COMPILE
    return CandidateError(status, f"ptxas: {line}")
