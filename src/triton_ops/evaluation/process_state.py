"""What code of the user's may change in a worker for all that follows.

A worker that serves the next tune has the environment, the folder, the CPUs, the mask of new files and the depth of
calls that it was started with, torch's settings as torch made them, and no thread of the user's. What can be restored
is restored. A worker in which torch was set otherwise, or whose priority is another, or in which a thread still runs,
serves no other tune.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_ops import settings

_TORCH: tuple[Callable[[Any], object], ...] = (
    lambda torch: torch.get_default_dtype(),
    lambda torch: torch.get_default_device(),
    lambda torch: torch.get_float32_matmul_precision(),
    lambda torch: torch.is_grad_enabled(),
    lambda torch: torch.are_deterministic_algorithms_enabled(),
    lambda torch: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    lambda torch: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    lambda torch: (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
    lambda torch: torch.backends.cudnn.allow_tf32,
)
_FRESH = ("torch.float32", "cpu", "highest", "True", "False")  # the first of these as torch sets them when imported


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """How a process is set.

    Attributes:
        environment: Its environment.
        folder: Its working folder.
        cpus: The CPUs on which its main thread may run; empty where the system does not say.
        mask: The permissions that new files do not get.
        depth: The most calls within one another.
        priority: Its priority, which cannot be raised again without privileges.
        torch: Torch's settings as text; empty as long as torch is not imported.
        threads: Its threads that Python knows.
    """

    environment: dict[str, str]
    folder: str
    cpus: frozenset[int]
    mask: int
    depth: int
    priority: int
    torch: tuple[str, ...]
    threads: frozenset[threading.Thread]

    @classmethod
    def here(cls) -> ProcessState:
        """How this process is set now."""
        os.umask(mask := os.umask(0o077))  # it is only told where it is set
        return cls(
            environment=dict(settings.environment()), folder=os.getcwd(),  # noqa: PTH109 - as text
            cpus=frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset(),
            mask=mask, depth=sys.getrecursionlimit(), priority=_priority(), torch=_torch(),
            threads=frozenset(threading.enumerate()),
        )  # fmt: skip

    def restored(self) -> bool:
        """Whether this process is as it was, after what can be restored was restored."""
        settings.restore_environment(self.environment)
        os.umask(self.mask)
        sys.setrecursionlimit(self.depth)
        try:
            os.chdir(self.folder)
            if self.cpus:
                os.sched_setaffinity(0, self.cpus)
        except OSError:
            return False
        found = _torch()
        unchanged = found == self.torch if self.torch else found[: len(_FRESH)] in ((), _FRESH)
        return unchanged and _priority() == self.priority and self.threads.issuperset(threading.enumerate())


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def _torch() -> tuple[str, ...]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return ()
    return tuple(_asked(ask, torch) for ask in _TORCH)


def _asked(ask: Callable[[Any], object], torch: Any) -> str:
    try:
        return str(ask(torch))
    except (AttributeError, RuntimeError) as error:  # of another version, or set in two ways that do not agree
        return type(error).__name__
