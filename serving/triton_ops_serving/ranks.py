"""Ranks that serve one model have one lockfile, and make the same choices.

Where torch.distributed is initialised, its store has the lockfile of the rank that asked first, which then serves on
all of them, and each choice as that rank made it which made it first. No rank waits for another one.
"""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from triton_ops.records import Lockfile

SHOWN = 12  # characters of a digest


def agreed(lock: Lockfile, log: logging.Logger) -> Lockfile:
    """The lockfile that serves on all ranks; this one where there are none, or it was the first."""
    first = _first("lockfile", lock.text)
    if first == lock.text:
        return lock
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Lockfile.DEFAULT_NAME)
        path.write_text(first, encoding="utf-8")
        other = Lockfile.read(path)
    digests = lock.digest[:SHOWN], other.digest[:SHOWN]
    log.warning("triton_ops: ranks have lockfiles %s, here, and %s, which serves: it was the first", *digests)
    return other


def compare(choice: str, rows: Any, log: logging.Logger) -> None:
    """Warn if the rank that made a choice first has other rows."""
    first, own = _first(choice, str(rows)), str(rows)
    if first != own:
        log.warning("triton_ops: ranks differ in %s: %s here, and %s on the first one", choice, own, first)


def _first(name: str, text: str) -> str:
    """What the first rank has put under a name; this rank's text where there are no ranks."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return text
    # Torch has no public name for the store of the default group.
    store = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
    # It writes where nothing is there yet, and returns what is there then.
    return bytes(store.compare_set(f"triton_ops/serving/{name}", "", text)).decode()
