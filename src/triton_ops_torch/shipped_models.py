"""The models that come with the package, as factories of a model and its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional


class SimpleMLP(nn.Module):
    """Two linear layers with a ReLU between them; `features` are the extents of input, hidden layer and output."""

    def __init__(self, features: tuple[int, int, int] = (1024, 1024, 1024)) -> None:
        super().__init__()
        self.linear1 = nn.Linear(features[0], features[1])
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(features[1], features[2])

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`, (batch, features[0])."""
        output: Tensor = self.linear2(self.relu(self.linear1(x)))
        return output


class RMSNorm(nn.Module):
    """Root mean square normalisation of the last axis, computed in float32, with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """`x` normalised, in its dtype."""
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return (wide * scale).to(x.dtype) * self.weight


class LlamaBlock(nn.Module):
    """A decoder block: RMSNorm, causal attention with fewer heads of keys, RMSNorm, gated MLP, both with a residual.

    `heads` is a multiple of `kv_heads`, and `hidden` the extent of the gated MLP.
    """

    def __init__(self, width: int = 4096, heads: int = 32, kv_heads: int = 8, hidden: int = 14336) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        linear = partial(nn.Linear, bias=False)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, kv_heads * self.head), linear(width, kv_heads * self.head)
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """The hidden state after the block for `x`, (batch, sequence, width)."""
        normed = self.norm1(x)
        projections = (self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads)
        q, k, v = (each(normed).view(*x.shape[:2], heads, self.head).transpose(1, 2) for each, heads in projections)
        repeated = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeated, dim=1), v.repeat_interleave(repeated, dim=1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        normed = self.norm2(x)
        output: Tensor = x + self.down(functional.silu(self.gate(normed)) * self.up(normed))
        return output


class NormChain(nn.Module):
    """Operations between the products of a decoder block: a gated activation, a residual, and the next RMSNorm."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = RMSNorm(width)

    def forward(self, x: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised hidden state, and the hidden state, for three tensors (rows, width)."""
        hidden = x + functional.silu(gate) * up
        return self.norm(hidden), hidden


def simple_mlp(
    batch: int = 256,
    features: tuple[int, int, int] = (1024, 1024, 1024),
    *,
    dtype: str = "float32",
    device: str | None = None,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """`SimpleMLP` and its input (batch, features[0]), on a GPU where there is one."""
    return _placed(SimpleMLP(features), [(batch, features[0])], dtype, device)


def llama_block(
    batch: int = 1,
    tokens: int = 128,
    sizes: tuple[int, int, int, int] = (4096, 32, 8, 14336),
    *,
    dtype: str = "bfloat16",
    device: str | None = None,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A `LlamaBlock` of width, heads, heads of keys and hidden extent `sizes`, and its input (batch, tokens, width)."""
    return _placed(LlamaBlock(*sizes), [(batch, tokens, sizes[0])], dtype, device)


def norm_chain(
    rows: int = 512, width: int = 1024, *, dtype: str = "float32", device: str | None = None
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A `NormChain` and its three inputs (rows, width)."""
    return _placed(NormChain(width), [(rows, width)] * 3, dtype, device)


def _placed(
    model: nn.Module, shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    where, kind = device or ("cuda" if torch.cuda.is_available() else "cpu"), getattr(torch, dtype)
    tensors = tuple(torch.randn(*shape, device=where, dtype=kind) for shape in shapes)
    return model.to(device=where, dtype=kind).eval(), tensors


simple_mlp_bf16 = partial(simple_mlp, dtype="bfloat16")
small_transformer = partial(llama_block, 1, 64, (256, 8, 4, 704), dtype="float32")
one_token = partial(llama_block, 1, 1, (256, 8, 4, 704), dtype="float32")
