"""Inductor's cache folder, listed or emptied without touching anything else.

A file is Inductor's if its name and its place are those that Inductor gives (`_PLACES`): most names are hashes, in
folders that are named after them. Where that could be a user's choice, the content must be Inductor's too. All else
stays: files in other places, links and what is behind them, files of other users, and other file systems.

Facts used, of torch 2.11 to 2.15 (`torch/_inductor/codecache.py`, `cache.py` and `runtime/autotune_cache.py`,
`torch/_dynamo/pgo.py` and `package.py`, `triton/runtime/cache.py`): the folder is that of `TORCHINDUCTOR_CACHE_DIR`,
else `torchinductor_USER` in the folder for temporary files. A hash is 51 characters of base 32, after a letter for what
it is of; generated code lies in a folder of the second and third character of its name. What is compiled without caches
lies in a folder `tmpXXXXXXXX` of the same form.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.exceptions import CacheError

_CODE = "generated code"
_PARTS = {
    _CODE: "kernels and graphs as programs, and their binaries",
    "aotautograd": "compiled graphs with their backward",
    "fxgraph": "compiled graphs",
    "triton": "Triton's binaries",
    "cache": "times of autotuned products",
    "locks": "locks",
    "precompiled_headers": "headers for C++",
    "dynamo": "shapes that were seen, and what Dynamo kept",
}
_C = "[a-z2-7]"
_HASH = _C + "{51}"
_HALF = r"\.\d+\.\d+\.tmp"  # of a process that was killed while it wrote
_KINDS = (  # no package that AOTInductor has made for a user, and nothing that Inductor does not write
    "a|bc|bin|cpp|cu|cubin|def|dll|error|fatbin|gch|gv|h|hpp|hsaco|i|json|launch_params|ll|lock|o|obj|pch|ptx|pyd|rsplit"
    "|rsplit_size|so|spv|txt|weights"
)
_MADE = rf"[._](?:[\w.-]*\.)?(?:{_KINDS})"
_BINARY = r"[\w.-]+\.(?:json|ttir|ttgir|llir|ptx|cubin|amdgcn|hsaco|spv|zebin|source|so)"
_TMP = r"tmp[a-z0-9_]{8}"
_PLACES = {  # what the content must hold, where name and place do not suffice, by the patterns of a path's parts
    (f"({_C}{{2}})", rf"c\1{_C}{{49}}\.py"): b"torch._inductor",
    (f"({_C}{{2}})", rf"c\1{_C}{{49}}{_MADE}"): b"",
    ("[a-z0-9]{2}", r"[0-9a-f]{64}\.best_config"): b'"configs_hash"',
    (f"c{_HASH}", f"c{_HASH}{_MADE}"): b"",
    ("aotautograd", f"a{_HASH}", f"(?:{_HASH}|{_HALF})"): b"",
    ("fxgraph", f"({_C}{{2}})", rf"f\1{_C}{{49}}", f"(?:{_HASH}|{_HALF})"): b"",
    ("triton", r"\d+", "[A-Z2-7]{52}", _BINARY): b"",
    (_TMP, "triton", "[A-Z2-7]{52}", _BINARY): b"",
    ("cache", "[0-9a-f]{64}"): b'{\n    "system": {',
    ("cache", "inductor_on_disk_cache", "[0-9a-f]{32}"): b"",
    ("cache", "inductor_on_disk_cache", "locks", r"[0-9a-f]{4}\.lock"): b"",
    ("locks", rf"[a-z]{_HASH}\.lock"): b"",
    ("precompiled_headers", rf"c{_HASH}\.h(?:\.[gp]ch)?"): b"",
    ("precompiled_headers", "locks", rf"c{_HASH}\.lock"): b"",
    ("dynamo", r"code_state_[^/]+\.pkl(?:\.tmp)?"): b"torch._dynamo",
    ("dynamo", "[0-9a-f]{64}", f"(?:entry|{_HALF})"): b"torch._dynamo",
}
_FOLDERS = [re.compile("/".join(place[:end])) for place in _PLACES for end in range(1, len(place))]
_FILES = [(re.compile("/".join(place)), needle) for place, needle in _PLACES.items()]
_WITHOUT_CACHES = re.compile(f"^{_TMP}(?:/|$)")
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class CachePart:
    """One kind of content of the folder."""

    name: str
    what: str
    files: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class CacheContent:
    """Files in the folder, or files that were removed from it: those of Inductor by kind, the largest first.

    Paths in `strange` are not provably Inductor's; they are never removed.
    """

    path: str
    exists: bool
    parts: tuple[CachePart, ...] = ()
    strange: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """The number of Inductor's files."""
        return sum(part.files for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of Inductor's files."""
        return sum(part.size_bytes for part in self.parts)

    @classmethod
    def of(cls, path: Path | None = None, older_s: float = 0.0) -> CacheContent:
        """List Inductor's cache folder; nothing is changed.

        None is the folder that torch would use now; what was written in the last `older_s` seconds is left out.
        """
        folder = (settings.inductor_cache_dir() if path is None else expanded(path)).absolute()
        if not os.path.lexists(folder):
            return cls(path=str(folder), exists=False)
        return _content(folder, _visits(folder, older_s))

    @classmethod
    def cleanable(cls, path: Path | None = None, older_s: float = 0.0) -> CacheContent:
        """List what `clean` would remove; nothing is changed. It raises what `clean` raises."""
        content = cls.of(path, older_s)
        if not content.exists:
            return content
        folder = Path(content.path)
        state = folder.lstat()
        if stat.S_ISLNK(state.st_mode) or state.st_uid != os.geteuid():
            raise CacheError(
                f"{folder} is a link, or another user's, and is not cleaned",
                hint="name the folder itself, as its owner",
            )
        users = (Path.home(), Path(settings.current_folder() or folder.anchor), Path(folder.anchor))
        strange = {name.partition("/")[0] for name in content.strange}
        if folder in users or 2 * len(strange) > len(list(folder.iterdir())):
            others = ", ".join(content.strange[:5]) or "your files"
            raise CacheError(
                f"{folder} does not look like Inductor's cache: it holds {others}",
                hint="name the folder of TORCHINDUCTOR_CACHE_DIR",
            )
        return content

    @classmethod
    def clean(cls, path: Path | None = None, older_s: float = 0.0) -> CacheContent:
        """Remove what is provably Inductor's from its cache folder, and return what that was; arguments as for `of`.

        A `CacheError` refuses a folder of another user's, a link, and one that holds mostly what Inductor does not
        make. Programs that compile at the same time compile again what they do not find; one that loads a file just
        then may fail.
        """
        content = cls.cleanable(path, older_s)
        if not content.exists:
            return content
        removed: list[_Visit] = []
        emptied: set[str] = set()
        for visit in _visits(Path(content.path), older_s):
            files = {name: state for name, state in visit.files.items() if _remove(os.unlink, name, visit)}
            within = [name for name in visit.folders if visit.below(name) in emptied and _remove(os.rmdir, name, visit)]
            if files or within:
                emptied.add(visit.place)
            removed.append(_Visit(visit.place, -1, (), files, visit.strange))
        return _content(Path(content.path), removed)


@dataclass(frozen=True)
class _Visit:
    """An open folder of the cache: its path below the cache, its folders, Inductor's files, and what is strange."""

    place: str
    descriptor: int
    folders: Sequence[str]
    files: Mapping[str, os.stat_result]
    strange: Sequence[str]

    def below(self, name: str) -> str:
        return f"{self.place}/{name}" if self.place else name


def _visits(folder: Path, older_s: float) -> Iterator[_Visit]:
    """The folders in which files of Inductor's can be, each after those within it; no link is followed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CacheError(f"{folder} cannot be read: {error.strerror or error}", hint="name a folder") from error
    try:
        yield from _within(descriptor, "", time.time() - older_s)
    finally:
        os.close(descriptor)


def _within(descriptor: int, place: str, latest_s: float) -> Iterator[_Visit]:
    folders: list[str] = []
    files: dict[str, os.stat_result] = {}
    strange: list[str] = []
    visit = _Visit(place, descriptor, folders, files, strange)
    for name in os.listdir(descriptor):
        try:
            state = os.lstat(name, dir_fd=descriptor)
            if not _is_alike(state, os.fstat(descriptor)):
                strange.append(visit.below(name))
            elif stat.S_ISDIR(state.st_mode) and _can_hold(visit.below(name)):
                with _open_file(name, visit, os.O_DIRECTORY) as below:
                    yield from _within(below, visit.below(name), latest_s)
                folders.append(name)
            elif stat.S_ISREG(state.st_mode) and _is_made(name, visit):
                files[name] = state
            else:
                strange.append(visit.below(name))
        except OSError as error:  # noqa: PERF203 - the next entry may be there, and readable
            if error.errno != errno.ENOENT:  # it was removed meanwhile
                strange.append(visit.below(name))
    if any(state.st_mtime > latest_s for state in files.values()):
        files.clear()  # files of one folder belong together
    yield visit


def _is_alike(state: os.stat_result, above: os.stat_result) -> bool:
    """Tell whether an entry has the owner of its folder, and lies on the same file system."""
    return (state.st_uid, state.st_dev) == (above.st_uid, above.st_dev)


@contextlib.contextmanager
def _open_file(name: str, visit: _Visit, kind: int) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind
    descriptor = os.open(name, flags, dir_fd=visit.descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _can_hold(path: str) -> bool:
    """Tell whether files of Inductor's can lie in a folder with that path below the cache, or in one within it."""
    return not _inner(path) or any(place.fullmatch(path) or place.fullmatch(_inner(path)) for place in _FOLDERS)


def _inner(path: str) -> str:
    """A path without the folder of what is compiled without caches."""
    return _WITHOUT_CACHES.sub("", path, count=1)


def _is_made(name: str, visit: _Visit) -> bool:
    path = visit.below(name)
    needles = [needle for place, needle in _FILES if place.fullmatch(path) or place.fullmatch(_inner(path))]
    if not any(needles):
        return bool(needles)
    with _open_file(name, visit, 0) as descriptor:
        return needles[0] in os.read(descriptor, _HEAD_BYTES)


def _remove(remove: Callable[..., None], name: str, visit: _Visit) -> bool:
    """Remove an entry of a visited folder; whether that was possible."""
    try:
        remove(name, dir_fd=visit.descriptor)
    except OSError:  # a folder in which something is left, or a file that is not this user's to remove
        return False
    return True


def _content(folder: Path, visits: Iterable[_Visit]) -> CacheContent:
    sizes: dict[str, list[int]] = defaultdict(list)
    strange: list[str] = []
    for visit in visits:
        part = _inner(visit.place).partition("/")[0]
        sizes[part if part in _PARTS else _CODE] += [state.st_size for state in visit.files.values()]
        strange += visit.strange
    parts = [CachePart(name, _PARTS[name], len(each), sum(each)) for name, each in sizes.items() if each]
    return CacheContent(
        path=str(folder),
        exists=True,
        parts=tuple(sorted(parts, key=lambda part: -part.size_bytes)),
        strange=tuple(sorted(strange)),
    )
