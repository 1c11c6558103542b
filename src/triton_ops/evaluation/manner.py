"""What code of the user's may change in a worker for all that follows: environment, folder, torch's settings, threads.

A worker that serves the next tune has the environment and the folder that it was started with, torch's settings as
torch made them, and no thread of the user's. The first two are restored. A worker in which torch was set otherwise, or
a thread still runs, serves no other tune.
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


@dataclass(frozen=True)
class Manner:
    """How a process is set.

    Attributes:
        environment: Its environment.
        folder: Its working folder.
        torch: Torch's settings as text; empty as long as torch is not imported.
        threads: Its threads that Python knows.
    """

    environment: dict[str, str]
    folder: str
    torch: tuple[str, ...]
    threads: frozenset[threading.Thread]

    @classmethod
    def here(cls) -> Manner:
        """How this process is set now."""
        return cls(dict(settings.environment()), os.getcwd(), _torch(), frozenset(threading.enumerate()))  # noqa: PTH109 - as text

    def restored(self) -> bool:
        """Whether this process is as it was, after its environment and its folder were restored."""
        settings.restore_environment(self.environment)
        try:
            os.chdir(self.folder)
        except OSError:
            return False
        found = _torch()
        unchanged = found == self.torch if self.torch else found[: len(_FRESH)] in ((), _FRESH)
        return unchanged and self.threads.issuperset(threading.enumerate())


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
