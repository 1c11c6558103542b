"""What torch makes of a call while it traces it, seen without a GPU: the configs that a backend would be handed."""

from __future__ import annotations

import importlib
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
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
