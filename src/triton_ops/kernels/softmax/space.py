"""The config space of the softmax and of its gradient, and the configs that run untuned.

The documents have no space for a softmax; this one is that of all kernels over rows (`kernels/rows.py`).
"""

from __future__ import annotations

from triton_ops.kernels import rows
from triton_ops.problem import Problem
from triton_ops.space import Config, ConfigSpace

TUNABLES = rows.TUNABLES


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's row length.

    Args:
        problem: A problem with the extent COLUMNS.
    """
    return rows.config_space(problem["COLUMNS"])


def default_config(columns: int) -> Config:
    """The untuned config for rows of so many columns."""
    return rows.default_config(columns)


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient, which holds two blocks of a row at once."""
    return rows.config_space(problem["COLUMNS"], tensors=2)


def gradient_default(columns: int) -> Config:
    """The untuned config of the gradient."""
    return rows.default_config(columns, tensors=2)
