"""The chooser of products of 8-bit floats with scales, `scaled_mm`."""

from __future__ import annotations

from typing import Any

from triton_ops.choices.choose import choose
from triton_ops.choices.chooser import Chooser
from triton_ops.choices.implementation import Implementation
from triton_ops.choices.ready.common import first_reason, kernel_module, of_dtype, on_gpu, torch_
from triton_ops.tensors import TensorSpec

_ONE_BYTE = ("torch.float8_e4m3fn",)
_STEP = 16  # of every extent, for the library


def scaled_mm_chooser() -> Chooser:
    """(a * scale_a) @ (b * scale_b) for a [M, K] row-major and b [K, N] column-major of float8_e4m3fn.

    The scales are float32: one number, or [M, 1] and [1, N]. The result has `out_dtype`, bfloat16 if it is None.
    """
    found = {
        "aten": Implementation(_library, applies=_library_takes, gradient=False),
        "widened": Implementation(_widened),
    }
    if (kernels := kernel_module("fp8_gemm")) is not None:
        found["triton"] = Implementation(
            _kernel, applies=_kernel_takes, operation=kernels.operation, values=_kernel_values, gradient=False
        )
    return choose(  # type: ignore[no-any-return]
        found, name="choose_scaled_mm",
        schema="(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, ScalarType? out_dtype=None) -> Tensor",
        reference=_right, arguments=_arguments,
    )  # fmt: skip


def _arguments(M: int = 1024, N: int = 1024, K: int = 1024) -> dict[str, TensorSpec]:
    scale = TensorSpec((1,), "float32", fill="positive")
    a, b = TensorSpec((M, K), "float8_e4m3fn"), TensorSpec((K, N), "float8_e4m3fn", (1, K))
    return {"a": a, "b": b, "scale_a": scale, "scale_b": scale}


def _right(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> Any:
    """The product in float32 or wider, rounded once."""
    torch = torch_()
    wide = torch.float64 if scale_a.dtype == torch.float64 else torch.float32
    found = (a.to(wide) @ b.to(wide)) * scale_a.to(wide) * scale_b.to(wide)
    return found.to(out_dtype or torch.bfloat16)


def _widened(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> Any:
    """A product of bfloat16, which holds every 8-bit float: for devices without 8-bit products."""
    torch = torch_()
    found = torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16)).float() * scale_a * scale_b
    return found.to(out_dtype or torch.bfloat16)


def _library(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> Any:
    torch = torch_()
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype or torch.bfloat16)


def _library_takes(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> str | bool:
    return first_reason([
        of_dtype(a, _ONE_BYTE), of_dtype(b, _ONE_BYTE),
        None if a.stride(1) == 1 and b.stride(0) == 1 else "a must be row-major and b column-major",
        *_products_of_bytes(a),
        None if all(extent % _STEP == 0 for extent in (*a.shape, *b.shape)) else f"an extent is no multiple of {_STEP}",
    ])  # fmt: skip


def _products_of_bytes(a: Any) -> list[str | None]:
    """Why a GPU multiplies no 8-bit floats; a described tensor may be on one that is not here."""
    cuda = torch_().cuda
    if not a.is_cuda or not cuda.is_available():
        return []
    capability = cuda.get_device_capability(a.device)
    return [None if capability >= (8, 9) else f"the GPU's capability is {capability}, and 8-bit products begin at 8.9"]


def _kernel_takes(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> str | bool:
    return first_reason([on_gpu(a), of_dtype(a, _ONE_BYTE), of_dtype(b, _ONE_BYTE), *_products_of_bytes(a)])


def _kernel(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None, *, config: Any = None) -> Any:
    """The shipped kernel, which divides by its scales."""
    torch, product = torch_(), kernel_module("fp8_gemm").fp8_gemm
    return product(a, b, scale_a.reciprocal(), scale_b.reciprocal(), out_dtype or torch.bfloat16, config=config)


def _kernel_values(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None) -> dict[str, Any]:
    torch, problems = torch_(), kernel_module("fp8_gemm.problems")
    (rows, inner), columns = a.shape, b.shape[1]
    c = a.new_empty((rows, columns), dtype=out_dtype or torch.bfloat16)
    first, second = (scale.view(1, 1) if scale.numel() == 1 else scale for scale in (scale_a, scale_b))
    return {
        "a": a, "b": b, "c": c, "a_scale": first, "b_scale": second, "bias": None,
        **problems.extents((rows, columns, inner), a.stride(), b.stride()),
        **problems.scale_strides((first.shape, second.shape), first.stride(), second.stride()),
        "BLOCKED": False, "FAST": False, "C_DESCRIBED": problems.result_described(columns, c.element_size()),
    }  # fmt: skip
