"""What is known of a config before it is launched."""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_ops.hardware import Machine
from triton_ops.trial import Compiled as Compiled
from triton_ops.trial import Status

_WARPS = 4  # what Triton takes where a config names none


@dataclass(frozen=True)
class Verdict:
    """What a rule says of a config.

    Attributes:
        status: How the trial ends without being run; `ok` for a config that is only deferred.
        reason: Why, with the numbers.
    """

    status: Status
    reason: str

    @property
    def deferred(self) -> bool:
        """Whether the config can run, but need only be tried when nothing else is left."""
        return self.status is Status.OK


def with_residents(found: Compiled, machine: Machine | None) -> Compiled:
    """`found` with how many of its blocks a multiprocessor of `machine` holds at a time, where that can be known."""
    made, warps = found.resources, found.config.get("num_warps", _WARPS)
    if machine is None or made is None or made.registers is None or not isinstance(warps, int) or warps < 1:
        return found
    return replace(found, resident=machine.blocks_at_once(made.registers, made.shared_bytes or 0, warps))
