"""Child processes are started by a thread that lasts as long as this process.

Linux ends a child that asks for it together with the thread that started it, not with the process. A tune in a thread
of the user's, or of a run of many problems, would take the process that it leaves to the next tune with it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from triton_ops.exceptions import DeviceError

Made = TypeVar("Made")

_guard = threading.Lock()
_calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] | None = None


def started_to_last(start: Callable[[], Made]) -> Made:
    """What `start` returns, called in a thread that does not end before this process; what it raises is raised here.

    Args:
        start: Starts a child process. In the main thread it is called at once.

    Raises:
        RuntimeError: The thread cannot be started.
    """
    if threading.current_thread() is threading.main_thread():
        return start()
    made: Future[Made] = Future()
    _asked().put((made, start))
    return made.result()


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        DeviceError: The system has no thread left.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise _no_thread(error) from error


class Threads(ThreadPoolExecutor):
    """An executor whose `submit` raises `DeviceError` where the system has no thread left."""

    def submit(self, fn: Callable[..., Made], /, *args: Any, **kwargs: Any) -> Future[Made]:
        """As of the class above."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if "new thread" not in str(error):  # it is shut down
                raise
            raise _no_thread(error) from error


def _no_thread(error: RuntimeError) -> DeviceError:
    hint = "end other processes, or raise their limit: ulimit -u"
    return DeviceError(f"no thread can be started: {error}", hint=hint)


def _asked() -> queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]:
    global _calls
    with _guard:
        if _calls is None:
            calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(calls,), name="triton-ops starter", daemon=True).start()
            _calls = calls  # only where the thread is there that serves it
        return _calls


def _serve(calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
    while True:
        made, start = calls.get()
        try:
            made.set_result(start())
        except BaseException as error:  # noqa: BLE001 - the thread that asked raises it
            made.set_exception(error)
        del made, start  # nothing is held while the thread waits


def _forget() -> None:
    """In a forked child, where the thread is not."""
    global _guard, _calls
    _guard, _calls = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
