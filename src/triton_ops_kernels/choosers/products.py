"""Choosers of matrix products: `matmul`, `linear` with bias and activation, and `bmm`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from triton_ops.base import ForkSafeLock
from triton_ops.dispatch import Chooser, Implementation
from triton_ops.values import TensorSpec
from triton_ops_kernels.choosers.common import (
    DTYPES,
    NARROW,
    WIDE,
    by_kernel,
    first_reason,
    kernel_module,
    of_dtype,
    on_gpu,
    outside_of_graphs,
)

_ONE_BYTE = ("torch.float8_e4m3fn",)
_STEP = 16  # of every extent, for the library


def scaled_mm_chooser() -> Chooser:
    """(a * scale_a) @ (b * scale_b) for a [M, K] row-major and b [K, N] column-major of float8_e4m3fn.

    The scales are float32: one number, or [M, 1] and [1, N]. The result has `out_dtype`, bfloat16 if it is None.
    """
    implementations = {
        "aten": Implementation(_library, applies=_library_takes, gradient=False),
        "widened": Implementation(_widened),
        **by_kernel("fp8_gemm", _kernel, _kernel_takes, _scaled_kernel_values, gradient=False),
    }
    return Chooser(
        implementations, name="choose_scaled_mm",
        schema="(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, ScalarType? out_dtype=None) -> Tensor",
        reference=_right, arguments=_arguments,
    )  # fmt: skip


def _arguments(M: int = 1024, N: int = 1024, K: int = 1024) -> dict[str, TensorSpec]:
    scale = TensorSpec((1,), "float32", fill="positive")
    a, b = TensorSpec((M, K), "float8_e4m3fn"), TensorSpec((K, N), "float8_e4m3fn", (1, K))
    return {"a": a, "b": b, "scale_a": scale, "scale_b": scale}


def _right(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """The product in float32 or wider, rounded once."""
    wide = torch.float64 if scale_a.dtype == torch.float64 else torch.float32
    found = (a.to(wide) @ b.to(wide)) * scale_a.to(wide) * scale_b.to(wide)
    return found.to(out_dtype or torch.bfloat16)


def _widened(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """A product of bfloat16, which holds every 8-bit float: for devices without 8-bit products."""
    found = torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16)).float() * scale_a * scale_b
    return found.to(out_dtype or torch.bfloat16)


def _library(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype or torch.bfloat16)


def _library_takes(a: Tensor, b: Tensor, *_scales: object, **_named: object) -> str | bool:
    return first_reason([
        of_dtype(a, _ONE_BYTE), of_dtype(b, _ONE_BYTE),
        None if a.stride(1) == 1 and b.stride(0) == 1 else "a must be row-major and b column-major",
        *_products_of_bytes(a),
        None if all(extent % _STEP == 0 for extent in (*a.shape, *b.shape)) else f"an extent is no multiple of {_STEP}",
    ])  # fmt: skip


def _products_of_bytes(a: Tensor) -> list[str | None]:
    """Reasons why a GPU multiplies no 8-bit floats; a described tensor may be on one that is not here."""
    cuda = torch.cuda
    if not a.is_cuda or not cuda.is_available():
        return []
    capability = cuda.get_device_capability(a.device)
    return [None if capability >= (8, 9) else f"the GPU's capability is {capability}, and 8-bit products begin at 8.9"]


def _kernel_takes(a: Tensor, b: Tensor, *_scales: object, **_named: object) -> str | bool:
    return first_reason([on_gpu(a), of_dtype(a, _ONE_BYTE), of_dtype(b, _ONE_BYTE), *_products_of_bytes(a)])


def _kernel(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any = None, *, config: Any = None) -> Any:
    """The shipped kernel, which divides by its scales."""
    product = kernel_module("fp8_gemm").fp8_gemm
    return product(a, b, scale_a.reciprocal(), scale_b.reciprocal(), out_dtype or torch.bfloat16, config=config)


def _scaled_kernel_values(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype | None = None
) -> dict[str, object]:
    problems = kernel_module("fp8_gemm.problems")
    c = a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype or torch.bfloat16)
    scales = (scale.view(1, 1) if scale.numel() == 1 else scale for scale in (scale_a, scale_b))
    return problems.launch_values(a, b, c, *scales)  # type: ignore[no-any-return]


_ACTIVATIONS = ("none", "relu", "gelu", "silu")
_SPLITS = 8  # parts of K
_LEAST_PART = 512  # elements of K in a part
_FEW = 64  # rows or columns of a product whose tiles leave most of a GPU idle
_MOST_LOOPS = 8


def matmul_chooser() -> Chooser:
    """A @ b for matrices [M, K] and [K, N] of one dtype."""
    implementations = {
        "aten": torch.mm,
        "cublaslt": Implementation(_by_lt, applies=_has_lt),
        "mv": Implementation(_matrix_vector, applies=lambda a, b: a.shape[0] == 1 or f"a has {a.shape[0]} rows"),
        "transposed": Implementation(_transposed, applies=lambda a, b: a.shape[0] != b.shape[1] or "it is square"),
        "split_k": Implementation(_split_k, applies=_worth_splitting),
        **by_kernel("matmul", _by_kernel, _fits_kernel, _kernel_values, gradient=False),
    }
    return Chooser(
        implementations, name="choose_matmul",
        schema="(Tensor a, Tensor b) -> Tensor", parameters=("a", "b"), arguments=_matrices, dtypes=DTYPES,
    )  # fmt: skip


def linear_chooser() -> Chooser:
    """activation(x @ weight.T + bias) for x [..., K], weight [N, K], bias [N] or None.

    The activation is `none`, `relu`, `gelu` or `silu`.
    """
    implementations = {
        "aten": Implementation(_linear),
        "addmm": Implementation(
            _addmm, applies=lambda x, weight, bias=None, activation="none": bias is not None or "there is no bias"
        ),
        "fused_relu": Implementation(_addmm_relu, applies=_fuses_relu, gradient=False),
        **by_kernel("matmul", _linear_by_kernel, _linear_fits_kernel, _linear_values, gradient=False),
    }
    return Chooser(
        implementations, name="choose_linear",
        schema='(Tensor x, Tensor weight, Tensor? bias=None, str activation="none") -> Tensor',
        arguments=_layer, dtypes=DTYPES,
    )  # fmt: skip


def bmm_chooser() -> Chooser:
    """A @ b for batches of matrices [B, M, K] and [B, K, N]."""
    implementations = {
        "aten": torch.bmm,
        "folded": Implementation(
            _folded, applies=lambda a, b: b.stride(0) == 0 or b.shape[0] == 1 or "the second matrices differ"
        ),
        "one_by_one": Implementation(
            _one_by_one, applies=lambda a, b: a.shape[0] <= _MOST_LOOPS or f"there are more than {_MOST_LOOPS} matrices"
        ),
        "transposed": Implementation(_batch_transposed),
    }
    return Chooser(
        implementations, name="choose_bmm",
        schema="(Tensor a, Tensor b) -> Tensor", parameters=("a", "b"), arguments=_batches, dtypes=DTYPES,
    )  # fmt: skip


def _matrices(M: int = 1024, N: int = 1024, K: int = 1024, dtype: str = "bfloat16") -> dict[str, TensorSpec]:
    return {"a": TensorSpec((M, K), dtype), "b": TensorSpec((K, N), dtype)}


def _layer(M: int = 1024, N: int = 1024, K: int = 1024, dtype: str = "bfloat16") -> dict[str, object]:
    weight, bias = TensorSpec((N, K), dtype), TensorSpec((N,), dtype)
    return {"x": TensorSpec((M, K), dtype), "weight": weight, "bias": bias, "activation": "relu"}


def _batches(B: int = 16, M: int = 256, N: int = 256, K: int = 256, dtype: str = "bfloat16") -> dict[str, TensorSpec]:
    return {"a": TensorSpec((B, M, K), dtype), "b": TensorSpec((B, K, N), dtype)}


class _CublasLt:
    """Torch's choice of cuBLASLt while products run that ask for it, in any number of threads at once.

    The setting is the process's: a product that another thread begins meanwhile is cuBLASLt's too, and as right. The
    last of them to end gives back what the first has found.
    """

    def __init__(self) -> None:
        self._guard = ForkSafeLock()
        self._inside = 0
        self._before: torch._C._BlasBackend | None = None

    @property
    def otherwise(self) -> object:
        """The library that torch takes for other products."""
        with self._guard:
            return self._before if self._inside else torch.backends.cuda.preferred_blas_library()

    def __enter__(self) -> None:
        library = torch.backends.cuda.preferred_blas_library
        with self._guard:
            if not self._inside:
                self._before = library()
                library("cublaslt")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside:
                torch.backends.cuda.preferred_blas_library(self._before)


_CUBLASLT = _CublasLt()


@outside_of_graphs
def _by_lt(a: Tensor, b: Tensor) -> Tensor:
    """The product by cuBLASLt, whose heuristics differ from those of cuBLAS."""
    with _CUBLASLT:
        return torch.mm(a, b)


def _has_lt(a: Tensor, b: Tensor) -> str | bool:
    if not a.is_cuda or torch.version.cuda is None:
        return f"the tensors are on {a.device}, where there is no cuBLASLt"
    return not str(_CUBLASLT.otherwise).lower().endswith("cublaslt") or "it is what torch takes already"


def _matrix_vector(a: Tensor, b: Tensor) -> Tensor:
    return torch.mv(b.t(), a[0]).unsqueeze(0)


def _transposed(a: Tensor, b: Tensor) -> Tensor:
    """The product of the transposed matrices, turned back: for libraries that are better at the other order."""
    return torch.mm(b.t(), a.t()).t().contiguous()


def _worth_splitting(a: Tensor, b: Tensor) -> str | bool:
    inner, least = a.shape[1], _SPLITS * _LEAST_PART
    return first_reason([
        None if a.is_cuda else "one product of a CPU uses all of it",
        of_dtype(a, NARROW),
        None if min(a.shape[0], b.shape[1]) <= _FEW else f"it has more than {_FEW} rows and columns",
        None if inner >= least and inner % _SPLITS == 0 else f"K is {inner}, no multiple of {_SPLITS} from {least} on",
    ])  # fmt: skip


def _split_k(a: Tensor, b: Tensor) -> Tensor:
    """Parts of K side by side, added up in float32."""
    (rows, inner) = a.shape
    parts = torch.bmm(
        a.view(rows, _SPLITS, inner // _SPLITS).transpose(0, 1), b.view(_SPLITS, inner // _SPLITS, -1),
        out_dtype=torch.float32,
    )  # fmt: skip
    return parts.sum(0).to(a.dtype)


def _fits_kernel(a: Tensor, b: Tensor) -> str | bool:
    return first_reason([on_gpu(a), of_dtype(a, NARROW), None if a.dtype == b.dtype else "the dtypes differ"])


def _by_kernel(a: Tensor, b: Tensor, *, config: Any = None) -> Any:
    return kernel_module("matmul").matmul(a, b, config=config)


def _kernel_values(a: Tensor, b: Tensor) -> dict[str, object]:
    problems, c = kernel_module("matmul.problems"), a.new_empty((a.shape[0], b.shape[1]))
    return problems.launch_values(a, b, c)  # type: ignore[no-any-return]


def _activated(found: Tensor, activation: str) -> Tensor:
    if activation == "none":
        return found
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; it must be {' or '.join(_ACTIVATIONS)}")
    activated: Tensor = getattr(torch.nn.functional, activation)(found)
    return activated


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    return _activated(torch.nn.functional.linear(x, weight, bias), activation)


def _addmm(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    found = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
    return _activated(found, activation).view(*x.shape[:-1], weight.shape[0])


def _fuses_relu(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> str | bool:
    return first_reason([
        None if bias is not None else "there is no bias",
        None if activation == "relu" else f"the activation is {activation}, not relu",
        of_dtype(x, WIDE),
    ])  # fmt: skip


def _addmm_relu(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "relu") -> Tensor:
    """The library's product with bias and relu in its epilogue."""
    found = torch._addmm_activation(bias, x.reshape(-1, x.shape[-1]), weight.t())
    return found.view(*x.shape[:-1], weight.shape[0])


def _linear_fits_kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> str | bool:
    return first_reason([
        on_gpu(x), of_dtype(x, NARROW),
        None if x.dtype == weight.dtype else "the dtypes differ",
        None if x.ndim == 2 or x.is_contiguous() else "x has gaps",
        None if bias is None or bias.is_contiguous() else "the bias has gaps",
        None if activation in _ACTIVATIONS else f"the kernel has no activation {activation}",
    ])  # fmt: skip


def _linear_by_kernel(x: Any, weight: Any, bias: Any = None, activation: str = "none", *, config: Any = None) -> Any:
    flat = x if x.ndim == 2 else x.view(-1, x.shape[-1])
    found = kernel_module("matmul").matmul(flat, weight.t(), bias=bias, activation=activation, config=config)
    return found if x.ndim == 2 else found.view(*x.shape[:-1], weight.shape[0])


def _linear_values(x: Tensor, weight: Tensor, *_rest: object, **_named: object) -> dict[str, object]:
    flat = x if x.ndim == 2 else x.view(x.numel() // x.shape[-1], x.shape[-1])
    return _kernel_values(flat, weight.t())


def _folded(a: Tensor, b: Tensor) -> Tensor:
    """One product of all rows, where all matrices on the right are one."""
    batch, rows, inner = a.shape
    return torch.mm(a.reshape(batch * rows, inner), b[0]).view(batch, rows, -1)


def _one_by_one(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty((a.shape[0], a.shape[1], b.shape[2]))
    for place in range(a.shape[0]):
        torch.mm(a[place], b[place], out=out[place])
    return out


def _batch_transposed(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(b.transpose(1, 2), a.transpose(1, 2)).transpose(1, 2).contiguous()
