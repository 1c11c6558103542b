"""Folders of readable JSON files as stores, alone or in layers with memory.

A file's name is made from the id, so that a look-up opens one file. The file also holds the full content of its key,
and counts as an entry only if the id is the fingerprint of that key. Files with other names are never opened or
changed, and a file that cannot be read as an entry is never removed.

As long as the folder can be read, the folder decides: writes and removals of other processes are seen at the next
`get`. Memory answers for values that the folder could not take, and, once the folder cannot be read any more, for
every value that this process has seen.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Generic

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.base import Folder, ForkSafeLock, StoredFile
from triton_ops.exceptions import CacheError
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, Codec, MemoryStore, Store, T

_log = logging.getLogger("triton_ops")
_ID_LENGTH = 32
_ID = re.compile(rf"[0-9a-f]{{{_ID_LENGTH}}}")
_LOCK_WAIT_S = 30.0  # a write takes about 1 ms; who waits this long waits for a stopped process
_POLL_S = 0.005  # a waiting process looks again after a few writes' time
_LARGEST_BYTES = 4 << 20  # a record has about 3 KB, and one with 10,000 ties 1 MB


class DirectoryStore(Generic[T]):
    """Values in `<id>.<suffix>.json` files. Safe to share among threads and processes.

    A file that cannot be read as an entry (damaged, of another kind, ill-typed, newer, edited, not permitted) counts as
    missing, and is reported once per store object as a warning of the logger `triton_ops`. The file is kept: only a
    `put` of the same id replaces it, and not even that if the file is of another kind or of a newer version.

    A write that fails (full disk, read-only folder) causes a warning and no exception; there is no further warning
    until a write succeeds again. Readers see the old file or the new one. Writers and removers take turns with the
    folder's lock, and go on without it, after a warning, where it cannot be had. The first `put` and every removal also
    remove what killed writers of this user left there over an hour ago.

    A missing folder is made, or counts as empty if `read_only` is set, which forbids every change, whatever the
    permissions allow. CacheError: the path is a file, or the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], codec: Codec[T], *, read_only: bool = False) -> None:
        path = _existing(folder) if read_only else Folder(folder).ensure()
        self.folder = path.absolute()  # absolute, so that the folder stays the same when the working directory changes
        self._prefix = os.path.join(self.folder, "")  # noqa: PTH118 - ends in a separator
        self._swept = False
        self.codec = codec
        self.read_only = read_only
        self._guard = ForkSafeLock()
        self._reported: set[str] = set()
        self._checked: dict[str, bytes] = {}

    @property
    def writable(self) -> bool:
        """True if entries can be written now; this is tried by making a file."""
        return not self.read_only and Folder(self.folder).writable

    @property
    def reachable(self) -> bool:
        """True if the folder can be read, so that a missing file means a missing entry."""
        return Folder(self.folder).exists and os.access(self.folder, os.R_OK | os.X_OK)

    def path_of(self, entry_id: str) -> Path:
        """The path of an entry, whether the file exists or not."""
        return self.folder / self.codec.file_name(entry_id)

    def get(self, entry_id: str, /) -> T | None:
        """The value of that id as the disk has it now; None if there is none that can be read.

        Cost: opens one file, about 0.1 ms; half as much if this object has read the same text before.
        """
        if not _ID.fullmatch(entry_id):
            return None
        checked = self._checked.get(entry_id)
        if checked is not None and self.codec.reload is not None:
            path = self._prefix + self.codec.file_name(entry_id)  # a path object would take as long as the rest
            if StoredFile(path).holds(checked):
                return self.codec.reload(checked)
        return self._load(self.path_of(entry_id))

    def text_of(self, entry_id: str) -> bytes | None:
        """The text from which `get` last made the value of that id; None if it has made none."""
        return self._checked.get(entry_id)

    def put(self, value: T, /) -> None:
        """Write `value`; a failure is a warning, as with `try_put`."""
        self.try_put(value)

    def try_put(self, value: T) -> bool:
        """Write `value`, and return whether it is on disk; CacheError if it has no JSON form.

        Cost: two fsyncs, 1 ms on an idle disk, and the wait for the folder's lock, at most 30 s.
        """
        text, path = self.codec.dumps(value), self.path_of(self.codec.id_of(value))
        try:
            with self._turn():
                self._sweep_once()
                objection = self._why_kept(path)
                if objection is None:
                    StoredFile(path).replace(text)
        except OSError as error:
            self._report("(write)", f"{self.folder} takes no new entries: {_reason(error)}")
            return False
        if objection is not None:
            self._report(f"{path.name} (kept)", f"{path} is not replaced: {objection}")
            return False
        self._forget_report("(write)", path.name)
        return True

    def remove(self, entry_id: str) -> bool:
        """Remove one entry, and return whether one could be read; CacheError if the folder cannot be changed."""
        if not _ID.fullmatch(entry_id):
            return False
        path = self.path_of(entry_id)
        return self._remove(lambda: [path] if StoredFile(path).exists else []) == 1

    def clear(self) -> int:
        """Remove every entry that this version can read, whoever wrote it, and return their number.

        Half-written files of killed writers go too if they are old; all other files stay. CacheError: the folder cannot
        be changed; some entries may be gone already.
        """
        return self._remove(self._paths)

    def __iter__(self) -> Iterator[T]:
        """Every entry that can be read, ordered by id; entries that are written meanwhile may be missing."""
        for path in self._paths():
            value = self._load(path)
            if value is not None:
                yield value

    def _paths(self) -> list[Path]:
        ending = f".{self.codec.suffix}.json"
        try:
            names = sorted(os.listdir(self.folder))  # noqa: PTH208 - names only: a Path per foreign file is waste
        except FileNotFoundError:
            return []
        except OSError as error:
            self._report("(list)", f"cannot list {self.folder}: {_reason(error)}; it counts as empty")
            return []
        return [self.folder / name for name in names if name.endswith(ending) and _ID.fullmatch(name[: -len(ending)])]

    def _load(self, path: Path) -> T | None:
        text = b""
        try:
            text = StoredFile(path).read(_LARGEST_BYTES)
            value = self.codec.loads(text)
            if path != self.path_of(self.codec.id_of(value)):
                raise CacheError(f"it is the entry {self.codec.id_of(value)} under another entry's name")
            self._checked[path.name[:_ID_LENGTH]] = text
        except FileNotFoundError:
            return None
        except (CacheError, OSError) as error:
            self._report_unread(path, text, error)
            return None
        self._forget_report(path.name)
        return value

    def _why_kept(self, path: Path) -> str | None:
        try:
            return self.codec.protects(StoredFile(path).read(_LARGEST_BYTES))
        except OSError:
            return None  # the file is missing or cannot be read: only this package uses such names

    def _remove(self, paths: Callable[[], list[Path]]) -> int:
        if not paths():
            return 0
        count = 0
        try:
            with self._turn():
                for path in paths():
                    if self._load(path) is not None:
                        path.unlink(missing_ok=True)
                        count += 1
                Folder(self.folder).sweep()
        except OSError as error:
            raise CacheError(
                f"entries in {self.folder} cannot be removed: {_reason(error)}",
                hint="remove them as a user who may write there",
            ) from error
        return count

    def _sweep_once(self) -> None:
        if not self._swept:
            Folder(self.folder).sweep()
            self._swept = True

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self.read_only:
            raise PermissionError(errno.EROFS, "it was opened for reading only")
        Folder(self.folder).make()
        with Folder(self.folder).locked(wait_s=_LOCK_WAIT_S, poll_s=_POLL_S):
            yield

    def _report_unread(self, path: Path, text: bytes, error: Exception) -> None:
        """Warn that a file counts as missing; there is one warning for all files that an earlier version wrote."""
        if self.codec.is_older(text):
            what = f"{path}, like every {self.codec.kind} that an earlier version wrote, is ignored"
            self._report("(older)", f"{what}: {_reason(error)}")
        else:
            step = "" if getattr(error, "hint", None) else "; mend or remove it, and what it held is written anew"
            self._report(path.name, f"{path} is ignored: {_reason(error)}{step}")

    def _report(self, subject: str, message: str) -> None:
        with self._guard:
            repeated = subject in self._reported
            self._reported.add(subject)
        if not repeated:
            _log.warning("%s", message)

    def _forget_report(self, *subjects: str) -> None:
        if self._reported:
            with self._guard:
                self._reported.difference_update(subjects)


def _existing(folder: str | os.PathLike[str]) -> Path:
    path = expanded(folder)
    if StoredFile(path).exists:
        raise CacheError(
            f"{path} cannot be a cache folder: it is a file", hint="name the folder that holds the entries"
        )
    return path


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


class LayeredStore(Generic[T]):
    """Several stores as one: memory over a folder, which alone is changed, then further ones, which are only read.

    Safe to share among threads; as safe among processes as its folder. The memory has the values that this process has
    put or got with this object.
    """

    def __init__(self, directory: DirectoryStore[T], *further: Store[T]) -> None:
        self.directory = directory
        self.memory: MemoryStore[T] = MemoryStore(directory.codec)
        self.further = further
        self._unwritten: set[str] = set()
        self._guard = ForkSafeLock()

    @property
    def writable(self) -> bool:
        """True if values that are put now outlive this process."""
        return self.directory.writable

    def get(self, entry_id: str, /) -> T | None:
        """The value of that id; None if no layer has one. Cost: opens one file, 0.2 ms, and those of further stores."""
        value = self._own(entry_id)
        if value is not None:
            return value
        values = (store.get(entry_id) for store in self.further)
        return next((value for value in values if value is not None), None)

    def put(self, value: T, /) -> None:
        """Keep `value` in the folder, or in memory with a warning if the folder does not take it; else CacheError."""
        is_on_disk = self.directory.try_put(value)
        with self._guard:
            self.memory.put(value)
            change = self._unwritten.discard if is_on_disk else self._unwritten.add
            change(self.directory.codec.id_of(value))

    def remove(self, entry_id: str) -> bool:
        """Remove one value from memory and folder, and return whether there was one; CacheError as of the folder."""
        with self._guard:
            unwritten = entry_id in self._unwritten
            self._unwritten.discard(entry_id)
            self.memory.remove(entry_id)
        return self.directory.remove(entry_id) or unwritten

    def clear(self) -> int:
        """Remove every value from memory and the folder, whoever put it there, and return their number.

        Other processes see this at their next `get`, save for values that only their own memory holds. CacheError: the
        folder cannot be changed; memory is empty nevertheless.
        """
        with self._guard:
            files = {entry_id: StoredFile(self.directory.path_of(entry_id)) for entry_id in self._unwritten}
            unwritten = {entry_id for entry_id, file in files.items() if not file.exists}
            self._unwritten.clear()
            self.memory.clear()
        return self.directory.clear() + len(unwritten)

    def __iter__(self) -> Iterator[T]:
        """Every value once, as `get` gives it for its id."""
        ids: set[str] = set()
        for value in chain(self._memories(), self.directory, *self.further):
            entry_id = self.directory.codec.id_of(value)
            if entry_id not in ids:
                ids.add(entry_id)
                yield value

    def _own(self, entry_id: str) -> T | None:
        value = None if entry_id in self._unwritten else self.directory.get(entry_id)
        with self._guard:
            if entry_id in self._unwritten or (value is None and not self.directory.reachable):
                return self.memory.get(entry_id)
            text = self.directory.text_of(entry_id)
            if value is None or text is None:
                self.memory.remove(entry_id)
            else:
                self.memory.keep(entry_id, text)
        return value

    def _memories(self) -> list[T]:
        everything = not self.directory.reachable
        with self._guard:
            unwritten = set(self._unwritten)
        return [value for value in self.memory if everything or self.directory.codec.id_of(value) in unwritten]


def open_store(
    folder: str | os.PathLike[str], *others: str | os.PathLike[str], read_only: bool = False
) -> LayeredStore[Record]:
    """The store of records: memory over `folder`, then the `others` in order, which are only read.

    With `read_only` the folder is only read as well, and not made. CacheError: a path is a file, or it cannot be made.
    """
    further = (DirectoryStore(path, RECORDS, read_only=True) for path in others)
    return LayeredStore(DirectoryStore(folder, RECORDS, read_only=read_only), *further)


_shared_by_packages: dict[str, None] = {}


def share_records(folder: str | os.PathLike[str]) -> None:
    """Let this process also look up records in `folder`, after the user's own and those of `TRITON_OPS_SHARED_DIRS`.

    A package calls it with a folder of its own data when it is imported. The folder is only read, and need not exist.

    Args:
        folder: Where the records are, as `tune` writes them.

    Cost: a look-up reads one more file.
    """
    _shared_by_packages[os.path.abspath(os.fspath(folder))] = None  # noqa: PTH100 - text, as in every look-up


def shared_folders() -> tuple[str, ...]:
    """The folders asked after the user's own: the site's, then those of packages; a path of a file is left out."""
    paths = [os.path.abspath(path) for path in settings.shared_dirs()]  # noqa: PTH100 - as above
    return tuple(path for path in dict.fromkeys([*paths, *_shared_by_packages]) if not os.path.isfile(path))  # noqa: PTH113 - as above
