"""Worker processes that tunes have left idle, for the next tune of this process if it follows soon: one for a device.

Half of the seconds that a short tune takes are the imports of its worker. Kernels are often tuned one after the other,
so that each tune leaves its worker to the next: without its task, its memory on the GPU and the modules of the user's,
which the next task imports anew. A worker in which something died or hung, or in which torch was set otherwise, is
never kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from triton_ops import backend, settings
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import IdleProcesses, WorkerLostError, WorkerProcess

if TYPE_CHECKING:
    from triton_ops.backend import Kernel
    from triton_ops.device import DeviceSpec

_log = logging.getLogger("triton_ops")

_PROGRAM = "triton_ops.evaluation.worker"  # the module that a worker process runs
_REST_S = 10.0
_MOST = 8  # the GPUs of a large host
_EARLY_S = 60.0  # a program that asks for tunes may first load a model
# It is there where NVIDIA's kernel driver is loaded; to look for it starts nothing.
_DRIVER = "/dev/nvidiactl"


class Needs(NamedTuple):
    """The packages that a worker has imported, and the device that it has readied or will."""

    packages: tuple[str, ...]
    device: str

    @classmethod
    def of(cls, kernel: Kernel, device: DeviceSpec, device_name: str) -> Needs:
        """The needs of a kernel on a device."""
        own = kernel.process_imports if isinstance(kernel, backend.MayCrash) else ()
        packages = tuple(dict.fromkeys([*own, *(["torch"] if not device.is_cpu else [])]))
        return cls(packages, "cuda:0" if device_name == "cuda" else device_name)


EARLY = Needs(("triton", "torch"), "cuda")  # it readies the first GPU for its first task


@dataclass(frozen=True)
class Rest:
    """The question to give everything up and wait for another task; the answer's value says what stays changed."""


_idle: IdleProcesses[WorkerProcess] = IdleProcesses(
    lambda worker: worker.kill(), _MOST,  # an early one is for the first GPU; a chooser among kernels needs torch alone
    lambda has, needs: has[1].removesuffix(":0") == needs[1].removesuffix(":0") and {*has[0]} >= {*needs[0]},
)  # fmt: skip
waits, holds, drop_idle_workers = _idle.waits, _idle.holds, _idle.drop


def take(needs: tuple[tuple[str, ...], str]) -> WorkerProcess | None:
    """The idle worker that does for these needs, if there is one; an early one has the environment from then on."""
    worker = _idle.take(needs)
    return worker if worker is not None and worker.stay() else None


def keep(worker: WorkerProcess, idle_s: float = IdleProcesses.IDLE_S) -> None:
    """Keep a worker that has done its task; it gives everything up meanwhile, and is killed if it does not."""
    _idle.put(worker, worker.equipment, worker.equipment[1].removesuffix(":0"), partial(_rests, worker), idle_s)


def start_one_early(device: str = "") -> bool:
    """Start a worker for Triton kernels on a GPU, for a tune that is about to come; returns whether one waits.

    Without a device it is for the first GPU, and for a tune that may never come: then it is no child of this process,
    has none of its threads and only what starts read of its environment, and leaves the GPU alone until a task is
    there. None is started without a driver, for a program of several processes that share the GPUs, and in a process
    that this package has started. None is started for a CPU, and no second one. The driver is left alone here: a
    program that forks later could not use it in its children.

    Cost: 20 ms here without a device, else some milliseconds; one to three seconds of one CPU there, and with a device
    the memory of a context.
    """
    needs = EARLY._replace(device={"": EARLY.device, "cuda": "cuda:0"}.get(device, device))
    if device == "cpu" or (not device and (settings.one_of_several() or not Path(_DRIVER).exists())):
        return False
    if waits(needs):
        return True
    early = not device
    try:
        worker = WorkerProcess(*needs, program=_PROGRAM, early_s=_EARLY_S if early else 0.0)
        _idle.put(worker, needs, needs[1].removesuffix(":0"), idle_s=_EARLY_S, early=early)
    except (TritonKernelError, OSError):  # the tune that needs one will say why
        return False
    return True


def new(needs: tuple[tuple[str, ...], str], changes: Mapping[str, str] | None = None) -> WorkerProcess:
    """Start a worker, with changes of its environment; a `DeviceError` if no process can be started here."""
    return WorkerProcess(*needs, program=_PROGRAM, changes=changes or {})


def _rests(worker: WorkerProcess) -> bool:
    try:
        answer = worker.ask(Rest(), _REST_S, {}, "rest", lambda answer: hasattr(answer, "value"))
    except WorkerLostError:
        return False
    if answer.value:
        _log.debug("a worker serves no other tune, since code that ran in it has changed %s", answer.value)
    return not answer.value
