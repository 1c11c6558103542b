"""The resources of a compiled config, as a record keeps them."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from triton_ops.base import Count


class Resources(msgspec.Struct, frozen=True):
    """The resources of a compiled config; a field is None where the backend cannot know it."""

    WASTEFUL_SPILL_BYTES: ClassVar[int] = 64
    """A config that spills more than this per thread is tried last.

    Source: among 486 configs of a matrix product the spilled bytes fall into two groups, below and above 64; all of 54
    published winners for an H200 are below, and on seven recorded spaces no config above reached 0.51 of the best
    speed.
    """

    registers: Count | None = None  # per thread
    spill_bytes: Count | None = None  # per thread, in local memory for want of registers
    shared_bytes: Count | None = None  # per block
    binary: str | None = None  # fingerprint of the machine code; of configs with equal binaries only one is measured
    stack_bytes: Count | None = None  # frame per thread
    mma: str | None = None  # matrix instructions used: `wgmma`, `tcgen05`, `mma.sync`, `mfma`, `wmma`, or `none`
    load_bytes: Count | None = None  # that one thread loads at once, in the commonest load from global memory
    serialised: bool | None = None  # whether each product of a warp group waits for the one before (`wgmma` alone)

    @property
    def wasteful(self) -> bool:
        """True if the config spills so much that it is tried last, and loses ties."""
        return (self.spill_bytes or 0) > self.WASTEFUL_SPILL_BYTES
