"""Configs before a launch: rules that need no compiler, and processes that compile ahead without a GPU."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.compilation.pool import TIMEOUT_S as TIMEOUT_S
    from triton_ops.compilation.pool import CompilePool as CompilePool
    from triton_ops.compilation.pool import Queue as Queue
    from triton_ops.compilation.pool import SharedCpus as SharedCpus
    from triton_ops.compilation.tiers import foresee as foresee
    from triton_ops.compilation.tiers import resources_of as resources_of
    from triton_ops.compilation.tiers import with_residents as with_residents
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
