"""Kernels that run as Python, as under `TRITON_INTERPRET=1`.

Facts used, from Triton 3.6 to 3.9: such a kernel is an `InterpretedFunction`, and while one runs, the functions of
`triton.language` are others, for all threads of the process. The interpreter of 3.6 makes a number of an array of one
element by `int()`, which NumPy refuses from 2.4 on: kernels with a loop whose end is an argument do not run then.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from triton_ops.backend.signatures import layers
from triton_ops.backend.unwrapping import INTERPRETED
from triton_ops.base import Guard, require
from triton_ops.exceptions import MissingDependencyError

_REFUSED_BY_NUMPY = "only 0-dimensional arrays can be converted to Python scalars"
_FITS_NUMPY = (3, 7)  # the first Triton whose interpreter runs with NumPy 2.4

_turn = Guard(threading.RLock)


def is_interpreted(function: Any) -> bool:
    """Tell whether a kernel, below its decorators, runs as Python."""
    return type(layers(function)[-1]).__name__ == INTERPRETED


def launcher_of(function: Any) -> Callable[..., Any]:
    """The callable that launches a kernel; of those that run as Python, one at a time."""
    return _InTurn(function) if is_interpreted(function) else function.run


class _InTurn:
    """Launches a kernel when no other one runs as Python."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch it.

        Raises:
            MissingDependencyError: Triton's interpreter does not run with this NumPy.
        """
        with _turn:
            try:
                return self.function.run(*args, **kwargs)
            except Exception as error:
                if (misfit := numpy_misfit(error)) is not None:
                    raise misfit from error
                raise


def numpy_misfit(error: Exception | None = None) -> MissingDependencyError | None:
    """The advice where Triton's interpreter is of before NumPy 2.4, and NumPy is not; None otherwise.

    Args:
        error: What the interpreter has raised; for an error that is not because of NumPy there is no advice.
    """
    refused = error is None or _REFUSED_BY_NUMPY in str(error)
    if not refused or _numbers("triton") >= _FITS_NUMPY or _numbers("numpy") < (2, 4):
        return None
    return MissingDependencyError(
        f"the interpreter of Triton {_version('triton')} does not run this kernel with NumPy {_version('numpy')}",
        hint="pip install 'numpy<2.4'; or use Triton 3.7 or newer",
    )


def _numbers(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", _version(package))[:2])


def _version(package: str) -> str:
    return str(require(package, "running kernels as Python").__version__)
