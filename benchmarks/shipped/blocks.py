"""Blocks of models whose parts are torch's own or this package's: `python -m benchmarks.shipped.blocks_gpu` times them.

All is torch's but for the parts for which this package ships a kernel that does more than one of torch's operators, or
the same: attention, the gated MLP, the layer norm, the layer with a GELU, and the products of a mixture of experts.
Norms without a rotation behind them, rotations, projections, the router and sums are torch's on every side.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

import triton_ops

EPS = 1e-5


@dataclass(frozen=True)
class Parts:
    """The parts of blocks that the sides have of their own."""

    attention: Callable[..., Any]
    gated_mlp: Callable[..., Any]
    layer_norm: Callable[..., Any]
    gelu_layer: Callable[..., Any]
    grouped: Callable[..., Any]


def torch_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Torch's attention, by the backend that it takes."""
    shared = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)


def torch_gated_mlp(x: Any, gate: Any, up: Any) -> Any:
    """Two products, and what joins them."""
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def torch_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Torch's layer norm."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def torch_gelu_layer(x: Any, weight: Any, bias: Any) -> Any:
    """A layer, and then its activation."""
    return functional.gelu(functional.linear(x, weight, bias))


_GROUPED = getattr(functional, "grouped_mm", None) or torch._grouped_mm  # public from torch 2.10 on


def torch_grouped(x: Any, weight: Any, ends: Any, rows: Any = None) -> Any:
    """Torch's grouped product, of copied rows."""
    return _GROUPED(x if rows is None else x[rows], weight.transpose(1, 2), offs=ends)


def own_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The shipped attention."""
    return triton_ops.flash_attention(q, k, v, causal)


def own_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """The shipped layer norm."""
    return triton_ops.layer_norm(x, weight, bias, EPS)


def own_gelu_layer(x: Any, weight: Any, bias: Any) -> Any:
    """The shipped product, with bias and activation."""
    product = triton_ops.matmul(x.flatten(0, -2), weight.t(), bias=bias, activation="gelu")
    return product.view(*x.shape[:-1], weight.shape[0])


def own_grouped(x: Any, weight: Any, ends: Any, rows: Any = None) -> Any:
    """The shipped grouped product, which finds its rows itself."""
    return triton_ops.grouped_matmul(x, weight.transpose(1, 2), ends, rows)


CHOSEN_ATTENTION, CHOSEN_LAYER = triton_ops.chooser("sdpa"), triton_ops.chooser("linear")
CHOSEN_MLP = triton_ops.choose({"aten": torch_gated_mlp, "triton": triton_ops.fused_gated_mlp}, name="block_mlp")
CHOSEN_NORM = triton_ops.choose({"aten": torch_layer_norm, "triton": own_layer_norm}, name="block_norm")
CHOSEN_GROUPED = triton_ops.choose({"aten": torch_grouped, "triton": own_grouped}, name="block_grouped")

OURS = Parts(own_attention, triton_ops.fused_gated_mlp, own_layer_norm, own_gelu_layer, own_grouped)
PARTS = {
    "torch": Parts(torch_attention, torch_gated_mlp, torch_layer_norm, torch_gelu_layer, torch_grouped),
    "untuned": OURS,
    "tuned": OURS,
    "chosen": Parts(
        lambda q, k, v, causal: CHOSEN_ATTENTION(q, k, v, causal),
        lambda x, gate, up: CHOSEN_MLP(x, gate, up),
        lambda x, weight, bias: CHOSEN_NORM(x, weight, bias),
        lambda x, weight, bias: CHOSEN_LAYER(x, weight, bias, "gelu"),
        lambda x, weight, ends, rows=None: CHOSEN_GROUPED(x, weight, ends, rows),
    ),
}


class Block(torch.nn.Module):
    """A block with the parts of a side."""

    def __init__(self) -> None:
        super().__init__()
        self.side = "torch"

    def on(self, side: str) -> Block:
        """The same block, with the same weights, on another side."""
        other = copy.copy(self)
        other.side = side
        return other

    def drawn(self, *shape: int, scale: float = 1.0) -> torch.nn.Parameter:
        """A weight whose layer keeps the size of its inputs, or changes it by `scale`."""
        return torch.nn.Parameter(torch.randn(shape) * (scale / math.sqrt(shape[-1])), requires_grad=False)

    def vector(self, extent: int, centre: float = 0.0) -> torch.nn.Parameter:
        """A bias, or the weight of a norm around 1."""
        return torch.nn.Parameter(centre + 0.1 * torch.randn(extent), requires_grad=False)


def rms_norm(x: Any, weight: Any) -> Any:
    """Torch's RMS norm."""
    return functional.rms_norm(x, x.shape[-1:], weight, EPS)


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """The rotary embedding of [batch, heads, tokens, head size], as models write it."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


SHARP = 4.0  # queries are so much larger, so that few keys decide, and a lost one shows


class LlamaBlock(Block):
    """A decoder block with fewer heads of keys: `tokens` new ones attend to themselves, or one to `past` and itself."""

    def __init__(self, tokens: int, past: int, batch: int, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.head, narrow = width // heads, width // heads * kv_heads
        self.q, self.k = self.drawn(width, width, scale=SHARP), self.drawn(narrow, width)
        self.v, self.o = self.drawn(narrow, width), self.drawn(width, width)
        self.gate, self.up = self.drawn(hidden, width), self.drawn(hidden, width)
        self.down = self.drawn(width, hidden)
        self.before, self.between = self.vector(width, 1.0), self.vector(width, 1.0)
        angles = torch.outer(torch.arange(past, past + tokens), 10_000 ** -torch.linspace(0, 1, self.head // 2))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())
        self.cached = past > 0
        for name in ("keys", "values") if self.cached else ():
            self.register_buffer(name, torch.randn(batch, kv_heads, past + tokens, self.head))

    def forward(self, x: Any) -> Any:
        """The hidden state after the block for `x`, [batch, tokens, width]."""
        parts, normed = PARTS[self.side], rms_norm(x, self.before)
        q, k, v = (
            functional.linear(normed, weight).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for weight in (self.q, self.k, self.v)
        )
        q, k = rotated(q, self.cos, self.sin), rotated(k, self.cos, self.sin)
        if self.cached:
            self.keys[:, :, -1:], self.values[:, :, -1:] = k, v
            k, v = self.keys, self.values
        attended = parts.attention(q, k, v, not self.cached)
        x = x + functional.linear(attended.transpose(1, 2).flatten(2), self.o)
        return x + functional.linear(parts.gated_mlp(rms_norm(x, self.between), self.gate, self.up), self.down)


class MoELayer(Block):
    """A mixture of experts with a gated MLP each, of which a token takes the `top` best."""

    def __init__(self, width: int, experts: int, hidden: int, top: int) -> None:
        super().__init__()
        self.top, self.norm, self.router = top, self.vector(width, 1.0), self.drawn(experts, width)
        self.gate_up, self.down = self.drawn(experts, 2 * hidden, width), self.drawn(experts, width, hidden)
        self.register_buffer("experts", torch.arange(experts))

    def forward(self, x: Any) -> Any:
        """The hidden state after the layer for `x`, [batch, tokens, width]."""
        parts, tokens = PARTS[self.side], rms_norm(x, self.norm).flatten(0, 1)
        likely = functional.softmax(functional.linear(tokens, self.router).float(), -1)
        shares, chosen = torch.topk(likely, self.top)
        shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
        by_expert, order = chosen.flatten().sort(stable=True)
        ends = torch.searchsorted(by_expert, self.experts, right=True, out_int32=True)
        gate, up = parts.grouped(tokens, self.gate_up, ends, order // self.top).chunk(2, -1)
        results = parts.grouped(functional.silu(gate) * up, self.down, ends)[order.argsort()]
        return x + (results.unflatten(0, (-1, self.top)) * shares.unsqueeze(-1)).sum(1).view_as(x)


class VisionBlock(Block):
    """An encoder block: layer norm, attention of all tokens to all, layer norm, MLP with a GELU."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.qkv_bias = self.drawn(3 * width, width), self.vector(3 * width)
        self.qkv[:width] *= SHARP
        self.o, self.o_bias = self.drawn(width, width), self.vector(width)
        self.up, self.up_bias = self.drawn(hidden, width), self.vector(hidden)
        self.down, self.down_bias = self.drawn(width, hidden), self.vector(width)
        self.before, self.before_bias = self.vector(width, 1.0), self.vector(width)
        self.between, self.between_bias = self.vector(width, 1.0), self.vector(width)

    def forward(self, x: Any) -> Any:
        """The hidden state after the block for `x`, [batch, tokens, width]."""
        parts = PARTS[self.side]
        joint = functional.linear(parts.layer_norm(x, self.before, self.before_bias), self.qkv, self.qkv_bias)
        q, k, v = joint.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = parts.attention(q, k, v, False)
        x = x + functional.linear(attended.transpose(1, 2).flatten(2), self.o, self.o_bias)
        wide = parts.gelu_layer(parts.layer_norm(x, self.between, self.between_bias), self.up, self.up_bias)
        return x + functional.linear(wide, self.down, self.down_bias)


Recipe = tuple[Callable[[], Block], tuple[int, int, int]]
"""What makes a block, and the shape of its input."""


def llama(tokens: int, past: int, batch: int, sizes: tuple[int, int, int, int]) -> Recipe:
    """A decoder block of width, heads, heads of keys and MLP `sizes`."""
    return partial(LlamaBlock, tokens, past, batch, *sizes), (batch, tokens, sizes[0])


def shapes(
    tokens: int, llama_8b: tuple[int, int, int, int], experts: tuple[int, int, int, int], vit: tuple[int, int, int],
    images: tuple[int, int],
) -> dict[str, Recipe]:  # fmt: skip
    """The seven blocks by name."""
    blocks: dict[str, Recipe] = {"llama-prefill": llama(tokens, 0, 1, llama_8b)}
    blocks |= {f"llama-decode-{batch}": llama(1, tokens - 1, batch, llama_8b) for batch in (1, 16)}
    moe = partial(MoELayer, *experts)
    blocks["moe-prefill"] = moe, (1, tokens, experts[0])
    blocks |= {f"moe-decode-{batch}": (moe, (batch, 1, experts[0])) for batch in (1, 16)}
    return {**blocks, "vision-prefill": (partial(VisionBlock, *vit), (*images, vit[0]))}


# Llama 3 8B, Qwen3 30B-A3B, and a ViT-L of 14 by 14 pixels and 336 by 336 pictures.
SHAPES = shapes(2048, (4096, 32, 8, 14336), (2048, 128, 768, 8), (1024, 16, 4096), (8, 577))
TINY = shapes(12, (32, 2, 1, 48), (32, 4, 16, 2), (32, 2, 64), (1, 11))


def block_of(name: str, tiny: bool, device: str, dtype: torch.dtype) -> tuple[Block, Any]:
    """A block with weights, and its input."""
    torch.manual_seed(0)
    make, shape = (TINY if tiny else SHAPES)[name]
    with torch.device(device):
        block = make().to(dtype)
        x = torch.randn(shape, dtype=dtype)
    for buffer in block.buffers():
        torch._dynamo.mark_static_address(buffer)  # a graph writes to the cache, and copies nothing to itself
    return block.eval(), x
