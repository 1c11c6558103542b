"""Paths as people write them."""

from __future__ import annotations

import os
from pathlib import Path

from triton_ops.exceptions import SettingsError


def expanded(path: str | os.PathLike[str], source: str = "") -> Path:
    """The path with `~` and `~USER` expanded; `source` is the variable that holds it, for the message.

    Raises:
        SettingsError: There is no such user, or the user has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        subject = f"{source} is " if source else ""
        raise SettingsError(
            f"{subject}{os.fspath(path)!r}: {Path(path).parts[0]} has no home folder here", hint="write the whole path"
        ) from error
