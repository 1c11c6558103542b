"""Problems, tables and look-ups of vLLM's and SGLang's Triton kernels, answered by what triton_ops has tuned."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".commands": "check_command export_command list_command tune_command",
}

if TYPE_CHECKING:
    from triton_ops_serving.commands import check_command as check_command
    from triton_ops_serving.commands import export_command as export_command
    from triton_ops_serving.commands import list_command as list_command
    from triton_ops_serving.commands import tune_command as tune_command
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
