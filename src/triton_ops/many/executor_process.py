"""The program of a process that measures on one device, as an executor elsewhere asks.

What takes longest begins first, its worker and the server of its compilers: their imports go on beside its own.
"""

from __future__ import annotations

import threading
from functools import partial
from importlib import import_module

from triton_ops import backend, compilation, evaluation
from triton_ops.processes import Child


def main() -> None:
    """Measure as asked until the pipe is closed; the first message is what `RemoteExecutor.of_device` sends."""
    child = Child()
    surroundings, allocator, isolated, device, *more = child.receive()
    if device.startswith("cuda"):
        if isolated:
            evaluation.start_one_early(device)
        start = partial(compilation.CompilePool.start_server, backend.TritonCompiler.needs_on, device)
        threading.Thread(target=start, name="triton-ops early start", daemon=True).start()  # initialises the driver
    executor = import_module("triton_ops.many.executor").ChildExecutor(child.send, device, *more, shares=True)
    surroundings.take()
    if allocator is not None:
        backend.ScratchAllocator.take(allocator)
    for call in child.messages():
        executor.take(call)
