"""The problems of live tunes: shipped kernels with declared work, and kernels on plain tensors that declare none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import triton_ops_kernels as kernels
from benchmarks.model import plain_kernels
from benchmarks.tuning.spaces import operation_of
from triton_ops import Operation

_WIDE_MATMUL = {
    "BM": [128, 16, 32, 64, 256], "BN": [128, 32, 64, 256], "BK": [64, 32, 128], "GM": [8, 1], "num_warps": [8, 4],
    "num_stages": [3, 2, 4, 5],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One problem: what makes its operation, and its shape and dtype; None for the operation's own."""

    load: Callable[[], Operation]
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


def _declared(name: str, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Case:
    return Case(lambda: operation_of(name), shape, dtype)


def _plain(operation: Operation, space: dict[str, list[Any]], shape: tuple[int, ...]) -> Case:
    return Case(lambda: replace(operation, space=space, work=None), shape, "bfloat16")


def _recorded(name: str) -> Case:
    """A space that is recorded too, with the kernel's work undeclared."""
    (match,) = (space for space in plain_kernels.SPACES if space.name == name)
    return _plain(match.operation, match.space, match.shape)


DECLARED = {
    "matmul bf16 4096x4096x4096": _declared("matmul", (4096, 4096, 4096), "bfloat16"),
    "matmul fp8 1024x8192x8192": _declared("matmul", (1024, 8192, 8192), "float8_e4m3fn"),
    "rmsnorm_rope bf16": _declared("rmsnorm_rope"),
}
UNDECLARED = {
    "plain matmul of 960 configs": _plain(plain_kernels.matmul, _WIDE_MATMUL, (4096, 4096, 4096)),
    "plain gated MLP": _recorded("gated_mlp"),
    "plain causal attention": _recorded("attention_causal_d128"),
    "plain persistent matmul": _recorded("persistent_matmul"),
}
LAUNCHED = {"layer norm gradient": Case(lambda: kernels.load("layer_norm_backward"), (8192, 8192), "bfloat16")}
"""Kernels that a function launches, which are compiled by running it without computing."""
CASES = {**DECLARED, **UNDECLARED, **LAUNCHED}
