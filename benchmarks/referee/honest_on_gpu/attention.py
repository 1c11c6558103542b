"""Honest candidates of `attention` that need a GPU."""

import functools

import torch
import triton
import triton.language as tl
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


@triton.jit
def _attention_kernel(q, k, v, out, tokens, extent, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """One block of queries of a head: one pass over the keys, with sums rescaled when the maximum grows."""
    m, n, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BD)
    base = tl.program_id(1).to(tl.int64) * tokens * extent
    place, inside = base + m[:, None] * extent + d[None, :], (m[:, None] < tokens) & (d[None, :] < extent)
    queries = tl.load(q + place, mask=inside, other=0.0)
    highest = tl.full((BM,), -1e38, tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, BD), tl.float32)
    for start in range(0, tokens, BN):
        column = start + n
        known = (column[:, None] < tokens) & (d[None, :] < extent)
        places = base + column[:, None] * extent + d[None, :]
        keys = tl.load(k + places, mask=known, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(column[None, :] < tokens, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        rescale = tl.exp(highest - higher)
        powers = tl.exp(scores - higher[:, None])
        weight = weight * rescale + tl.sum(powers, 1)
        values = tl.load(v + places, mask=known, other=0.0)
        total = total * rescale[:, None] + tl.dot(powers.to(values.dtype), values, input_precision="ieee")
        highest = higher
    tl.store(out + place, total / weight[:, None], mask=inside)


def _launched(q, k, v, **blocks):
    q, k, v = (each.contiguous() for each in (q, k, v))
    heads, tokens, extent = q.shape
    out, wide = torch.empty_like(q), max(triton.next_power_of_2(max(extent, 1)), 16)
    grid = triton.cdiv(tokens, blocks["BM"]), heads
    _attention_kernel[grid](q, k, v, out, tokens, extent, extent**-0.5, BD=wide, **blocks)
    return out


def one_pass(q, k, v):
    """A kernel of Triton with blocks of 64 queries and 32 keys."""
    return _launched(q, k, v, BM=64, BN=32)


def one_pass_of_many_keys(q, k, v):
    """A kernel of Triton with blocks of 32 queries and 64 keys."""
    return _launched(q, k, v, BM=32, BN=64)


def _aligned(*tensors):
    """Copies, since torch 2.11 is wrong, or fails, where rows do not begin at multiples of 16 bytes."""
    return [each.clone(memory_format=torch.contiguous_format) for each in tensors]


def _by(backend, q, k, v):
    q, k, v = _aligned(q, k, v)
    with sdpa_kernel([backend, SDPBackend.MATH]):
        return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def memory_efficient(q, k, v):
    """Torch's own function by its memory-efficient kernels, where these take the inputs."""
    return _by(SDPBackend.EFFICIENT_ATTENTION, q, k, v)


def flash(q, k, v):
    """Torch's own function by flash attention, where this takes the inputs."""
    return _by(SDPBackend.FLASH_ATTENTION, q, k, v)


@functools.cache
def _side():
    return torch.cuda.Stream()


def heads_on_two_streams(q, k, v):
    """Half of the heads on a side stream, for which the current one waits."""
    main, out = torch.cuda.current_stream(), torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q, k, v = _aligned(q, k, v)
    _side().wait_stream(main)
    for stream, part in ((_side(), slice(len(q) // 2)), (main, slice(len(q) // 2, None))):
        with torch.cuda.stream(stream):
            if len(q[part]):  # torch's function divides by the count of heads
                out[part] = functional.scaled_dot_product_attention(q[None, part], k[None, part], v[None, part])[0]
    main.wait_stream(_side())
    return out
