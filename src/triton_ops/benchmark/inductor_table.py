"""Inductor's candidates for a product, and this package's own Triton kernel, in one table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from triton_ops.base import require
from triton_ops.benchmark.timing import time_ms
from triton_ops.compile_modes import AutotuneChoice, AutotuneTable
from triton_ops.device import gpu_missing
from triton_ops.exceptions import DeviceError
from triton_ops.kernels.matmul import matmul

OWN = "triton_ops.matmul"
_PRODUCTS = ("mm", "addmm")
_SHAPE = re.compile(r"\d+(?:x\d+)+")


@dataclass(frozen=True)
class Product:
    """A product of an (m, k) and a (k, n) matrix of one dtype."""

    m: int
    n: int
    k: int
    dtype: str


def product_of(table: AutotuneTable) -> Product | None:
    """The product that a table is about; None if it is about another operation, or sizes or dtypes do not tell."""
    shapes = [tuple(map(int, text.split("x"))) for text in _SHAPE.findall(table.sizes)]
    dtypes = {each.strip().removeprefix("torch.") for each in table.dtypes.split(",")}
    if table.op not in _PRODUCTS or len(shapes) < 2 or len(dtypes) != 1:
        return None
    a, b = shapes[-2:]
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        return None
    return Product(a[0], b[1], a[1], dtypes.pop())


def beside_own(tables: Sequence[AutotuneTable], timed: Callable[[Product], float] | None = None) -> list[AutotuneTable]:
    """Tables of products with this package's matmul as one more candidate, the fastest first; others as they are.

    Args:
        tables: What Inductor measured.
        timed: Milliseconds of this package's matmul for a product; None measures them on this machine's GPU, with L2
            cold, as Inductor does. The product alone is timed: an `addmm` of Inductor's adds its bias too.

    Raises:
        DeviceError: There is no GPU, and there is a product to be measured.
    """
    times_ms: dict[Product, float] = {}
    extended = []
    for table in tables:
        product = product_of(table)
        if product is not None and product not in times_ms:
            times_ms[product] = (timed or _own_ms)(product)
        extended.append(table if product is None else _joined(table, times_ms[product]))
    return extended


def _joined(table: AutotuneTable, own_ms: float) -> AutotuneTable:
    choices = [*table.choices, AutotuneChoice(OWN, own_ms, "its winner, or its default config if nothing is recorded")]
    choices.sort(key=lambda choice: math.inf if choice.ms is None else choice.ms)
    return replace(table, choices=tuple(choices))


def _own_ms(product: Product) -> float:
    if (obstacle := gpu_missing()) is not None:
        raise DeviceError(f"there is no GPU to time the matmul on: {obstacle}", hint="leave --own out")
    torch = require("torch", "timing a product")
    dtype = getattr(torch, product.dtype)
    a = torch.randn(product.m, product.k, device="cuda", dtype=dtype)
    b = torch.randn(product.k, product.n, device="cuda", dtype=dtype)
    return time_ms(matmul, args=(a, b)).median_ms
