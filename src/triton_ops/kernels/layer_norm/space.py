"""The config spaces of the layer norm and of its gradient, and the configs that run untuned.

The documents have no space for a layer norm; these are those of all kernels over rows (`kernels/rows.py`).
"""

from __future__ import annotations

from triton_ops.kernels import rows
from triton_ops.kernels.column_sums import SUM_COLUMNS
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, ConfigSpace, Tunable

TUNABLES = rows.TUNABLES
GRADIENT_TUNABLES: dict[str, Tunable] = {**rows.TUNABLES, "PROGRAMS": Choice([1, 2, 4]), "SUM_COLUMNS": SUM_COLUMNS}
_BLOCKS = 4  # of a row's size, that a program of the gradient holds: input, gradient, and two sums


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
    """The space of the gradient; PROGRAMS counts the programs for each multiprocessor.

    Of SUM_COLUMNS the default leaves the sums to torch, until a measurement on a GPU says otherwise.
    """
    columns = problem["COLUMNS"]
    plain = rows.config_space(columns, tensors=_BLOCKS)
    return ConfigSpace(GRADIENT_TUNABLES, plain.constraints, gradient_default(columns))


def gradient_default(columns: int) -> Config:
    """The untuned config of the gradient."""
    return Config(rows.default_config(columns, tensors=_BLOCKS), PROGRAMS=2, SUM_COLUMNS=0)
