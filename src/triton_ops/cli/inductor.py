"""`triton-ops inductor`: the commands of `compile_modes`, with devices and a kernel from higher rooms."""

from __future__ import annotations

from triton_ops.benchmark import own_ms
from triton_ops.compile_modes import inductor_group
from triton_ops.lab import device_spec

inductor_command = inductor_group(device_spec, own_ms)
