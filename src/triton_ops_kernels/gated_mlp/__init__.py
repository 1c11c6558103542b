"""The gated MLP of Llama and its kin, with its gradient: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.backend import TritonKernel
from triton_ops.dispatch import Gradient, compilable
from triton_ops.exceptions import ConfigValueError
from triton_ops.space import Config
from triton_ops.values import ALIGNMENT_BYTES, TensorSpec, is_fake
from triton_ops_kernels import call
from triton_ops_kernels.composed import StagedKernel
from triton_ops_kernels.gated_mlp import kernel, problems
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import check_loads, describable, unit

if TYPE_CHECKING:
    import torch


_INPUTS = ("x", "gate_weight", "up_weight")
_GRADIENT = call.shipped(
    "gated_mlp_backward",
    TritonKernel(kernel.gated_mlp_backward_kernel, kernel.gradient_grid, outputs=("dgate", "dup")),
    problems,
    part="gradient",
)
gradient_operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], activation: str) -> tuple[Any, Any, Any]:
    """The gradients of x and both weights, None for one that is not needed.

    The gradients of the two products come from one kernel; the products with x and the weights are torch's. `tensors`
    are x, both weights, and the two products, each with one axis or more of tokens.
    """
    gate_weight, up_weight = tensors[1:3]
    x, gate, up = (tensors[place].flatten(0, -2) for place in (0, -2, -1))
    dgate, dup = gate.new_empty(gate.shape), up.new_empty(up.shape)
    values = {
        "gate": gate, "up": up, "grad": grad.contiguous().view(gate.shape), "dgate": dgate, "dup": dup,
        "elements": gate.numel(), "ACTIVATION": activation,
        "UNIT": unit(gate.numel(), (), gate.element_size()),
    }  # fmt: skip
    if _GRADIENT.launches(gate):
        _GRADIENT.run(values, gate.device)
    dx = (dgate @ gate_weight).addmm_(dup, up_weight).view(*grad.shape[:-1], x.shape[-1]) if needs[0] else None
    return dx, dgate.mT @ x if needs[1] else None, dup.mT @ x if needs[2] else None


def validate_gated_mlp_inputs(
    x: torch.Tensor, gate_weight: torch.Tensor, up_weight: torch.Tensor, activation: str = "silu"
) -> tuple[int, int, int, int]:
    """Check all arguments of `fused_gated_mlp`: placement, dtypes, layout, activation, then shapes.

    Returns:
        batch, seq, hidden and intermediate size.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `fused_gated_mlp`.
    """
    tensors = {"x": x, "gate_weight": gate_weight, "up_weight": up_weight}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"x": x}, problems.DTYPES)
    call.check_dtypes({"gate_weight": gate_weight, "up_weight": up_weight}, (x.dtype,))
    _check_rows(x)
    call.check_activation(activation, problems.ACTIVATIONS)
    call.check_rank("x", x.shape, "[batch, seq, hidden]")
    call.check_rank("gate_weight", gate_weight.shape, "[intermediate, hidden]")
    intermediate, hidden = gate_weight.shape[0], x.shape[2]
    call.check_shape("gate_weight", gate_weight.shape, (intermediate, hidden), "x has this hidden size")
    call.check_shape("up_weight", up_weight.shape, (intermediate, hidden), "it must be as gate_weight")
    return x.shape[0], x.shape[1], hidden, intermediate


def _check_rows(x: torch.Tensor) -> None:
    """Check that the tokens of all sequences are evenly apart, so that they are the rows of one matrix."""
    if x.ndim == 3 and min(x.shape[:2]) > 1 and x.stride(0) != x.shape[1] * x.stride(1):
        raise TensorSpec.strides_error(x, "x", "has tokens that are not evenly apart", "pass x.contiguous()")


def check_own_config(config: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> None:
    """Check what a config of the caller's own asks of descriptors, for x, both weights and the result.

    Raises:
        ConfigValueError: Descriptors cannot be made of the tensors, or of such narrow tiles, or JOINED or HALVES are
            without descriptors.
    """
    loads = config.get("LOADS", "pointers")
    for name in ("JOINED", "HALVES"):
        if config.get(name, False) and loads != "host":
            raise ConfigValueError(f"{name} is for tiles that come by descriptors", hint="add LOADS='host'")
    check_loads(config, lambda: describable(*map(TensorSpec.of, tensors)))
    if loads == "host":
        _check_widths(config, tensors[0].element_size())


def _check_widths(config: Mapping[str, Any], item_bytes: int) -> None:
    """Check that rows of tiles are as long as descriptors need them."""
    least = ALIGNMENT_BYTES // item_bytes
    for name, parts in (("BLOCK_K", 1), ("BLOCK_N", 2 if config.get("HALVES", False) else 1)):
        if config[name] < least * parts:
            raise ConfigValueError(
                f"{name} is {config[name]}, and rows of a tile that is described have {ALIGNMENT_BYTES} bytes or more",
                hint=f"take {least * parts} or more",
            )


def _as_it_fits(config: Config, values: Mapping[str, Any], own: bool) -> Config:
    """A config as a call can run it: a winner was found with other weights, and without products that are kept.

    What keeps them takes shared memory, which programs that walk have filled with the next tile by then.
    """
    weights = values["gate_weight"], values["up_weight"]
    if config.get("JOINED", False) and is_fake(weights[0]):
        raise ConfigValueError("JOINED asks where weights lie, and a trace knows no addresses", hint="launch it")
    if own:
        check_own_config(config, (values["x"], *weights, values["out"]))
        return config
    apart = config.get("JOINED", False) and not kernel.distance(*weights)
    walking = values["gate"] is not None and config.get("PROGRAMS", 0)
    return Config(config, **({"JOINED": False} if apart else {}), **({"PROGRAMS": 0} if walking else {}))


def _distance(x: Any, gate_weight: Any, up_weight: Any, *_: Any, **_options: Any) -> int:  # noqa: ARG001
    return int(up_weight.data_ptr() - gate_weight.data_ptr())


_KERNEL = call.shipped(
    "gated_mlp",
    StagedKernel(
        TritonKernel(kernel.gated_mlp_kernel, kernel.grid, outputs=("out",), made=kernel.host_descriptors),
        TritonKernel(kernel.sum_parts_kernel, kernel.sum_grid, outputs=("out",)),
        when=kernel.shares_tiles,
        scratch="parts",
        elements=kernel.parts_elements,
        options={"CHUNK": kernel.CHUNK, "num_warps": 4},
    ),
    problems,
    _as_it_fits,
)
operation = _KERNEL.operation


@compilable(
    '(Tensor x, Tensor gate_weight, Tensor up_weight, str activation="silu", str config="", bool tune=False)'
    " -> (Tensor, Tensor, Tensor)",
    gradient=Gradient(inputs=_INPUTS, function=gradient, values="str activation", kept=_INPUTS, results=(1, 2)),
    counts=_distance,
)
def _gated_mlp_products(
    x: torch.Tensor, gate_weight: torch.Tensor, up_weight: torch.Tensor, activation: str = "silu", **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, and both products for its gradient, each [batch, seq, intermediate]."""
    validate_gated_mlp_inputs(x, gate_weight, up_weight, activation)
    return _forward(x, (gate_weight, up_weight), activation, 3, **options)  # type: ignore[return-value]


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The tokens, [tokens, hidden], without a copy."""
    batch, seq, hidden = x.shape
    return x.detach().as_strided((batch * seq, hidden), (x.stride(1 if seq > 1 else 0), x.stride(2)))


@compilable(
    '(Tensor x, Tensor gate_weight, Tensor up_weight, str activation="silu", str config="", bool tune=False) -> Tensor',
    training=_gated_mlp_products,
    counts=_distance,
)
def fused_gated_mlp(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    activation: str = "silu",
    *,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Compute act(x @ gate_weight.T) * (x @ up_weight.T) in one kernel, without the projection down.

    Both products are accumulated in float32, multiplied, and rounded once, with the same bits at every call. Products
    of float32 are computed in TF32 only where `torch.get_float32_matmul_precision()` allows it. NaN and infinity
    propagate. All inputs have gradients: the forward pass then keeps both products, a kernel makes their gradients, and
    torch multiplies these with x and the weights.

    Args:
        x: [batch, seq, hidden], bfloat16 | float16 | float32, CUDA; its tokens are evenly apart, as in a contiguous
            tensor or a slice of the last axis.
        gate_weight: [intermediate, hidden], dtype and device of `x`, any strides; fastest contiguous.
        up_weight: As `gate_weight`.
        activation: `silu`, or `gelu` by the error function.
        config: A value for each of BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages, and if you like GROUP_SIZE_M,
            LOADS, JOINED, PROGRAMS, HALVES and SPLIT; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [batch, seq, intermediate], dtype of `x`, contiguous, new storage.

    Raises:
        KernelTypeError: An argument is not a tensor.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `x` has another dtype, or a weight's dtype is not that of `x`.
        ShapeMismatchError: A shape does not fit, or the tokens of `x` are not evenly apart.
        SettingsError: The activation is not known.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` holds what the kernel does not take, or descriptors that these tensors cannot have.

    Cost: 4 · batch · seq · intermediate · hidden operations; reads x and the weights and writes the result once where
    L2 holds the tiles in flight; no host sync. Where programs share tiles (SPLIT), the parts take memory and a second
    launch. The first call of a config and dtype compiles: up to some seconds.
    Source: Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.
    """
    validate_gated_mlp_inputs(x, gate_weight, up_weight, activation)
    return _forward(x, (gate_weight, up_weight), activation, 1, config, tune)[0]


def _forward(
    x: torch.Tensor,
    weights: tuple[torch.Tensor, torch.Tensor],
    activation: str,
    results: int,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, ...]:
    """The result, [batch, seq, intermediate], and as one of three the two products, which a gradient needs."""
    gate_weight, up_weight = (weight.detach() for weight in weights)
    intermediate = gate_weight.shape[0]
    made = tuple(x.new_empty((*x.shape[:2], intermediate)) for _ in range(results))
    if _KERNEL.launches(made[0]):
        out, *products = (each.view(-1, intermediate) for each in made)
        values = problems.launch_values(_flat(x), gate_weight, up_weight, out, activation)
        _KERNEL.run(values, x.device, config, tune, **dict(zip(("gate", "up"), products, strict=False)))
    return made
