"""Atomic replacement of files, durable appending of lines, and locks of folders.

All functions work on folders that many processes share. None of them ever deletes a file that it did not write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_ops.exceptions import CacheError

if TYPE_CHECKING:
    from filelock import FileLock

_log = logging.getLogger("triton_ops")


def ensure_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder with `~` expanded; it is made if it is missing.

    Raises:
        CacheError: The path is a file, or the folder cannot be made.
    """
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise CacheError(
            f"{path} cannot be a cache folder: it, or a part of it, is a file",
            hint="name another folder, or remove the file",
        ) from error
    except OSError as error:
        raise CacheError(
            f"{path} cannot be made: {error.strerror or error}",
            hint="name a folder that can be written, for example with TRITON_OPS_CACHE_DIR",
        ) from error
    return path


def writable(folder: Path) -> bool:
    """Whether files can be made in `folder` now; a file is made to find out, since permission bits can mislead."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
            return True
    except OSError:
        return False


def atomic_write(path: Path, content: str | bytes) -> None:
    """Replace the content of `path`, text as UTF-8. A reader sees the old file or the new one, never a part.

    It is on disk before the name points to it. A failure leaves the old file, and no other.

    Raises:
        OSError: The folder cannot be written, or the disk is full.
    """
    # Files of `tempfile` can be read by their owner only, but a cache that root has made serves other users too.
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}.tmp")
    try:
        with fresh.open("xb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        raise


def append_line(path: Path, line: str, durable: bool = True) -> None:
    """Append one line to `path`; with `durable` the line is on disk when this returns.

    If the file ends in a torn line of a killed writer, a line break is written before the new line.

    Raises:
        ValueError: `line` contains a line break.
        OSError: The file cannot be written, or the disk is full; the part that was written is a torn last line.
    """
    if "\n" in line:
        raise ValueError("a line cannot contain a line break")
    with path.open("a+b") as file:
        torn = False
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())


class AppendedFile:
    """A file of JSON lines to which entries are appended; a failed write is a warning and no exception.

    After the first write that fails nothing further is written: a file with a gap would be worse than one that ends.

    Args:
        path: The file; its folder is made with the first line. None writes nothing.
        loss: The consequence of a file that cannot be written, for the warning.
    """

    def __init__(self, path: Path | None, loss: str) -> None:
        self.path = path
        self._loss = loss
        self._broken = False

    def append(self, entry: Mapping[str, Any], durable: bool = True) -> None:
        """Append an entry as one line; with `durable` it is on disk when this returns."""
        if self._broken or self.path is None:
            return
        try:
            ensure_folder(self.path.parent)
            append_line(self.path, json.dumps(entry), durable)
        except (OSError, CacheError) as error:
            self._broken = True
            reason = getattr(error, "strerror", None) or error
            _log.warning("%s cannot be written (%s): %s", self.path, reason, self._loss)


def whole_lines(path: Path) -> Iterator[str]:
    """The lines of `path` that end in a line break; none if the file is missing.

    A last line without a line break was torn by a killed writer, and is left out.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return
    lines = text.split("\n")
    yield from (line for line in lines[:-1] if line)


def folder_lock(folder: Path, name: str = "lock", timeout_s: float = -1) -> FileLock:
    """A lock among all threads and processes that use `folder`; the caller takes it.

    The operating system frees the lock when its holder dies, so that a killed process leaves no lock behind.

    Args:
        folder: An existing folder that can be written.
        name: Locks of different names are independent.
        timeout_s: The seconds to wait for the lock when it is taken; -1 waits for ever, 0 does not wait.
    """
    from filelock import FileLock  # imports asyncio, which commands that only read do not need

    # The mode is 0666 less the umask, so that every user who may write the folder may take its lock.
    return FileLock(folder / f".{name}", timeout=timeout_s, mode=0o666, is_singleton=False, thread_local=False)
