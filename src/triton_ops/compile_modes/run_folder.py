"""The folder of a comparison: what compilers make during it, and the finished modes, from which it is gone on with.

It is `compile-modes/<key>` in the folder of records. The key is made of the workload's shapes, the device, torch's
version, and how calls are made. When the comparison ends, the folder is removed with all that compilers have put there.

torch unpickles and loads what lies there, and anybody can compute the key. The folder is therefore this user's alone,
whoever may write the folder of records; where it cannot be, it is a temporary one, and nothing is gone on with.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from triton_ops._files import (
    AppendedFile,
    ensure_folder,
    locked,
    own_temporary_folder,
    private_folder,
    remove_temporary,
    whole_lines,
)
from triton_ops._hashing import fingerprint
from triton_ops._optional import require
from triton_ops._sealed import DamagedError, parsed, unsealed
from triton_ops.compile_modes.questions import Loaded, Manner
from triton_ops.exceptions import CacheError
from triton_ops.hardware import DeviceSpec
from triton_ops.inductor.modes import CompileMode

_log = logging.getLogger("triton_ops")
_NAME = "compile-modes"
_LOSS = "an interrupted comparison will start from the beginning"
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_LINES = 4000


class RunFolder:
    """The files of one comparison.

    Args:
        path: The folder, which need not exist.
        resume: Whether finished modes of an interrupted run count.

    Attributes:
        path: The folder.

    Raises:
        CacheError: Another user could write the folder, or put another one in its place.
    """

    def __init__(self, path: Path, *, resume: bool = True) -> None:
        self.path = _judged(path, "--cache-dir")
        if not resume:
            self.remove()
        self._file = AppendedFile(self.path / "modes.jsonl", _LOSS)
        self._found = dict(self._read())

    def finished(self, mode: CompileMode) -> tuple[Loaded, list[str]] | None:
        """What an interrupted run found of a mode when it compiled it, and what the compiler wrote; None if nothing."""
        return self._found.get(_identity(mode))

    def keep(self, mode: CompileMode, loaded: Loaded, lines: list[str]) -> None:
        """Keep what was found of a mode."""
        entry = {"mode": _identity(mode), "loaded": msgspec.to_builtins(loaded), "lines": lines[-_MOST_LINES:]}
        self._file.append(entry)
        self._found[_identity(mode)] = (loaded, lines)

    def of(self, mode: CompileMode) -> Path:
        """The folder of what a mode's compiler makes, judged anew.

        Raises:
            CacheError: Another user could write it by now.
        """
        return _judged(self.path / f"{file_name(mode.name)}-{_identity(mode)[:8]}", "--cache-dir")

    def remove(self) -> None:
        """Remove the folder; it holds only what this comparison and its compilers have put there."""
        shutil.rmtree(self.path, ignore_errors=True)  # follows no link

    def _read(self) -> Iterator[tuple[str, tuple[Loaded, list[str]]]]:
        try:
            for line in whole_lines(self.path / "modes.jsonl"):
                with contextlib.suppress(DamagedError, msgspec.ValidationError, KeyError):
                    entry = unsealed(parsed(line))
                    yield str(entry["mode"]), (msgspec.convert(entry["loaded"], Loaded), list(entry["lines"]))
        except OSError as error:
            _log.warning("%s cannot be read (%s): %s", self.path, error.strerror or error, _LOSS)


@contextlib.contextmanager
def run_folder(cache_dir: Path, key: str, *, resume: bool) -> Iterator[RunFolder]:
    """The folder of a comparison, with its lock: a second comparison with the same key waits, since both would use one.

    Args:
        cache_dir: The folder of this package's files.
        key: What tells this comparison from others.
        resume: Whether finished modes of an interrupted run count.

    Raises:
        CacheError: The folder cannot be made, or there is no folder that only this user can write.
    """
    try:
        path = private_folder((ensure_folder(cache_dir) / _NAME / key).absolute())
    except OSError as error:
        _log.warning("%s keeps no compiled code (%s): %s", error.filename, error.strerror, _LOSS)
        with _temporary_folder() as place:
            yield RunFolder(place)
        return
    wait = "another process compares this model; waiting"
    with locked(path.parent, f"{path.name}.lock", waiting=lambda: _log.warning(wait)):
        yield RunFolder(path, resume=resume)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    place = own_temporary_folder()
    try:
        yield _judged(place, "TMPDIR")
    finally:
        remove_temporary(place)


def _judged(path: Path, named_by: str) -> Path:
    """A folder for compiled code, which is made if it is missing.

    Raises:
        CacheError: Another user could write it, or it cannot be made.
    """
    try:
        return private_folder(path)
    except OSError as error:
        raise CacheError(
            f"{error.filename or path} is not used for compiled code: {error.strerror}",
            hint=f"name another folder with {named_by}",
        ) from error


def key_of(facts: str, device: DeviceSpec, manner: Manner, warm: bool) -> str:
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
