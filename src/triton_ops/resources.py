"""What a compiled config takes of a device."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from triton_ops._ranges import Count

WASTEFUL_SPILL_BYTES = 64
"""A config that spills more than this per thread is tried last.

Source: among 486 configs of a matrix product the spilled bytes fall into two groups, below and above 64; all of 54
published winners for an H200 are below, and on seven recorded spaces no config above reached 0.51 of the best speed.
"""


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled config; a field is None where the backend cannot know it.

    Attributes:
        registers: Registers per thread.
        spill_bytes: Bytes per thread that registers did not hold, and that lie in local memory.
        shared_bytes: Shared memory per block.
        binary: Fingerprint of the machine code; of configs with equal binaries only one is measured.
        stack_bytes: Stack frame per thread.
        mma: Matrix instructions used: `wgmma`, `tcgen05`, `mma.sync`, `mfma`, `wmma`, or `none`.
        load_bytes: Bytes that one thread loads at once, in the commonest load from global memory.
        serialised: Whether the assembler makes each product of a warp group wait for the one before (`wgmma` alone).
    """

    registers: Count | None = None
    spill_bytes: Count | None = None
    shared_bytes: Count | None = None
    _: KW_ONLY
    binary: str | None = None
    stack_bytes: Count | None = None
    mma: str | None = None
    load_bytes: Count | None = None
    serialised: bool | None = None

    @property
    def wasteful(self) -> bool:
        """Whether the config spills so much that it is tried last, and loses ties."""
        return (self.spill_bytes or 0) > WASTEFUL_SPILL_BYTES
