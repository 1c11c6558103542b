"""`python -m triton_ops` is `triton-ops`."""

from triton_ops.cli import main

main()
