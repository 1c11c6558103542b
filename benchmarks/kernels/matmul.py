"""What the matrix products of these kinds have in common: c[M, N] = a[M, K] b[N, K]ᵀ, accumulated in float32."""

from __future__ import annotations

from typing import Any

from triton_ops import Problem, TensorSpec, Work


def product(M: int = 4096, N: int = 4096, K: int = 4096, dtype: str = "bfloat16") -> dict[str, Any]:
    """The arguments: both operands have rows along K."""
    return {
        "a": TensorSpec((M, K), dtype),
        "b": TensorSpec((N, K), dtype),
        "c": TensorSpec((M, N), dtype, fill="empty"),
    }


def sized_product(M: int = 4096, N: int = 4096, K: int = 4096, dtype: str = "bfloat16") -> dict[str, Any]:
    """The same, with the extents as arguments of the kernel."""
    return {**product(M, N, K, dtype), "M": M, "N": N, "K": K}


def reference(a: Any, b: Any, c: Any, **_: Any) -> Any:  # noqa: ARG001 - called with all arguments
    """What `c` must hold."""
    return a @ b.T


def work(problem: Problem) -> Work:
    """Two operations for each product, each matrix moved once."""
    (m, k), n = problem["a"].shape, problem["b"].shape[0]
    moved = sum(problem[name].nbytes for name in ("a", "b", "c"))
    return Work(flops=2.0 * m * n * k, bytes=moved)
