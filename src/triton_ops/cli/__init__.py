"""The command line `triton-ops`: one module for each command."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.cli.interrupts import end_at_once_when_interrupted as end_at_once_when_interrupted
    from triton_ops.cli.start import main as main
    from triton_ops.cli.target import load_target as load_target
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
