"""The config spaces of quantising in groups or applying scales: tunables, constraints, untuned configs.

The documents have no space for these; they are those of all kernels over rows (`kernels/rows.py`), where a group of
neighbours with one scale is a row.
"""

from __future__ import annotations

from triton_ops.kernels import rows
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Problem

_CHUNK = 1024


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's group length.

    Args:
        problem: A problem with the extent GROUP.
    """
    return rows.config_space(problem["GROUP"])


def rescale_space(problem: Problem) -> ConfigSpace:
    """The space of applying scales, in which several rows at once may be of parts of a row.

    Args:
        problem: A problem with the extent `columns`.
    """
    columns = problem["columns"]
    rules = tuple(rule for rule in rows.config_space(columns).constraints if rule.name != "chunked")
    return ConfigSpace(rows.TUNABLES, rules, rescale_default(columns))


def rescale_default(columns: int) -> Config:
    """The untuned config of applying scales: about 1,024 elements for four warps."""
    block = min(rows.padded(columns), _CHUNK)
    return Config(BLOCK_SIZE=block, ROWS=min(16, _CHUNK // block), num_warps=4)
