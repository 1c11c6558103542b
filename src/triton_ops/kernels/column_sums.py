"""The last step of gradients of weights: partial sums that programs have left, added up by column.

torch's sums take a launch for each result and another one that rounds it; this kernel takes one for all of them.
"""

from __future__ import annotations

from typing import Any

from triton_ops.kernels.jit import column_sums_kernel
from triton_ops.space import Choice

SUM_COLUMNS = Choice([16, 64])
"""The tunable: columns that a program of the last launch adds up. Fewer make more programs, with shorter walks."""
_TILE, _WARPS = 8192, 8  # elements that a program takes at once: 32 loads of a thread are on their way


def add_up(partial: Any, results: tuple[Any, ...], sum_columns: int) -> None:
    """Write the sums of partial[i] over its rows to results[i].

    Args:
        partial: [results, rows, columns].
        results: One or two tensors [columns].
        sum_columns: The value of the tunable.
    """
    count, rows, columns = partial.shape
    second = results[1] if count > 1 else None
    column_sums_kernel[(-(-columns // sum_columns), count)](
        partial, results[0], second, rows, columns,
        ROWS=_TILE // sum_columns, SUM_COLUMNS=sum_columns, num_warps=_WARPS,
    )  # fmt: skip
