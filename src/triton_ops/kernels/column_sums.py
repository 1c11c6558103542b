"""The last step of gradients of weights: partial sums that programs have left, added up by column.

torch's sums take a launch for each result and another one that rounds it; this kernel takes one for all of them.
"""

from __future__ import annotations

from typing import Any

from triton_ops.kernels.jit import column_sums_kernel
from triton_ops.space import Choice

SUM_COLUMNS = Choice([0, 64])
"""The tunable: columns that a program of the last launch adds up; 0 leaves the sums to torch."""
_ROWS = 32  # of the partial sums, that a program takes at once


def add_up(partial: Any, results: tuple[Any, ...], sum_columns: int) -> None:
    """Write the sums of partial[i] over its rows to results[i].

    Args:
        partial: [results, rows, columns].
        results: One or two tensors [columns].
        sum_columns: The value of the tunable.
    """
    if sum_columns == 0:
        for part, result in zip(partial, results, strict=True):
            result.copy_(part.sum(0))
        return
    count, rows, columns = partial.shape
    second = results[1] if count > 1 else None
    column_sums_kernel[(-(-columns // sum_columns), count)](
        partial, results[0], second, rows, columns, ROWS=_ROWS, SUM_COLUMNS=sum_columns, num_warps=4
    )
