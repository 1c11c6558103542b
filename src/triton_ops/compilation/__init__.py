"""Configs compiled ahead, by processes without a device."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.compilation.pool import CompilePool as CompilePool
    from triton_ops.compilation.turns import Queue as Queue
    from triton_ops.compilation.turns import SharedCpus as SharedCpus
