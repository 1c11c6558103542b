"""The memory that a tune may take, of a GPU and of the host."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from triton_ops.base import Host, require

_allowance: ContextVar[Allowance | None] = ContextVar("the memory that a tune may take", default=None)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The memory that a tune may take beyond what this process held when it began: on its GPU, or else on the host.

    Inside of it torch takes no more of the GPU, and free memory is what is left. Where GPU and host share their memory,
    both count.
    """

    device_name: str
    most_bytes: int
    gpu_bytes: int
    host_bytes: int
    peak_bytes: int  # of the host, so far

    @classmethod
    def begin(cls, device_name: str, most_bytes: int) -> Allowance:
        """The allowance of a tune that begins now."""
        host, peak = Host.own_bytes()
        return cls(
            device_name=device_name, most_bytes=most_bytes, gpu_bytes=_gpu_bytes(device_name), host_bytes=host,
            peak_bytes=peak,
        )  # fmt: skip

    @staticmethod
    def now() -> Allowance | None:
        """The allowance that this is inside of; None for no limit."""
        return _allowance.get()

    @property
    def shares_host(self) -> bool:
        """True if memory of the host counts: on a CPU, and on a GPU that has none of its own."""
        return self.device_name == "cpu" or bool(getattr(_properties(self.device_name), "is_integrated", False))

    @property
    def left_bytes(self) -> int:
        """The memory that may still be taken; below 0 where more was taken."""
        host = Host.own_bytes()[0] - self.host_bytes if self.shares_host else 0
        return self.most_bytes - host - (_gpu_bytes(self.device_name) - self.gpu_bytes)

    @property
    def taken_bytes(self) -> int:
        """The most that was taken of the host at one time, beside what is taken of the GPU, which torch limits."""
        now, peak = Host.own_bytes()
        most = peak if peak > self.peak_bytes else now
        host = most - self.host_bytes if self.shares_host else 0
        return host + _gpu_bytes(self.device_name) - self.gpu_bytes

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Inside, free memory is what is left, and torch's allocator takes no more of the GPU, the current one."""
        token, cuda = _allowance.set(self), None
        if self.device_name != "cpu":
            cuda = require("torch", "limiting memory").cuda
            before = getattr(cuda, "get_per_process_memory_fraction", lambda: 1.0)()
            most = (self.gpu_bytes + self.most_bytes) / _properties(self.device_name).total_memory
            cuda.set_per_process_memory_fraction(min(most, before))
        try:
            yield
        finally:
            _allowance.reset(token)
            with contextlib.suppress(RuntimeError):  # the GPU was lost in the block: whoever uses it next is told
                if cuda is not None:
                    cuda.set_per_process_memory_fraction(before)


def _properties(device_name: str) -> Any:
    return require("torch", "asking the GPU").cuda.get_device_properties(device_name)


def _gpu_bytes(device_name: str) -> int:
    """The memory of a GPU that tensors of this process hold; 0 for a CPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if device_name == "cpu" or cuda is None or not cuda.is_initialized():
        return 0
    return int(cuda.memory_allocated(device_name))
