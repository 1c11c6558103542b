"""C = A @ B for 16-bit and 8-bit floats: the public function, and the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton_ops._optional import require
from triton_ops.backend import Operation, TritonKernel
from triton_ops.kernels import call
from triton_ops.kernels.choice import config_for
from triton_ops.kernels.compiled import compilable
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.kernels.matmul.kernel import grid, matmul_kernel
from triton_ops.kernels.matmul.problems import OUTPUT_DTYPES, PROBLEMS, arguments, extents, work
from triton_ops.kernels.matmul.reference import matmul_reference
from triton_ops.kernels.matmul.space import NEEDED, OPTIONAL, config_space, default_config
from triton_ops.tensors import dtype_name

if TYPE_CHECKING:
    import torch

__all__ = ["matmul", "operation"]

_KERNEL = TritonKernel(matmul_kernel, grid, outputs=("c",))
operation = Operation(
    name="matmul",
    kernel=_KERNEL,
    space=config_space,
    arguments=arguments,
    reference=matmul_reference,
    work=work,
    dtypes=tuple(OUTPUT_DTYPES),
    problems=PROBLEMS,
    device="cuda",
)


@compilable('(Tensor a, Tensor b, Tensor(a!) out, str config="", bool tune=False) -> ()')
def _matmul_out(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> None:
    """As `matmul`, into `out`."""
    _multiplied(a, b, out, config, tune)


@compilable('(Tensor a, Tensor b, str config="", bool tune=False) -> Tensor')
def _matmul_new(
    a: torch.Tensor, b: torch.Tensor, *, config: Mapping[str, Any] | None = None, tune: bool = False
) -> torch.Tensor:
    """As `matmul`, into a new tensor."""
    return _multiplied(a, b, None, config, tune)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Multiply two matrices on a GPU: out = a @ b.

    The product is accumulated in float32 and rounded once; Hopper's tensor cores keep fewer bits than that while they
    sum float8 products. The function has no gradient.

    Args:
        a: [M, K], bfloat16 | float16 | float8_e4m3fn, any strides, CUDA.
        b: [K, N], dtype and device of `a`, any strides; float8 is fastest with K as its contiguous axis.
        out: [M, N], dtype as returned, any strides, without storage shared with `a` and `b`; None allocates.
        config: A value for each of BM, BN, BK, num_warps and num_stages, and if you like GROUP_M, which is 8 otherwise;
            None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        `out`, or a new row-major tensor [M, N]: dtype of `a`, bfloat16 for float8 inputs.

    Raises:
        KernelTypeError: An argument is not a tensor.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `a` has another dtype, or the dtype of `b` or `out` does not go with that of `a`.
        ShapeMismatchError: A rank is not 2, K differs, `out` is not [M, N], or strides reach 2^23 elements.
        UnknownTunableError: `config` lacks a tunable, or names another.

    Cost: 2MNK operations; reads A and B and writes C once where L2 holds the tiles in flight; no host sync. The first
    call of a config, dtype and stride class compiles: 0.1 to some seconds.
    Source: Tillet, Kung, Cox, "Triton", MAPL 2019; grouped program order as in Triton's matmul tutorial.
    """
    if out is None:
        return _matmul_new(a, b, config=config, tune=tune)
    _matmul_out(a, b, out, config=config, tune=tune)
    return out


def _multiplied(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, config: Mapping[str, Any] | None, tune: bool
) -> torch.Tensor:
    _check(a, b, out)
    (M, K), N, dtype = a.shape, b.shape[1], dtype_name(a.dtype)
    if out is None:
        out = a.new_empty((M, N), dtype=getattr(require("torch", "matmul"), OUTPUT_DTYPES[dtype]))
    values = {"a": a, "b": b, "c": out, **extents((M, N, K), a.stride(), b.stride(), out.stride())}
    if call.launches(out):
        chosen = config_for(
            operation, values, lambda: default_config(M, N, K, dtype),
            config=config, tunables=(NEEDED, OPTIONAL), tune=tune,
        )  # fmt: skip
        call.launch(_KERNEL, chosen, values, a.device)
    return out


def _check(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> None:
    tensors = {"a": a, "b": b} if out is None else {"a": a, "b": b, "out": out}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"a": a}, tuple(OUTPUT_DTYPES))
    call.check_dtypes({"b": b}, (dtype_name(a.dtype),))
    if out is not None:
        call.check_dtypes({"out": out}, (OUTPUT_DTYPES[dtype_name(a.dtype)],))
    call.check_rank("a", a.shape, "[M, K]")
    call.check_rank("b", b.shape, "[K, N]")
    call.check_shape("b", b.shape, (a.shape[1], b.shape[1]), "its rows must match a's columns")
    if out is not None:
        call.check_shape("out", out.shape, (a.shape[0], b.shape[1]), "it must be [M, N]")
