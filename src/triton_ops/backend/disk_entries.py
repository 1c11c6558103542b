"""Entries of Triton's disk cache, read on one host and written on another.

Facts used, of Triton 3.6 to 3.9: the folder of an entry has the name of its key, a SHA-256, in Base32; the last file
that is written there is `__grp__NAME.json`, which lists the others by name with absolute paths, and without which the
entry is not seen; `NAME.json` tells the key as `hash`. A launch reads all of them. They are looked for in this folder
unless the environment names another manager of the cache, or has everything compiled anew.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from base64 import b32encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops.backend.compiled_kernel import one_of
from triton_ops.base import atomic_write, code_folder, ensure_folder, read_file, require

_GROUP = "__grp__"
_BINARIES = (".cubin", ".hsaco")
_MOST_FILES = 32
_MOST_BYTES = 256 << 20
_LONGEST_NAME_BYTES = 200  # a file being written has a longer name for a moment


@dataclass(frozen=True)
class Entry:
    """What Triton's disk cache holds of one kernel.

    Attributes:
        key: Triton's name for it, 64 hexadecimal digits: a hash of source, compiler, options and environment.
        files: Its files by name, without the one that lists them.
        digest: SHA-256 of names and contents, made where they were read.
    """

    key: str
    files: Mapping[str, bytes]
    digest: str

    @classmethod
    def of(cls, key: str, files: Mapping[str, bytes]) -> Entry:
        """An entry whose files are whole."""
        return cls(key, files, _digest(files))


def disk_cache() -> Path | None:
    """The folder in which the processes of this package look for entries; None where Triton would not look for any."""
    knobs = require("triton.knobs", "compiling")
    if knobs.cache.manager_class is not None or knobs.compilation.always_compile:
        return None
    return code_folder(Path(knobs.cache.dir), "triton")


def has_entry(folder: Path, key: str) -> bool:
    """Whether a disk cache has an entry."""
    return any(_folder_of(folder, key).glob(f"{_GROUP}*.json"))


def read_entry(folder: Path, key: str) -> Entry:
    """An entry of a disk cache.

    Raises:
        OSError: There is none, or a file of it cannot be read, or is too large.
        ValueError: The key is none, or the list of its files is damaged.
    """
    place = _folder_of(folder, key)
    listed = next(place.glob(f"{_GROUP}*.json"), None)
    if listed is None:
        raise FileNotFoundError(errno.ENOENT, "Triton's disk cache has no such entry", str(place))
    found = json.loads(read_file(listed, _MOST_BYTES))
    names = found.get("child_paths") if isinstance(found, dict) else None
    if not isinstance(names, dict):
        raise ValueError(f"{listed} does not list files")
    return Entry.of(key, {name: read_file(place / _plain(name), _MOST_BYTES) for name in names})


def write_entry(folder: Path, entry: Entry) -> None:
    """Put an entry into a disk cache; a reader sees all of it, or none. One that is there already stays as it is.

    Raises:
        ValueError: The entry is not whole, or of another key, or no entry of Triton's.
        OSError, CacheError: It cannot be written.
    """
    place = _folder_of(folder, entry.key)
    (metadata,) = checked(entry)
    if has_entry(folder, entry.key):
        return
    ensure_folder(place)
    for name, content in entry.files.items():
        atomic_write(place / name, content)
    listed = {"child_paths": {name: str(place.absolute() / name) for name in entry.files}}
    atomic_write(place / f"{_GROUP}{metadata}", json.dumps(listed))


def remove_entry(folder: Path, key: str) -> None:
    """Remove an entry from a disk cache, if it is there."""
    shutil.rmtree(_folder_of(folder, key), ignore_errors=True)


def checked(entry: Entry) -> Sequence[str]:
    """The names of an entry's metadata, of which there is one.

    Raises:
        ValueError: The entry is not whole, or of another key, or no entry of Triton's.
    """
    if len(entry.files) > _MOST_FILES or sum(map(len, entry.files.values())) > _MOST_BYTES:
        raise ValueError(f"an entry of {len(entry.files)} files is larger than any of Triton's")
    for name in entry.files:
        _plain(name)
    if _digest(entry.files) != entry.digest:
        raise ValueError("the files of an entry are not whole")
    found = [name for name in entry.files if name.endswith(".json")]
    if len(found) != 1 or not any(name.endswith(_BINARIES) for name in entry.files):
        raise ValueError("an entry has no binary, or not one file of metadata")
    metadata = json.loads(entry.files[found[0]])
    if not isinstance(metadata, dict) or metadata.get("hash") != entry.key:
        raise ValueError("an entry is of another key")
    return found


def entry_binary(entries: Sequence[Entry]) -> str | None:
    """The fingerprint of the binaries in entries, as `Resources.binary` has it."""
    found = [
        hashlib.sha256(content).hexdigest()[:32]
        for entry in entries for name, content in entry.files.items() if name.endswith(_BINARIES)
    ]  # fmt: skip
    return one_of(found)


def _folder_of(folder: Path, key: str) -> Path:
    try:
        content = bytes.fromhex(key)
    except (TypeError, ValueError):
        content = b""
    if len(content) != hashlib.sha256().digest_size or content.hex() != key:
        raise ValueError(f"{key!r} is no key of Triton's disk cache")
    return folder / b32encode(content).decode().rstrip("=")


def _plain(name: str) -> str:
    """The name of a file in the folder of an entry.

    Raises:
        ValueError: It could be a path elsewhere, or take the place of what Triton or this module writes.
    """
    if not 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME_BYTES:
        raise ValueError("a file of an entry has no name, or too long a one")
    if "/" in name or "\0" in name or name.startswith((".", _GROUP, "tmp.")) or name == "lock":
        raise ValueError(f"{name!r} is no file of an entry")
    return name


def _digest(files: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()
