"""Processes that this package starts: how they begin, answer and end."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.processes.channel import AwakeClock as AwakeClock
    from triton_ops.processes.channel import Channel as Channel
    from triton_ops.processes.channel import ChildsEnd as ChildsEnd
    from triton_ops.processes.channel import GarbledError as GarbledError
    from triton_ops.processes.child import OUTSIDE as OUTSIDE
    from triton_ops.processes.child import Leftovers as Leftovers
    from triton_ops.processes.child import Surroundings as Surroundings
    from triton_ops.processes.child import Threads as Threads
    from triton_ops.processes.child import command as command
    from triton_ops.processes.child import die_with as die_with
    from triton_ops.processes.child import end_family as end_family
    from triton_ops.processes.child import environment as environment
    from triton_ops.processes.child import file_without_a_name as file_without_a_name
    from triton_ops.processes.child import guarded as guarded
    from triton_ops.processes.child import import_heavy as import_heavy
    from triton_ops.processes.child import new_mark as new_mark
    from triton_ops.processes.child import socket_pair as socket_pair
    from triton_ops.processes.child import start_thread as start_thread
    from triton_ops.processes.child import strays as strays
    from triton_ops.processes.idle import IDLE_S as IDLE_S
    from triton_ops.processes.idle import IdleProcesses as IdleProcesses
    from triton_ops.processes.signals import TerminatedError as TerminatedError
    from triton_ops.processes.signals import cleaned_up_on_sigterm as cleaned_up_on_sigterm
    from triton_ops.processes.worker_process import StepStarted as StepStarted
    from triton_ops.processes.worker_process import WorkerDiedError as WorkerDiedError
    from triton_ops.processes.worker_process import WorkerHungError as WorkerHungError
    from triton_ops.processes.worker_process import WorkerProcess as WorkerProcess
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
