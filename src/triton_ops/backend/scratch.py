"""Memory that kernels ask for when they are launched, as those that make tensor descriptors do.

Triton asks the allocator that was given to `triton.set_allocator`, and fails where there is none. Here a launch finds
one that takes torch's memory; the user's own, where one is set, is asked instead.

Facts used, from Triton 3.6 to 3.9: `triton.runtime._allocation._allocator` is a `ContextVar` whose value is a
`NullAllocator` until one is set; the launch asks it in the context that launches. A thread begins with an empty context
up to Python 3.13, so that threads of this package that launch for a caller are given a copy of the caller's.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from triton_ops._optional import require
from triton_ops.backend.portable import pack, unpack
from triton_ops.exceptions import KernelTypeError, TargetError

_log = logging.getLogger("triton_ops")
_MODULE = "triton.runtime._allocation"


def with_scratch(launch: Callable[[], Any]) -> Callable[[], Any]:
    """`launch` with an allocator, for the time of the call, if none is set then."""
    variable = _variable()

    def launched() -> Any:
        if _is_set(variable):
            return launch()
        token = variable.set(_from_torch)
        try:
            return launch()
        finally:
            variable.reset(token)

    return launched


def packed_allocator() -> bytes | None:
    """The user's allocator as bytes for another process; None if there is none, or it exists in this process only."""
    if _MODULE not in sys.modules or not _is_set(_variable()):
        return None
    try:
        return pack(_variable().get()).content
    except (KernelTypeError, TargetError):  # the default allocator serves as well
        return None


def take_allocator(packed: bytes) -> None:
    """Make the user's allocator that of this context; torch's memory is taken where it cannot be made again."""
    try:
        require("triton", "launching kernels").set_allocator(unpack(packed))
    except KernelTypeError as error:
        _log.warning("kernels are given torch's memory, and not that of the allocator that was set: %s", error.message)


@lru_cache(maxsize=1)
def _variable() -> Any:
    return importlib.import_module(_MODULE)._allocator


def _is_set(variable: Any) -> bool:
    return type(variable.get()).__name__ != "NullAllocator"


def _from_torch(size: int, _alignment: int, _stream: int | None) -> Any:
    """Memory of the current device; torch's allocator aligns it to 512 bytes, and Triton asks for 128 at most."""
    torch = require("torch", "memory that a kernel asks for")
    return torch.empty(size, dtype=torch.int8, device="cuda")
