"""`python -m triton_ops` is `triton-ops`."""

from triton_ops.cli.app import main

main()
