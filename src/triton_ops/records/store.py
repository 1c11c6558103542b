"""Stores of values as readable JSON texts that are checked when read: in memory, in folders, in layers.

A codec holds the checks that every stored value passes when it is read: kind, schema version, and an id that is the
fingerprint of the content. Memory keeps texts too, so that every `get` gives a new copy, as a file would.

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
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from triton_ops import records, settings
from triton_ops.base import DamagedError, Folder, ForkSafeLock, Sealed, StoredFile, warn, warn_once
from triton_ops.exceptions import CacheError, SpaceError, TritonKernelError
from triton_ops.records.record import KIND, SCHEMA_VERSION, Record, decode, encode, reader
from triton_ops.settings import expanded, is_url
from triton_ops.space import Config

_MOST_BAD = 10_000  # damaged lines after which the rest of a file is not read: it is no file of this package


def converted(line: bytes, kind: Any) -> Any:
    """The value of a type, which may be a union, in a line that carries its checksum; DamagedError if there is none."""
    try:
        return Sealed.typed(Sealed.read(line), kind, Config.decode)
    except (SpaceError, RecursionError) as error:
        raise DamagedError(str(error)) from error


def readable(path: Path, lines: Iterable[bytes], kind: Any, *, first: int = 1, loss: str) -> Iterator[Any]:
    """The values in the lines of a file, from number `first` on; one warning says the `loss` of the bad ones."""
    bad, reason = 0, ""
    for number, line in enumerate(lines, first):
        try:
            yield converted(line, kind)
        except DamagedError as error:  # noqa: PERF203 - a file has few lines that are bad
            bad, reason = bad + 1, reason or f"line {number}: {error}"
            if bad == _MOST_BAD:
                break
    if bad:
        count = "a line is" if bad == 1 else f"{bad} lines are" if bad < _MOST_BAD else f"{bad} lines and the rest are"
        warn("%s: %s ignored, so that %s (%s)", path, count, loss, reason)


T = TypeVar("T")


class Store(Protocol[T]):
    """Values by their id. Every store is safe to share among threads."""

    def get(self, entry_id: str, /) -> T | None:
        """A new copy of the value of that id; None if there is none that can be read."""
        ...

    def put(self, value: T, /) -> None:
        """Keep `value` in place of an earlier one of the same id."""
        ...

    def __iter__(self) -> Iterator[T]:
        """Every value once, ordered by id where the store keeps files."""
        ...


class Codec(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The texts of one kind of stored value."""

    kind: str  # its name inside the text
    schema_version: int  # the form that this version writes, and the only one that it reads
    suffix: str  # its name in file names: `<id>.<suffix>.json`
    encode: Callable[[T], Mapping[str, Any]]  # to plain JSON values
    decode: Callable[[Mapping[str, Any]], T]  # CacheError for a field that is missing or ill-typed
    id_of: Callable[[T], str]  # 32 hexadecimal digits: the fingerprint of the value's key
    reader: Callable[[], Callable[[bytes], T]] | None = None  # of texts that passed `loads` before; None always checks

    def file_name(self, entry_id: str) -> str:
        """The name of the file that holds the value of that id, if there is one."""
        return f"{entry_id}.{self.suffix}.json"

    def contents(self, value: T) -> dict[str, Any]:
        """The value as plain JSON values, with kind, schema version and id first, and the checksum last."""
        head = {"kind": self.kind, "schema_version": self.schema_version, "id": self.id_of(value)}
        return Sealed({**head, **self.encode(value)})

    def dumps(self, value: T) -> str:
        """The value as JSON text, indented by two; CacheError if a part of it has no JSON form, such as NaN."""
        with CacheError.when(
            f"a {self.kind} cannot be stored as JSON",
            "keep to None, bool, int, finite float, str, lists and dicts with string keys",
            *(TypeError, ValueError, RecursionError),
        ):
            text = json.dumps(self.contents(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
            # A lone surrogate is text of JSON, and none of UTF-8: it is refused here, and not while a file is written.
            text.encode()
        return text

    def loads(self, text: str | bytes) -> T:
        """The value in a text; CacheError if it holds no JSON object, or is refused by `convert`."""
        try:
            content = Sealed.parsed(text)
        except DamagedError as error:
            raise CacheError(str(error)) from error
        return self.convert(content)

    def convert(self, content: Mapping[str, Any]) -> T:
        """The value in decoded JSON.

        CacheError: it is of another kind or schema version, has no checksum or that of another content, as after an
        edit by hand, has a field that is ill-typed or out of range, or an id that is not the fingerprint of its key.
        """
        check_kind(content, self.kind, self.schema_version, "tune again")
        try:
            value = self.decode(Sealed.opened(content))
            actual = self.id_of(value)
        except DamagedError as error:
            raise CacheError(str(error), hint="tune again, or take the file from where it came") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise CacheError(f"it is not well formed: {error}") from error
        if actual != content.get("id"):
            message = f"its id {content.get('id')!r} does not name its key ({actual}): edited or damaged"
            raise CacheError(message, hint="tune again")
        return value

    def protects(self, text: str | bytes) -> str | None:
        """The reason why a file, of another kind or a newer version, must not be overwritten; None if it may be."""
        content: Mapping[str, Any] = {}
        with contextlib.suppress(DamagedError):  # it names none
            content = Sealed.parsed(text)
        kind, version = content.get("kind", self.kind), content.get("schema_version")
        if kind != self.kind:
            return f"it holds a value of kind {kind!r}"
        if isinstance(version, int) and version > self.schema_version:
            return f"it is of a newer version of triton-ops, with schema {version}"
        return None


RECORDS: Codec[Record] = Codec(
    kind=KIND,
    schema_version=SCHEMA_VERSION,
    suffix="record",
    encode=encode,
    decode=decode,
    id_of=attrgetter("id"),
    reader=reader,
)


def check_kind(
    content: Mapping[str, Any], kind: str, reads: int, again: str, error: type[CacheError] = CacheError, what: str = ""
) -> None:
    """Raise the error if decoded JSON is of another kind, or of a schema version that is not read.

    `again` is how the file is made anew, and `what` stands before the message, such as the name of the file.
    """
    if content.get("kind") != kind:
        raise error(f"{what}its kind is {content.get('kind')!r}, not {kind!r}", hint="check the path")
    # True equals 1, and is no version.
    if (version := content.get("schema_version")) != reads or isinstance(version, bool):
        hint = again if version in range(reads) else f"upgrade triton-ops, or {again}"
        raise error(f"{what}it has schema version {version!r}; this triton-ops reads {reads}", hint=hint)


class MemoryStore(Generic[T]):
    """Values in a dict, for all threads of one process. Cost: about 50 µs per get or put, for the text and back."""

    def __init__(self, codec: Codec[T]) -> None:
        self.codec = codec
        self._texts: dict[str, str | bytes] = {}
        self._guard = ForkSafeLock()

    def get(self, entry_id: str, /) -> T | None:
        """The value of that id; None if there is none."""
        with self._guard:
            text = self._texts.get(entry_id)
        return None if text is None else self.codec.loads(text)

    def put(self, value: T, /) -> None:
        """Keep `value` in place of an earlier one of the same id; CacheError, and no change, if it has no JSON form."""
        text = self.codec.dumps(value)
        with self._guard:
            self._texts[self.codec.id_of(value)] = text

    def remove(self, entry_id: str) -> bool:
        """Remove one value, and return whether there was one."""
        with self._guard:
            return self._texts.pop(entry_id, None) is not None

    def clear(self) -> int:
        """Remove every value, and return their number."""
        with self._guard:
            count = len(self._texts)
            self._texts.clear()
        return count

    def __iter__(self) -> Iterator[T]:
        """Every value that the store has now, ordered by id."""
        with self._guard:
            texts = sorted(self._texts.items())
        return (self.codec.loads(text) for _, text in texts)


_ID = re.compile(r"[0-9a-f]{32}")
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
        # By the file's name, as it was when it was read last; None where the value is that of a caller of `get`.
        self._known: dict[str, tuple[bytes, T | None]] = {}

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
        name = self.codec.file_name(entry_id)
        known, file = self._known.get(name), StoredFile(self._prefix + name)  # a path object would take too long
        if known is not None and self.codec.reader is not None and file.holds(known[0]):
            return self.codec.reader()(known[0])
        if (entry := self._read(self.folder / name)) is not None:
            self._known[name] = entry[0], None
        elif known is not None and self.reachable:  # it was removed, or has become unreadable
            self._known.pop(name, None)
        return None if entry is None else entry[1]

    def last_known(self) -> dict[str, T]:
        """The values that were read last, by id, once the folder cannot be read; none as long as it can."""
        values = () if self.reachable else (self.codec.loads(text) for _, (text, _) in sorted(self._known.items()))
        return {self.codec.id_of(value): value for value in values}

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
                if not self._swept:
                    Folder(self.folder).sweep()
                    self._swept = True
                if (objection := self._why_kept(path)) is None:
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
        self._known.pop(path.name, None)
        return self._remove(lambda: [path] if StoredFile(path).exists else []) == 1

    def clear(self) -> int:
        """Remove every entry that this version can read, whoever wrote it, and return their number.

        Half-written files of killed writers go too if they are old; all other files stay. CacheError: the folder cannot
        be changed; some entries may be gone already.
        """
        self._known.clear()
        return self._remove(self._paths)

    def __iter__(self) -> Iterator[T]:
        """Every entry that can be read, ordered by id; entries that are written meanwhile may be missing.

        An entry whose file is as it was is the same object again. Cost: 15 µs for each such entry, else 0.5 ms.
        """
        for path in self._paths():
            text, value = self._known.get(path.name, (b"", None))
            if value is None or not StoredFile(path).holds(text):
                if (entry := self._read(path)) is None:
                    continue
                self._known[path.name] = entry
                value = entry[1]
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

    def _read(self, path: Path) -> tuple[bytes, T] | None:
        try:
            text = StoredFile(path).read(_LARGEST_BYTES)
            value = self.codec.loads(text)
            if path != self.path_of(self.codec.id_of(value)):
                raise CacheError(f"it holds the entry {self.codec.id_of(value)}, and has the name of another")
        except FileNotFoundError:
            return None
        except (CacheError, OSError) as error:
            step = "" if getattr(error, "hint", None) else "; mend or remove it, and what it held is written anew"
            self._report(path.name, f"{path} is ignored: {_reason(error)}{step}")
            return None
        self._forget_report(path.name)
        return text, value

    def _why_kept(self, path: Path) -> str | None:
        try:
            return self.codec.protects(StoredFile(path).read(_LARGEST_BYTES))
        except OSError:
            return None  # the file is missing or cannot be read: only this package uses such names

    def _remove(self, paths: Callable[[], list[Path]]) -> int:
        if not paths():
            return 0
        count = 0
        what, hint = f"entries in {self.folder} cannot be removed", "remove them as a user who may write there"
        with CacheError.when(what, hint), self._turn():
            for path in paths():
                if self._read(path) is not None:
                    path.unlink(missing_ok=True)
                    count += 1
            Folder(self.folder).sweep()
        return count

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self.read_only:
            raise PermissionError(errno.EROFS, "it was opened for reading only")
        Folder(self.folder).make()
        with Folder(self.folder).locked(wait_s=_LOCK_WAIT_S, poll_s=_POLL_S):
            yield

    def _report(self, subject: str, message: str) -> None:
        with self._guard:
            repeated = subject in self._reported
            self._reported.add(subject)
        if not repeated:
            warn("%s", message)

    def _forget_report(self, *subjects: str) -> None:
        if self._reported:
            with self._guard:
                self._reported.difference_update(subjects)


def _existing(folder: str | os.PathLike[str]) -> Path:
    path = expanded(folder)
    if StoredFile(path).exists:
        message = f"{path} cannot be a cache folder: it is a file"
        raise CacheError(message, hint="name the folder that holds the entries")
    return path


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


class LayeredStore(Generic[T]):
    """Several stores as one: memory over a folder, which alone is changed, then further ones, which are only read.

    Safe to share among threads; as safe among processes as its folder. The memory has what the folder did not take.
    """

    def __init__(self, directory: DirectoryStore[T], *further: Store[T]) -> None:
        self.directory = directory
        self.further = further
        self._unwritten = MemoryStore(directory.codec)

    @property
    def writable(self) -> bool:
        """True if values that are put now outlive this process."""
        return self.directory.writable

    def get(self, entry_id: str, /) -> T | None:
        """The value of that id; None if no layer has one. Cost: opens one file, 0.2 ms, and those of further stores."""
        own = self._unwritten.get(entry_id) or self.directory.get(entry_id) or self.directory.last_known().get(entry_id)
        return own or next(filter(None, (store.get(entry_id) for store in self.further)), None)

    def put(self, value: T, /) -> None:
        """Keep `value` in the folder, or in memory with a warning if the folder does not take it; else CacheError."""
        entry_id = self.directory.codec.id_of(value)
        if self.directory.try_put(value):
            self._unwritten.remove(entry_id)
            self.directory.get(entry_id)  # so that it is known once the folder is gone
        else:
            self._unwritten.put(value)

    def remove(self, entry_id: str) -> bool:
        """Remove one value from memory and folder, and return whether there was one; CacheError as of the folder."""
        unwritten = self._unwritten.remove(entry_id)
        return self.directory.remove(entry_id) or unwritten

    def clear(self) -> int:
        """Remove every value from memory and the folder, whoever put it there, and return the number of the folder's.

        Other processes see this at their next `get`, save for values that only their own memory holds. CacheError: the
        folder cannot be changed; memory is empty nevertheless.
        """
        self._unwritten.clear()
        return self.directory.clear()

    def __iter__(self) -> Iterator[T]:
        """Every value once, as `get` gives it for its id."""
        ids = set[str]()
        for value in chain(self._unwritten, self.directory, self.directory.last_known().values(), *self.further):
            if (entry_id := self.directory.codec.id_of(value)) not in ids:
                ids.add(entry_id)
                yield value


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
        folder: Where the records are, as `tune` writes them, or the URL of a file of `triton-ops cache export`. That is
            fetched in a thread, and used if it is trusted.

    Raises:
        CacheError: The URL has a password, or cannot be read by its kind.
        MissingDependencyError: The URL's kind needs a package that is not installed.

    Cost: a look-up reads one more file. Without a copy on this machine the first one waits for a URL's answer, at most
    until two seconds after this call.
    """
    if is_url(folder):
        _begun(folder)
    place = folder if is_url(folder) else os.path.abspath(os.fspath(folder))  # noqa: PTH100 - text, as in every look-up
    _shared_by_packages[place] = None


def begin_sources() -> None:
    """Have the URLs of the environment fetched in threads, unless they are already; nothing waits for them here."""
    for url in settings.shared_urls():
        with contextlib.suppress(TritonKernelError):  # the look-up says so
            _begun(url)


def _begun(url: str) -> records.Fetch:
    return records.Fetch.begun(url, records.unpacked)


_unreached: dict[str, str] = {}


def unreached() -> list[str]:
    """For each URL that has no records here, why not."""
    return [*_unreached.values()]


def _folder_of(place: str) -> str | None:
    """The folder of a path or a URL; None, with a warning for a URL, if there is none."""
    if not is_url(place):
        return None if os.path.isfile(place) else place  # noqa: PTH113 - as above
    try:
        folder = str(_begun(place).at_start())
    except TritonKernelError as error:
        _unreached[place] = str(error)
        warn_once(f"shared records are not used: {error}")
        return None
    _unreached.pop(place, None)
    return folder


def shared_folders() -> tuple[str, ...]:
    """The folders asked after the user's own: the site's, then those of packages; a path of a file is left out.

    The records of a URL lie in a folder of this machine.
    """
    paths = [os.path.abspath(path) for path in settings.shared_dirs()]  # noqa: PTH100 - as above
    places = dict.fromkeys([*paths, *settings.shared_urls(), *_shared_by_packages])
    return tuple(folder for place in places if (folder := _folder_of(place)) is not None)


def url_folders() -> tuple[str, ...]:
    """Those of the shared folders that hold what URLs have served."""
    urls = filter(is_url, dict.fromkeys([*settings.shared_urls(), *_shared_by_packages]))
    return tuple(folder for url in urls if (folder := _folder_of(url)) is not None)
