"""The folder of a comparison, from which an interrupted one is gone on with.

It is `compile-modes/<key>` in the folder of records. The key is made of the workload's shapes, the device, torch's
version, and how calls are made. When the comparison ends, the folder is removed with all that compilers have put there.

torch unpickles and loads what lies there, and anybody can compute the key. The folder is therefore this user's alone,
whoever may write the folder of records; where it cannot be, it is a temporary one, and nothing is gone on with.

A mode's part of it holds one run: graphs of two runs side by side would be taken for graphs of one model. A list beside
them says of which comparison they are, and what each file held. Only what is listed, and holds that still, is replaced
by a later run; where anything else lies among the traces, nothing is collected. What an interrupted run has collected
of a mode stays when the same comparison goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from triton_ops.base import (
    AppendedFile,
    CodeFolder,
    DamagedError,
    Folder,
    NamedFile,
    Sealed,
    StoredFile,
    TemporaryFolder,
    fingerprint,
    require,
)
from triton_ops.compile_modes.compile_mode import CompileMode
from triton_ops.compile_modes.mode_process import CallManner, Loaded
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import CacheError, SettingsError

_log = logging.getLogger("triton_ops")
_NAME = "compile-modes"
_LOSS = "an interrupted comparison will start from the beginning"
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_LINES = 4000


class RunFolder:
    """The files of one comparison; without `resume` those of an interrupted run are removed."""

    def __init__(self, path: Path, *, resume: bool = True) -> None:
        self.path = _safe_folder(path, "--cache-dir")
        if not resume:
            self.remove()
        self._file = AppendedFile(self.path / "modes.jsonl", _LOSS)
        self._entries = dict(self._read())

    def finished(self, mode: CompileMode) -> tuple[Loaded, list[str]] | None:
        """Answer and compiler's lines of a mode that an interrupted run has compiled; None if it has not."""
        return self._entries.get(_identity(mode))

    def keep(self, mode: CompileMode, loaded: Loaded, lines: list[str]) -> None:
        """Keep what was found of a mode."""
        entry = {"mode": _identity(mode), "loaded": msgspec.to_builtins(loaded), "lines": lines[-_MOST_LINES:]}
        self._file.append(entry)
        self._entries[_identity(mode)] = (loaded, lines)

    def of(self, mode: CompileMode) -> Path:
        """The folder of what a mode's compiler makes; a `CacheError` if another user could write it by now."""
        return _safe_folder(self.path / f"{file_name(mode.name)}-{_identity(mode)[:8]}", "--cache-dir")

    def remove(self) -> None:
        """Remove the folder; it holds only what this comparison and its compilers have put there."""
        shutil.rmtree(self.path, ignore_errors=True)  # follows no link

    def _read(self) -> Iterator[tuple[str, tuple[Loaded, list[str]]]]:
        try:
            for line in StoredFile(self.path / "modes.jsonl").lines():
                with contextlib.suppress(DamagedError, msgspec.ValidationError, KeyError):
                    entry = Sealed.read(line)
                    yield str(entry["mode"]), (msgspec.convert(entry["loaded"], Loaded), list(entry["lines"]))
        except OSError as error:
            _log.warning("%s cannot be read (%s): %s", self.path, error.strerror or error, _LOSS)


@contextlib.contextmanager
def run_folder(cache_dir: Path, key: str, *, resume: bool) -> Iterator[RunFolder]:
    """The folder of a comparison, with its lock: a second comparison with the same key waits, since both would use one.

    A `CacheError` if there is no folder that only this user can write.
    """
    try:
        path = CodeFolder((Folder(cache_dir).ensure() / _NAME / key).absolute()).private()
    except OSError as error:
        _log.warning("%s keeps no compiled code (%s): %s", error.filename, error.strerror, _LOSS)
        with _temporary_folder() as place:
            yield RunFolder(place)
        return
    wait = "another process compares this model; waiting"
    with Folder(path.parent).locked(f"{path.name}.lock", waiting=lambda: _log.warning(wait)):
        yield RunFolder(path, resume=resume)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    place = TemporaryFolder.own()
    try:
        yield _safe_folder(place, "TMPDIR")
    finally:
        TemporaryFolder.discard(place)


def _safe_folder(path: Path, named_by: str) -> Path:
    """A folder for compiled code, which is made if it is missing; a `CacheError` if another user could write it."""
    try:
        return CodeFolder(path).private()
    except OSError as error:
        raise CacheError(
            f"{error.filename or path} is not used for compiled code: {error.strerror}",
            hint=f"name another folder with {named_by}",
        ) from error


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
class _Earlier:
    """Files of an earlier run: the comparison that collected them, hashes of all, and those that are there."""

    comparison: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    there: tuple[str, ...] = ()


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
        earlier = _earlier_run(own)
        return earlier.comparison == comparison and {*earlier.files} <= {*earlier.there}

    def variables(self, mode: CompileMode, place: Path) -> dict[str, str]:
        """Variables by which the compiler of a mode writes its traces into a folder of the comparison's own."""
        if self._own(mode) is None:
            return {}
        return {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(place.absolute())}

    def keep(self, mode: CompileMode, comparison: str, lines: Sequence[str], place: Path) -> str:
        """Put the log of a mode, and its compiler's traces, where an earlier run's were; say what was replaced.

        Nothing is replaced, and a `SettingsError` raised, where something is in the way that no run has put there.
        """
        if (own := self._own(mode)) is None:
            return ""
        NamedFile(Folder(place).ensure() / _LOG).write("".join(f"{line}\n" for line in lines))
        replaced = _remove(own)
        files = {name: _hash(place / name) for name in _files(place)}
        NamedFile(Folder(own).ensure() / _LIST).write(json.dumps(Sealed({"comparison": comparison, "files": files})))
        for name in files:
            Folder((own / name).parent).ensure()
            NamedFile(own / name).write(NamedFile(place / name).read())
        return f"replaces what an earlier run collected in {own}: {', '.join(replaced)}" if replaced else ""

    def _own(self, mode: CompileMode) -> Path | None:
        return None if self._folder is None or mode.eager else self._folder / file_name(mode.name)


def _earlier_run(own: Path) -> _Earlier:
    try:
        Folder(own).within(own.parent)
    except FileNotFoundError:
        return _Earlier()
    except OSError as error:  # such as a link of another user's, behind which somebody's files lie
        raise SettingsError(f"{own} is not collected into: {error.strerror}", hint="name another folder") from error
    there = tuple(_files(own))
    comparison, files = "", {}
    with contextlib.suppress(OSError, DamagedError, KeyError, TypeError, ValueError):  # then nothing is listed
        content = Sealed.read(NamedFile(own / _LIST).read())
        comparison, files = str(content["comparison"]), {**content["files"], _LIST: _hash(own / _LIST)}
    for name in there:
        if files.get(name) != _hash(own / name):
            raise SettingsError(
                f"{own / name} is not what a run has collected, and would lie among what is collected now",
                hint="collect into another folder, or remove it",
            )
    return _Earlier(comparison, files, there)


def _remove(own: Path) -> list[str]:
    """Remove what an earlier run has collected; the names of that, without folders."""
    there = _earlier_run(own).there
    try:
        for name in there:
            (own / name).unlink(missing_ok=True)
        for folder in sorted({above for name in there for above in Path(name).parents}, key=str, reverse=True)[:-1]:
            with contextlib.suppress(OSError):  # an empty folder of somebody else's is in it
                (own / folder).rmdir()
    except OSError as error:
        raise SettingsError(
            f"what an earlier run collected in {own} cannot be removed: {error.strerror or error}",
            hint="collect into another folder",
        ) from error
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
