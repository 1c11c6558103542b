"""Copies of a cache folder's files: what has changed since the last look, in pieces that another host applies.

Run logs only grow, so that their new lines are a piece; any other file is a piece as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from triton_ops._files import append_at, atomic_write, ensure_folder, folder_within, read_file
from triton_ops._files.reading import LARGEST_LOG_BYTES
from triton_ops.history.quarantine import FOLDER as QUARANTINE
from triton_ops.history.runs import FOLDER as RUNS

_COPIED = re.compile(
    rf"[0-9a-f]{{32}}\.record\.json|{RUNS}/[0-9a-f]{{32}}/[0-9A-Za-z-]+\.jsonl|{QUARANTINE}/[0-9A-Za-z._-]+\.jsonl"
)


@dataclass(frozen=True)
class Piece:
    """A part of a file.

    Attributes:
        path: The file's path inside the cache folder.
        at: Where in the file it begins, in bytes; the file ends with the piece.
        content: The bytes.
    """

    path: str
    at: int
    content: bytes


class Watched:
    """Finds what changes in a cache folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] = {}

    def changes(self) -> list[Piece]:
        """What was added since the last call, in no order of importance; what was there before the first is new."""
        return [piece for path in _files_of(self._folder) if (piece := self._change(path)) is not None]

    def _change(self, path: Path) -> Piece | None:
        name = path.relative_to(self._folder).as_posix()
        found = path.stat()  # before the file is read, so that what is added meanwhile is a change the next time
        at, changed_ns = self._seen.get(name, (0, 0))
        if (found.st_size, found.st_mtime_ns) == (at, changed_ns):
            return None
        content = read_file(path, LARGEST_LOG_BYTES)
        at = at if path.suffix == ".jsonl" and len(content) >= at else 0
        self._seen[name] = len(content), found.st_mtime_ns
        return Piece(name, at, content[at:])


def apply(folder: Path, pieces: Iterable[Piece]) -> None:
    """Write pieces into a cache folder.

    Raises:
        ValueError: A piece is of no file that is copied.
        OSError: A file cannot be written.
    """
    for piece in pieces:
        if not _COPIED.fullmatch(piece.path):
            raise ValueError(f"{piece.path} is no file of records, run logs or configs that crash")
        path = folder / piece.path
        if path.parent != folder:
            ensure_folder(folder_within(folder, path.parent))
        if piece.at and append_at(path, piece.at, piece.content):
            continue
        before = read_file(path, LARGEST_LOG_BYTES)[: piece.at] if piece.at else b""
        atomic_write(path, before + piece.content)


def files_of_problem(folder: Path, name: str) -> list[Piece]:
    """The record and the run logs of a problem, whole, and the configs that crash or hang."""
    paths = [folder / f"{name}.record.json", *(folder / RUNS / name).glob("*.jsonl"), *(folder / QUARANTINE).glob("*")]
    return [
        Piece(path.relative_to(folder).as_posix(), 0, read_file(path, LARGEST_LOG_BYTES))
        for path in paths
        if _is_copied(folder, path) and path.is_file()
    ]


def _files_of(folder: Path) -> Iterator[Path]:
    places = ("*.record.json", f"{RUNS}/*/*.jsonl", f"{QUARANTINE}/*")
    return (path for place in places for path in sorted(folder.glob(place)) if _is_copied(folder, path))


def _is_copied(folder: Path, path: Path) -> bool:
    return _COPIED.fullmatch(path.relative_to(folder).as_posix()) is not None
