"""Commands of lower rooms that time something, with the clocks of higher ones."""

from __future__ import annotations

from triton_ops import time_ms
from triton_ops.benchmark import own_ms
from triton_ops.compile_modes import log_command_with
from triton_ops.lab import flow_command_with

log_command = log_command_with(own_ms)
flow_command = flow_command_with(time_ms)
