"""`FP8Linear`: a linear layer that multiplies in 8 bits, and quantises its weight anew when that has changed."""

from __future__ import annotations

import math
from typing import Any

from triton_ops.base import base_class, require
from triton_ops.kernels.call import validate_positive_dimensions
from triton_ops.kernels.fp8_gemm.linear import forget, fp8_linear

_Module = base_class("torch.nn", "Module", "FP8Linear")


class FP8Linear(_Module):  # type: ignore[misc, valid-type]
    """x @ weight.T + bias with both factors in E4M3: a scale for each token, and one for each output.

    The weight is kept in its own dtype, and quantised when it is first needed and whenever it has changed since: by an
    optimiser, `load_state_dict`, `to`, another parameter in its place, or any other write that torch counts. A write
    through `weight.data` is not counted; call `refresh` after it. A CUDA graph that captures a call quantises the
    weight at every replay. Gradients go straight through the quantisation: they are those of the linear layer with the
    unquantised factors. Under autocast the result keeps the dtype of `x`. For `torch.compile` and `torch.export` a call
    is one operator, which keeps the quantised weight likewise.

    Args:
        in_features: Elements of an input, 1 or more.
        out_features: Elements of an output, 1 or more.
        bias: Whether there is a bias.
        fast_accum: As for `fp8_gemm`.
        device: The device of the weight; None takes torch's default.
        dtype: The dtype of the weight: bfloat16, float16 or float32; None takes torch's default.

    Attributes:
        weight: [out_features, in_features], drawn as that of `torch.nn.Linear`.
        bias: [out_features], or None.

    Raises:
        ShapeMismatchError: A size is below 1.
        MissingDependencyError: torch is not installed, or its import fails.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        *,
        fast_accum: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        torch = require("torch", "FP8Linear")
        validate_positive_dimensions(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.fast_accum = in_features, out_features, fast_accum
        self.weight = torch.nn.Parameter(torch.empty((out_features, in_features), device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, as `torch.nn.Linear` does."""
        init = require("torch.nn.init", "FP8Linear")
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Any) -> Any:
        """From [..., in_features] to [..., out_features], in the dtype of `x`.

        Raises:
            KernelTypeError, DeviceError, UnsupportedDtypeError: As `fp8_gemm`.
            ShapeMismatchError: The last axis of `x` is not [in_features].
        """
        return fp8_linear(x, self.weight, self.bias, fast_accum=self.fast_accum)

    def refresh(self) -> None:
        """Quantise the weight anew at the next call, whether torch has counted a change or not."""
        forget(self.weight)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or convert, as `to` and `half` do, without the quantised weight, which would stay where it is."""
        forget(self.weight)
        return super()._apply(fn, recurse)
