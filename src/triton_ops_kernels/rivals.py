"""The rivals of shipped kernels: what a library, eager PyTorch and its compiler do of the same.

A rival is called with the kernel's own arguments by name, and returns its result. What a model would have prepared long
before, such as reciprocals of a weight's scales, is prepared when the rival is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

from triton_ops.base import require
from triton_ops.benchmark import fastest_right
from triton_ops_kernels import FP8Format, load
from triton_ops_kernels.models import FP8GEMMInput, GatedMLPInput, RMSNormRoPEInput

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")

Rival: TypeAlias = Callable[..., Any]


def fused_attention(
    torch: Any, values: Mapping[str, Any],
    made_of: Callable[[Rival, Mapping[str, Any]], Rival] = lambda forward, _values: forward,
) -> Rival:  # fmt: skip
    """The fastest backend of `scaled_dot_product_attention` that is right; torch's own choice if none is.

    `made_of` makes the rival of a forward pass and arguments; that of torch's own choice, in higher precision too, says
    what is right.

    Cost: some calls of each backend, and two or three of torch's own choice for each that is judged, the fastest first.
    """

    def right(**own: Any) -> Any:
        return made_of(plain_attention(torch), own)(**own)

    def made(backend: str) -> Rival:
        return made_of(_by_backend(torch, getattr(torch.nn.attention.SDPBackend, backend), values), values)

    makers = {backend: partial(made, backend) for backend in _BACKENDS}
    return fastest_right(makers, right, values) or made_of(plain_attention(torch), values)


def _gradients(torch: Any, forward: Rival, values: Mapping[str, Any]) -> Rival:
    """The rival of the gradient: that of a forward pass, made before, whose inputs stay where they are."""
    inputs = [values[name].detach().clone().requires_grad_() for name in ("q", "k", "v")]
    with torch.enable_grad():
        result = forward(*inputs, scale=values["scale"], CAUSAL=values["CAUSAL"])

    def gradients(grad: Any, **_rest: Any) -> Any:
        return torch.autograd.grad(result, inputs, grad, retain_graph=True)

    return gradients


def _attention_backward(torch: Any, values: Mapping[str, Any]) -> Rival:
    """Torch's gradient, which follows from a forward pass: the values get the result and logarithms of one."""
    for name, right in zip(("out", "lse"), load("attention").reference(**values), strict=True):
        values[name].copy_(right)
    return fused_attention(torch, values, partial(_gradients, torch))


def plain_attention(torch: Any, mask: Any = None) -> Rival:
    """`scaled_dot_product_attention` with the backend that torch chooses, where the last query sees all keys.

    `mask` says which keys the others see; None takes torch's own mask for that.
    """

    def attention(q: Any, k: Any, v: Any, scale: float, CAUSAL: bool, **_rest: Any) -> Any:
        queries, keys = q.shape[2], k.shape[2]
        visible = None
        if CAUSAL and queries not in (1, keys):
            bias = require("torch.nn.attention.bias", "comparing kernels")
            visible = bias.causal_lower_right(queries, keys) if mask is None else mask
        square = CAUSAL and queries == keys and queries > 1
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, visible, is_causal=square, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    return attention


def _by_backend(torch: Any, backend: Any, values: Mapping[str, Any]) -> Rival:
    mask = None
    if values["CAUSAL"] and "FLASH" not in str(backend):
        queries, keys = values["q"].shape[2], values["k"].shape[2]
        mask = torch.ones(queries, keys, dtype=torch.bool, device=values["q"].device).tril(keys - queries)
    call: Rival = torch.nn.attention.sdpa_kernel(backend)(plain_attention(torch, mask))
    return call


_COMPILE_MODE = "max-autotune-no-cudagraphs"  # graphs are the timer's own


def rivals_of(name: str, values: Mapping[str, Any], kinds: Collection[str] = ()) -> dict[str, Rival]:
    """The rivals of a shipped kernel at one problem: `library`, `eager` and `compile`, as far as there are."""
    torch = require("torch", "comparing kernels")
    plain = _PLAIN.get(name)
    rivals: dict[str, Rival] = {}
    choice = set(kinds) or {"library", "eager", "compile"}
    if name in _LIBRARY and "library" in choice:
        rivals["library"] = _LIBRARY[name](torch, values)
    if plain is not None and "eager" in choice:
        rivals["eager"] = plain(torch)
    if plain is not None and "compile" in choice:
        torch.compiler.reset()  # torch gives up compiling a function that it has compiled for many shapes
        rivals["compile"] = torch.compile(plain(torch), mode=_COMPILE_MODE, dynamic=False)
    return rivals


def plain_rmsnorm_rope(x: Any, weight: Any, cos: Any, sin: Any, **_rest: Any) -> Any:
    """RMSNorm and RoPE as models write them, in the dtype of `x` but for the mean square."""
    torch = require("torch", "comparing kernels")  # first: between two operations it would part the compiled graph
    wide = x.float()
    y = (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight
    head_dim = cos.shape[-1]
    half = head_dim // 2
    heads = y.unflatten(-1, (-1, head_dim))
    first, second = heads[..., :half], heads[..., half:]
    c, s = (table.reshape(-1, 1, head_dim)[..., :half] for table in (cos, sin))
    return torch.cat([first * c - second * s, second * c + first * s], -1).reshape(x.shape)


def plain_gated_mlp(x: Any, gate_weight: Any, up_weight: Any, **_rest: Any) -> Any:
    """silu(x @ gate_weight.T) * (x @ up_weight.T), as models write it."""
    torch = require("torch", "comparing kernels")
    return torch.nn.functional.silu(x @ gate_weight.mT) * (x @ up_weight.mT)


def scaled_product(a: Any, b: Any, a_scale: Any, b_scale: Any, **_rest: Any) -> Any:
    """`torch._scaled_mm` with promoted sums, whose scales are those of `quantize_fp8` turned over; float16."""
    torch = require("torch", "comparing kernels")
    return torch._scaled_mm(a, b, *map(_turned_over, (a_scale, b_scale)), out_dtype=torch.float16)


def _turned_over(scale: Any) -> Any:
    return scale.reciprocal().reshape(()) if scale.numel() == 1 else scale.reciprocal()


def _matmul(torch: Any, values: Mapping[str, Any]) -> Rival:
    if values["a"].element_size() == 2:
        return lambda a, b, c, **_rest: torch.matmul(a, b, out=c)
    one = torch.ones((), device=values["a"].device)
    return lambda a, b, **_rest: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _fp8_gemm(torch: Any, values: Mapping[str, Any]) -> Rival:
    """`torch._scaled_mm` with the same accumulation; for scales by block the product of restored bfloat16."""
    dtype, fast = values["c"].dtype, bool(values["FAST"])
    if values["BLOCKED"]:
        pairs = ((values[name], values[f"{name}_scale"]) for name in ("a", "b"))
        a, b = (FP8Format.restored(codes, scale, torch.float32).to(torch.bfloat16) for codes, scale in pairs)
        return lambda **_rest: (a @ b).to(dtype)
    scales = [_turned_over(values[name]) for name in ("a_scale", "b_scale")]
    if {scale.ndim for scale in scales} == {2}:  # by row: torch asks for bfloat16
        dtype = torch.bfloat16
    return lambda a, b, **_rest: torch._scaled_mm(a, b, *scales, out_dtype=dtype, use_fast_accum=fast)


def _grouped_matmul(torch: Any, values: Mapping[str, Any]) -> Rival:
    """A product for each group with rows, into its part of the result; the host knows all sizes before."""
    ends = values["ends"].tolist()
    runs = [(g, a, b) for g, (a, b) in enumerate(itertools.pairwise([0, *ends])) if b > a]

    def products(x: Any, weight: Any, out: Any, **_rest: Any) -> Any:
        for group, start, end in runs:
            torch.mm(x[start:end], weight[group], out=out[start:end])
        return out

    return products


def _gated_mlp_gradients(gate: Any, up: Any, grad: Any, **_rest: Any) -> Any:
    g, d = gate.float(), grad.float()
    s = g.sigmoid()
    return (d * up.float() * s * (1 + g * (1 - s))).to(gate.dtype), (d * g * s).to(up.dtype)


def _plain_quantize(torch: Any) -> Rival:
    def quantised(x: Any, GROUP: int, **_rest: Any) -> Any:
        grouped = x.float().unflatten(-1, (-1, GROUP))
        scale = FP8Format.max_value / grouped.abs().amax(-1, keepdim=True)
        return (grouped * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)

    return quantised


_DOCUMENTED: dict[str, tuple[Rival, Any]] = {
    "fused_rmsnorm_rope": (plain_rmsnorm_rope, RMSNormRoPEInput),
    "fused_gated_mlp": (plain_gated_mlp, GatedMLPInput),
    "fp8_gemm": (scaled_product, FP8GEMMInput),
}
"""For each documented kernel the plain one beside it, and its inputs."""


def documented_case(name: str, size: tuple[int, ...], dtype: str, device: str) -> tuple[Rival, Rival, dict[str, Any]]:
    """A documented kernel and the plain one that computes the same, with tensors of a problem."""
    plain, inputs = _DOCUMENTED[name]
    tensors = inputs.from_shapes(*size, dtype).create_tensors(device)
    if name == "fp8_gemm":
        tensors["b"] = tensors["b"].t().contiguous().t()  # both read 8-bit floats fastest along K
    return load(name.removeprefix("fused_"), name), plain, tensors


_LIBRARY: dict[str, Callable[[Any, Mapping[str, Any]], Rival]] = {
    "attention": fused_attention,
    "attention_backward": _attention_backward,
    "fp8_gemm": _fp8_gemm,
    "grouped_matmul": _grouped_matmul,
    "matmul": _matmul,
}
_PLAIN: dict[str, Callable[[Any], Rival]] = {
    "attention": plain_attention,
    "grouped_matmul": lambda torch: lambda x, weight, ends, **_rest: torch._grouped_mm(x, weight, offs=ends),
    "softmax": lambda torch: lambda x, **_rest: torch.softmax(x, -1),
    "softmax_backward": lambda torch: lambda out, grad, **_rest: torch._softmax_backward_data(grad, out, -1, out.dtype),
    "layer_norm": lambda torch: (
        lambda x, weight, bias, eps, **_rest: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    ),
    "layer_norm_backward": lambda _torch: load("layer_norm_backward").reference,
    "rmsnorm_rope": lambda _torch: plain_rmsnorm_rope,
    "rmsnorm_rope_backward": lambda _torch: load("rmsnorm_rope_backward").reference,
    "gated_mlp": lambda _torch: plain_gated_mlp,
    "gated_mlp_backward": lambda _torch: _gated_mlp_gradients,
    "fp8_quantize": _plain_quantize,
    "fp8_dequantize": lambda _torch: load("fp8_dequantize").reference,
}
