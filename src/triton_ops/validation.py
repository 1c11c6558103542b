"""The documented import path of the checks that the shipped kernels make of their arguments."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_kernels import validate_eps as validate_eps
    from triton_ops_kernels import validate_head_dim as validate_head_dim
    from triton_ops_kernels import validate_positive_dimensions as validate_positive_dimensions
    from triton_ops_kernels.attention import validate_attention_inputs as validate_attention_inputs
    from triton_ops_kernels.fp8_gemm import validate_fp8_gemm_inputs as validate_fp8_gemm_inputs
    from triton_ops_kernels.fp8_quantize import validate_fp8_quantize_inputs as validate_fp8_quantize_inputs
    from triton_ops_kernels.gated_mlp import validate_gated_mlp_inputs as validate_gated_mlp_inputs
    from triton_ops_kernels.grouped_matmul import validate_grouped_matmul_inputs as validate_grouped_matmul_inputs
    from triton_ops_kernels.rmsnorm_rope import validate_rmsnorm_rope_inputs as validate_rmsnorm_rope_inputs
