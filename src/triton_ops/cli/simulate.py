"""`triton-ops simulate`: the command of `lab`, with the server of `report`."""

from __future__ import annotations

from triton_ops.lab import simulate_with
from triton_ops.report import serve_page

simulate_command = simulate_with(serve_page)
