"""A lock among the threads of one process that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class Guard:
    """A lock for a `with` statement that does not fork.

    The thread that holds a lock during a fork does not exist in the child, where an ordinary lock would stay locked for
    ever. What this lock guards must therefore be whole between any two steps of its holder.

    Args:
        make: Makes the lock: `threading.RLock` where a thread may enter again.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]] = threading.Lock) -> None:
        self._make = make
        self._lock = make()
        _guards.add(self)

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)

    def free(self) -> None:
        """Forget who holds the lock."""
        self._lock = self._make()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _free_in_child() -> None:
    for guard in list(_guards):
        guard.free()


os.register_at_fork(after_in_child=_free_in_child)
