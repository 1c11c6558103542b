"""`triton-ops profile`: the commands of `lab`, with the clock of `benchmark`."""

from __future__ import annotations

from triton_ops import time_ms
from triton_ops.lab import profile_group

profile_command = profile_group(time_ms)
