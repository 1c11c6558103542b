"""Processes that this package starts: how they begin, answer and end."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.processes.channel import GarbledError as GarbledError
    from triton_ops.processes.channel import Reader as Reader
    from triton_ops.processes.child import Surroundings as Surroundings
    from triton_ops.processes.child import TerminatedError as TerminatedError
    from triton_ops.processes.child import Threads as Threads
    from triton_ops.processes.child import held_bytes as held_bytes
    from triton_ops.processes.child import import_heavy as import_heavy
    from triton_ops.processes.child import strays as strays
    from triton_ops.processes.fork_server import ForkedProcess as ForkedProcess
    from triton_ops.processes.fork_server import ForkRequests as ForkRequests
    from triton_ops.processes.fork_server import ForkServer as ForkServer
    from triton_ops.processes.fork_server import IdleProcesses as IdleProcesses
    from triton_ops.processes.fork_server import fork_servers as fork_servers
    from triton_ops.processes.worker_process import Child as Child
    from triton_ops.processes.worker_process import WorkerLostError as WorkerLostError
    from triton_ops.processes.worker_process import WorkerProcess as WorkerProcess
