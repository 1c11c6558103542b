"""Numbers for tests of kernels: seeded inputs, and how far results are from those of float64."""

from __future__ import annotations

import torch


def drawn(*shape, dtype=torch.float32, shift=0.0):
    """Values between -1 and 1 around `shift`, that follow from the shape."""
    seeded = torch.Generator().manual_seed(sum(shape))
    return (torch.rand(shape, generator=seeded) * 2 - 1 + shift).to(dtype)


def off(results, right):
    """The largest error of the results, each relative to its largest element; of zeros as it is."""
    worst = 0.0
    for a, b in zip(results, right, strict=True):
        size = b.abs().max().item() if b.numel() else 1.0
        worst = max(worst, (a.double() - b).abs().max().item() / (size or 1.0) if b.numel() else 0.0)
    return worst


def widened(values):
    """The arguments of a kernel by name, with tensors in float64."""
    return {name: each.double() if isinstance(each, torch.Tensor) else each for name, each in values.items()}


def error_of(function, *args, **kwargs):
    """The name of the error that a call raises, and of the tensor that it blames."""
    try:
        function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test names what it should be
        return type(error).__name__, getattr(error, "tensor_name", None)
    return None
