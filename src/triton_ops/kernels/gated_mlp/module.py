"""`FusedGatedMLP`: the gated MLP as a module that owns its two weights."""

from __future__ import annotations

import sys
from typing import Any

from triton_ops.base import base_class, require
from triton_ops.kernels.call import check_activation, validate_positive_dimensions
from triton_ops.kernels.gated_mlp import fused_gated_mlp
from triton_ops.kernels.gated_mlp.problems import ACTIVATIONS

_Module = base_class("torch.nn", "Module", "FusedGatedMLP")
_DEVIATION = 0.02


class FusedGatedMLP(_Module):  # type: ignore[misc, valid-type]
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
        self,
        hidden_dim: int,
        intermediate_dim: int,
        activation: str = "silu",
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
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

    def forward(self, x: Any) -> Any:
        """From [batch, seq, hidden_dim] to [batch, seq, intermediate_dim], as `fused_gated_mlp`."""
        x, gate_weight, up_weight = _autocast(x, self.gate_weight, self.up_weight)
        return fused_gated_mlp(x, gate_weight, up_weight, self.activation)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        sizes = f"hidden_dim={self.hidden_dim}, intermediate_dim={self.intermediate_dim}"
        return f"{sizes}, activation={self.activation!r}"


def _autocast(x: Any, *weights: Any) -> tuple[Any, ...]:
    """The tensors in the dtype of autocast where it is on for their device; as they are elsewhere."""
    torch: Any = sys.modules["torch"]  # torch's compiler traces this, and follows no import
    capable = isinstance(x, torch.Tensor) and torch.amp.is_autocast_available(x.device.type)  # not for `meta`
    if not capable or not torch.is_autocast_enabled(x.device.type):
        return (x, *weights)
    dtype = torch.get_autocast_dtype(x.device.type)
    return tuple(tensor.to(dtype) for tensor in (x, *weights))
