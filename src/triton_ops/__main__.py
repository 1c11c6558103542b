"""`python -m triton_ops` is `triton-ops`."""

from triton_ops.cli.start import main

main()
