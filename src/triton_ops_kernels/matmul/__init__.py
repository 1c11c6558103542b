"""C = act(A @ B + bias) for 16-bit and 8-bit floats: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from triton_ops.backend import TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import compilable
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import call
from triton_ops_kernels.composed import StagedKernel
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.matmul import kernel, problems
from triton_ops_kernels.tiles import check_loads

if TYPE_CHECKING:
    import torch


def output_dtype(a: torch.Tensor) -> torch.dtype:
    """The dtype of a product of `a`: that of the factors, and bfloat16 for 8-bit floats."""
    return a.dtype if a.element_size() > 1 else require("torch", "matmul").bfloat16


def validate_matmul_inputs(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> tuple[int, int, int]:
    """Check the arguments of `matmul`: placement, dtypes, layout, activation, then shapes.

    Returns:
        M, N and K.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `matmul`.
    """
    inputs = {"a": a, "b": b} if bias is None else {"a": a, "b": b, "bias": bias}
    call.check_placement(inputs if out is None else {**inputs, "out": out}, on_cpu=INTERPRETED)
    call.check_dtypes({"a": a}, problems.DTYPES)
    call.check_dtypes({"b": b}, (a.dtype,))
    if out is not None:
        call.check_dtypes({"out": out}, (output_dtype(a),))
    if bias is not None:
        call.check_dtypes({"bias": bias}, problems.BIAS_DTYPES)
        call.check_contiguous({"bias": bias})
    call.check_activation(activation, problems.ACTIVATIONS)
    call.check_rank("a", a.shape, "[M, K]")
    call.check_rank("b", b.shape, "[K, N]")
    (M, K), N = a.shape, b.shape[1]
    call.check_shape("b", b.shape, (K, N), "its rows must match a's columns")
    if out is not None:
        call.check_shape("out", out.shape, (M, N), "it must be [M, N]")
        call.check_apart(out, inputs)
    if bias is not None:
        call.check_shape("bias", bias.shape, (N,), "b has this number of columns")
    call.check_constant(inputs, "matmul")
    return M, N, K


def _as_it_fits(config: Config, values: Mapping[str, Any], own: bool) -> Config:
    """A config, which asks for tensor descriptors only where they can be made of `a`, `b` and `c`."""
    if own:
        tensors = {name: TensorSpec.of(values[name]) for name in "abc"}
        check_loads(config, lambda: config["LOADS"] in problems.loads_of(tensors, values["K"]), problems.NEED)
    return config


_TILES = TritonKernel(kernel.matmul_kernel, kernel.grid, outputs=("c",), made=kernel.host_descriptors)
_STAGED = StagedKernel(
    _TILES,
    TritonKernel(kernel.sum_parts_kernel, kernel.sum_grid, outputs=("c",)),
    when=kernel.shares_tiles,
    scratch="parts",
    elements=kernel.parts_elements,
    options={"CHUNK": kernel.CHUNK, "num_warps": 4},
)
_KERNEL = call.shipped("matmul", _STAGED, problems, _as_it_fits)
operation = _KERNEL.operation
plain = replace(operation, kernel=_TILES, space=problems.plain_space)
"""The operation with one program for each tile and pointer loads alone: 480 configs, which run on every GPU."""


@compilable(
    '(Tensor a, Tensor b, Tensor(a!) out, Tensor? bias=None, str activation="none", str config="", bool tune=False)'
    " -> ()"
)
def _matmul_out(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, **options: Any) -> None:
    """As `matmul`, into `out`."""
    _multiply(a, b, out, **options)


@compilable('(Tensor a, Tensor b, Tensor? bias=None, str activation="none", str config="", bool tune=False) -> Tensor')
def _matmul_new(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """As `matmul`, into a new tensor."""
    return _multiply(a, b, None, **options)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    out: torch.Tensor | None = None,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Multiply two matrices on a GPU: out = act(a @ b + bias), in one pass.

    The product is accumulated in float32, and rounded once after bias and activation; Hopper's tensor cores keep fewer
    bits than that while they sum float8 products. Equal calls with one config on one device give equal bits, also where
    programs share tiles (`split_k`, `stream_k`): their parts are added up in a fixed order, by a second launch. The
    function has no gradient.

    Args:
        a: [M, K], bfloat16 | float16 | float8_e4m3fn, any strides, CUDA.
        b: [K, N], dtype and device of `a`, any strides; float8 is fastest with K as its contiguous axis.
        bias: [N], bfloat16 | float16 | float32, contiguous; None is 0.
        activation: `none`, `relu`, `gelu` by the error function, or `silu`.
        out: [M, N], dtype as returned, any strides, without storage shared with `a` and `b`; None allocates.
        config: A value for each of BM, BN, BK, num_warps and num_stages, and if you like ALGORITHM, LOADS,
            SWAPPED, PROGRAMS, SPLIT, HALVES and GROUP_M; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`. Bias and
            activation do not count: all of a problem's calls share its winner.

    Returns:
        `out`, or a new row-major tensor [M, N]: dtype of `a`, bfloat16 for float8 inputs.

    Raises:
        KernelTypeError: An argument is not a tensor with strides, `out` reaches into another one's memory, or an input
            requires a gradient while torch is recording.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `a` or `bias` has another dtype, or that of `b` or `out` does not go with that of `a`.
        ShapeMismatchError: A rank is not 2, K differs, `out` is not [M, N], `bias` is not [N] or has gaps, `out` is
            expanded, or strides reach 2^23 elements.
        SettingsError: The activation is not known, or `tune` is no bool.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` is no mapping, holds what the kernel does not take, or asks for tensor descriptors of
            matrices that cannot have them.

    Cost: 2MNK operations; reads A and B and writes C once where L2 holds the tiles in flight; no host sync. The parts
    of shared tiles are written and read once more in float32, in memory of torch's allocator. The first call of a
    config, dtype and stride class compiles: 0.1 to some seconds.
    Source: Tillet, Kung, Cox, "Triton", MAPL 2019; grouped program order as in Triton's matmul tutorial; stream-K of
    Osama et al., arXiv:2301.03598, with aligned first steps.
    """
    if out is None:
        return _matmul_new(a, b, bias=bias, activation=activation, config=config, tune=tune)
    _matmul_out(a, b, out, bias=bias, activation=activation, config=config, tune=tune)
    return out


matmul.why = _matmul_new.why  # type: ignore[attr-defined]


def _multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    M, N, _ = validate_matmul_inputs(a, b, out=out, bias=bias, activation=activation)
    if out is None:
        out = a.new_empty((M, N), dtype=output_dtype(a))
    values = problems.launch_values(a, b, out)
    if _KERNEL.launches(out):
        _KERNEL.run(values, a.device, config, tune, bias=bias, ACTIVATION=activation)
    return out
