"""Configs compiled ahead, by processes without a device."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".pool": "CompilePool Queue SharedCpus",
}

if TYPE_CHECKING:
    from triton_ops.compilation.pool import CompilePool as CompilePool
    from triton_ops.compilation.pool import Queue as Queue
    from triton_ops.compilation.pool import SharedCpus as SharedCpus
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
