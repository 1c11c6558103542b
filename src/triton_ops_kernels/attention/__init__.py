"""Attention, softmax(scale * q @ k.T) @ v, with its gradient: the public functions with the operation for tuners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.backend import LauncherKernel
from triton_ops.base import require
from triton_ops.dispatch import Gradient, compilable
from triton_ops.exceptions import ConfigValueError, SettingsError, ShapeMismatchError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import call
from triton_ops_kernels.attention import kernel, problems
from triton_ops_kernels.attention.kernel import LOG2_E, dkv_kernel, dq_kernel, inner_kernel
from triton_ops_kernels.composed import FormsKernel
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import check_loads, check_reach, describable, padded

if TYPE_CHECKING:
    import torch


_ROWS = 32  # rows of a program that multiplies the result with its gradient


def launch(
    q: Any, k: Any, v: Any, out: Any, lse: Any, grad: Any, dq: Any, dk: Any, dv: Any, scale: float, CAUSAL: bool,
    PRECISION: str, Q_ROWS: int, Q_KEYS: int, K_KEYS: int, K_ROWS: int, num_warps: int, num_stages: int,
) -> None:  # fmt: skip
    """Write dq, dk and dv, contiguous, in three launches.

    `lse` is contiguous; other inputs have neighbours along their last axis. A program makes Q_ROWS rows of dq in steps
    of Q_KEYS keys, or K_KEYS keys of dk and dv in steps of K_ROWS rows; num_stages are the steps in flight, and one.
    """
    torch = require("torch", "the gradient of attention")
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    group, rows = heads // kv_heads, batch * heads * queries
    inner = q.new_empty((batch, heads, queries), dtype=torch.promote_types(q.dtype, torch.float32))
    sizes = {"VALUE_DIM": value_dim, "BLOCK_V": padded(value_dim, 16)}
    inner_kernel[(-(-rows // _ROWS),)](
        out, grad, inner, rows, heads, queries, *out.stride()[:3], *grad.stride()[:3], **sizes, ROWS=_ROWS
    )
    strides = [step for each in (q, k, v, grad) for step in each.stride()[:3]]
    known = {
        "CAUSAL": CAUSAL, "PRECISION": PRECISION, "GROUP": group, "HEAD_DIM": head_dim,
        "BLOCK_D": padded(head_dim, 16), **sizes, "num_warps": num_warps, "num_stages": num_stages,
    }  # fmt: skip
    shape = kv_heads, queries, keys
    dq_kernel[(-(-queries * group // Q_ROWS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dq, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=keys % Q_KEYS != 0, BLOCK_M=Q_ROWS, BLOCK_N=Q_KEYS, **known,
    )  # fmt: skip
    dkv_kernel[(-(-keys // K_KEYS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dk, dv, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=queries * group % K_ROWS != 0, BLOCK_M=K_ROWS, BLOCK_N=K_KEYS, **known,
    )  # fmt: skip


_GRADIENT = call.shipped(
    "attention_backward", LauncherKernel(launch, outputs=("dq", "dk", "dv")), problems, part="gradient"
)
gradient_operation = _GRADIENT.operation


def gradient(
    tensors: Sequence[Any], grad: Any, needs: Sequence[bool], causal: bool, scale: float | None
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, None for one that is not needed.

    `tensors` are q, k, v, the result and the logarithms of its sums.
    """
    q, k, v, out, lse = tensors
    # Zeros, since nothing is launched where there is no key.
    gradients = dict(zip(("dq", "dk", "dv"), (each.new_zeros(each.shape) for each in (q, k, v)), strict=True))
    if _GRADIENT.launches(out) and k.shape[2]:
        values = {
            "q": q, "k": k, "v": v, "out": out, "lse": lse,
            "grad": grad if grad.stride(3) == 1 else grad.contiguous(), **gradients,
            "scale": scale or 1 / math.sqrt(q.shape[3]), "CAUSAL": causal, "PRECISION": call.precision_of(q),
        }  # fmt: skip
        _GRADIENT.run(values, q.device)
    return tuple(each if need else None for each, need in zip(gradients.values(), needs, strict=True))  # type: ignore[return-value]


LARGEST_HEAD = 256
LARGEST_SCALE = 2.0**126  # log2(e) times it is a number of float32


def validate_attention_inputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None, causal: bool = False
) -> tuple[int, int, int, int, int, int, int]:
    """Check all arguments of `flash_attention`: placement, dtypes, ranks, layout, shapes, then the scale and the mask.

    Returns:
        batch, heads, heads of keys, queries, keys, and the sizes of a key and of a value.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `flash_attention`.
    """
    tensors = {"q": q, "k": k, "v": v}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"q": q}, problems.DTYPES)
    call.check_dtypes({"k": k, "v": v}, (q.dtype,))
    for name, tensor in tensors.items():
        call.check_rank(name, tensor.shape, "[batch, heads, length, head size]")
        _check_layout(name, tensor)
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys, value_dim = k.shape[1], k.shape[2], v.shape[3]
    call.check_shape("k", k.shape, (batch, kv_heads, keys, head_dim), "q has this batch size and head size")
    call.check_shape("v", v.shape, (batch, kv_heads, keys, value_dim), "k has these heads and keys")
    _check_heads(heads, kv_heads, q=head_dim, v=value_dim)
    check_scale(scale)
    if not isinstance(causal, bool):  # a tensor would make the host wait, and a text is always true
        raise SettingsError(f"causal is {causal!r}; it must be True or False")
    return batch, heads, kv_heads, queries, keys, head_dim, value_dim


def _as_it_fits(config: Config, values: Mapping[str, Any], own: bool) -> Config:
    """A config, which asks for descriptors and roles of warps only where results are right."""
    if not own:
        return config
    check_loads(config, lambda: describable(TensorSpec.of(values["k"]), TensorSpec.of(values["v"])))
    if config.get("FORM") == "gluon":
        whole = Config({"GROUP_HEADS": 1, **problems.GLUON_HAS, **config})
        if why := problems.config_space(_KERNEL.problem_of(values, lse=None)).why_not(whole):
            raise ConfigValueError(f"FORM is 'gluon', which this call cannot have: {why}", hint="leave FORM out")
    if config.get("WARP_SPECIALIZE", False):
        form = {"SPLITS": 1, "DESCRIPTORS": False, **config}
        names = ("BLOCK_M", "SPLITS", "DESCRIPTORS", "num_warps", "num_stages")
        fits = tuple(form[name] for name in names) == problems.WITH_ROLES
        if not fits or not describable(TensorSpec.of(values["q"])):
            raise ConfigValueError(f"WARP_SPECIALIZE is {config['WARP_SPECIALIZE']!r}: {problems.ROLES_NEED}")
    return config


def check_scale(scale: float | None) -> None:
    """Check that scores are multiplied with a number above 0 of float32, or that the scale is left out."""
    if scale is None:
        return
    number: Any = scale
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= LARGEST_SCALE:
        raise SettingsError(
            f"scale is {scale!r}; it must be above 0 and at most 2^126", hint="negate q where a scale is negative"
        )


def _check_layout(name: str, tensor: torch.Tensor) -> None:
    if tensor.shape[3] > 1 and tensor.stride(3) != 1:
        fault = "has heads whose elements are no neighbours"
        hint = f"pass {name}.contiguous(); an exchange of heads and positions is no obstacle"
        raise TensorSpec.strides_error(tensor, name, fault, hint)
    check_reach(name, tuple(tensor.shape[2:]), (tensor.stride(2), 1))


def _check_heads(heads: int, kv_heads: int, **sizes: int) -> None:
    if kv_heads == 0 or heads % kv_heads:
        raise ShapeMismatchError(
            f"q has {heads} heads, and k {kv_heads}: each head of k must serve as many heads of q",
            f"a divisor of {heads}",
            kv_heads,
            "k",
        )
    for name, size in sizes.items():
        if not 1 <= size <= LARGEST_HEAD:
            raise ShapeMismatchError(
                f"the heads of {name} have {size} elements; they must have 1 to {LARGEST_HEAD}",
                f"1 to {LARGEST_HEAD}",
                size,
                name,
            )


_KERNEL = call.shipped(
    "attention",
    FormsKernel(
        {"triton": LauncherKernel(kernel.launch, outputs=("out",)), **problems.gluon_forms()}, default="triton"
    ),
    problems,
    _as_it_fits,
)
operation = _KERNEL.operation


@compilable(
    '(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, str config="", bool tune=False)'
    " -> (Tensor, Tensor)",
    gradient=Gradient(
        inputs=("q", "k", "v"),
        function=gradient,
        values="bool causal, float? scale",
        kept=("q", "k", "v"),
        results=(0, 1),
    ),
)
def _attention_products(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithms of the sums of exponentials, [batch, heads, queries]."""
    validate_attention_inputs(q, k, v, scale, causal)
    return _forward((q, k, v), causal, scale, True, **options)


@compilable(
    '(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, str config="", bool tune=False) -> Tensor',
    training=_attention_products,
)
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Compute softmax(scale * q @ k.T) @ v for every head, without the matrix of scores in memory.

    Scores, sums and the result are computed in float32; the exponentials are rounded to the dtype of `v` for the second
    product, and the result once; equal calls give equal bits. The gradients are computed by kernels too, which compute
    the weights anew from one logarithm for each query. Products of float32 are computed in TF32 only where
    `torch.get_float32_matmul_precision()` allows it. Heads of `q` may share heads of `k` and `v`: head h takes head
    h // (heads / kv_heads).

    NaN and infinity reach every query that sees their key, as in PyTorch: in a value those that give its key a weight
    above 0. A hidden key is absent; but where a value is NaN or infinite, results of queries that do not see its key
    are not defined. A query that sees no key gets zeros, whatever the values hold. Of gradients those that PyTorch
    makes of 0 times NaN or infinity are not defined; there are no second derivatives.

    Args:
        q: [batch, heads, queries, head size], bfloat16 | float16 | float32, CUDA; a head of up to 256 elements that are
            neighbours, else any strides: pass [batch, queries, heads, head size] as `q.transpose(1, 2)`.
        k: [batch, kv heads, keys, head size], dtype and device of `q`, strides as of `q`.
        v: [batch, kv heads, keys, value size], dtype and device of `q`, strides as of `q`.
        causal: Whether the last query sees all keys, the one before it all but the last, and so on, as with a cache of
            earlier keys; a query that sees no key gets zeros. For as many queries as keys this is the usual mask.
        scale: What scores are multiplied with, above 0 and at most 2^126; None is 1 / sqrt(head size).
        config: A value for each of BLOCK_M, BLOCK_N, num_warps and num_stages, and if you like GROUP_HEADS, SPLITS,
            DESCRIPTORS, WARP_SPECIALIZE and FORM; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [batch, heads, queries, value size], dtype of `q`, new storage; in memory heads are inside positions if they are
        in `q`.

    Raises:
        KernelTypeError: An argument is not a tensor, or one with torch's bit for negation.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `q` has another dtype, or `k` or `v` not that of `q`.
        ShapeMismatchError: A shape does not fit, a head is larger than 256, or its elements are no neighbours.
        SettingsError: The scale is none of these, or `causal` is no bool.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` holds what the kernel does not take, or descriptors that these tensors cannot have.

    Cost: 2 · batch · heads · (head size + value size) operations for each pair of a query and a key that it sees; reads
    q, k and v and writes the result once where L2 holds the keys in flight; with SPLITS parts of the result in float32
    in between; no host sync. The first call of a config and dtype compiles: up to some seconds.
    Source: Dao, "FlashAttention-2", arXiv:2307.08691; running maximum by Milakov, Gimelshein, arXiv:1805.02867.
    """
    validate_attention_inputs(q, k, v, scale, causal)
    return _forward((q, k, v), causal, scale, False, config, tune)[0]


def flash_attention_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `flash_attention`, with the natural logarithm of each query's sum of exp(score), to merge results by.

    Results over parts of the keys add up to that over all: with logarithms a and b of the parts, weigh the results by
    exp(a - m) and exp(b - m), with m the larger one, and divide by the sum of the weights.

    Args:
        q: As for `flash_attention`, as are all others.
        k: The keys.
        v: The values.
        causal: Whether a query sees no later key.
        scale: What scores are multiplied by; None takes 1 / sqrt(head size).
        config: The config; None takes that of a record, else the default.
        tune: Whether a problem without a winner is tuned first.

    Returns:
        The result, and the logarithms, [batch, heads, queries], float32, contiguous: minus infinity for a query that
        sees no key. They have no gradient.

    Raises:
        As `flash_attention`.
    """
    attended, logarithms = _attention_products(q, k, v, causal, scale, config=config, tune=tune)
    return attended, logarithms.detach()


def _forward(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    causal: bool,
    scale: float | None,
    saving: bool,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithms if they are to be kept, else nothing in their place."""
    torch = require("torch", "attention")
    q, k, v = (tensor.detach() for tensor in tensors)
    out = result_of(q, v.shape[3])
    wide = torch.promote_types(q.dtype, torch.float32)
    lse = q.new_empty(q.shape[:3] if saving else (0,), dtype=wide)
    if _KERNEL.launches(out):
        values = problems.launch_values(q, k, v, out, causal, scale)
        _KERNEL.run(values, q.device, config, tune, lse=lse if saving else None)
    return out, lse


def result_of(q: torch.Tensor, size: int) -> torch.Tensor:
    """Memory for the result with heads of this size, in which heads are inside positions if they are in `q`."""
    batch, heads, queries, _ = q.shape
    if q.stride(1) < q.stride(2):
        strides = (queries * heads * size, size, heads * size, 1)
        return q.new_empty_strided((batch, heads, queries, size), strides)
    return q.new_empty((batch, heads, queries, size))
