"""Durable appending of lines to a file, where a killed writer tears at most its own last line."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_ops.base.files import ensure_folder, folder_within, open_regular, sync, sync_folder
from triton_ops.base.sealed_json import sealed, storable
from triton_ops.exceptions import CacheError

_log = logging.getLogger("triton_ops")


def append_line(path: Path, line: str, durable: bool = True) -> None:
    """Append one line to `path`; with `durable` the line is on disk when this returns.

    If the file ends in a torn line of a killed writer, a line break is written before the new line.

    Raises:
        ValueError: `line` contains a line break.
        OSError: The file cannot be written or is refused by the rule of `opening`, or the disk is full; the part that
            was written is a torn last line.
    """
    if "\n" in line:
        raise ValueError("a line cannot contain a line break")
    content = line.encode() + b"\n"
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b") as file:
        torn, fresh = False, file.seek(0, os.SEEK_END) == 0
        if not fresh:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + content)
        file.flush()
        if durable:
            sync(file.fileno())
    if durable and fresh:
        sync_folder(path.parent)


def append_at(path: Path, size: int, content: bytes) -> bool:
    """Append bytes to a file of so many bytes, which are on disk when this returns; False if it has another size.

    Raises:
        OSError: The file cannot be written, or the disk is full; a part may have been written.
    """
    try:
        descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "ab") as file:
        if os.fstat(file.fileno()).st_size != size:
            return False
        file.write(content)
        file.flush()
        sync(file.fileno())
    return True


class AppendedFile:
    """A file of JSON lines, each with its checksum, to which entries are appended.

    A failed write is a warning and no exception.

    Args:
        path: The file; its folder is made with the first line. None writes nothing.
        loss: The consequence of a file that cannot be written, for the warning.
        root: The cache folder that holds the file; the folders between are judged before the first line is written.
            None where the file's own folder was chosen by somebody.
        gaps: Whether entries may be written after one that could not be; else nothing further is, since a file with a
            gap would be worse than one that ends.
    """

    def __init__(self, path: Path | None, loss: str, root: Path | None = None, *, gaps: bool = False) -> None:
        self.path = path
        self._loss, self._root, self._gaps = loss, root, gaps
        self._broken = False

    @property
    def written(self) -> Path | None:
        """The file that others can read; None if there is none, or a line was lost."""
        return None if self._broken else self.path

    def append(self, entry: Mapping[str, Any], durable: bool = True) -> None:
        """Append an entry as one line; with `durable` it is on disk when this returns."""
        if (self._broken and not self._gaps) or self.path is None:
            return
        try:
            if self._root is not None:
                folder_within(self._root, self.path.parent)
            ensure_folder(self.path.parent)
            append_line(self.path, _text(entry), durable)
            self._broken = False
        except (OSError, CacheError) as error:
            warned, self._broken = self._broken, True
            reason = getattr(error, "strerror", None) or error
            level = logging.DEBUG if warned else logging.WARNING
            _log.log(level, "%s cannot be written (%s): %s", self.path, reason, self._loss)


def _text(entry: Mapping[str, Any]) -> str:
    """The line of an entry. What JSON cannot hold, as half of a character in a message, is replaced."""
    try:
        text = json.dumps(sealed(entry), ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        text = json.dumps(sealed(storable(entry)), ensure_ascii=False, allow_nan=False)
    return text
