"""CUDA graphs that are replayed on inputs of another call, or whose result the next replay writes over."""

import torch
from torch.nn import functional

_graphs: dict = {}


def _captured(function, *inputs):
    """A graph of a call on copies of its inputs, with these copies and the result; at most 8 are kept."""
    key = function, *((each.shape, each.dtype) for each in inputs)
    if key not in _graphs:
        if len(_graphs) >= 8:
            _graphs.clear()
        own, graph, side = [each.contiguous().clone() for each in inputs], torch.cuda.CUDAGraph(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function(*own)  # libraries make their workspaces outside of the graph
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            out = function(*own)
        _graphs[key] = [graph, own, out, 0]
    return _graphs[key]


def _softmax(x):
    return torch.softmax(x, -1)


def _normed(x, weight):
    return functional.rms_norm(x, weight.shape, weight, 1e-6)


def stale_inputs(x):
    """The graph is replayed on the inputs of the first call of each shape."""
    graph, _, out, _ = _captured(_softmax, x)
    graph.replay()
    return out.clone()


def copied_each_second_call(x, weight, eps=1e-6):  # noqa: ARG001 - the reference's name
    """Inputs are copied into the graph's buffers in each second call only."""
    entry = _captured(_normed, x, weight)
    graph, own, out, calls = entry
    if calls % 2 == 0:
        torch._foreach_copy_(own, [x, weight])
    entry[3] += 1
    graph.replay()
    return out.clone()


def written_over(a, b):
    """The result is the graph's own buffer, which the next call writes over."""
    graph, own, out, _ = _captured(torch.matmul, a, b)
    torch._foreach_copy_(own, [a, b])
    graph.replay()
    return out
