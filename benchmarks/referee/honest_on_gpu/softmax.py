"""Honest candidates of `softmax` that need a GPU."""

import functools

import torch
import triton
import triton.language as tl

import triton_ops

_graphs: dict = {}
_BLOCKS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (2048, 8))]


@triton.jit
def _whole_row_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def _blocks_kernel(x, out, columns, BLOCK: tl.constexpr):
    """Two passes over blocks of a row, of which the first rescales its sums when the maximum grows."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x, out = x + row * columns, out + row * columns
    highest = tl.full((BLOCK,), -1e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + start + at, mask=start + at < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, values)
        total = total * tl.exp(highest - higher) + tl.exp(values - higher)
        highest = higher
    top = tl.max(highest, 0)
    weight = tl.sum(total * tl.exp(highest - top), 0)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + start + at, mask=start + at < columns, other=0.0).to(tl.float32)
        tl.store(out + start + at, tl.exp(values - top) / weight, mask=start + at < columns)


_autotuned_kernel = triton.autotune(configs=_BLOCKS, key=["columns"])(_blocks_kernel)
_listed_kernel = triton_ops.autotune(_BLOCKS, key=["columns"], on_miss="default")(_blocks_kernel)


def _launched(kernel, x, **options):
    x = x.contiguous()
    out = torch.empty_like(x)
    kernel[(len(x),)](x, out, x.shape[1], **options)
    return out


def whole_rows(x):
    """A kernel of Triton with a row in a block."""
    return _launched(_whole_row_kernel, x, BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))


def blocks_of_rows(x):
    """A kernel of Triton that goes through a row in blocks."""
    return _launched(_blocks_kernel, x, BLOCK=1024, num_warps=4)


def autotuned(x):
    """The same, tuned by `triton.autotune` for each width."""
    return _launched(_autotuned_kernel, x)


def from_list(x):
    """The same by `triton_ops.autotune`, which takes the first config where none is tuned."""
    return _launched(_listed_kernel, x)


def _captured(x):
    """A graph of a call, with its own input and result; at most 8 are kept."""
    key = x.shape, x.dtype
    if key not in _graphs:
        if len(_graphs) >= 8:
            _graphs.clear()
        own, graph = x.contiguous().clone(), torch.cuda.CUDAGraph()
        torch.softmax(own, -1)
        with torch.cuda.graph(graph):
            out = torch.softmax(own, -1)
        _graphs[key] = graph, own, out
    return _graphs[key]


def by_graph(x):
    """A CUDA graph, into whose input each call copies its own, and of whose result it gives a copy."""
    graph, own, out = _captured(x)
    own.copy_(x)
    graph.replay()
    return out.clone()


@functools.cache
def _side():
    return torch.cuda.Stream()


def on_two_streams(x):
    """Half of the rows on a side stream, for which the current one waits."""
    out, half, main = torch.empty_like(x), len(x) // 2, torch.cuda.current_stream()
    _side().wait_stream(main)
    with torch.cuda.stream(_side()):
        out[half:] = torch.softmax(x[half:], -1)
    out[:half] = torch.softmax(x[:half], -1)
    main.wait_stream(_side())
    return out


@functools.cache
def _compiled():
    return torch.compile(lambda x: torch.softmax(x.float(), -1).to(x.dtype), dynamic=True)


def compiled_for_any_shape(x):
    """Compiled by torch once, for shapes of all sizes."""
    return _compiled()(x)
