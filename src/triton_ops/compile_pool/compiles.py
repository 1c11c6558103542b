"""The role of what compiles configs side by side."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from triton_ops.space import Config
from triton_ops.trial import Compiled


class Compiles(Protocol):
    """Compiles configs side by side: the compile pool, and what stands for it where nothing is compiled.

    Attributes:
        workers: How many it compiles at a time.
    """

    workers: int

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, as `CompilePool.submit`."""
