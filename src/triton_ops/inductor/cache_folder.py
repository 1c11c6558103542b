"""Inductor's cache folder: where it is, what is in it, and how it is emptied without touching anything else.

Facts used, of torch 2.11 to 2.15: the folder is that of `TORCHINDUCTOR_CACHE_DIR`, else `torchinductor_USER` in the
folder for temporary files. In it lie folders of two characters with generated code, those of AOTInductor, which are
named after a hash (`c` and 51 characters of base 32), and those of `_PARTS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triton_ops import settings
from triton_ops.exceptions import CacheError

_PARTS = {
    "aotautograd": "compiled graphs with their backward",
    "fxgraph": "compiled graphs",
    "triton": "Triton's binaries",
    "cache": "times of autotuned products",
    "locks": "locks",
    "precompiled_headers": "headers for C++",
    "dynamo": "what Dynamo kept",
    "pgo": "shapes that were seen",
}
_CODE = re.compile(r"[a-z0-9]{2}|c[a-z2-7]{51}")
_LOOSE = re.compile(r"(?:.*\.(?:lock|best_config|cubin|so|o|cpp|py|h|gch|pkl|json)|tmp\w*|[0-9a-f]{32,})")
_KEPT = "generated code"


@dataclass(frozen=True)
class CachePart:
    """One kind of content of the folder."""

    name: str
    what: str
    files: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class CacheContent:
    """What is in the folder.

    Attributes:
        path: The folder.
        exists: Whether it is there.
        parts: Its content by kind, the largest first.
        strange: Names in it that Inductor does not make; they are never removed.
    """

    path: str
    exists: bool
    parts: tuple[CachePart, ...] = ()
    strange: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """How many files there are."""
        return sum(part.files for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What was removed from the folder."""

    path: str
    files: int
    size_bytes: int
    strange: tuple[str, ...] = ()


def content_of(path: Path | None = None) -> CacheContent:
    """What is in Inductor's cache folder; nothing is changed.

    Args:
        path: The folder; None is the one that torch would use now.

    Raises:
        CacheError: The path is no folder, or cannot be read.
    """
    folder = (settings.inductor_cache_dir() if path is None else path).expanduser().absolute()
    if not os.path.lexists(folder):
        return CacheContent(path=str(folder), exists=False)
    entries = _entries(folder)
    sizes: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        if (part := _part_of(entry.name)) is not None:
            sizes[part] += [size for _, size in _files(Path(entry.path))]
    parts = [CachePart(name, _PARTS.get(name, name), len(found), sum(found)) for name, found in sizes.items()]
    return CacheContent(
        path=str(folder),
        exists=True,
        parts=tuple(sorted(parts, key=lambda part: -part.size_bytes)),
        strange=tuple(sorted(entry.name for entry in entries if _part_of(entry.name) is None)),
    )


def clean(path: Path | None = None, older_s: float = 0.0, now_s: float | None = None) -> Cleaned:
    """Remove what Inductor has put into its cache folder; the folder itself, and what is not Inductor's, stay.

    Args:
        path: The folder; None is the one that torch would use now.
        older_s: Only what was last written so many seconds ago.
        now_s: Seconds since 1970; None asks the clock.

    Raises:
        CacheError: The path is no folder of this user's, is a link, or holds mostly what Inductor does not make.

    Programs that compile at the same time compile again what they do not find; one that loads a file just then may
    fail.
    """
    found = content_of(path)
    folder = Path(found.path)
    if not found.exists:
        return Cleaned(path=found.path, files=0, size_bytes=0)
    _check_own(folder, found)
    latest_s = (time.time() if now_s is None else now_s) - older_s
    files = size_bytes = 0
    for entry in _entries(folder):
        if _part_of(entry.name) is None or _written_s(Path(entry.path)) > latest_s:
            continue
        held = [size for _, size in _files(Path(entry.path))]
        _remove(Path(entry.path))
        files, size_bytes = files + len(held), size_bytes + sum(held)
    return Cleaned(path=found.path, files=files, size_bytes=size_bytes, strange=found.strange)


def _check_own(folder: Path, found: CacheContent) -> None:
    """Raise unless this is plainly a cache of Inductor's, of this user."""
    state = folder.lstat()
    known = len(_entries(folder)) - len(found.strange)
    if stat.S_ISLNK(state.st_mode) or state.st_uid != os.geteuid():
        raise CacheError(
            f"{folder} is a link, or another user's, and is not cleaned", hint="name the folder itself, as its owner"
        )
    users = (Path.home(), Path(settings.current_folder() or folder.anchor), Path(folder.anchor))
    if folder in users or len(found.strange) > known:
        raise CacheError(
            f"{folder} does not look like Inductor's cache: it holds {', '.join(found.strange[:5]) or 'your files'}",
            hint="name the folder of TORCHINDUCTOR_CACHE_DIR",
        )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise CacheError(f"{folder} cannot be read: {error.strerror or error}", hint="name a folder") from error


def _part_of(name: str) -> str | None:
    """The part of the cache to which an entry of the folder belongs; None for what Inductor does not make."""
    if name in _PARTS:
        return name
    return _KEPT if _CODE.fullmatch(name) or _LOOSE.fullmatch(name) else None


def _files(path: Path) -> Iterator[tuple[Path, int]]:
    """The files at or below a path with their sizes; no link is followed."""
    if path.is_symlink() or path.is_file():
        yield path, path.lstat().st_size
        return
    for above, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # it was removed meanwhile
                yield Path(above, name), Path(above, name).lstat().st_size


def _written_s(path: Path) -> float:
    """When the newest of what lies at or below a path was written, seconds since 1970."""
    times = [path.lstat().st_mtime]
    for file, _ in _files(path):
        with contextlib.suppress(OSError):  # it was removed meanwhile
            times.append(file.lstat().st_mtime)
    return max(times)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # follows no link
    else:
        path.unlink(missing_ok=True)
