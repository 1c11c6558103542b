"""The processes that tunes leave to the next tunes of this process, ended on request."""

from __future__ import annotations

from triton_ops.compile_pool.idle_server import drop_idle_servers
from triton_ops.evaluation.idle_worker import drop_idle_workers


def release_processes() -> None:
    """End the processes that tunes of this process have left idle, and free their memory on the GPU.

    A tune leaves its worker process, at most one for a device, and the process that starts its compilers, at most two,
    to the next tune, which then need not import torch and Triton again. They end by themselves after 15 s, when this
    process ends, and here. Processes that a tune uses now are left alone.

    Cost: some milliseconds for each process.
    """
    drop_idle_workers()
    drop_idle_servers()
