"""The run log that somebody means: by its file, by the start of a run's id, or by a kernel's name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from triton_ops._files import is_file
from triton_ops._paths import expanded
from triton_ops.exceptions import RunLogError
from triton_ops.history.head import Head
from triton_ops.history.run_log import read_head
from triton_ops.history.runs import FOLDER


def find_run(text: str, folder: Path) -> Path:
    """The file of a run.

    Args:
        text: A run log's path; else the start of the ids of runs; else the name of a kernel, whose newest run is meant.
        folder: The cache folder.

    Raises:
        RunLogError: No run is meant, or an id's start is that of several.
    """
    path = expanded(text)
    if is_file(path):
        return path
    if text.endswith(".jsonl") or not text.strip():
        raise RunLogError(f"{text or 'RUN'!s} is no file", hint="give a run log, a run's id, or a kernel's name")
    paths = _newest_first(folder)
    named = [one for one in paths if one.stem.startswith(text)]
    if len(named) > 1:
        raise RunLogError(f"{len(named)} runs have ids that start with {text}", hint=f"the newest is {named[0].stem}")
    found = named[0] if named else next((one for one, head in _heads(paths) if _is_of(head, text)), None)
    if found is None:
        raise _none(text, folder)
    return found


def find_runs_of(kernel: str, folder: Path) -> list[Path]:
    """The newest run of every problem of a kernel, device and cache state, the newest first.

    Raises:
        RunLogError: There is none.
    """
    found: dict[str, Path] = {}
    for path, head in _heads(_newest_first(folder)):
        if _is_of(head, kernel):
            found.setdefault(head.key_id, path)
    if not found:
        raise _none(kernel, folder)
    return list(found.values())


def _none(text: str, folder: Path) -> RunLogError:
    return RunLogError(
        f"{folder / FOLDER} has no run of {text}", hint="`triton-ops show` lists kernels; `triton-ops tune` runs one"
    )


def _newest_first(folder: Path) -> list[Path]:
    """All run logs of a cache folder, by their ids, which begin with the time."""
    try:
        return sorted((folder / FOLDER).glob("*/*.jsonl"), key=lambda path: path.stem, reverse=True)
    except OSError as error:
        raise RunLogError(f"{folder} cannot be read: {error.strerror or error}", hint="name another folder") from error


def _heads(paths: list[Path]) -> Iterator[tuple[Path, Head]]:
    """The first lines of the files; one that is no run log of this version is passed over."""
    for path in paths:
        with contextlib.suppress(RunLogError):
            yield path, read_head(path)


def _is_of(head: Head, text: str) -> bool:
    kernel = head.key.kernel
    return text in (kernel, kernel.rpartition(":")[2]) or (len(text) >= _SHORTEST and head.key_id.startswith(text))


_SHORTEST = 4  # characters of a key's id that tell it from a name
