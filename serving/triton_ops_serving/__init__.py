"""Problems, tables and look-ups of vLLM's and SGLang's Triton kernels, answered by what triton_ops has tuned."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_serving.commands import check_command as check_command
    from triton_ops_serving.commands import export_command as export_command
    from triton_ops_serving.commands import list_command as list_command
    from triton_ops_serving.commands import tune_command as tune_command
