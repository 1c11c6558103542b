"""Find the records of a command by a kernel's name or the start of an id."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Annotated

import typer

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.base import check_home, is_file
from triton_ops.cli.console import tell
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import RECORDS, DirectoryStore, Record

ID_SHOWN = 8  # hexadecimal digits; equal by chance in one of 10^5 folders of 300 records

Which = Annotated[
    str | None,
    typer.Argument(metavar="KERNEL|ID", help="A kernel's name, or the start of an id.", show_default=False),
]


def folder_of(cache_dir: str | None) -> Path:
    """The folder of records of a command; it need not exist.

    Raises:
        CacheError: The path, or one of its parents, is a file.
    """
    folder = (settings.cache_dir() if cache_dir is None else expanded(cache_dir)).absolute()
    for path in (folder, *folder.parents):
        if is_file(path):
            raise CacheError(f"{folder} cannot be a cache folder: {path} is a file", hint="name another folder")
    return folder


def matching(which: str | None, cache_dir: str | None) -> list[Record]:
    """The records whose kernel is `which`, else those whose id starts with `which`; all for None; newest first.

    A kernel without a name of its own is found by its file too: `work.py:norm` is `work:norm`. Nothing is made or
    changed in the folder.

    Raises:
        SettingsError: `which` is empty, as after an unset shell variable.
        CacheError: The folder cannot be a cache folder, or cannot be read.
    """
    if which is not None and not which.strip():
        raise SettingsError("KERNEL|ID is empty", hint="leave it out for every record")
    records = _all(folder_of(cache_dir))
    if which is not None:
        of_kernel = [record for record in records if record.key.kernel in _names(which)]
        records = of_kernel or [record for record in records if record.id.startswith(which)]
    return sorted(records, key=lambda record: (record.created, record.id), reverse=True)


def _names(which: str) -> set[str]:
    file, colon, name = which.rpartition(":")
    return {which, f"{Path(file).stem}:{name}"} if colon and file.endswith(".py") else {which}


def _all(folder: Path) -> list[Record]:
    check_home(folder)
    store = DirectoryStore(folder, RECORDS, read_only=True)
    if store.reachable:
        return list(store)
    try:
        os.stat(folder)  # noqa: PTH116 - for its error alone
        reason = os.strerror(errno.EACCES)
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = error.strerror or str(error)
    raise CacheError(f"{folder} cannot be read: {reason}", hint="name a folder that you may read")


def nothing_found(which: str | None, cache_dir: str | None) -> str:
    """The message for a `which` without records."""
    return f"there are no records{f' of {which}' if which else ''} in {folder_of(cache_dir)}"


def tell_nothing(which: str | None, cache_dir: str | None) -> None:
    """Write that there are no records, and which command makes them."""
    tell(f"{nothing_found(which, cache_dir)}; `triton-ops tune` makes them")
