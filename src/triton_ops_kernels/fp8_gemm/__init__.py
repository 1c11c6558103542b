"""C = A @ B of 8-bit floats with scales: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton_ops.backend import TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import compilable
from triton_ops.exceptions import KernelTypeError, ShapeMismatchError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import call
from triton_ops_kernels.composed import FormsKernel
from triton_ops_kernels.fp8_format import FP8Format, check_float8_device, check_output_dtype
from triton_ops_kernels.fp8_gemm import kernel, problems
from triton_ops_kernels.fp8_quantize import quantize_fp8
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import check_loads

if TYPE_CHECKING:
    import torch


def validate_fp8_gemm_inputs(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    output_dtype: object = None,
) -> tuple[int, int, int]:
    """Check the arguments of `fp8_gemm`: placement, dtypes, shapes, then the scales, which are not read.

    Returns:
        M, N and K.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: As `fp8_gemm`.
    """
    torch = require("torch", "fp8_gemm")
    scales = {name: scale for name, scale in (("a_scale", a_scale), ("b_scale", b_scale)) if scale is not None}
    call.check_placement({"a": a, "b": b, **scales}, on_cpu=INTERPRETED)
    check_float8_device(a)
    call.check_dtypes({"a": a, "b": b}, (FP8Format.name, *problems.DTYPES))
    call.check_dtypes(scales, ("float32",))
    check_output_dtype(torch.float16 if output_dtype is None else output_dtype, problems.DTYPES)
    call.check_rank("a", a.shape, "[M, K]")
    call.check_rank("b", b.shape, "[K, N]")
    (M, K), N = a.shape, b.shape[1]
    call.check_shape("b", b.shape, (K, N), "its rows must match a's columns")
    for name, matrix in (("a", a), ("b", b)):
        if matrix.dtype == torch.float8_e4m3fn and f"{name}_scale" not in scales:
            raise KernelTypeError(
                f"{name} is stored in 8 bits, and {name}_scale is missing",
                hint="pass the scale that quantize_fp8 returned with it",
            )
    return M, N, K


def checked_scales(
    shape: tuple[int, int, int], a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Both scales as matrices, and whether they are by block.

    Raises:
        ShapeMismatchError: A scale has another shape, or only one of them is by block.
    """
    forms = problems.scale_shapes(*shape)
    a, b = (scale.reshape(1, 1) if scale.numel() == 1 else scale for scale in (a_scale, b_scale))
    shapes = tuple(a.shape), tuple(b.shape)
    plain = [tuple(each[place] for each in (forms["tensor"], forms["row"])) for place in (0, 1)]
    if shapes[0] in plain[0] and shapes[1] in plain[1]:
        return a, b, False
    if shapes == forms["block"]:
        return a, b, True
    wrong = 0 if shapes[0] not in (*plain[0], forms["block"][0]) else 1
    raise ShapeMismatchError(
        f"the scales have the shapes {shapes[0]} and {shapes[1]}, which do not lie over a product of {shape}",
        f"one number, {forms['row'][0]} and {forms['row'][1]}, or {forms['block'][0]} and {forms['block'][1]}",
        shapes[wrong],
        ("a_scale", "b_scale")[wrong],
        hint="turn the scale as the matrix: scale.t()",
    )


def _as_it_fits(config: Config, values: Mapping[str, Any], own: bool) -> Config:
    """A config of the caller's own as its form runs it, if the tensors have what it asks for."""
    if not own:
        return config
    a, b = values["a"], values["b"]
    check_loads(config, lambda: problems.takes_descriptors(TensorSpec.of(a), TensorSpec.of(b)), "neighbours along K")
    return problems.as_its_form(config, lambda: problems.config_space(_KERNEL.problem_of(values, bias=None)))


_KERNEL = call.shipped(
    "fp8_gemm",
    FormsKernel(
        {
            "triton": TritonKernel(kernel.fp8_gemm_kernel, kernel.grid, outputs=("c",), made=kernel.host_descriptors),
            "parts": TritonKernel(kernel.parts_kernel, kernel.parts_grid, outputs=("c",)),
            **problems.gluon_forms(),
        },
        default="triton",
        others=("BUFFERS", "APART", "SUMS"),
    ),
    problems,
    _as_it_fits,
)
operation = _KERNEL.operation


@compilable(
    "(Tensor a, Tensor b, Tensor? a_scale=None, Tensor? b_scale=None, ScalarType? output_dtype=None, "
    'Tensor? bias=None, bool fast_accum=False, str config="", bool tune=False) -> Tensor'
)
def fp8_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    *,
    bias: torch.Tensor | None = None,
    fast_accum: bool = False,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Multiply two matrices of 8-bit floats, (a / a_scale) @ (b / b_scale) + bias, on tensor cores.

    A matrix of wider floats is quantised first, with one scale. Sums of products are promoted to float32 after at most
    128 terms, unless `fast_accum` is set: Hopper's tensor cores keep about 14 bits while they add, which costs some
    percent at most at K = 4096. The result is rounded once to its dtype, with the same bits at every call. The function
    has no gradient.

    Args:
        a: [M, K], float8_e4m3fn, any strides, or bfloat16 | float16 | float32, CUDA, compute capability from 8.9.
        b: [K, N], as `a`; fastest with K as its contiguous axis, as a transposed weight has it.
        a_scale: float32, for stored values: one number, [M, 1], or [M, ceil(K / 128)].
        b_scale: float32, for stored values: one number, [1, N], or, with `a_scale` by block,
            [ceil(K / 128), ceil(N / 128)].
        output_dtype: bfloat16, float16 or float32; None is float16.
        bias: [N], bfloat16 | float16 | float32, contiguous; None is 0.
        fast_accum: Whether sums need not be promoted. It is ignored where scales are by block.
        config: A value for each of BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages, and if you like GROUP_SIZE_M,
            PROMOTE, LOADS, SWAPPED, PROGRAMS, HALVES and AHEAD, or FORM, with SUMS for `parts`, and BUFFERS and
            APART for `gluon`; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [M, N], `output_dtype`, contiguous, new storage. NaN propagates; float16 overflows to infinity beyond 65504.

    Raises:
        KernelTypeError: An argument is not a tensor with strides, a stored matrix comes without its scale, or an input
            requires a gradient while torch is recording.
        DeviceError: A tensor is not on a CUDA device, the tensors are on different devices, or the device has no 8-bit
            floats.
        UnsupportedDtypeError: A dtype is not in the lists above.
        ShapeMismatchError: A rank is not 2, K differs, a scale or the bias has another shape, or strides reach 2^23
            elements.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` is no mapping, holds what the kernel does not take, or asks for tensor descriptors of
            matrices that cannot have them, or for the form in Gluon where it cannot compute the product.
        SettingsError: `tune` is no bool.

    Cost: 2MNK operations; reads A and B and writes C once where L2 holds the tiles in flight; no host sync. The first
    call of a config, dtype and stride class compiles: 0.1 to some seconds.
    Source: promotion and blocks of 128 of DeepSeek-V3, arXiv:2412.19437.
    """
    torch = require("torch", "fp8_gemm")
    M, N, K = validate_fp8_gemm_inputs(a, b, a_scale, b_scale, output_dtype)
    if bias is not None:
        call.check_placement({"a": a, "bias": bias}, on_cpu=True)  # a's own place has been checked
        call.check_dtypes({"bias": bias}, problems.DTYPES)
        call.check_contiguous({"bias": bias})
        call.check_shape("bias", bias.shape, (N,), "b has this number of columns")
    call.check_constant({"a": a, "b": b} if bias is None else {"a": a, "b": b, "bias": bias}, "fp8_gemm")
    (a, a_scale), (b, b_scale) = _codes_and_scale(a, a_scale), _codes_and_scale(b, b_scale)
    a_scale, b_scale, blocked = checked_scales((M, N, K), a_scale, b_scale)
    out = a.new_empty((M, N), dtype=torch.float16 if output_dtype is None else output_dtype)
    values = problems.launch_values(a, b, out, a_scale, b_scale, blocked, bool(fast_accum))
    if _KERNEL.launches(out):
        _KERNEL.run(values, a.device, config, tune, bias=None if bias is None else bias.detach())
    return out


def _codes_and_scale(matrix: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix in 8 bits with its scale; one of wider floats is quantised, with its axes in the order of its memory."""
    plain = matrix.detach()
    if scale is not None and "float8" in str(matrix.dtype):
        return plain, scale
    if plain.t().is_contiguous():
        codes, codes_scale = quantize_fp8(plain.t(), scale)
        return codes.t(), codes_scale
    return quantize_fp8(plain.contiguous(), scale)
