"""Files, whether they lie in the folders of this package or a person has named them on the command line or in a call.

Those of this package are opened by the rule of `folders`. A person names any path that this user may open: links are
followed, save those that another user has planted. What is no regular file is written to or read from where that makes
sense, as with `/dev/stdout` and pipes, and is refused otherwise; nothing is ever put in its place.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triton_ops.base.folders import MOST_LINKS, OTHERS, Folder, flags, kind_of, open_regular, sync, sync_folder, user
from triton_ops.base.plain import Sealed
from triton_ops.base.texts import storable
from triton_ops.exceptions import CacheError

LONGEST_LINE_BYTES = 4 << 20  # a trial's line has about 1 KB, a head's with 10,000 listed configs about 1 MB
LARGEST_LOG_BYTES = 1 << 30  # an exhaustive run of 10^6 configs
_LARGEST_SEALED_BYTES = 64 << 20
_LAST_BYTES = 64 << 10  # read first from the end; a last line with its record has some KB


class StoredFile:
    """A file in a folder of this package, by its path; it need not exist. The rule of `folders` is kept."""

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """True if the path leads to a regular file; False where that cannot be told: `Path.is_file` raises."""
        return os.path.isfile(self.path)  # noqa: PTH113

    @property
    def state(self) -> tuple[int, ...]:
        """Numbers that change when the file is written or replaced; empty where there is no regular file."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - a third of the time of `Path.stat`
        except OSError:
            return ()
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return numbers if stat.S_ISREG(status.st_mode) else ()

    def read(self, limit_bytes: int = LARGEST_LOG_BYTES) -> bytes:
        """The content; OSError if the rule refuses the file, or it is larger."""
        descriptor = open_regular(self.path)
        try:
            return read_all(descriptor, limit_bytes)
        finally:
            os.close(descriptor)

    def holds(self, content: bytes) -> bool:
        """True if it has exactly this content, which was read and judged before.

        Cost: about 10 µs, since the file is opened without being asked what it is. What is no regular file has other
        content, and blocks nothing.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _OPEN)
        except OSError:
            return False
        try:
            return os.read(descriptor, len(content) + 1) == content
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def lines(self, limit_bytes: int = LARGEST_LOG_BYTES) -> Iterator[bytes]:
        """The lines that end in a line break, without it; none if the file is missing.

        A last line without a line break was torn by a killed writer, and is left out. Of a line that is longer than any
        writer's only the beginning is given, so that it is no line of any kind. OSError as of `read`.
        """
        try:
            descriptor = open_regular(self.path)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size > limit_bytes:
                raise _too_large(limit_bytes)
            while line := file.readline(LONGEST_LINE_BYTES):
                ended = line.endswith(b"\n")
                rest = line
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(LONGEST_LINE_BYTES)
                if rest and line != b"\n":
                    yield line[:-1] if ended else line

    def last_line(self) -> bytes:
        """The last line that ends in a line break, read from the end; empty if there is none."""
        with contextlib.suppress(FileNotFoundError), os.fdopen(open_regular(self.path), "rb") as file:
            size, length = file.seek(0, os.SEEK_END), _LAST_BYTES
            while True:
                file.seek(max(size - length, 0))
                lines = file.read(length).split(b"\n")[:-1]
                whole = lines if length >= size else lines[1:]
                if any(whole) or length >= min(size, LONGEST_LINE_BYTES):
                    return next((line for line in reversed(whole) if line), b"")
                length *= 8
        return b""

    def replace(self, content: str | bytes, like: os.stat_result | None = None) -> None:
        """Replace the content, text as UTF-8. A reader sees the old file or the new one, never a part.

        It is on disk before the name points to it, and so is the name when this returns. A failure leaves the old file,
        and no other. A link is replaced, and not followed. The new file has the permissions of `like` and, where this
        user may set them, its owner and group; None obeys the umask.
        """
        # Files of `tempfile` can be read by their owner only, but a cache that root has made serves other users too.
        path = Path(self.path)
        fresh = path.with_name(f".{path.name}-{os.urandom(8).hex()}.tmp")
        try:
            # With `x` no link is followed that somebody has put there under this name.
            with fresh.open("xb") as file:
                if like is not None:
                    _make_like(file.fileno(), like)
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                sync(file.fileno())
            fresh.replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                fresh.unlink()
            raise
        sync_folder(path.parent)


def _make_like(descriptor: int, like: os.stat_result) -> None:
    if not hasattr(os, "fchown"):  # Windows gives a new file the permissions of its folder
        return
    with contextlib.suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, like.st_uid, like.st_gid)
    # In this order, since Linux takes set-user bits from a file that changes its owner.
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def read_all(descriptor: int, limit_bytes: int, first: bytes = b"") -> bytes:
    """The bytes of a descriptor until its end, after its `first`; OSError if all are more than `limit_bytes`."""
    size = os.fstat(descriptor).st_size
    parts, remainder = [first], limit_bytes + 1 - len(first) if size <= limit_bytes else 0
    # Pipes and files of `/proc` say that they have 0 bytes.
    while remainder > 0 and (part := os.read(descriptor, min(remainder, max(size + 1, 1 << 16)))):
        parts.append(part)
        remainder -= len(part)
    if remainder <= 0:
        raise _too_large(limit_bytes)
    return b"".join(parts)


def _too_large(limit_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes, the most that is read")


def append_line(path: Path, line: str, durable: bool = True) -> None:
    """Append one line to `path`; with `durable` the line is on disk when this returns.

    If the file ends in a torn line of a killed writer, a line break is written before the new line. OSError: the part
    that was written is a torn last line.
    """
    if "\n" in line:
        raise ValueError("a line cannot contain a line break")
    content = line.encode() + b"\n"
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b") as file:
        torn, fresh = False, file.seek(0, os.SEEK_END) == 0
        if not fresh:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        # In one write, since with `O_APPEND` the lines of several processes then stay apart.
        file.write((b"\n" if torn else b"") + content)
        file.flush()
        if durable:
            sync(file.fileno())
    if durable and fresh:  # its name is new, too
        sync_folder(path.parent)


class AppendedFile:
    """A file of JSON lines, each with its checksum, to which entries are appended; a failed write is a warning.

    Its folder is made with the first line; without a path nothing is written. The loss is the consequence of a file
    that cannot be written, for the warning. The root is the cache folder that holds the file; the folders between are
    judged before the first line is written. None where the file's own folder was chosen by somebody. With `gaps`
    entries may be written after one that could not be; else nothing further is, since a file with a gap would be worse
    than one that ends.
    """

    def __init__(self, path: Path | None, loss: str, root: Path | None = None, *, gaps: bool = False) -> None:
        self.path = path
        self._loss, self._root, self._gaps = loss, root, gaps
        self._broken = False

    @property
    def written(self) -> Path | None:
        """The file that others can read; None if there is none, or a line was lost."""
        return None if self._broken else self.path

    @staticmethod
    def append_at(path: Path, size: int, content: bytes) -> bool:
        """Append bytes, on disk when this returns, to a file of so many bytes; False if it has another size."""
        try:
            descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            file.write(content)
            file.flush()
            sync(file.fileno())
        return True

    def append(self, entry: Mapping[str, Any], durable: bool = True) -> None:
        """Append an entry as one line; with `durable` it is on disk when this returns."""
        if (self._broken and not self._gaps) or self.path is None:
            return
        try:
            Folder(self.path.parent).ensure(self._root)
            append_line(self.path, _text(entry), durable)
            self._broken = False
        except (OSError, CacheError) as error:
            warned, self._broken = self._broken, True
            reason = getattr(error, "strerror", None) or error
            import logging  # it takes 4 ms, as in `warn`

            level = logging.DEBUG if warned else logging.WARNING
            logging.getLogger("triton_ops").log(level, "%s cannot be written (%s): %s", self.path, reason, self._loss)


def _text(entry: Mapping[str, Any], indent: int | None = None) -> str:
    """The sealed text of an entry. What JSON cannot hold, as half of a character in a message, is replaced."""
    try:
        text = json.dumps(Sealed(entry), ensure_ascii=False, allow_nan=False, indent=indent)
        text.encode()
    except ValueError:
        text = json.dumps(Sealed(storable(entry)), ensure_ascii=False, allow_nan=False, indent=indent)
    return text


class SealedFile:
    """A file that holds one value as JSON with its checksum, by its path; it need not exist.

    The folders between `root` and the file are judged by the rule of `folders`; None where somebody has chosen the
    file's own folder.
    """

    def __init__(self, path: Path, root: Path | None = None) -> None:
        self.path, self._root = path, root or path.parent

    def read(self, kind: Any = dict[str, Any], limit_bytes: int = _LARGEST_SEALED_BYTES) -> Any:
        """The value, of this type; OSError: it cannot be read, was damaged, or is too large or of another type."""
        Folder(self.path.parent).within(self._root)
        return Sealed.typed(Sealed.read(StoredFile(self.path).read(limit_bytes)), kind)

    def write(self, content: Mapping[str, Any]) -> None:
        """Put an object in its place, as a whole or not at all, and make its folder; CacheError if it cannot be."""
        with CacheError.when(f"{self.path} cannot be written", "name a folder that can be written"):
            Folder(self.path.parent).ensure(Folder(self._root).ensure())
            Folder(self.path.parent).sweep(only=self.path.name)
            StoredFile(self.path).replace(f"{_text(content, 2)}\n")

    def keep(self, content: Mapping[str, Any]) -> None:
        """As `write`; nothing is kept where that cannot be."""
        with contextlib.suppress(CacheError):
            self.write(content)


LARGEST_NAMED_BYTES = 1 << 30
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_MOST_STRANGE = 0.1  # of the characters of a text: a log may hold some bytes of another encoding
_OPEN = flags("NONBLOCK", "NOCTTY")  # a FIFO could block, and a terminal become that of this process
_DESCRIPTOR = r"/(?:dev|proc/(?:self|\d+))/fd/(\d+)"
_SMALL_BYTES = 4 << 20
_DENSEST = 64  # JSON of this package shrinks to a tenth or a thirtieth
_MOST_UNPACKED_BYTES = 1 << 30


class NamedFile:
    """A file that a person has named, wherever it is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """True if the path leads to a regular file; False where that cannot be told."""
        return StoredFile(self.path).exists

    def read(self, limit_bytes: int = LARGEST_NAMED_BYTES, *, unpack: bool = False) -> bytes:
        """The content of a regular file or of a pipe; to `unpack` is to make UTF-8 of gzipped data and of UTF-16 too.

        OSError: it is larger than `limit_bytes`, is a device, a socket or a folder, or is a FIFO to which no process
        writes.
        """
        # Before, since a device may act when it is opened, and again after, since another file may be there by then.
        _refuse_others(os.stat(self.path))  # noqa: PTH116 - beside the other calls of `os`
        descriptor = os.open(self.path, os.O_RDONLY | _OPEN)
        try:
            status = os.fstat(descriptor)
            _refuse_others(status)
            content = (_read_pipe if stat.S_ISFIFO(status.st_mode) else read_all)(descriptor, limit_bytes)
        finally:
            os.close(descriptor)
        return _in_utf8(unpacked(content)) if unpack else content

    def text(self, limit_bytes: int = LARGEST_NAMED_BYTES) -> str:
        """The content as text, unpacked; OSError as of `read`, and if it is no text."""
        text = self.read(limit_bytes, unpack=True).decode("utf-8", "replace")
        if "\0" in text or text.count("\N{REPLACEMENT CHARACTER}") > _MOST_STRANGE * len(text):
            raise OSError(errno.EINVAL, "it is no text: packed data, or of another encoding than UTF-8 and UTF-16")
        return text

    def parsed(self, limit_bytes: int = LARGEST_NAMED_BYTES) -> dict[str, Any]:
        """The JSON object in it; OSError as of `read`, and if it holds none."""
        return Sealed.parsed(self.read(limit_bytes))

    def write(self, content: str | bytes) -> None:
        """Write it, text as UTF-8.

        A regular file is replaced as a whole and keeps its permissions; of a link, the file at its end is. A FIFO that
        is being read, a terminal and another character device are written to. OSError: it is a folder, a block device
        or a socket, a FIFO that no process reads, or a link that another user has put into a folder that others may
        write; or its name is `-`.
        """
        if str(self.path) == "-":  # elsewhere it means the output; a file of this name would surprise
            raise OSError(errno.EINVAL, "it is no file's name here: the standard output is /dev/stdout")
        data = content.encode("utf-8") if isinstance(content, str) else content
        target = _end_of_links(self.path)
        try:
            status = os.stat(target)  # noqa: PTH116 - beside the other calls of `os`
        except FileNotFoundError:
            _replace(target, data, None)
            return
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if re.fullmatch(_DESCRIPTOR, str(target)) or stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
            _write_into(target, data)
        elif stat.S_ISREG(status.st_mode):
            _replace(target, data, status)
        else:
            raise OSError(errno.EINVAL, f"it is {kind_of(status)}, which cannot hold a file")


def _in_utf8(content: bytes) -> bytes:
    """Text of UTF-16, as shells of Windows write it, as UTF-8; without the mark of its encoding."""
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)
    return content if encoding is None else content.decode(encoding, "replace").encode("utf-8")


def unpacked(content: bytes) -> bytes:
    """Gzipped bytes, unpacked up to 4 MiB or 64 times their size, and to 1 GiB, else OSError; others as they are."""
    if content[:2] != b"\x1f\x8b":
        return content
    import gzip  # few files are packed, and a launch reads none of them
    import zlib

    # A text of a few KB could unpack to a thousand times its size.
    most = min(max(_SMALL_BYTES, _DENSEST * len(content)), _MOST_UNPACKED_BYTES)
    try:
        with gzip.open(io.BytesIO(content)) as file:
            whole = file.read(most + 1)
    except EOFError as error:
        raise OSError(errno.EINVAL, "its gzip data are cut off") from error
    except (OSError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"its gzip data are damaged: {error}") from error
    if len(whole) > most:
        raise OSError(errno.EINVAL, f"its gzip data unpack to more than {most} bytes")
    return whole


def _refuse_others(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")


def _read_pipe(descriptor: int, limit_bytes: int) -> bytes:
    """The bytes of a pipe until its last writer closes it; who has no writer at all is not waited for."""
    try:
        # Without a writer this is the end of the file at once; with one that has written nothing, it would block.
        first = os.read(descriptor, min(limit_bytes, 1 << 16))
    except BlockingIOError:
        first = b""
    else:
        if not first:
            raise OSError(errno.EPIPE, "it is a FIFO that no process writes to")
    os.set_blocking(descriptor, True)
    return read_all(descriptor, limit_bytes, first)


def _end_of_links(path: Path) -> Path:
    """The path after its links were followed, as far as one of `/dev/fd`; its folders may be links too."""
    for _ in range(MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        path = folder / path.name
        if re.fullmatch(_DESCRIPTOR, str(path)) or not path.is_symlink():
            return path
        above, link = folder.stat(), path.lstat()
        if above.st_mode & OTHERS and link.st_uid not in (user(), 0):
            raise PermissionError(errno.EPERM, f"it is a link of user {link.st_uid} in a folder that others may write")
        path = folder / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _replace(target: Path, data: bytes, status: os.stat_result | None) -> None:
    Folder(target.parent).sweep(only=target.name)
    StoredFile(target).replace(data, like=status)


def _write_into(target: Path, data: bytes) -> None:
    """Write into what is no regular file, or into an open descriptor of this process."""
    number = re.fullmatch(_DESCRIPTOR, str(target))
    try:
        # A number is duplicated: opened anew by its path, a file would be written from its beginning.
        descriptor = os.dup(int(number[1])) if number else os.open(target, os.O_WRONLY | _OPEN)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a FIFO that no process reads") from error
        raise
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        # Whoever else holds an open descriptor, such as a shell, shares its flags: those stay as they are.
        if not number:
            os.set_blocking(descriptor, True)
        remainder = memoryview(data)
        while remainder:
            remainder = remainder[file.write(remainder) or 0 :]
