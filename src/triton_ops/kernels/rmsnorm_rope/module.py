"""`FusedRMSNormRoPE`: the fused RMSNorm and RoPE as a module that owns its weight."""

from __future__ import annotations

from typing import Any

from triton_ops.base import base_class, require
from triton_ops.kernels.call import validate_eps, validate_head_dim, validate_positive_dimensions
from triton_ops.kernels.rmsnorm_rope import fused_rmsnorm_rope
from triton_ops.kernels.rmsnorm_rope.problems import DEFAULT_EPS

_Module = base_class("torch.nn", "Module", "FusedRMSNormRoPE")


class FusedRMSNormRoPE(_Module):  # type: ignore[misc, valid-type]
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
        self, hidden_dim: int, head_dim: int, eps: float = DEFAULT_EPS, *, device: Any = None, dtype: Any = None
    ) -> None:
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

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
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
