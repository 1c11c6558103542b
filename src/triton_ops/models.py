"""The documented import path of the result types, and of the inputs of the documented kernels as specs."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.values import KernelMetrics as KernelMetrics
    from triton_ops.values import TensorSpec as TensorSpec
    from triton_ops.values import TuningResult as TuningResult
    from triton_ops_kernels import FP8Format as FP8Format
    from triton_ops_kernels.models import FP8GEMMInput as FP8GEMMInput
    from triton_ops_kernels.models import GatedMLPInput as GatedMLPInput
    from triton_ops_kernels.models import RMSNormRoPEInput as RMSNormRoPEInput
