"""Inductor's candidates for a product, beside this package's own Triton kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triton_ops.base import require
from triton_ops.benchmark.timing import time_ms
from triton_ops.compile_modes import AutotuneTable, ProductShape
from triton_ops.device import gpu_missing
from triton_ops.exceptions import DeviceError
from triton_ops.kernels.matmul import matmul

OWN = "triton_ops.matmul"
_WHAT = "its winner, or its default config if nothing is recorded"


def beside_own(
    tables: Sequence[AutotuneTable], timed: Callable[[ProductShape], float] | None = None
) -> list[AutotuneTable]:
    """Tables of products with this package's matmul as one more candidate, the fastest first; others as they are.

    Args:
        tables: What Inductor measured.
        timed: Milliseconds of this package's matmul for a product; None measures them on this machine's GPU, with L2
            cold, as Inductor does. The product alone is timed: an `addmm` of Inductor's adds its bias too.

    Raises:
        DeviceError: There is no GPU, and there is a product to be measured.
    """
    times_ms: dict[ProductShape, float] = {}
    extended = []
    for table in tables:
        product = table.product
        if product is not None and product not in times_ms:
            times_ms[product] = (timed or _own_ms)(product)
        extended.append(table if product is None else table.with_choice(OWN, times_ms[product], _WHAT))
    return extended


def _own_ms(product: ProductShape) -> float:
    if (obstacle := gpu_missing()) is not None:
        raise DeviceError(f"there is no GPU to time the matmul on: {obstacle}", hint="leave --own out")
    torch = require("torch", "timing a product")
    dtype = getattr(torch, product.dtype)
    a = torch.randn(product.m, product.k, device="cuda", dtype=dtype)
    b = torch.randn(product.k, product.n, device="cuda", dtype=dtype)
    return time_ms(matmul, args=(a, b)).median_ms
