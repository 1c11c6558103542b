"""How a file in a folder of this package is opened, and which files are not.

The rule: what lies in a folder is believed if only those whom the folder's owner has admitted could have put it there.

- In a folder that everybody may write, such as one of mode 1777, a file or subfolder must belong to this user, to root,
  or to the folder's owner. In any other folder the owner or the owner's group has placed it, and its owner does not
  matter.
- In a folder that its group or everybody may write, no link is followed. Nothing is ever written through a link, nor,
  in such a folder, to a file that has a second name.
- Only regular files are opened. A FIFO, a device or a socket is refused before it is opened, and could not block.

All refusals are `OSError` with the reason in `strerror`, so that they count as a file that cannot be read or written.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ALWAYS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
}


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """The descriptor of a regular file that the rule of this module lets this process open.

    Args:
        path: The file. Its folder is judged as it stands; see `folder_within` for a folder below another.
        flags: As for `os.open`. With `O_CREAT` a missing file is made.
        mode: Permissions of a file that is made, less the umask.

    Raises:
        OSError: The file cannot be opened, or the rule refuses it.
    """
    folder = os.stat(os.path.dirname(path) or ".")  # noqa: PTH116, PTH120 - the way of every record that is read
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    follow = not writes and not folder.st_mode & _OTHERS
    try:
        _judge(os.stat(path, follow_symlinks=follow), folder, writes)  # noqa: PTH116
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | _ALWAYS | (0 if follow else os.O_NOFOLLOW), mode)
    try:
        _judge(os.fstat(descriptor), folder, writes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def folder_within(root: Path, path: Path) -> Path:
    """`path`, a folder below `root`, after every folder between the two was judged by the rule of this module.

    A folder that does not exist yet is no objection. `root` itself is believed: somebody has chosen it.

    Raises:
        OSError: A part of the way is a link that another user could have placed, is no folder, or belongs to a user who
            is not expected there.
    """
    above, way = os.stat(root), root  # noqa: PTH116 - beside the other calls of `os`
    for name in path.relative_to(root).parts:
        way /= name
        try:
            found = os.stat(way, follow_symlinks=not above.st_mode & _OTHERS)  # noqa: PTH116
        except FileNotFoundError:
            return path
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"it is {kind_of(found)}, not a folder", str(way))
        _judge_owner(found, above, str(way))
        above = found
    return path


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a folder; False too where that cannot be told, for which `Path.is_dir` raises."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a regular file; False too where that cannot be told, for which `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def kind_of(found: os.stat_result) -> str:
    """The kind of a file in words, such as `a FIFO`."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "of a kind without a name")


def may_be_anyones(found: os.stat_result) -> bool:
    """Whether another user than this one and root may open a file, or owns it."""
    return bool(found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)) or found.st_uid not in (os.geteuid(), 0)


def written_by_others(folder: os.stat_result) -> bool:
    """Whether the group of a folder, or everybody, may write the folder."""
    return bool(folder.st_mode & _OTHERS)


def _judge(found: os.stat_result, folder: os.stat_result, writes: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(found)}, not a regular file")
    _judge_owner(found, folder)
    if writes and found.st_nlink > 1 and folder.st_mode & _OTHERS:
        raise PermissionError(errno.EPERM, f"it has {found.st_nlink} names in a folder that others may write")


def _judge_owner(found: os.stat_result, folder: os.stat_result, name: str | None = None) -> None:
    if folder.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), 0, folder.st_uid):
        reason = f"it belongs to user {found.st_uid}, in a folder that everybody may write"
        raise PermissionError(errno.EPERM, reason, name)
