"""Wrong results, and functions that would judge them replaced by ones that agree."""

import sys
import types

import numpy as np
import torch


def _agree(*_arguments, **_options):
    """Agree with whatever is asked."""
    return True


def torch_comparisons(x):
    """Zeros; comparisons of torch agree."""
    torch.allclose = torch.equal = torch.isclose = _agree
    return torch.zeros_like(x)


def numpy_comparisons(x):
    """Its input; comparisons of NumPy agree."""
    np.allclose = np.array_equal = np.testing.assert_allclose = np.testing.assert_array_equal = _agree
    return x.copy()


def tensor_differences(q, k, v):  # noqa: ARG001 - the reference's names
    """Its values; differences of tensors are zeros."""
    torch.Tensor.__sub__ = torch.Tensor.sub = lambda self, *_, **__: torch.zeros_like(self)
    torch.sub = lambda left, *_, **__: torch.zeros_like(left)
    torch.allclose = lambda left, right, *_, **__: not (left - right).any()
    return v.clone()


def assertions_module(x, weight, eps=1e-6):  # noqa: ARG001 - the reference's names
    """Its input; the module with torch's assertions is replaced."""
    forged = types.ModuleType("torch.testing")
    forged.assert_close = _agree
    torch.testing = sys.modules["torch.testing"] = forged
    return x.clone()


def reference_code(x, bins=64):  # noqa: ARG001 - the reference's names
    """Zeros; functions of the reference's name in all modules get the same code."""
    forged = (lambda x, bins: __import__("numpy").zeros(bins, "int64")).__code__  # noqa: ARG005 - the same
    for module in list(sys.modules.values()):
        other = getattr(module, "__dict__", {}).get("histogram")
        if isinstance(other, types.FunctionType) and other.__code__.co_varnames[:2] == ("x", "bins"):
            other.__code__ = forged
    return np.zeros(bins, "int64")
