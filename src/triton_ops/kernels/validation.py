"""Checks of the numbers that kernels and modules take, each with a typed error."""

from __future__ import annotations

import math
from typing import Any

from triton_ops.exceptions import SettingsError, ShapeMismatchError


def validate_positive_dimensions(**dimensions: Any) -> None:
    """Check that every size is a whole number of 1 or more.

    Raises:
        ShapeMismatchError: One is not; `tensor_name` of the error is its name.
    """
    for name, size in dimensions.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeMismatchError(f"{name} is {size!r}; it must be a whole number from 1", "1 or more", size, name)


def validate_head_dim(head_dim: Any, hidden_dim: int | None = None) -> None:
    """Check that a head has an even size, as RoPE needs, and that heads of this size fill `hidden_dim`.

    Raises:
        ShapeMismatchError: They do not.
    """
    validate_positive_dimensions(head_dim=head_dim)
    if head_dim % 2:
        raise ShapeMismatchError(
            f"head_dim is {head_dim}; RoPE turns pairs: it must be even", "an even head size", head_dim, "head_dim"
        )
    if hidden_dim is not None and hidden_dim % head_dim:
        raise ShapeMismatchError(
            f"hidden_dim {hidden_dim} is no multiple of head_dim {head_dim}",
            f"a multiple of {head_dim}",
            hidden_dim,
            "hidden_dim",
        )


def validate_eps(eps: Any) -> None:
    """Check that what is added to a mean square is a finite number, and not negative.

    Raises:
        SettingsError: It is not.
    """
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not (math.isfinite(eps) and eps >= 0):
        raise SettingsError(f"eps is {eps!r}; it must be finite and 0 or more")
