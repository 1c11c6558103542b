"""RMSNorm and rotary position embedding in one kernel: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.backend import LauncherKernel, TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import Gradient, compilable
from triton_ops.exceptions import ShapeMismatchError
from triton_ops_kernels import call
from triton_ops_kernels.call import validate_eps
from triton_ops_kernels.jit import INTERPRETED, add_up
from triton_ops_kernels.rmsnorm_rope import problems
from triton_ops_kernels.rmsnorm_rope.kernel import grid, rmsnorm_rope_backward_kernel, rmsnorm_rope_kernel

if TYPE_CHECKING:
    import torch


def launch(
    x: Any, weight: Any, cos: Any, sin: Any, grad: Any, dx: Any, dweight: Any, seq_len: int, eps: float, HIDDEN: int,
    HEAD_DIM: int, BLOCK_SIZE: int, PROGRAMS: int, STAGES: int, SUM_COLUMNS: int, num_warps: int,
) -> None:  # fmt: skip
    """Write dx and dweight: programs that walk over the rows, and a sum of their partial sums.

    BLOCK_SIZE counts pairs. PROGRAMS are for each multiprocessor; loads of STAGES rows are on their way while a program
    works, and 1 loads a row when it is its turn.
    """
    torch = require("torch", "the gradient of rmsnorm_rope")
    rows = x.numel() // HIDDEN
    programs = min(rows, PROGRAMS * call.multiprocessors(x.device))
    partial = x.new_empty((1, programs, HIDDEN), dtype=torch.promote_types(x.dtype, torch.float32))
    rmsnorm_rope_backward_kernel[(programs,)](
        x, weight, cos, sin, grad, dx, partial, rows, seq_len, eps,
        HIDDEN=HIDDEN, HEAD_DIM=HEAD_DIM, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
    )  # fmt: skip
    add_up(partial, (dweight,), SUM_COLUMNS)


_GRADIENT = call.shipped(
    "rmsnorm_rope_backward", LauncherKernel(launch, outputs=("dx", "dweight")), problems, part="gradient"
)
gradient_operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], eps: float) -> tuple[Any, Any]:
    """The gradients of x and weight, None for one that is not needed; `tensors` are x, weight, cos and sin."""
    x, weight, cos, sin = tensors
    dx, dweight = x.new_empty(x.shape), weight.new_zeros(weight.shape)
    if _GRADIENT.launches(dx):
        values = problems.launch_values(x, weight, cos, sin, grad=grad.contiguous(), dx=dx, dweight=dweight)
        _GRADIENT.run(values, x.device, eps=float(eps))
    return dx if needs[0] else None, dweight if needs[1] else None


def validate_rmsnorm_rope_inputs(
    x: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    eps: float = problems.DEFAULT_EPS,
    num_heads: int | None = None,
) -> tuple[int, int, int, int, int]:
    """Check all arguments of `fused_rmsnorm_rope`: placement, dtypes, layout, shapes, then `eps`.

    Returns:
        batch, seq, hidden, head size and number of heads.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As
            `fused_rmsnorm_rope`.
    """
    tensors = {"x": x, "weight": weight, "cos": cos, "sin": sin}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes(tensors, problems.DTYPES)
    call.check_contiguous(tensors)
    call.check_rank("x", x.shape, "[batch, seq, hidden]")
    batch, seq_len, hidden = x.shape
    call.check_shape("weight", weight.shape, (hidden,), "x has this hidden size")
    head_dim = _check_angles(cos, sin, seq_len)
    _check_heads(hidden, head_dim, num_heads)
    validate_eps(eps)
    call.check_constant({"cos": cos, "sin": sin}, "fused_rmsnorm_rope")
    return batch, seq_len, hidden, head_dim, hidden // head_dim


def _check_angles(cos: torch.Tensor, sin: torch.Tensor, seq_len: int) -> int:
    """Check `cos` and `sin`, and return their head size."""
    if cos.ndim not in (2, 4):
        axes = "[seq, D] or [1, seq, 1, D]"
        raise ShapeMismatchError(f"cos has shape {tuple(cos.shape)}; it must be {axes}", axes, tuple(cos.shape), "cos")
    head_dim = cos.shape[-1]
    expected = (seq_len, head_dim) if cos.ndim == 2 else (1, seq_len, 1, head_dim)
    call.check_shape("cos", cos.shape, expected, "x has this number of positions")
    call.check_shape("sin", sin.shape, expected, "it must be as cos")
    if head_dim % 2 or head_dim < 2:
        raise ShapeMismatchError(
            f"cos has {head_dim} columns; RoPE turns pairs, so the head size must be even",
            "an even head size",
            head_dim,
            "cos",
        )
    return head_dim


def _check_heads(hidden: int, head_dim: int, num_heads: int | None) -> None:
    heads = hidden // head_dim if num_heads is None else num_heads
    if heads * head_dim != hidden:
        heads_text = f"heads of {head_dim}" if num_heads is None else f"{num_heads} heads of {head_dim}"
        raise ShapeMismatchError(
            f"x has hidden size {hidden}, which is not made of {heads_text}",
            f"a multiple of {head_dim}" if num_heads is None else num_heads * head_dim,
            hidden,
            "x",
            hint="give num_heads so that num_heads * D is the hidden size, or tables of another D",
        )


def check_halves_equal(tables: Mapping[str, torch.Tensor], head_dim: int) -> None:
    """Check that the half of each table that is not read repeats the other one; this waits for the device."""
    for name, table in tables.items():
        half = head_dim // 2
        if not table[..., :half].equal(table[..., half:]):
            raise ShapeMismatchError(
                f"the two halves of {name} differ, and only the first one would be used",
                f"{name}[..., :{half}] equal to {name}[..., {half}:]",
                "halves that differ",
                name,
                hint="build the table as torch.cat([angles, angles], -1)",
            )


_KERNEL = call.shipped("rmsnorm_rope", TritonKernel(rmsnorm_rope_kernel, grid, outputs=("out",)), problems)
operation = _KERNEL.operation


@compilable(
    "(Tensor x, Tensor weight, Tensor cos, Tensor sin, float eps=1e-06, SymInt? num_heads=None, "
    'str config="", bool check_halves=False, bool tune=False) -> Tensor',
    gradient=Gradient(
        inputs=("x", "weight"), function=gradient, values="float eps", kept=("x", "weight", "cos", "sin")
    ),
)
def fused_rmsnorm_rope(
    x: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    eps: float = problems.DEFAULT_EPS,
    num_heads: int | None = None,
    *,
    config: Mapping[str, object] | None = None,
    check_halves: bool = False,
    tune: bool = False,
) -> torch.Tensor:
    """RMS-normalise `x`, then rotate each head by its position, in one kernel.

    The result is rope(x / sqrt(mean(x²) + eps) * weight), with the mean over the whole last axis. Within a head of size
    D the elements i and i + D/2 are a pair (y, z) and become (y cos - z sin, z cos + y sin) with cos[position, i] and
    sin[position, i]. This is the rotate-half convention, which reads only the first D/2 columns of `cos` and `sin`. The
    usual tables repeat these columns in the other half; `check_halves` checks that. The result is computed in float32
    and rounded once, with the same bits at every call; NaN and infinity propagate. The gradients of x and weight are
    computed by a kernel too, by partial sums without locks; cos and sin have none.

    Args:
        x: [batch, seq, hidden], bfloat16 | float16 | float32, contiguous, CUDA.
        weight: [hidden], any of these dtypes, contiguous, device of `x`.
        cos: [seq, D] or [1, seq, 1, D] with D even, any of these dtypes, contiguous, device of `x`.
        sin: As `cos`.
        eps: A number that is added to the mean square; finite, 0 or more, in the unit of x².
        num_heads: Number of heads in `hidden`; None takes hidden / D.
        config: A value for each of BLOCK_SIZE, num_warps and num_stages; None takes the winner of a
            record, else the default.
        check_halves: Compare the two halves of `cos` and of `sin` first, which costs a host sync.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [batch, seq, hidden], dtype of `x`, contiguous, new storage.

    Raises:
        KernelTypeError: An argument is not a tensor, or `cos` or `sin` needs a gradient.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: A dtype is not in the list above.
        ShapeMismatchError: A tensor is not contiguous, has another shape, D is odd, num_heads * D is not hidden, or
            `check_halves` found halves that differ.
        SettingsError: `eps` is negative or not finite.
        UnknownTunableError: `config` lacks a tunable, or names another.

    Cost: reads x, weight and half of cos and sin once from device memory, writes out once; no host sync unless
    `check_halves`. The first call of a config, dtype, hidden size and head size compiles: about 0.2 s.
    Source: RMSNorm arXiv:1910.07467; RoPE arXiv:2104.09864.
    """
    *_, head_dim, _ = validate_rmsnorm_rope_inputs(x, weight, cos, sin, eps, num_heads)
    if check_halves and _KERNEL.launches(x):
        check_halves_equal({"cos": cos, "sin": sin}, head_dim)
    return _forward([tensor.detach() for tensor in (x, weight, cos, sin)], float(eps), config, tune)


def _forward(
    tensors: Sequence[torch.Tensor], eps: float, config: Mapping[str, object] | None, tune: bool
) -> torch.Tensor:
    x, weight, cos, sin = tensors
    out = x.new_empty(x.shape)
    if _KERNEL.launches(out):
        values = problems.launch_values(x, weight, cos, sin, out=out)
        _KERNEL.run(values, x.device, config, tune, eps=eps)
    return out
