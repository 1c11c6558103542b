"""What torch makes of a call while it traces it, seen without a GPU: the configs that a backend would be handed."""

from __future__ import annotations

import ast
import importlib
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from triton_ops.backend import TritonKernel


@dataclass
class Traces:
    """The graphs that a backend was handed, and what their launches of kernels are."""

    configs: list[list[dict[str, Any]]] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    constants: list[dict[str, Any]] = field(default_factory=list)

    def backend(self, graph: Any, examples: list[Any]) -> Any:
        """A backend that takes note, and runs the graph as it is."""
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        self.graphs.append(graph)
        for node in graph.graph.nodes:
            if "kernel_idx" in node.kwargs:
                kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
                self.configs.append([TritonKernel.values_of(config) for config in kernel.configs])
                self.constants.append(kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"]))
        return graph.forward

    @property
    def targets(self) -> list[str]:
        """What the graphs call."""
        return [str(node.target) for graph in self.graphs for node in graph.graph.nodes if node.op == "call_function"]


@contextmanager
def tracing():
    """Inside, torch takes this machine for one on which Triton compiles; gives what it traces."""
    import torch

    torch._dynamo.reset()
    with mock.patch("torch.utils._triton.has_triton", return_value=True):
        yield Traces()
    torch._dynamo.reset()


def key_of_autograd_cache(graph: Any, examples: list[Any]) -> str:
    """The key under which torch keeps what Inductor makes of a graph that Dynamo has traced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inductor = importlib.import_module("torch._inductor.compile_fx")
    return str(inductor.autograd_cache_key(graph, examples, ignore_shape_env=False)[0])


@contextmanager
def written_by_inductor():
    """Inside, Inductor writes its code and runs it, with launches of kernels that do nothing; gives these in order.

    A launch is the kernel's name with its arguments, of which constants are left out, and the extents of its grid.
    Facts used, from torch 2.11 to 2.13: `AsyncCompile.triton` takes a kernel's name and source, and what it gives is
    launched by `run`; `has_triton_tensor_descriptor_host_tma` tells whether the GPU has descriptors.
    """
    import torch
    from torch._functorch import config as functorch
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    made: list[tuple[str, tuple[Any, ...]]] = []

    def compiled(_self: Any, name: str, source: str, **_options: Any) -> Any:
        ast.parse(source)
        return SimpleNamespace(run=lambda *args, stream: made.append((name, args)))

    own = "torch.utils._triton.has_triton_tensor_descriptor_host_tma"
    with (
        tracing(),
        mock.patch.object(AsyncCompile, "triton", compiled),
        mock.patch(own, return_value=True),
        config.patch(fx_graph_cache=False),
        functorch.patch(enable_autograd_cache=False),
    ):
        yield made
        torch._dynamo.reset()


def code_of(function: Any, *args: Any, **options: Any) -> str:
    """The code that Inductor writes for a call, in one graph."""
    import torch
    from torch._inductor.utils import run_and_get_code

    _, texts = run_and_get_code(torch.compile(function, fullgraph=True, **options), *args)
    return "\n".join(texts)
