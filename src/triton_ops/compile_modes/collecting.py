"""The folder in which each mode's log and the traces of its compiler are kept.

A mode's part of it holds one run: graphs of two runs side by side would be taken for graphs of one model. A list beside
them says of which comparison they are, and what each file held. Only what is listed, and holds that still, is replaced
by a later run; where anything else lies among the traces, nothing is collected. What an interrupted run has collected
of a mode stays when the same comparison goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triton_ops._files import ensure_folder, folder_within, read_named, write_named
from triton_ops._sealed import DamagedError, parsed, sealed, unsealed
from triton_ops.compile_modes.run_folder import file_name
from triton_ops.exceptions import SettingsError
from triton_ops.inductor.modes import CompileMode

_LOG = "log.txt"
_TRACES = "torch_compile_debug"  # as torch names it
_LIST = "collected.json"


@dataclass(frozen=True)
class _Earlier:
    """What an earlier run has collected: of which comparison, hashes of all files, and the files that are there."""

    comparison: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    there: tuple[str, ...] = ()


class Collection:
    """What is collected of each mode.

    Args:
        folder: The folder; None collects nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def check(self, modes: Sequence[CompileMode]) -> None:
        """Find out whether there is room for these modes.

        Raises:
            SettingsError: Something is in the way that no run has put there.
        """
        for own in filter(None, map(self._own, modes)):
            _earlier(own)

    def holds(self, mode: CompileMode, comparison: str) -> bool:
        """Whether nothing is to be collected of a mode that a run of the comparison has finished."""
        if (own := self._own(mode)) is None:
            return True
        earlier = _earlier(own)
        return earlier.comparison == comparison and {*earlier.files} <= {*earlier.there}

    def variables(self, mode: CompileMode, place: Path) -> dict[str, str]:
        """Variables by which the compiler of a mode writes its traces into a folder of the comparison's own."""
        if self._own(mode) is None:
            return {}
        return {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(place.absolute())}

    def keep(self, mode: CompileMode, comparison: str, lines: Sequence[str], place: Path) -> str:
        """Put the log of a mode, and the traces that its compiler has written, where an earlier run's were.

        Returns:
            What was replaced, in words; empty if nothing was.

        Raises:
            SettingsError: Something is in the way that no run has put there, or cannot be removed.
        """
        if (own := self._own(mode)) is None:
            return ""
        write_named(ensure_folder(place) / _LOG, "".join(f"{line}\n" for line in lines))
        replaced = _remove(own)
        files = {name: _hash(place / name) for name in _files(place)}
        write_named(ensure_folder(own) / _LIST, json.dumps(sealed({"comparison": comparison, "files": files})))
        for name in files:
            ensure_folder((own / name).parent)
            write_named(own / name, read_named(place / name))
        return f"replaces what an earlier run collected in {own}: {', '.join(replaced)}" if replaced else ""

    def _own(self, mode: CompileMode) -> Path | None:
        return None if self._folder is None or mode.eager else self._folder / file_name(mode.name)


def _earlier(own: Path) -> _Earlier:
    try:
        folder_within(own.parent, own)
    except FileNotFoundError:
        return _Earlier()
    except OSError as error:  # such as a link of another user's, behind which somebody's files lie
        raise SettingsError(f"{own} is not collected into: {error.strerror}", hint="name another folder") from error
    there = tuple(_files(own))
    comparison, files = "", {}
    with contextlib.suppress(OSError, DamagedError, KeyError, TypeError, ValueError):  # then nothing is listed
        content = unsealed(parsed(read_named(own / _LIST)))
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
    there = _earlier(own).there
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
    """What lies where a run collects, folders left out; no link is followed."""
    for path in (own / _LOG, own / _LIST, own / _TRACES, *(own / _TRACES).rglob("*")):
        if path.is_symlink() or path.is_file() or (path.exists() and not path.is_dir()):
            yield str(path.relative_to(own))


def _hash(path: Path) -> str:
    """A hash of a regular file's content; empty for anything else."""
    if path.is_symlink() or not path.is_file():
        return ""
    return hashlib.sha256(read_named(path)).hexdigest()
