"""The run logs that a text means: a path, the start of a run's id, or a kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from triton_ops.base import Folder, StoredFile
from triton_ops.exceptions import RunLogError
from triton_ops.records import Head, Run, Runs, read_head
from triton_ops.settings import expanded
from triton_ops.space import Config
from triton_ops.terminal import folder_of
from triton_ops.values import Problem

_SHORTEST = 4  # characters of a key's id that tell it from a name


def run_named(text: str, folder: Path) -> Path:
    """The file of a run, by its path, the start of its id, or its kernel, whose newest it is; else RunLogError."""
    path = expanded(text)
    if StoredFile(path).exists:
        return path
    if text.endswith(".jsonl") or not text.strip():
        raise RunLogError(f"{text or 'RUN'!s} is no file", hint="give a run log, a run's id, or a kernel's name")
    paths = _newest_first(folder)
    matches = [one for one in paths if one.stem.startswith(text)]
    if len(matches) > 1:
        message = f"{len(matches)} runs have ids that start with {text}"
        raise RunLogError(message, hint=f"write more of the id; the newest is {matches[0].stem}")
    log = matches[0] if matches else next((one for one, head in _heads(paths) if _is_of(head, text)), None)
    if log is None:
        raise _none(text, folder)
    return log


def newest_of(kernel: str, folder: Path) -> list[Path]:
    """The newest run of each problem of a kernel, device and cache state, newest first; RunLogError if none."""
    newest: dict[str, Path] = {}
    for path, head in _heads(_newest_first(folder)):
        if _is_of(head, kernel):
            newest.setdefault(head.key_id, path)
    if not newest:
        raise _none(kernel, folder)
    return list(newest.values())


def times_of(problem: Problem, cache_dir: str | Path | None, arch: str) -> dict[Config, float]:
    """Milliseconds of each config in the newest run of a problem on a GPU of this architecture; empty without one."""
    asked = {name: Problem.plain(argument) for name, argument in problem.arguments}
    with contextlib.suppress(RunLogError):
        for path in newest_of(problem.kernel, folder_of(cache_dir)):
            run = Run.read(path)
            if run.head.key.problem == asked and run.head.key.device.get("arch") == arch:
                return {config: trial.median_ms for config, trial in run.trials.items() if trial.ok}
    return {}


def _none(text: str, folder: Path) -> RunLogError:
    message = f"{folder / Runs.FOLDER} has no run of {text}"
    return RunLogError(message, hint="`triton-ops cache show` lists kernels; `triton-ops tune` runs one")


def _newest_first(folder: Path) -> list[Path]:
    """All run logs of a cache folder, by their ids, which begin with the time."""
    with RunLogError.when(f"{folder} cannot be read", hint="name another folder"):
        paths = sorted((folder / Runs.FOLDER).glob("*/*.jsonl"), key=lambda path: path.stem, reverse=True)
    return [path for path in paths if Folder(path.parent).is_within(folder)]


def _heads(paths: list[Path]) -> Iterator[tuple[Path, Head]]:
    """The first lines of the files; one that is no run log of this version is passed over."""
    for path in paths:
        with contextlib.suppress(RunLogError):
            yield path, read_head(path)


def _is_of(head: Head, text: str) -> bool:
    kernel = head.key.kernel
    return text in (kernel, kernel.rpartition(":")[2]) or (len(text) >= _SHORTEST and head.key_id.startswith(text))
