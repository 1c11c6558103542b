"""The program `triton-ops`: its start, its list of commands, and those that several high rooms serve."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".start": "main",
}

if TYPE_CHECKING:
    from triton_ops.cli.start import main as main
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
