"""`python -m triton_ops` is `triton-ops`."""

from __future__ import annotations

from triton_ops.cli import main

main()
