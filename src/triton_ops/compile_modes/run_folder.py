"""The folder of a comparison: what compilers make during it, and the finished modes, from which it is gone on with.

It is `compile-modes/<key>` in the folder of records. The key is made of the workload's shapes, the device, torch's
version, and how calls are made. When the comparison ends, the folder is removed with all that compilers have put there.
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

from triton_ops._files import AppendedFile, ensure_folder, folder_within, locked, whole_lines
from triton_ops._hashing import fingerprint
from triton_ops._optional import require
from triton_ops._sealed import DamagedError, parsed, unsealed
from triton_ops.compile_modes.questions import Loaded, Manner
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
        cache_dir: The folder of this package's files.
        key: What tells this comparison from others.
        resume: Whether finished modes of an interrupted run count.

    Attributes:
        path: The folder.
    """

    def __init__(self, cache_dir: Path, key: str, *, resume: bool = True) -> None:
        root = ensure_folder(cache_dir)
        self.path = root / _NAME / key
        with contextlib.suppress(OSError):
            folder_within(root, self.path)
        if not resume:
            self.remove()
        self._file = AppendedFile(self.path / "modes.jsonl", _LOSS, root)
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
        """The folder of what a mode's compiler makes."""
        return self.path / f"{file_name(mode.name)}-{_identity(mode)[:8]}"

    def remove(self) -> None:
        """Remove the folder; it holds only what this comparison and its compilers have put there."""
        if self.path.is_dir() and not self.path.is_symlink() and self.path.parent.name == _NAME:
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
def one_at_a_time(cache_dir: Path, key: str) -> Iterator[None]:
    """Hold the lock of a comparison: a second one with the same key waits, since both would use one folder."""
    above = ensure_folder(ensure_folder(cache_dir) / _NAME)
    with locked(above, f"{key}.lock", waiting=lambda: _log.warning("another process compares this model; waiting")):
        yield


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
