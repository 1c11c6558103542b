"""The signs of spilling in one compiled config: registers, frame, local traffic, and the accumulator behind them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from triton_ops.analysis.local_traffic import LocalTraffic, amdgcn_traffic, sass_traffic
from triton_ops.backend.disassembler import disassembled
from triton_ops.backend.offline import AheadOfTime, described
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.hardware.limits import LIMITS, Residents
from triton_ops.space import Config
from triton_ops.trial import Compiled, Status
from triton_ops.ttir.launch_work import ACCUMULATED_BYTES
from triton_ops.work import warps_and_stages

_MOST = {"cuda": 255, "hip": 512}
"""Registers that one thread can have. Sources: CUDA C++ Programming Guide; CDNA 3 ISA guide, VGPRs and AGPRs."""


@dataclass(frozen=True, kw_only=True)
class SpillEvidence:
    """What one config takes, and what it spills.

    Attributes:
        config: The config.
        status: `ok` if it compiled and fits; `deferred` if it also spills much or a rule expects it to; else why not.
        reason: Why the status is not ok, in words.
        registers: Registers of one thread; None if it did not compile.
        most_registers: Most registers that one thread can have.
        stack_bytes: The thread's frame in local memory.
        spill_bytes: The part of the frame that holds spilled registers.
        shared_bytes: Shared memory of a block.
        accumulator: Rows and columns of the block's largest accumulator; None without products.
        accumulator_registers: Registers of each thread that it takes; None without products.
        local: Instructions that reach local memory; None where no disassembler could be run.
        residents: The blocks that a multiprocessor holds; None if the architecture's limits are not known.
        median_ms: The measured time of a launch; None if it was not measured.
    """

    config: Config
    status: Status
    reason: str = ""
    registers: int | None = None
    most_registers: int = 255
    stack_bytes: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    accumulator: tuple[int, int] | None = None
    accumulator_registers: float | None = None
    local: LocalTraffic | None = None
    residents: Residents | None = None
    median_ms: float | None = None

    @property
    def compiled(self) -> bool:
        """Whether it was compiled and could be launched."""
        return self.status in (Status.OK, Status.DEFERRED) and self.spill_bytes is not None

    @property
    def accumulator_bytes(self) -> int | None:
        """Bytes of registers that the largest accumulator takes of a block; None without products."""
        return None if self.accumulator is None else ACCUMULATED_BYTES * prod(self.accumulator)


class Examiner:
    """Compiles configs of one kernel without a GPU, and gathers the evidence of each.

    Args:
        ahead: What is compiled, and for which target.
        pool: The processes that compile.
    """

    def __init__(self, ahead: AheadOfTime, pool: CompilePool) -> None:
        self._ahead = replace(ahead, arguments=described(ahead.arguments, light=True))
        self._pool = pool

    def evidence(self, config: Config) -> SpillEvidence:
        """What a config takes and spills.

        Cost: one compilation, and a third of a second where it spills.

        Raises:
            TargetError: The kernel cannot be compiled without being launched.
        """
        compiling = self._pool.submit(config, anyway=True)
        tile = self._pool.read(config).result().accumulator
        found = compiling.result()
        made, target = found.resources, self._ahead.target
        warps, _ = warps_and_stages(config)
        seen = SpillEvidence(
            config=config, status=found.status, reason=found.reason, most_registers=_MOST[target.kind],
            accumulator=tile, accumulator_registers=None if tile is None else prod(tile) / (warps * target.warp_size),
            shared_bytes=made.shared_bytes if made else None,
        )  # fmt: skip
        if made is None or made.registers is None:
            return seen
        limits = LIMITS.get(target.arch)
        return replace(
            seen, registers=made.registers, stack_bytes=made.stack_bytes, spill_bytes=made.spill_bytes,
            residents=limits.residents(made.registers, made.shared_bytes or 0, warps) if limits else None,
            local=self._local(found),
        )  # fmt: skip

    def tile(self, config: Config) -> int | None:
        """Elements of the accumulator, or of the largest tile of a kernel without products; None if it is not known."""
        work = self._pool.read(config).result()
        if work.accumulator is not None:
            return prod(work.accumulator)
        return max((access.tile for launch in work.launches for access in launch.accesses), default=None)

    def _local(self, found: Compiled) -> LocalTraffic | None:
        """The local traffic, which a config that spills nothing does not have."""
        made = found.resources
        if made is None or not found.launchable:
            return None
        if not made.stack_bytes and not made.spill_bytes:
            return LocalTraffic(0, 0, 0, 0, 0)
        built = self._ahead.built(found.config)  # from the disk cache
        if self._ahead.target.kind == "hip":
            return _sum([amdgcn_traffic(one.assembly) for one in built])
        texts = [disassembled(one.binary) for one in built]
        return None if None in texts else _sum([sass_traffic(text) for text in texts if text is not None])


def _sum(parts: list[LocalTraffic]) -> LocalTraffic:
    return LocalTraffic(
        sum(one.loads for one in parts), sum(one.stores for one in parts), sum(one.load_bytes for one in parts),
        sum(one.store_bytes for one in parts), sum(one.in_loops for one in parts),
    )  # fmt: skip
