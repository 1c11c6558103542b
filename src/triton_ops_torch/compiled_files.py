"""Folders of compiled code: that of a comparison of compile modes, or that of Inductor's cache.

A comparison's is `compile-modes/<key>` in the folder of records. The key is made of the workload's shapes, the device,
torch's version, and how calls are made. When the comparison ends, the folder is removed with all that compilers have
put there.

torch unpickles and loads what lies there, and anybody can compute the key. The folder is therefore this user's alone,
whoever may write the folder of records; where it cannot be, it is a temporary one, and nothing is gone on with.

A mode's part of it holds one run: graphs of two runs side by side would be taken for graphs of one model. A list beside
them says of which comparison they are, and what each file held. Only what is listed, and holds that still, is replaced
by a later run; where anything else lies among the traces, nothing is collected. What an interrupted run has collected
of a mode stays when the same comparison goes on.

A file in the cache is Inductor's if its name and its place are those that Inductor gives (`_PLACES`): most names are
hashes, in folders that are named after them. Where that could be a user's choice, the content must be Inductor's too.
All else stays: files in other places, links and what is behind them, files of other users, and other file systems.

Facts used, of torch 2.11 to 2.15 (`torch/_inductor/codecache.py`, `cache.py` and `runtime/autotune_cache.py`,
`torch/_dynamo/pgo.py` and `package.py`, `triton/runtime/cache.py`): the folder is that of `TORCHINDUCTOR_CACHE_DIR`,
else `torchinductor_USER` in the folder for temporary files. A hash is 51 characters of base 32, after a letter for what
it is of; generated code lies in a folder of the second and third character of its name. What is compiled without caches
lies in a folder `tmpXXXXXXXX` of the same form.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from triton_ops import settings
from triton_ops.base import CodeFolder, NamedFile, SealedFile, fingerprint, require
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops_torch.compile_mode import CompileMode
from triton_ops_torch.mode_process import CallManner, Loaded

_log = logging.getLogger("triton_ops")
_FOLDER_NAME = "compile-modes"
_LOSS = "an interrupted comparison will start from the beginning"
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_LINES = 4000  # of a mode's log, the last ones, for a run that goes on


@dataclass(frozen=True)
class _Finished:
    """What was found of a mode."""

    loaded: Loaded
    lines: list[str]


class RunFolder:
    """The files of one comparison; without `resume` what an interrupted run has finished counts as not done."""

    def __init__(self, path: Path, *, resume: bool = True) -> None:
        self.path = path
        for answer in () if resume else path.glob("*.json"):
            answer.unlink()

    def finished(self, mode: CompileMode) -> tuple[Loaded, list[str]] | None:
        """Answer and compiler's lines of a mode that an interrupted run has compiled; None if it has not."""
        try:
            entry: _Finished = self._answer(mode).read(_Finished)
            return entry.loaded, entry.lines
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("%s cannot be read (%s): %s", self.path, error.strerror or error, _LOSS)
            return None

    def keep(self, mode: CompileMode, loaded: Loaded, lines: list[str]) -> None:
        """Keep what was found of a mode; a warning says what is lost where that is not possible."""
        try:
            self._answer(mode).write(msgspec.to_builtins(_Finished(loaded, lines[-_MOST_LINES:])))
        except CacheError as error:
            _log.warning("%s: %s", error.message, _LOSS)

    def of(self, mode: CompileMode) -> Path:
        """The folder of what a mode's compiler makes; a `CacheError` if another user could write it by now."""
        path = self.path / f"{file_name(mode.name)}-{_identity(mode)[:8]}"
        with CacheError.when(f"{path} is not used for compiled code", "name another folder with --cache-dir or TMPDIR"):
            return CodeFolder(path).private()

    def remove(self) -> None:
        """Remove the folder; it holds only what this comparison and its compilers have put there."""
        shutil.rmtree(self.path, ignore_errors=True)  # follows no link

    def _answer(self, mode: CompileMode) -> SealedFile:
        return SealedFile(self.path / f"{_identity(mode)}.json")


@contextlib.contextmanager
def run_folder(cache_dir: str | Path | None, key: str, *, resume: bool) -> Iterator[RunFolder]:
    """The folder of a comparison, with its lock: a second comparison with the same key waits, since both would use one.

    A `CacheError` if there is no folder that only this user can write.
    """
    wait = "another process compares this model; waiting"
    with CodeFolder.held(cache_dir, Path(_FOLDER_NAME, key), _LOSS, wait) as path:
        yield RunFolder(path, resume=resume)


def key_of(facts: str, device: DeviceSpec, manner: CallManner, warm: bool) -> str:
    """The key of a comparison."""
    version = str(getattr(require("torch", "compiling a model"), "__version__", ""))
    how: dict[str, Any] = {**asdict(manner), "warm": warm}
    return fingerprint([facts, device.name, device.driver, version, how], 16)


def file_name(name: str) -> str:
    """A name as a part of a path."""
    return _UNUSUAL.sub("-", name).strip("-.") or "mode"


def _identity(mode: CompileMode) -> str:
    options = {name: str(value) for name, value in mode.options.items()}
    return fingerprint([mode.mode, options, mode.backend, mode.ungated])


_LOG = "log.txt"
_TRACES = "torch_compile_debug"  # as torch names it
_LIST = "collected.json"


@dataclass(frozen=True)
class _Listed:
    """What a run has collected: its comparison, and the hash of each file."""

    comparison: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def _list_in(own: Path) -> SealedFile:
    return SealedFile(own / _LIST, own.parent)


class Collection:
    """Logs and traces that are collected of each mode; without a folder nothing is."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def check(self, modes: Sequence[CompileMode]) -> None:
        """Find out whether there is room for these modes: a `SettingsError` if not."""
        for own in filter(None, map(self._own, modes)):
            _earlier_run(own)

    def holds(self, mode: CompileMode, comparison: str) -> bool:
        """Tell whether nothing is to be collected of a mode that a run of the comparison has finished."""
        if (own := self._own(mode)) is None:
            return True
        listed, there = _earlier_run(own)
        return listed.comparison == comparison and there.issuperset(listed.files)

    def variables(self, mode: CompileMode, place: Path) -> dict[str, str]:
        """Variables by which the compiler of a mode writes its traces into a folder of the comparison's own."""
        if self._own(mode) is None:
            return {}
        return {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(place.absolute())}

    def keep(self, mode: CompileMode, comparison: str, lines: Sequence[str], place: Path) -> str:
        """Put the log of a mode, and its compiler's traces, where an earlier run's were; say what was replaced.

        Nothing is replaced, and a `SettingsError` raised, where something is in the way that no run has put there, and
        where it cannot be written.
        """
        if (own := self._own(mode)) is None:
            return ""
        with SettingsError.when(f"nothing can be collected in {own}", "name another folder", OSError, CacheError):
            place.mkdir(parents=True, exist_ok=True)
            NamedFile(place / _LOG).write("".join(f"{line}\n" for line in lines))
            replaced = _remove_collected(own)
            files = {name: _hash(place / name) for name in _files(place)}
            _list_in(own).write({"comparison": comparison, "files": files})
            for name in files:
                (own / name).parent.mkdir(parents=True, exist_ok=True)
                NamedFile(own / name).write(NamedFile(place / name).read())
        return f"replaces what an earlier run collected in {own}: {', '.join(replaced)}" if replaced else ""

    def _own(self, mode: CompileMode) -> Path | None:
        return None if self._folder is None or mode.eager else self._folder / file_name(mode.name)


def _earlier_run(own: Path) -> tuple[_Listed, frozenset[str]]:
    """What an earlier run has listed, and what is there."""
    listed = _Listed()
    # A list that is damaged, or behind a link of another user's, would have somebody's files taken for a run's.
    what = f"{own} holds no list of what a run has collected"
    with SettingsError.when(what, "name another folder"), contextlib.suppress(FileNotFoundError):
        listed = _list_in(own).read(_Listed)
    there = frozenset(_files(own))
    files = {**listed.files, _LIST: _hash(own / _LIST)}
    for name in there:
        if files.get(name) != _hash(own / name):
            raise SettingsError(
                f"{own / name} is not what a run has collected, and would lie among what is collected now",
                hint="collect into another folder, or remove it",
            )
    return listed, there


def _remove_collected(own: Path) -> list[str]:
    """Remove what an earlier run has collected; the names of that, without folders."""
    _, there = _earlier_run(own)
    what = f"what an earlier run collected in {own} cannot be removed"
    with SettingsError.when(what, hint="collect into another folder"):
        for name in there:
            (own / name).unlink(missing_ok=True)
        # Inner folders come before outer ones; the last one is `.`, which stays.
        for folder in sorted({above for name in there for above in Path(name).parents}, key=str, reverse=True)[:-1]:
            with contextlib.suppress(OSError):  # an empty folder of somebody else's is in it
                (own / folder).rmdir()
    return sorted({Path(name).parts[0] for name in there} - {_LIST})


def _files(own: Path) -> Iterator[str]:
    """Paths of all that lies where a run collects, folders left out; no link is followed."""
    for path in (own / _LOG, own / _LIST, own / _TRACES, *(own / _TRACES).rglob("*")):
        if path.is_symlink() or path.is_file() or (path.exists() and not path.is_dir()):
            yield str(path.relative_to(own))


def _hash(path: Path) -> str:
    """A hash of a regular file's content; empty for anything else."""
    if path.is_symlink() or not path.is_file():
        return ""
    return hashlib.sha256(NamedFile(path).read()).hexdigest()


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
_HEAD_BYTES = 1 << 16  # of a file, in which the content that is looked for must stand


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
        folder = settings.inductor_cache_dir(path).absolute()
        if not os.path.lexists(folder):
            return cls(path=str(folder), exists=False)
        return _Walk(older_s, remove=False).content(folder)

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
        return _Walk(older_s, remove=True).content(Path(content.path)) if content.exists else content


class _Walk:
    """A walk through the folders where files of Inductor's can be; it lists or removes them, and follows no link."""

    def __init__(self, older_s: float, *, remove: bool) -> None:
        self._latest_s, self._remove = time.time() - older_s, remove
        self._sizes: dict[str, list[int]] = defaultdict(list)
        self._strange: list[str] = []

    def content(self, folder: Path) -> CacheContent:
        """The files by kind, the largest first: those that were removed where that was asked for."""
        with CacheError.when(f"{folder} cannot be read", hint="name a folder"):
            # Open folders are walked, and no paths: nobody can put a link in a folder's place before the removal.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._visit(descriptor, "")
        finally:
            os.close(descriptor)
        parts = [CachePart(name, _PARTS[name], len(each), sum(each)) for name, each in self._sizes.items()]
        parts.sort(key=lambda part: -part.size_bytes)
        strange = tuple(sorted(self._strange))
        return CacheContent(path=str(folder), exists=True, parts=tuple(parts), strange=strange)

    def _visit(self, descriptor: int, place: str) -> bool:
        """Look at the entries of an open folder, and at those within; whether something was removed from it."""
        files: dict[str, os.stat_result] = {}
        removed = False
        for name in os.listdir(descriptor):
            path = f"{place}/{name}" if place else name
            try:
                state, above = os.lstat(name, dir_fd=descriptor), os.fstat(descriptor)
                if (state.st_uid, state.st_dev) != (above.st_uid, above.st_dev):  # another owner, or file system
                    self._strange.append(path)
                elif stat.S_ISDIR(state.st_mode) and _can_hold(path):
                    with _open_entry(name, descriptor, os.O_DIRECTORY) as below:
                        emptied = self._visit(below, path)
                    removed |= emptied and _removed(os.rmdir, name, descriptor)
                elif stat.S_ISREG(state.st_mode) and _is_made(name, path, descriptor):
                    files[name] = state
                else:
                    self._strange.append(path)
            except OSError as error:
                if error.errno != errno.ENOENT:  # it was removed meanwhile
                    self._strange.append(path)
        return self._take(files, descriptor, place) or removed

    def _take(self, files: dict[str, os.stat_result], descriptor: int, place: str) -> bool:
        """Count the files of one folder, which belong together, unless one is young; whether any was removed."""
        if any(state.st_mtime > self._latest_s for state in files.values()):
            return False
        part = _inner(place).partition("/")[0]
        entries = [
            state.st_size for name, state in files.items() if not self._remove or _removed(os.unlink, name, descriptor)
        ]
        if entries:
            self._sizes[part if part in _PARTS else _CODE] += entries
        return self._remove and bool(entries)


@contextlib.contextmanager
def _open_entry(name: str, folder: int, kind: int) -> Iterator[int]:
    # An entry that has become a link or a pipe since it was looked at leads nowhere else, and blocks nothing.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind, dir_fd=folder)
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


def _is_made(name: str, path: str, folder: int) -> bool:
    needles = [needle for place, needle in _FILES if place.fullmatch(path) or place.fullmatch(_inner(path))]
    if not any(needles):
        return bool(needles)
    with _open_entry(name, folder, 0) as descriptor:
        return needles[0] in os.read(descriptor, _HEAD_BYTES)


def _removed(remove: Callable[..., None], name: str, folder: int) -> bool:
    """Remove an entry of an open folder; whether that was possible."""
    with contextlib.suppress(OSError):  # a folder in which something is left, or a file of another user
        remove(name, dir_fd=folder)
        return True
    return False
