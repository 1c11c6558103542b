"""What several documents hold."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """What an object of a document holds. A member whose default is UNSET may be missing."""


Config: TypeAlias = dict[str, Any]
"""A value for each tunable."""


class Guard(Form):
    """What the device said of itself while it was measured.

    Attributes:
        guarded: Whether its clocks were watched; `reason` says why not.
        discarded: Rounds that were thrown away, as the device was slowed down in them.
        others, others_before: Processes that used the GPU during the last comparison, and before it.
        others_unknown: Why no such processes can be named.
    """

    guarded: bool
    reason: str
    status: str
    rounds: int
    discarded: int
    clock_changes: int
    regimes: list[Any]
    clock_mhz: Any
    memory_mhz: Any
    power_w: Any
    temperature_c: Any
    others: str
    others_before: str
    others_unknown: str
    confidence: str
    confidence_reason: str


class Resources(Form):
    """What the compiler made of a config, per thread or per block; null is not known.

    Attributes:
        registers, spill_bytes, stack_bytes: Of a thread.
        shared_bytes: Of a block.
        binary: A hash of the machine code.
        mma: The matrix instruction: `wgmma`, `tcgen05`, `mma.sync`, `mfma`, `wmma` or `none`.
        load_bytes: How many bytes one thread loads at once in its commonest load.
        serialised: Whether each product of a warp group waits for the one before.
    """

    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    binary: str | None
    stack_bytes: int | None
    mma: str | None
    load_bytes: int | None
    serialised: bool | None
