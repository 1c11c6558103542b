"""A locked clock, for those who ask for it by name: nothing else in this package calls this module.

Tuning does not need it: candidates are compared side by side, so that a clock that drifts hits all of them alike. A
lock needs privileges, holds for every user of the GPU, and is no promise: the power cap still lowers the clock.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton_ops.exceptions import DeviceError, SettingsError
from triton_ops.measure.guard import open_device, shut_down

_DEADLY = ("SIGTERM", "SIGHUP")  # by default they end a process with no `finally` run and no atexit
_UNLOCK = "nvidia-smi --reset-gpu-clocks"

_held: set[str] = set()  # UUIDs of the GPUs that this process has locked


@contextmanager
def locked_clocks(device_name: str, sm_mhz: int, *, nvml: Any = None, properties: Any = None) -> Iterator[None]:
    """Lock the SM clock of a GPU while the block runs, for every process on that GPU.

    The lock is taken back when the block is left in any way, by an exception or an interrupt too, or when the
    interpreter ends. In the main thread, SIGTERM and SIGHUP leave the block as `SystemExit` with status 128 + number,
    where they would have ended the process on the spot; a handler that is there already stays. After a SIGKILL the lock
    stays: `nvidia-smi --reset-gpu-clocks` as root takes it back. NVML cannot tell of a lock that was there before, such
    as an administrator's: it is gone afterwards.

    Args:
        device_name: The GPU's torch name, `cuda` or `cuda:N`.
        sm_mhz: The clock in MHz; NVML takes the nearest that the GPU has.
        nvml: What to use as `pynvml`; None imports it.
        properties: What to use as torch's properties of the device; None asks torch.

    Raises:
        SettingsError: `sm_mhz` is not positive.
        MissingDependencyError: `pynvml` is not installed.
        DeviceError: The GPU is not there, NVML cannot be used or refuses, or this process has locked it already.

    Warns:
        RuntimeWarning: NVML refused to take the lock back; it is tried again when the interpreter ends.
    """
    if sm_mhz <= 0:
        raise SettingsError(f"a clock of {sm_mhz} MHz cannot be locked", hint="give a positive number of MHz")
    nvml, handle = open_device(device_name, nvml=nvml, properties=properties)
    lock = _Lock(nvml, handle, device_name)
    try:
        lock.take(sm_mhz)
        yield
    finally:
        lock.undo()


class _Lock:
    """One lock of one GPU by this process."""

    def __init__(self, nvml: Any, handle: Any, device_name: str) -> None:
        self._nvml = nvml
        self._handle = handle
        self._name = device_name
        self._uuid = ""
        self._pid = os.getpid()
        self._locked = False
        self._previous: dict[int, Any] = {}

    def take(self, sm_mhz: int) -> None:
        """Lock; every way out is guarded before the clock is touched."""
        try:
            self._claim()
            self._locked = True  # before it is true: an interrupt between the two must not leave the lock behind
            atexit.register(self.undo)
            self._set_handlers()
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, sm_mhz, sm_mhz)
        except self._nvml.NVMLError as error:
            self._forget()
            raise DeviceError(
                f"the clock of {self._name} cannot be locked to {sm_mhz} MHz: {error}",
                actual_device=self._name,
                hint="it needs root or CAP_SYS_ADMIN, and would hold for every user of the GPU; tuning does without it",
            ) from error

    def undo(self) -> None:
        """Take the lock back, if there is one and this process took it: after a fork the child has a copy of this."""
        if not self._locked or os.getpid() != self._pid:
            return
        try:
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)
        except self._nvml.NVMLError as error:
            text = f"the clock of {self._name} may still be locked: {error}; run `{_UNLOCK}` as root"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            self._forget()  # only now: interrupted before, the lock is taken back twice rather than never

    def _claim(self) -> None:
        uuid = self._nvml.nvmlDeviceGetUUID(self._handle)
        if uuid in _held:
            shut_down(self._nvml)
            raise DeviceError(
                f"the clock of {self._name} is locked by this process already",
                actual_device=self._name,
                hint="NVML keeps one lock for each GPU: the inner block's end would unlock the outer one",
            )
        _held.add(uuid)
        self._uuid = uuid

    def _forget(self) -> None:
        """Nothing is locked any more."""
        self._locked = False
        atexit.unregister(self.undo)
        _held.discard(self._uuid)
        self._reset_handlers()
        shut_down(self._nvml)

    def _set_handlers(self) -> None:
        for number in (getattr(signal, name) for name in _DEADLY if hasattr(signal, name)):
            if _in_main_thread() and signal.getsignal(number) is signal.SIG_DFL:
                self._previous[number] = signal.signal(number, _leave)

    def _reset_handlers(self) -> None:
        for number, previous in self._previous.items():
            if _in_main_thread() and signal.getsignal(number) is _leave:
                signal.signal(number, previous)


def _in_main_thread() -> bool:
    """Whether Python lets this thread set handlers."""
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, _frame: object) -> None:
    """Leave by the way that runs every `finally`; NVML is not called here, since the signal may have come inside it."""
    raise SystemExit(128 + number)
