"""What killed processes of this user have left in a folder, known by its name, its owner and its age."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def left_behind(
    folder: Path, names: re.Pattern[str], is_kind: Callable[[int], bool], older_than_s: float, now_s: float | None
) -> Iterator[Path]:
    """The entries of a folder that this user's processes made and cannot be using any more.

    Args:
        folder: The folder; one that cannot be listed has none.
        names: Matches whole names that no other program gives.
        is_kind: From the mode of an entry to whether it may be one, such as `stat.S_ISREG`; links are not followed.
        older_than_s: Seconds since the last change.
        now_s: Seconds since 1970; None asks the clock.
    """
    oldest_s = (time.time() if now_s is None else now_s) - older_than_s
    try:
        known = [name for name in os.listdir(folder) if names.fullmatch(name)]  # noqa: PTH208 - names only
    except OSError:
        return
    for name in known:
        try:
            found = os.lstat(folder / name)
        except OSError:  # another process removes it
            continue
        if is_kind(found.st_mode) and found.st_uid == os.geteuid() and found.st_mtime < oldest_s:
            yield folder / name
