"""The linear layer in 8 bits as one operator of torch's, with the 8-bit copies of weights that it keeps.

A copy belongs to its weight and not to a module, so that compiled code, in which there are no modules, finds it too.
No copy is made in memory of a CUDA graph: what a graph captures is computed at each replay, and not yet, and torch's
compiler, before it captures, runs once in the graph's memory and refuses what is left there.

Facts used, from torch 2.11 to 2.13: `torch._inductor.cudagraph_trees.get_manager` gives a device's manager, whose
`in_warmup` is true in that run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any

from triton_ops.base import require
from triton_ops.dispatch import Gradient, capturing, compilable
from triton_ops.kernels import call
from triton_ops.kernels.fp8_gemm import fp8_gemm
from triton_ops.kernels.fp8_quantize import quantize_fp8
from triton_ops.kernels.fp8_quantize.problems import DTYPES
from triton_ops.kernels.gradient import differentiable
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.values import is_fake


@cache
def copies() -> MutableMapping[Any, tuple[Any, Any, Any]]:
    """By weight what it was when it was quantised, its codes and its scales; gone when the weight is."""
    return require("torch.utils.weak", "FP8Linear").WeakTensorKeyDictionary()  # type: ignore[no-any-return]


def quantise(weight: Any) -> tuple[Any, Any]:
    """The weight in 8 bits with a scale for each row; kept from the last call, if it has not changed since."""
    # Tensors of inference mode do not count their changes: they are quantised at every call.
    keeps = not (weight.is_inference() or is_fake(weight) or capturing() or _warming_up(weight))
    version = (weight.data_ptr(), weight._version, weight.dtype, weight.device) if keeps else None
    copy = copies().get(weight)
    if copy is not None and copy[0] == version:
        return copy[1:]
    codes, scale = quantize_fp8(weight.detach().contiguous(), granularity="row")
    if keeps:
        copies()[weight] = (version, codes, scale)
    else:
        forget(weight)
    return codes, scale


def _warming_up(weight: Any) -> bool:
    """Tell whether torch's compiler runs in the memory of a CUDA graph that it will capture."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or weight.device.type != "cuda":
        return False
    manager = trees.get_manager(weight.device.index, create_if_none_exists=False)
    return manager is not None and bool(manager.in_warmup)


def forget(weight: Any) -> None:
    """Quantise a weight anew at the next call."""
    copies().pop(weight, None)


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool]) -> tuple[Any, Any, Any]:
    """The gradients of the linear layer with the unquantised factors, in the dtype of the weight.

    Args:
        tensors: x and the weight.
        grad: The gradient of the result.
        needs: Which of x, weight and bias need theirs.
    """
    x, weight = tensors
    flat = grad.reshape(-1, weight.shape[0])
    wide = flat.to(weight.dtype)
    return (
        (wide @ weight).to(x.dtype).view(x.shape) if needs[0] else None,
        wide.mT @ x.reshape(-1, x.shape[-1]).to(weight.dtype) if needs[1] else None,
        flat.sum(0) if needs[2] else None,
    )


def _saved_values(inputs: Mapping[str, Any], _results: Any) -> tuple[list[Any], dict[str, Any]]:
    """The values for the gradient, where torch traces: tensors, and others by name."""
    return [inputs["x"], inputs["weight"]], {}


@compilable(
    "(Tensor x, Tensor weight, Tensor? bias=None, bool fast_accum=False) -> Tensor",
    gradient=Gradient(inputs=("x", "weight", "bias"), function=gradient, kept=_saved_values),
)
def fp8_linear(x: Any, weight: Any, bias: Any = None, fast_accum: bool = False) -> Any:
    """X @ weight.T + bias with both factors in E4M3, as `FP8Linear` computes it; the weight's codes are kept.

    Args:
        x: [..., in features].
        weight: [out features, in features].
        bias: [out features], or None.
        fast_accum: As for `fp8_gemm`.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError: As `fp8_gemm`.
        ShapeMismatchError: The last axis of `x` is not [in features].
    """
    factors = {"x": x, "weight": weight}
    call.check_placement(factors if bias is None else {**factors, "bias": bias}, on_cpu=INTERPRETED)
    call.check_dtypes(factors, DTYPES)
    call.check_shape("x", x.shape, (*x.shape[:-1], weight.shape[1]), "the layer has this number of inputs")

    def run(_saving: bool) -> tuple[Any, list[Any]]:
        rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
        codes, scale = quantize_fp8(rows, granularity="row")
        turned, turned_scale = quantise(weight)
        product = fp8_gemm(codes, turned.t(), scale, turned_scale.t(), x.dtype, bias=bias, fast_accum=fast_accum)
        return product.view(*x.shape[:-1], weight.shape[0]), [x.detach(), weight.detach()]

    return differentiable((x, weight, bias), run, gradient)
