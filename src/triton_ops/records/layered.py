"""Memory, a folder and further stores as one store: the first that has an id answers.

As long as the folder can be read, the folder decides: writes and removals of other processes are seen at the next
`get`. Memory answers for values that the folder could not take, and, once the folder cannot be read any more, for
every value that this process has seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import Generic

from triton_ops import settings
from triton_ops.base import Guard, is_file
from triton_ops.records.directory import DirectoryStore
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, MemoryStore, Store, T


class LayeredStore(Generic[T]):
    """Several stores as one. Safe to share among threads; as safe among processes as its folder.

    Attributes:
        directory: The folder that `put`, `remove` and `clear` change.
        memory: The values that this process has put or got with this object.
        further: Stores that are asked last, in this order, and never changed, such as a shared folder.
    """

    def __init__(self, directory: DirectoryStore[T], *further: Store[T]) -> None:
        self.directory = directory
        self.memory: MemoryStore[T] = MemoryStore(directory.codec)
        self.further = further
        self._unwritten: set[str] = set()
        self._guard = Guard()

    @property
    def writable(self) -> bool:
        """True if values that are put now outlive this process."""
        return self.directory.writable

    def get(self, entry_id: str, /) -> T | None:
        """The value of that id; None if no layer has one that can be read.

        Cost: opens one file, about 0.2 ms; more for ids that only the further stores may have.
        """
        value = self._own(entry_id)
        if value is not None:
            return value
        values = (store.get(entry_id) for store in self.further)
        return next((value for value in values if value is not None), None)

    def put(self, value: T, /) -> None:
        """Keep `value` in the folder, or in memory with a warning if the folder does not take it.

        Raises:
            CacheError: The value has no JSON form; no layer is changed.
        """
        is_on_disk = self.directory.try_put(value)
        with self._guard:
            self.memory.put(value)
            change = self._unwritten.discard if is_on_disk else self._unwritten.add
            change(self.directory.codec.id_of(value))

    def remove(self, entry_id: str) -> bool:
        """Remove one value from memory and the folder, and return whether there was one; further stores keep theirs.

        Raises:
            CacheError: The folder cannot be changed.
        """
        with self._guard:
            unwritten = entry_id in self._unwritten
            self._unwritten.discard(entry_id)
            self.memory.remove(entry_id)
        return self.directory.remove(entry_id) or unwritten

    def clear(self) -> int:
        """Remove every value from memory and the folder, whoever put it there, and return their number.

        Other processes see this at their next `get`, save for values that only their own memory holds. Further stores
        are not changed.

        Raises:
            CacheError: The folder cannot be changed; memory is empty nevertheless.
        """
        with self._guard:
            unwritten = {entry_id for entry_id in self._unwritten if not is_file(self.directory.path_of(entry_id))}
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
    """The store of records: memory over `folder`, then the `others`, which are only read.

    Args:
        folder: The folder that takes new records.
        others: Further folders, in the order in which they are asked.
        read_only: Whether `folder` is only read as well, and is not made.

    Raises:
        CacheError: A path is a file, or `folder` cannot be made.
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
    """The folders that are asked after the user's own, in order: those of the site, then those of packages.

    A path that is a file is left out.
    """
    paths = [os.path.abspath(path) for path in settings.shared_dirs()]  # noqa: PTH100 - as above
    return tuple(path for path in dict.fromkeys([*paths, *_shared_by_packages]) if not os.path.isfile(path))  # noqa: PTH113 - as above
