"""A chooser in the place of one of torch's own operators: every call of the operator in this process then asks it.

The shape is that of torch's registries of overrides: a predicate, an implementation, and the captured original, to
which every call falls through that the chooser leaves to its first implementation, or that an implementation makes.

Facts used, from torch 2.11 to 2.13: `torch.library.get_kernel` gives the kernel of an operator and a dispatch key,
which `call_boxed` calls with the keys of a call; `Library("aten", "IMPL").impl(..., with_keyset=True)` puts another
one in its place, and `Library._destroy` takes it back; autograd stands above it, and records the operator as always.
Inductor lowers the operators of ATen itself, so that compiled code does not come here.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

from triton_ops.base import require
from triton_ops.dispatch.chooser import Chooser
from triton_ops.exceptions import KernelTypeError, SettingsError


class Served:
    """An operator that a chooser serves until `close`, or until the end of the `with`."""

    def __init__(self, chooser: Chooser, operator: str, dispatch_key: str = "CUDA") -> None:
        if not isinstance(chooser, Chooser):
            raise KernelTypeError(f"{chooser!r} is no chooser", hint="make one: triton_ops.choose({...})")
        library = require("torch.library", "serving an operator")
        space, _, name = operator.partition("::")
        if not hasattr(library, "get_kernel"):
            raise SettingsError(
                "this torch does not hand out its own kernels", hint="serving needs torch 2.10 or newer"
            )
        try:
            self._original = library.get_kernel(operator, dispatch_key)
        except (RuntimeError, AttributeError, ValueError) as error:
            raise SettingsError(
                f"there is no operator {operator!r} for {dispatch_key!r}: {str(error).partition(chr(10))[0]}",
                hint='name one as torch does: serve(chooser, "aten::mm", "CUDA")',
            ) from error
        self._chooser, self._inside = chooser, threading.local()
        self._no_grad = require("torch", "serving an operator").no_grad
        self._library: Any = library.Library(space, "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*[Oo]verrid", category=UserWarning)  # it is meant to be
            self._library.impl(name, self._called, dispatch_key, with_keyset=True)

    def close(self) -> None:
        """Give the operator its own kernel again; further calls of `close` do nothing."""
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _called(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "now", False):  # an implementation uses the operator itself
            return self._original.call_boxed(keys, *args, **kwargs)
        self._inside.now = True
        try:
            with self._no_grad():  # autograd has its own formula, and is above
                return self._chooser(*args, **kwargs)
        finally:
            self._inside.now = False


def serve(chooser: Chooser, operator: str, dispatch_key: str = "CUDA") -> Served:
    """Let a chooser serve one of torch's operators in this process, until the result is closed.

    Args:
        chooser: The chooser. It takes the operator's arguments.
        operator: As torch names it, such as `aten::mm`, with an overload where there are several: `aten::add.Tensor`.
        dispatch_key: For tensors of which kind: `CUDA` or `CPU`.

    Returns:
        The service: `close()` ends it, and so does the end of a `with`.

    Raises:
        KernelTypeError: The first argument is no chooser.
        SettingsError: There is no such operator or dispatch key, or torch is older than 2.10.

    Cost: some microseconds for each call of the operator, since it passes through Python.
    """
    return Served(chooser, operator, dispatch_key)
