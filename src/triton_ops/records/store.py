"""Texts of stored values, with the checks that each passes when it is read.

A codec holds the checks that every stored value passes when it is read: kind, schema version, and an id that is the
fingerprint of the content. Stores decide where texts are kept; this module reads and writes no file.

The store keeps texts instead of objects, so that every `get` gives a new copy, equal to what a file would give.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from triton_ops.base import DamagedError, ForkSafeLock, Sealed
from triton_ops.exceptions import CacheError, SpaceError
from triton_ops.records.record import KIND, SCHEMA_VERSION, Record, decode, encode, reload
from triton_ops.space import Config

_log = logging.getLogger("triton_ops")
_MOST_BAD = 10_000  # damaged lines after which the rest of a file is not read: it is no file of this package


def converted(line: bytes, kind: Any) -> Any:
    """The value of a type, which may be a union, in a line that carries its checksum; DamagedError if there is none."""
    try:
        return msgspec.convert(Sealed.read(line), kind, dec_hook=Config.decode)
    except (msgspec.ValidationError, SpaceError, RecursionError) as error:
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
        _log.warning("%s: %s ignored, so that %s (%s)", path, count, loss, reason)


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


@dataclass(frozen=True, kw_only=True)
class Codec(Generic[T]):
    """The texts of one kind of stored value."""

    kind: str  # its name inside the text
    schema_version: int  # the form that this version writes, and the only one that it reads
    suffix: str  # its name in file names: `<id>.<suffix>.json`
    encode: Callable[[T], Mapping[str, Any]]  # to plain JSON values
    decode: Callable[[Mapping[str, Any]], T]  # CacheError for a field that is missing or ill-typed
    id_of: Callable[[T], str]  # 32 hexadecimal digits: the fingerprint of the value's key
    reload: Callable[[bytes], T] | None = None  # of a text that passed the checks of `loads` before; None always checks

    def file_name(self, entry_id: str) -> str:
        """The name of the file that holds the value of that id, if there is one."""
        return f"{entry_id}.{self.suffix}.json"

    def contents(self, value: T) -> dict[str, Any]:
        """The value as plain JSON values, with kind, schema version and id first, and the checksum last."""
        head = {"kind": self.kind, "schema_version": self.schema_version, "id": self.id_of(value)}
        return Sealed({**head, **self.encode(value)})

    def dumps(self, value: T) -> str:
        """The value as JSON text, indented by two; CacheError if a part of it has no JSON form, such as NaN."""
        try:
            text = json.dumps(self.contents(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise CacheError(
                f"a {self.kind} cannot be stored as JSON: {error}",
                hint="keep to None, bool, int, finite float, str, lists and dicts with string keys",
            ) from error
        return text

    def loads(self, text: str | bytes) -> T:
        """The value in a text; CacheError if it holds no JSON object, or is refused by `convert`."""
        return self.convert(parse_object(text))

    def convert(self, content: Mapping[str, Any]) -> T:
        """The value in decoded JSON.

        CacheError: it is of another kind or schema version, has no checksum or that of another content, as after an
        edit by hand, has a field that is ill-typed or out of range, or an id that is not the fingerprint of its key.
        """
        if content.get("kind") != self.kind:
            raise CacheError(f"its kind is {content.get('kind')!r}, not {self.kind!r}")
        version = content.get("schema_version")
        if version != self.schema_version:
            raise CacheError(
                f"it has schema version {version!r}; this triton-ops reads {self.schema_version}",
                hint="upgrade triton-ops, or tune again",
            )
        try:
            value = self.decode(Sealed.opened(content))
            actual = self.id_of(value)
        except DamagedError as error:
            raise CacheError(str(error), hint="tune again, or take the file from where it came") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise CacheError(f"it is not well formed: {error}") from error
        if actual != content.get("id"):
            raise CacheError(
                f"its id {content.get('id')!r} does not name its key ({actual}): edited or damaged", hint="tune again"
            )
        return value

    def is_older(self, text: str | bytes) -> bool:
        """True if a text is an entry of this kind in an older form, which this version does not read."""
        try:
            content = parse_object(text)
        except CacheError:
            return False
        version = content.get("schema_version")
        return content.get("kind") == self.kind and isinstance(version, int) and version < self.schema_version

    def protects(self, text: str | bytes) -> str | None:
        """The reason why a file, of another kind or a newer version, must not be overwritten; None if it may be."""
        try:
            content = parse_object(text)
        except CacheError:
            return None
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
    reload=reload,
)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text of valid Unicode, with finite numbers only; CacheError if it is anything else."""
    try:
        return Sealed.parsed(text)
    except DamagedError as error:
        raise CacheError(str(error)) from error


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

    def keep(self, entry_id: str, text: bytes) -> None:
        """Keep the text of a value without parsing it."""
        with self._guard:
            self._texts[entry_id] = text

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

    def __len__(self) -> int:
        with self._guard:
            return len(self._texts)
