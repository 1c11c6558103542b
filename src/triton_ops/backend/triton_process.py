"""What Triton does once in a process, and what it prints there.

Facts used, from Triton 3.6 to 3.9: its key of itself (`triton_key.py`) and the utilities of its driver, such as
`triton.backends.nvidia.driver.CudaUtils`, are made once per process; a failing ptxas prints its whole input to stdout.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from triton_ops._optional import import_in_order
from triton_ops.backend.triton_key import ready_key
from triton_ops.hardware import VENDORS

_PTXAS_DUMP = "please share the reproducer above with Triton project"  # ends what a failing ptxas prints


def warm_up(launches: bool) -> threading.Thread:
    """Begin in the background what Triton does once before its first kernel: it takes half a second and more.

    A process that imports torch meanwhile has it for nothing. Triton's key of itself is read or made, and a module that
    loads kernels built with the C compiler. What fails is met again, and told, by whoever compiles or launches first.

    Args:
        launches: Whether this process will launch kernels, and not just compile them; Triton's driver is readied then.

    Returns:
        Ends when it is done.
    """

    def work() -> None:
        for vendor in VENDORS.values() if launches else ():
            with contextlib.suppress(Exception):
                driver = vendor.triton_driver
                getattr(import_in_order(driver.module), driver.utilities)()
        with contextlib.suppress(Exception):
            ready_key()

    thread = threading.Thread(target=work, name="triton-ops warm-up", daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def without_ptxas_dumps() -> Iterator[None]:
    """Inside, what Triton prints when ptxas fails does not reach stdout; everything else does, at once."""
    with contextlib.redirect_stdout(_WithoutDumps(sys.stdout)):
        yield


class _WithoutDumps:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = _PTXAS_DUMP in text or (self._dropped and text == "\n")  # print writes its newline apart
        return len(text) if self._dropped else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
