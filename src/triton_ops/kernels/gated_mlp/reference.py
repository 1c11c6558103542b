"""The references of the gated MLP with its gradient in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def gated_mlp_reference(x: Any, gate_weight: Any, up_weight: Any, out: Any, *, ACTIVATION: str, **_given: Any) -> Any:
    """Compute `act(x @ gate_weight.T) * (x @ up_weight.T)` in float32 or wider, rounded once to the dtype of `out`.

    Cost: float32 copies of all inputs, and three float32 tensors of the size of the result.
    """
    torch = require("torch", "the reference of gated_mlp")
    wide = torch.promote_types(x.dtype, torch.float32)
    g, u = (x.to(wide) @ weight.to(wide).mT for weight in (gate_weight, up_weight))
    return (_activation(ACTIVATION)(g) * u).to(out.dtype)


def gated_mlp_backward_reference(
    gate: Any, up: Any, grad: Any, dgate: Any, dup: Any, *, ACTIVATION: str, **_given: Any
) -> tuple[Any, Any]:
    """The gradients of the two products, in float32 or wider, rounded once."""
    torch = require("torch", "the reference of gated_mlp")
    wide = torch.promote_types(gate.dtype, torch.float32)
    with torch.enable_grad():
        g = gate.detach().to(wide).requires_grad_()
        activated = _activation(ACTIVATION)(g)
        (slope,) = torch.autograd.grad(activated.sum(), g)
    d = grad.to(wide)
    return (d * up.to(wide) * slope).to(dgate.dtype), (d * activated.detach()).to(dup.dtype)


def _activation(name: str) -> Any:
    return getattr(require("torch", "the reference of gated_mlp").nn.functional, name)
