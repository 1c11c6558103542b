"""The program `triton-ops`: its start, its list of commands, and those that several high rooms serve."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.cli.start import main as main
