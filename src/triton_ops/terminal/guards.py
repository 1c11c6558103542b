"""Guards of what a command touches: its folder of records, its stdout while code of others runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from triton_ops import settings
from triton_ops.base import CodeFolder, StoredFile
from triton_ops.exceptions import CacheError
from triton_ops.settings import expanded


@contextlib.contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Inside the block, the output of a target, a compiler or their processes goes to stderr.

    From its beginning Triton and torch load no compiled code in this process that another user could have written.
    """
    for variable, (folder, name) in settings.code_folders().items():
        if (own := CodeFolder(folder).trusted(name)) != folder:
            settings.set_folder(variable, str(own))
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # if one of the two is closed, nothing needs to be redirected
            stdout = os.dup(1)
            stack.callback(os.close, stdout)
            os.dup2(2, 1)
            stack.callback(os.dup2, stdout, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def folder_of(cache_dir: str | Path | None) -> Path:
    """The folder of records of a command, which need not exist; `CacheError` if the path or a parent is a file."""
    folder = (settings.cache_dir() if cache_dir is None else expanded(cache_dir)).absolute()
    for path in (folder, *folder.parents):
        if StoredFile(path).exists:
            raise CacheError(f"{folder} cannot be a cache folder: {path} is a file", hint="name another folder")
    return folder
