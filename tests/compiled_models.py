"""Models and compilers for tests of compile modes. The factory registers the compilers in the process that calls it."""

from __future__ import annotations

import os
import sys
import time

import torch


class Gated(torch.nn.Module):
    """A linear layer with a gate, and a buffer that counts calls."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale=1.0):
        self.calls.add_(1)
        return torch.sigmoid(self.linear(x)) * x * scale


def crash(_graph, _inputs):
    os.abort()


def hang(_graph, _inputs):
    time.sleep(3600)


def refuse(_graph, _inputs):
    raise RuntimeError("no registers left")


def wrong(graph, _inputs):
    return lambda *inputs: [each * 1.01 if each.dim() else each for each in graph.forward(*inputs)]


def writes(graph, _inputs):
    def run(*inputs):
        result = graph.forward(*inputs)
        next(each for each in inputs if each.shape == (4, 16)).add_(1)
        return result

    return run


COMPILERS = {"crash": crash, "hang": hang, "refuse": refuse, "wrong": wrong, "writes": writes}


def register():
    """Make the compilers known where torch's is loaded; a process that compiles nothing spends no second on that."""
    dynamo = sys.modules.get("torch._dynamo")
    for name, compiler in COMPILERS.items() if dynamo is not None else ():
        if f"test_{name}" not in dynamo.list_backends(None):
            dynamo.register_backend(compiler, name=f"test_{name}")


def gated():
    register()
    torch.manual_seed(0)
    return Gated().eval(), (torch.randn(4, 16),)


def raises():
    raise FileNotFoundError("weights.pt")


def no_pair():
    return Gated()


def two_devices():
    return Gated(), (torch.empty(4, 16, device="meta"),)


def refuses_its_input():
    return Gated(), (torch.randn(4, 3),)
