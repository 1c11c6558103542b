"""The modules of torch's `nn` that own the weights of shipped kernels."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.dispatch import Gradient, beside, capturing, compilable
from triton_ops.exceptions import MissingDependencyError
from triton_ops.values import is_fake
from triton_ops_kernels import call
from triton_ops_kernels.call import check_activation, validate_eps, validate_head_dim, validate_positive_dimensions
from triton_ops_kernels.fp8_gemm import fp8_gemm
from triton_ops_kernels.fp8_quantize import quantize_fp8
from triton_ops_kernels.fp8_quantize.problems import DTYPES
from triton_ops_kernels.gated_mlp import fused_gated_mlp
from triton_ops_kernels.gated_mlp.problems import ACTIVATIONS
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.rmsnorm_rope import fused_rmsnorm_rope
from triton_ops_kernels.rmsnorm_rope.problems import DEFAULT_EPS

if TYPE_CHECKING:
    import torch
    from torch.types import Device


def base_class(module: str, name: str, purpose: str) -> Any:
    """The class `name` of the optional module `module`, to derive from; where there is none, a stand-in.

    A class that derives from the stand-in can be imported and named. To make an object of it raises the
    `MissingDependencyError` of `require`.
    """
    try:
        return getattr(require(module, purpose), name)
    except MissingDependencyError as error:
        message, hint = error.message, error.hint

        def refuse(*_: object, **__: object) -> Any:
            raise MissingDependencyError(message, hint=hint)

        return type(name, (), {"__new__": refuse})


class FusedRMSNormRoPE(base_class("torch.nn", "Module", "FusedRMSNormRoPE")):  # type: ignore[misc]
    """RMS normalisation with a weight, then rotary position embedding, in one kernel.

    Args:
        hidden_dim: Elements of a token, 1 or more; a multiple of `head_dim`.
        head_dim: Elements of a head; even, 2 or more.
        eps: A number that is added to the mean square; finite, 0 or more.
        device: The device of the weight; None takes torch's default.
        dtype: The dtype of the weight; None takes torch's default.

    Attributes:
        weight: [hidden_dim], ones at first.

    Raises:
        ShapeMismatchError: A size is below 1, or they do not fit each other.
        SettingsError: `eps` is out of range.
        MissingDependencyError: torch is not installed, or its import fails.
    """

    def __init__(
        self, hidden_dim: int, head_dim: int, eps: float = DEFAULT_EPS, *, device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        torch = require("torch", "FusedRMSNormRoPE")
        validate_positive_dimensions(hidden_dim=hidden_dim)
        validate_head_dim(head_dim, hidden_dim)
        validate_eps(eps)
        self.hidden_dim, self.head_dim, self.eps = hidden_dim, head_dim, eps
        self.weight = torch.nn.Parameter(torch.empty(hidden_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones, as after `to_empty` of a module that was made on the device `meta`."""
        require("torch.nn.init", "FusedRMSNormRoPE").ones_(self.weight)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Normalise and rotate, as `fused_rmsnorm_rope` does.

        Args:
            x: [batch, seq, hidden_dim].
            cos: [seq, head_dim] or [1, seq, 1, head_dim].
            sin: As `cos`.
        """
        return fused_rmsnorm_rope(x, self.weight, cos, sin, self.eps, self.hidden_dim // self.head_dim)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        return f"hidden_dim={self.hidden_dim}, head_dim={self.head_dim}, eps={self.eps}"


@cache
def copies() -> MutableMapping[torch.Tensor, tuple[object, torch.Tensor, torch.Tensor]]:
    """By weight what it was when it was quantised, its codes and its scales; gone when the weight is.

    A copy belongs to its weight and not to a module, so that compiled code, in which there are no modules, finds it
    too. No copy is made in memory of a CUDA graph: what a graph captures is computed at each replay, and not yet, and
    torch's compiler, before it captures, runs once in the graph's memory and refuses what is left there.
    """
    return require("torch.utils.weak", "FP8Linear").WeakTensorKeyDictionary()  # type: ignore[no-any-return]


def quantised_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
        forget_weight(weight)
    return codes, scale


def _warming_up(weight: torch.Tensor) -> bool:
    """Tell whether torch's compiler runs in the memory of a CUDA graph that it will capture.

    Facts used, from torch 2.11 to 2.13: `torch._inductor.cudagraph_trees.get_manager` gives a device's manager, whose
    `in_warmup` is true in that run.
    """
    # Torch warms up in the graph's own pool: pytorch/pytorch#96433.
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or weight.device.type != "cuda":
        return False
    manager = trees.get_manager(weight.device.index, create_if_none_exists=False)
    return manager is not None and bool(manager.in_warmup)


def forget_weight(weight: torch.Tensor) -> None:
    """Quantise a weight anew at the next call."""
    copies().pop(weight, None)


def linear_gradient(
    tensors: Sequence[torch.Tensor], grad: torch.Tensor, needs: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of x, weight and bias with the unquantised factors, in the dtype of the weight."""
    x, weight = tensors
    flat = grad.reshape(-1, weight.shape[0])
    wide = flat.to(weight.dtype)
    return (
        (wide @ weight).to(x.dtype).view(x.shape) if needs[0] else None,
        wide.mT @ x.reshape(-1, x.shape[-1]).to(weight.dtype) if needs[1] else None,
        flat.sum(0) if needs[2] else None,
    )


@compilable(
    "(Tensor x, Tensor weight, Tensor? bias=None, bool fast_accum=False) -> Tensor",
    gradient=Gradient(inputs=("x", "weight", "bias"), function=linear_gradient, kept=("x", "weight")),
)
def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, fast_accum: bool = False
) -> torch.Tensor:
    """X @ weight.T + bias with both factors in E4M3, as `FP8Linear` computes it; the weight's codes are kept.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError: As `fp8_gemm`.
        ShapeMismatchError: The last axis of `x` is not [in features].
    """
    factors = {"x": x, "weight": weight}
    call.check_placement(factors if bias is None else {**factors, "bias": bias}, on_cpu=INTERPRETED)
    call.check_dtypes(factors, DTYPES)
    call.check_shape("x", x.shape, (*x.shape[:-1], weight.shape[1]), "the layer has this number of inputs")

    rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
    codes, scale = quantize_fp8(rows, granularity="row")
    turned, turned_scale = beside(quantised_weight, weight)
    bias = None if bias is None else bias.detach()
    product = fp8_gemm(codes, turned.t(), scale, turned_scale.t(), x.dtype, bias=bias, fast_accum=fast_accum)
    if x.ndim != 2:
        shape = (*x.shape[:-1], weight.shape[0])  # to autograd it is no view, which nobody might change in place
        product = require("torch", "FP8Linear").ops.aten._unsafe_view(product, shape)
    return product


class FP8Linear(base_class("torch.nn", "Linear", "FP8Linear")):  # type: ignore[misc]
    """A `torch.nn.Linear` with both factors in E4M3: a scale for each token, and one for each output.

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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        validate_positive_dimensions(in_features=in_features, out_features=out_features)
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.fast_accum = fast_accum

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From [..., in_features] to [..., out_features], in the dtype of `x`.

        Raises:
            KernelTypeError, DeviceError, UnsupportedDtypeError: As `fp8_gemm`.
            ShapeMismatchError: The last axis of `x` is not [in_features].
        """
        return fp8_linear(x, self.weight, self.bias, fast_accum=self.fast_accum)

    def refresh(self) -> None:
        """Quantise the weight anew at the next call, whether torch has counted a change or not."""
        forget_weight(self.weight)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or convert, as `to` and `half` do, without the quantised weight, which would stay where it is."""
        forget_weight(self.weight)
        return super()._apply(fn, recurse)


_DEVIATION = 0.02


class FusedGatedMLP(base_class("torch.nn", "Module", "FusedGatedMLP")):  # type: ignore[misc]
    """act(x @ gate_weight.T) * (x @ up_weight.T) in one kernel; the projection down is not part of it.

    Under autocast `x` and both weights are converted to its dtype first, as those of `torch.nn.Linear` are.

    Args:
        hidden_dim: Elements of a token, 1 or more.
        intermediate_dim: Elements of a result, 1 or more.
        activation: `silu` or `gelu`.
        device: The device of the weights; None takes torch's default.
        dtype: The dtype of the weights; None takes torch's default.

    Attributes:
        gate_weight: [intermediate_dim, hidden_dim], normal with a deviation of 0.02 at first.
        up_weight: As `gate_weight`.

    Raises:
        ShapeMismatchError: A size is below 1.
        SettingsError: The activation is not known.
        MissingDependencyError: torch is not installed, or its import fails.
    """

    def __init__(
        self, hidden_dim: int, intermediate_dim: int, activation: str = "silu", *, device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        torch = require("torch", "FusedGatedMLP")
        validate_positive_dimensions(hidden_dim=hidden_dim, intermediate_dim=intermediate_dim)
        check_activation(activation, ACTIVATIONS)
        self.hidden_dim, self.intermediate_dim, self.activation = hidden_dim, intermediate_dim, activation
        shape = (intermediate_dim, hidden_dim)
        self.gate_weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.up_weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both weights anew, as after `to_empty` of a module that was made on the device `meta`."""
        init = require("torch.nn.init", "FusedGatedMLP")
        for weight in (self.gate_weight, self.up_weight):
            init.normal_(weight, std=_DEVIATION)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From [batch, seq, hidden_dim] to [batch, seq, intermediate_dim], as `fused_gated_mlp`."""
        x, gate_weight, up_weight = _autocast(x, self.gate_weight, self.up_weight)
        return fused_gated_mlp(x, gate_weight, up_weight, self.activation)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        sizes = f"hidden_dim={self.hidden_dim}, intermediate_dim={self.intermediate_dim}"
        return f"{sizes}, activation={self.activation!r}"


def _autocast(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in the dtype of autocast where it is on for their device; as they are elsewhere."""
    torch: Any = sys.modules["torch"]  # torch's compiler traces this, and follows no import
    capable = isinstance(x, torch.Tensor) and torch.amp.is_autocast_available(x.device.type)  # not for `meta`
    if not capable or not torch.is_autocast_enabled(x.device.type):
        return (x, *weights)
    dtype = torch.get_autocast_dtype(x.device.type)
    return tuple(tensor.to(dtype) for tensor in (x, *weights))
