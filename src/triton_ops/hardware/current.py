"""The current GPU of a thread: where torch and Triton work as long as nothing names a GPU.

Triton loads and launches a kernel on the current GPU, whichever one its tensors are on, and then fails with "Pointer
argument cannot be accessed from Triton (cpu tensor?)". Torch makes streams, events and graphs on the current GPU, and
waits for that one. All that works on one GPU of several therefore runs with that GPU as the current one.

Facts used: each thread has a current GPU of its own, which is the first one until the thread chooses another. When
`torch.cuda.device` ends, torch goes back only to a GPU on which this process has a context, so that code which leaves
the choice out works until something makes a context on the first GPU, such as `torch.cuda.empty_cache()` does there.
That context also takes some 500 MB of the first GPU's memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from triton_ops._optional import require
from triton_ops.exceptions import DeviceError


@contextlib.contextmanager
def current_device(device_name: str) -> Iterator[None]:
    """Make a GPU the current one of this thread inside the block; the one before is the current one again afterwards.

    Args:
        device_name: Torch's name of the device. `cuda` is the GPU that is the current one, and a CPU changes nothing.

    Raises:
        DeviceError: The GPU cannot be used by this process.
    """
    if not device_name.startswith("cuda:"):
        yield
        return
    chosen = require("torch", "choosing the GPU").cuda.device(device_name)
    try:
        chosen.__enter__()
    except (RuntimeError, AssertionError) as error:
        raise _unusable(device_name, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # the GPU was lost in the block: whoever uses it next is told
            chosen.__exit__(None, None, None)


def stay_on(device_name: str) -> None:
    """Make a GPU the current one of this thread for good: for a process that works on this GPU alone.

    Nothing happens for a CPU, for `cuda`, which is the current one, and before torch is imported. A GPU that cannot be
    used is left to whoever uses it.
    """
    if device_name.startswith("cuda:") and "torch" in sys.modules:
        with contextlib.suppress(RuntimeError, AssertionError, AttributeError):  # the last from a torch without CUDA
            require("torch", "choosing the GPU").cuda.set_device(device_name)


def current_index() -> int | None:
    """The number of this thread's current GPU; None as long as torch uses none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return int(cuda.current_device()) if cuda is not None and cuda.is_initialized() else None


def current_gpu() -> str:
    """Torch's name of this thread's current GPU: `cuda:N` where it has chosen one, and `cuda` for the first one.

    Another thread or process has a current GPU of its own, so that `cuda` may be another one there.
    """
    index = current_index()
    return f"cuda:{index}" if index else "cuda"


def _unusable(device_name: str, error: Exception) -> DeviceError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return DeviceError(
        f"{device_name} cannot be used: {reason}", device_name, hint="`triton-ops doctor` says what works here"
    )
